"""Where the time went, and what a run leaves behind to read."""
