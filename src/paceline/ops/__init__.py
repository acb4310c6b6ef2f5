"""Pure functions: returns, losses, action distributions, optimisers."""
