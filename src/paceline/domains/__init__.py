"""Games and network defence, each with its envs, networks, training, scores and commands."""
