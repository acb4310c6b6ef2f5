"""Finished runs, read from their folders: what they were, how they compare, how they look."""
