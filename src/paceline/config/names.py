"""Other names of settings: those that are accepted, those of other libraries, and those of earlier versions."""

from __future__ import annotations

ALIASES = {
    "num_episodes": "total_episodes",
    "n_timesteps": "total_timesteps",
    "parallel_start_method": "start_method",
    "num_envs": "n_envs",
    "update_steps": "n_steps",
    "lr": "learning_rate",
    "timesteps": "total_timesteps",
    "total_steps": "total_timesteps",
    "workers": "num_workers",
    "envs": "n_envs",
}
"""Other accepted names of a setting."""

FAMILIAR = {
    # stable-baselines3
    "net_arch": "hidden_sizes",
    "activation_fn": "activation",
    "exploration_initial_eps": "epsilon_start",
    "exploration_final_eps": "epsilon_end",
    "target_update_interval": "target_update",
    "train_freq": "n_steps",
    "gradient_steps": "learning_steps_per_batch",
    # CleanRL
    "env_id": "env",
    "num_steps": "n_steps",
    "update_epochs": "n_epochs",
    "clip_coef": "clip_range",
    "norm_adv": "normalize_advantage",
    "anneal_lr": "lr_schedule",
    "start_e": "epsilon_start",
    "end_e": "epsilon_end",
    "target_network_frequency": "target_update",
    "exp_name": "output_dir",
    "cuda": "device",
    # RLlib
    "num_env_runners": "num_workers",
    "num_rollout_workers": "num_workers",
    "num_envs_per_env_runner": "num_envs_per_worker",
    "rollout_fragment_length": "n_steps",
    "sgd_minibatch_size": "batch_size",
    "num_sgd_iter": "n_epochs",
    "num_epochs": "n_epochs",
    "lambda": "gae_lambda",
    "lambda_": "gae_lambda",
    "clip_param": "clip_range",
    "entropy_coeff": "ent_coef",
    "vf_loss_coeff": "vf_coef",
    "grad_clip": "max_grad_norm",
    "kl_target": "target_kl",
    "fcnet_hiddens": "hidden_sizes",
    # others
    "epochs": "n_epochs",
    "steps": "total_timesteps",
    "lam": "gae_lambda",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "rollout_length": "n_steps",
    "replay_size": "buffer_size",
    "eval_interval": "eval_freq",
    "eval_every": "eval_freq",
    "checkpoint_freq": "save_freq",
    "save_every": "save_freq",
    "save_interval": "save_freq",
    "log_dir": "output_dir",
    "save_dir": "output_dir",
}
"""Names from other libraries. They are not accepted; the error text suggests the setting named here."""

ANSWERS = {
    "verbose": "The progress display is on unless quiet is set.",
    "progress_bar": "The progress display is on unless quiet is set.",
    "tensorboard_log": "TensorBoard events are always written to the run folder; output_dir sets that folder.",
    "policy_kwargs": "hidden_sizes, value_hidden_sizes and activation set the MLP; policy=module:Class is your own.",
    "num_minibatches": "batch_size is the size of a minibatch; n_steps * n_envs / batch_size is their number.",
    "train_batch_size": "An update learns from n_steps * n_envs steps, in minibatches of batch_size.",
    "capture_video": "`paceline eval RUN --video FILE` records episodes of a trained agent.",
    "frame_skip": "Repeat actions in a wrapper: wrappers=module:Name. (frame_stack stacks frames.)",
    "max_steps": "total_timesteps is the budget; env_kwargs=max_episode_steps=500 limits an episode.",
}
"""Names from other libraries without a counterpart: the hint of the error text."""

REMOVED = {
    "compile": "compiled gradients ran at 0.83 to 1.03 times the speed of eager mode and took ten seconds to start",
}
"""Settings of earlier versions that are gone, and why. Where one is off, as in old saved configs, it is ignored."""


def removed(given: str) -> str:
    """The error text about a setting of an earlier version."""
    return f"{given}: removed, {REMOVED[canonical(given.lstrip('-'))]}. Leave it out."


def canonical(name: str) -> str:
    """The name of a setting, however it was written."""
    name = name.replace("-", "_")
    return ALIASES.get(name, name)
