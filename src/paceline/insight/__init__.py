"""Answers to why it is slow, and how fast it could be."""
