"""Algorithms: one file each, and one line in `table`."""
