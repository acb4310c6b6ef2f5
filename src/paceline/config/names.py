"""Other names of settings: those that are accepted, those of other libraries, and those of earlier versions."""

from __future__ import annotations

ALIASES = {
    "num_episodes": "total_episodes",
    "n_timesteps": "total_timesteps",
    "parallel_start_method": "start_method",
    "num_envs": "n_envs",
    "update_steps": "n_steps",
}
"""Other accepted names of a setting."""

FAMILIAR = {
    "lr": "learning_rate",
    "verbose": "quiet",
    "epochs": "n_epochs",
    "steps": "total_timesteps",
    "timesteps": "total_timesteps",
    "lam": "gae_lambda",
    "clip_coef": "clip_range",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "workers": "num_workers",
    "net_arch": "hidden_sizes",
}
"""Names from other libraries. They are not accepted; the error text suggests the setting named here."""


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
