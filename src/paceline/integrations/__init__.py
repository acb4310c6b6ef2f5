"""Adapters for other libraries: stable-baselines3, PettingZoo and CybORG. Nothing imports them by default."""
