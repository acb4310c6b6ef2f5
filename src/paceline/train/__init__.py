"""From a config to a trained policy."""
