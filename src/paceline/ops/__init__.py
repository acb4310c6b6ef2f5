"""Pure functions: returns, losses, distributions."""
