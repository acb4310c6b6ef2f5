"""Measures and records a run: time per phase, episodes, resource usage, CSV, TensorBoard, display, videos."""
