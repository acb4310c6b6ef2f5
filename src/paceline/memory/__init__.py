"""Shared memory: who owns which bytes."""
