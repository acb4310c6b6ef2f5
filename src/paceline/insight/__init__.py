"""Benchmarks, the self-test, training over several seeds, and comparison of finished runs."""
