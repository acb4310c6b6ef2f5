"""The built-in domains, two-player games and network defence: their envs, networks, training, scores and commands."""
