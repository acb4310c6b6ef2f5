"""How workers exist: none, processes."""
