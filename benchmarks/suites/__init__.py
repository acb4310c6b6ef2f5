"""The runnable benchmarks; each module answers one question."""
