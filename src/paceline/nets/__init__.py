"""Policy networks, and their fast numpy paths for acting and learning."""
