"""Learners, gradients and targets of the algorithms: PPO, IMPALA, APPO, A3C and DQN."""
