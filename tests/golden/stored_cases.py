"""The configs whose weights hashes and checkpoints are stored under `tests/golden/stored`: plain data.

Every case names only settings of the command line, so that it survives a change of everything inside, and every setting
whose default has changed since it was stored (ADR 0029).
A case keeps its meaning for good: to test something else, add a case, and run `make golden`.
"""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]

COMMON: Settings = {"n_envs": 8, "group_size": 2, "hidden_sizes": [16, 16], "n_eval_episodes": 0, "seed": 11}

PPO: Settings = {
    "algo": "ppo",
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "learning_rate": 3e-4,
    "normalize_reward": False,
    "grad_shards": 2,
    "total_timesteps": 512,
}
DQN: Settings = {
    "algo": "dqn",
    "n_steps": 8,
    "batch_size": 16,
    "learning_rate": 1e-3,
    "lr_schedule": "constant",
    "multi_step": 1,
    "learning_starts": 64,
    "target_update": 7,
    "exploration_fraction": 0.2,
    "buffer_size": 400,
    "samples_per_insert": 2.0,
    "total_timesteps": 512,
}
ASYNC: Settings = {"n_steps": 8, "total_timesteps": 512}
IMAGES: Settings = {"env": "tests.games:Dots", "n_envs": 4, "n_steps": 6, "total_timesteps": 72}
LEAGUE: Settings = {
    "env": "paceline/TicTacToe-v0",
    "opponents": {"random": 0.2, "minimax": 0.2, "self": 0.6},
    "snapshot_every": 10,
    "pool_size": 4,
}
CARTPOLE: Settings = {"env": "CartPole-v1"}

CASES: dict[str, Settings] = {
    "ppo": {**PPO, **CARTPOLE},
    "ppo_one_shard": {**PPO, **CARTPOLE, "grad_shards": 1},
    "ppo_defaults": {
        "algo": "ppo",
        **CARTPOLE,
        "n_envs": 16,
        "group_size": None,
        "n_steps": 64,
        "batch_size": 1024,
        "n_epochs": 4,
        "learning_rate": 3e-4,
        "normalize_reward": False,
        "total_timesteps": 2048,
    },
    "ppo_linear_lr": {**PPO, **CARTPOLE, "lr_schedule": "linear", "ent_coef": 0.01, "normalize_advantage": False},
    "ppo_relu_torch": {**PPO, **CARTPOLE, "activation": "relu", "learner_threads": 2},
    "ppo_native_vector": {**PPO, **CARTPOLE, "native_vector": "always"},
    "ppo_box_normalised": {
        **PPO,
        "env": "tests.games:Drift",
        "normalize_obs": True,
        "normalize_reward": True,
        "target_kl": 0.02,
        "clip_range_vf": 0.2,
    },
    "ppo_multi_discrete": {**PPO, "env": "tests.golden.stored_toys:Dials", "activation": "elu"},
    "ppo_dict_masks": {**PPO, "env": "tests.games:Cards", "ent_coef": 0.01},
    "ppo_own_module": {**PPO, **CARTPOLE, "policy": "tests.golden.stored_toys:OwnNet"},
    "ppo_nature_cnn": {**PPO, **IMAGES, "policy": "nature_cnn", "batch_size": 12, "n_epochs": 1},
    "ppo_impala_cnn": {**PPO, **IMAGES, "policy": "impala_cnn", "frame_stack": 2, "batch_size": 24, "n_epochs": 1},
    "ppo_frame_stack_wrapper": {
        **PPO,
        **CARTPOLE,
        "frame_stack": 3,
        "wrappers": ["tests.golden.stored_toys:Halved"],
    },
    "ppo_extras_shaper": {
        **PPO,
        "env": "tests.simulator:Simulator",
        "shaper": "tests.simulator:Travelled",
        "shaper_kwargs": {"weight": 0.5},
    },
    "ppo_env_threads": {**PPO, **CARTPOLE, "env_threads": 8, "seed": 12},
    "ppo_central": {**PPO, **CARTPOLE, "inference": "central", "inference_groups": 1, "seed": 13},
    "ppo_pipeline": {**PPO, **CARTPOLE, "pipeline": True},
    "ppo_pipeline_normalised": {
        **PPO,
        "env": "tests.games:Drift",
        "pipeline": True,
        "normalize_obs": True,
        "normalize_reward": True,
    },
    "ppo_league": {**PPO, **LEAGUE, "opponent_sampling": "hardest"},
    "ppo_pipeline_league": {**PPO, **LEAGUE, "pipeline": True, "opponent_sampling": "recent"},
    "ppo_ludo_net": {
        **PPO,
        "env": "paceline/Ludo-v0",
        "opponents": {"random": 0.5, "heuristic": 0.5},
        "policy": "paceline.envs.games.ludo_net:LudoNet",
    },
    "ppo_network_defence": {
        **PPO,
        "env": "paceline/NetworkDefence-v0",
        "env_kwargs": {"red_agent": "meander", "max_steps": 30, "rules": "leaderboard-2022"},
        "normalize_reward": True,
    },
    "ppo_workflow_defence": {
        **PPO,
        "env": "paceline/NetworkDefence-v0",
        "shaper": "paceline.envs.cyber.workflow:Alignment",
    },
    "dqn": {**DQN, **CARTPOLE},
    "dqn_episodes": {**DQN, **CARTPOLE, "n_steps": None, "episodes_per_batch": 2, "samples_per_insert": None},
    "dqn_plain": {**DQN, **CARTPOLE, "double": False, "dueling": False, "loss": "mse", "lr_schedule": "linear"},
    "dqn_prioritised_n_step": {
        **DQN,
        **CARTPOLE,
        "prioritized": True,
        "multi_step": 3,
        "epsilon_decay": 0.9,
        "epsilon_ladder": 3.0,
    },
    "dqn_dict_masks_polyak": {**DQN, "env": "tests.games:Cards", "tau": 0.05},
    "dqn_images": {
        **DQN,
        **IMAGES,
        "policy": "nature_cnn",
        "frame_stack": 2,
        "learning_starts": 24,
        "samples_per_insert": None,
        "learning_steps_per_batch": 2,
    },
    "dqn_shaper": {**DQN, "env": "tests.simulator:Simulator", "shaper": "tests.simulator:Travelled"},
    "dqn_central": {**DQN, **CARTPOLE, "inference": "central", "seed": 13},
    "dqn_league": {**DQN, **LEAGUE, "opponent_sampling": "hardest"},
    "dqn_ludo": {
        **DQN,
        "env": "paceline/Ludo-v0",
        "opponents": {"random": 0.3, "heuristic": 0.3, "self": 0.4},
        "snapshot_every": 1,
        "pool_size": 2,
        "total_timesteps": 1024,  # a game has about 75 decisions: long enough that snapshots are met
    },
    "dqn_connect_four": {**DQN, **LEAGUE, "env": "paceline/ConnectFour-v0", "opponents": {"greedy": 0.4, "self": 0.6}},
    "impala": {**ASYNC, "algo": "impala", **CARTPOLE},
    "impala_masks": {**ASYNC, "algo": "impala", "env": "tests.games:Cards", "vtrace_lambda": 1.0, "ent_coef": 0.01},
    "appo": {**ASYNC, "algo": "appo", **CARTPOLE, "lr_schedule": "linear"},
    "a3c": {**ASYNC, "algo": "a3c", **CARTPOLE},
    "a3c_rmsprop": {**ASYNC, "algo": "a3c", "env": "tests.games:Drift", "optimizer": "rmsprop"},
}
"""Name and settings; None leaves out what a shared part says. Names are keys of `hashes.json`."""

INLINE_ONLY = ("impala", "appo", "a3c")
"""Algorithms whose result depends on timing as soon as there are workers: the hash holds for num_workers=0."""

RESUMED = ("ppo", "ppo_box_normalised", "ppo_pipeline", "ppo_league", "dqn_prioritised_n_step", "dqn_league")
"""Cases that are also stopped in the middle, saved and resumed: the hash must be that of the run without a stop."""

TINY: Settings = {"hidden_sizes": [8], "n_envs": 4, "group_size": 2, "save_freq": 0}
SMALL: Settings = {**TINY, "buffer_size": 160, "learning_starts": 32, "total_timesteps": 160}

CHECKPOINTS: dict[str, Settings] = {
    "ppo_normalised": {**CASES["ppo_box_normalised"], **TINY, "total_timesteps": 128},
    "ppo_mid_episode": {**PPO, **TINY, "env": "Acrobot-v1", "n_steps": 20, "batch_size": 80, "total_timesteps": 160},
    "ppo_pipeline": {**CASES["ppo_pipeline"], **TINY, "total_timesteps": 128},
    "ppo_shaper": {**CASES["ppo_extras_shaper"], **TINY, "total_timesteps": 128},
    "ppo_league": {**CASES["ppo_league"], **TINY, "total_timesteps": 256},
    "ppo_ludo_net": {**CASES["ppo_ludo_net"], **TINY, "total_timesteps": 64},
    "dqn": {**CASES["dqn"], **SMALL},
    "dqn_prioritised": {**CASES["dqn_prioritised_n_step"], **SMALL},
    "dqn_external": {**CASES["dqn"], **SMALL, "seed": 12},
    "dqn_league": {**CASES["dqn_league"], **SMALL},
    "dqn_ludo": {**CASES["dqn_ludo"], **SMALL, "total_timesteps": 480},
    "impala": {**CASES["impala"], **TINY, "total_timesteps": 128},
    "appo": {**CASES["appo"], **TINY, "total_timesteps": 128},
    "a3c": {**CASES["a3c"], **TINY, "total_timesteps": 128},
}
"""Runs whose folders are stored whole: all are stopped at the end of their budget, in the middle of episodes."""

EXTERNAL = ("dqn_external",)
"""Of those, the ones that also learn from transitions given by `add_trajectory`."""
