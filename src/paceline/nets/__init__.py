"""Policies, and the fast paths that act with them."""
