"""Shared memory of a run: the arena, and which process owns which bytes."""
