"""Collectors: step the envs with the policy and write the results into slots or into the replay buffer."""
