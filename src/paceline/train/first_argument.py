"""Checks the positional arguments of the Python classes, for users with the habits of stable-baselines3.

There the policy comes first and the env may be an object. Here the env comes first, and workers make their own envs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import gymnasium as gym

from paceline.errors import ConfigError

SB3_POLICIES = {"MlpPolicy": "mlp", "CnnPolicy": "nature_cnn", "MultiInputPolicy": "auto"}
"""Names of stable-baselines3's policies, and the value of `policy` here."""


def env_argument(name: str, arguments: Sequence[object], settings: Mapping[str, object]) -> dict[str, object]:
    """Return the env of a constructor call, as the setting `env`; empty if it was given by keyword.

    Args:
        name: Name of the class.
        arguments: Positional arguments.
        settings: Keyword arguments.

    Raises:
        ConfigError: There is more than one positional argument, or the env or the policy is written as for
            stable-baselines3; says what to write instead.
    """
    env, *others = [*arguments, *([settings["env"]] if "env" in settings else [])] or [None]
    if isinstance(env, str) and env in SB3_POLICIES:
        meant = others[0] if others else "CartPole-v1"
        raise ConfigError(
            f"{name}({env!r}, ...): the env comes first, and the network follows from its observations. Write "
            f"{name}({_as_written(meant)}); policy={SB3_POLICIES[env]!r} or a class of your own sets the network."
        )
    if others:
        raise ConfigError(
            f"{name}: takes one positional argument, the env (got {1 + len(others)}). Name the settings, as in "
            f"{name}({_as_written(env)}, learning_rate=3e-4)."
        )
    if _is_env(env):
        raise ConfigError(
            f"{name}: takes an id or a function that makes envs, not an env (got a {type(env).__name__} object), "
            f"because every worker makes its own. Write {name}({_as_written(env)})."
        )
    policy = settings.get("policy")
    if isinstance(policy, str) and policy in SB3_POLICIES:
        raise ConfigError(
            f"policy={policy!r}: is a name of stable-baselines3. Use {SB3_POLICIES[policy]!r}, or leave it out: auto "
            "chooses by the observations."
        )
    return {"env": env} if arguments else {}


def _is_env(env: object) -> bool:
    """Whether this is an env or a vector env, of Gymnasium or of another library, and not something that makes one."""
    return not isinstance(env, type) and hasattr(env, "reset") and hasattr(env, "step")


def _as_written(env: object) -> str:
    """What to write for an env in the source: its id, or a function that makes it."""
    if isinstance(env, str):
        return repr(env)
    if isinstance(env, gym.Env | gym.vector.VectorEnv):
        return repr(env.spec.id) if env.spec is not None else f"lambda: {type(env.unwrapped).__name__}()"
    return "lambda: MyEnv()"
