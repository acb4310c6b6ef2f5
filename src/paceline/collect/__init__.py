"""Fills slots: envs and policy together, step by step."""
