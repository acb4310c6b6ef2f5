"""Benchmarks of Paceline: run each from the project's root as `python -m benchmarks.suites.NAME`.

This file and `harness/__init__.py` must import nothing: processes with other interpreters load them.
"""
