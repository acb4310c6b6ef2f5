"""`make_sb3_vec`: Paceline's parallel vector env as a stable-baselines3 `VecEnv`, for SB3's own algorithms.

    from paceline.integrations.sb3 import make_sb3_vec
    model = stable_baselines3.PPO("MlpPolicy", make_sb3_vec("CartPole-v1", 8))

Needs the extra `sb3`, which is imported only when a vector env is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode

from paceline.envs.make import Env, EnvSource, EnvWrapper
from paceline.errors import MissingExtra
from paceline.runtime.forkserver import StartMethod
from paceline.vector import asks
from paceline.vector.env import ParallelVectorEnv
from paceline.vector.make import make_vec
from paceline.vector.requests import env_indices
from paceline.vector.seat import Infos

MONITOR = "stable_baselines3.common.monitor:Monitor"


def make_sb3_vec(
    env: EnvSource | Sequence[Callable[[], Env]],
    num_envs: int | None = None,
    num_workers: int | Literal["auto"] = "auto",
    start_method: StartMethod | None = None,
    *,
    seed: int | None = None,
    monitor: bool = True,
    wrappers: Sequence[EnvWrapper] = (),
    **options: Any,
) -> Any:
    """Make an SB3 `VecEnv` whose envs run in worker processes, several envs per process.

    As in SB3's `DummyVecEnv`, `step` raises what an env raises, and the envs are addressed like the entries of a list:
    -1 is the last one.

    Args:
        env: See `make_vec`.
        num_envs: See `make_vec`.
        num_workers: See `make_vec`.
        start_method: See `make_vec`.
        seed: Seed of the first env at the first reset; env i gets `seed + i`.
        monitor: Whether to wrap every env in SB3's `Monitor` (innermost), which SB3 needs to log returns.
        wrappers: Wrappers around each env, innermost first.
        **options: Other arguments of `make_vec`, except `autoreset_mode`, `native_vector` and `copy`.

    Raises:
        MissingExtra: stable-baselines3 is not installed.
        ConfigError: As `make_vec`.
    """
    vec_env_class = _vec_env_class()
    inner = (MONITOR,) if monitor else ()
    vec = make_vec(
        env,
        num_envs,
        num_workers,
        start_method,
        wrappers=(*inner, *wrappers),
        autoreset_mode=AutoresetMode.SAME_STEP,
        native_vector="never",  # SB3 addresses single envs
        **options,
    )
    try:
        wrapped = vec_env_class(vec)
        if seed is not None:
            wrapped.seed(seed)
    except BaseException:
        vec.close()
        raise
    return wrapped


@cache
def _vec_env_class() -> Callable[[ParallelVectorEnv], Any]:
    try:
        from stable_baselines3.common.vec_env.base_vec_env import VecEnv
    except ImportError as error:
        raise MissingExtra("a VecEnv of stable-baselines3", "sb3") from error

    class ParallelVecEnv(VecEnv):  # type: ignore[misc]
        """Implements SB3's VecEnv methods with a ParallelVectorEnv."""

        def __init__(self, vec: ParallelVectorEnv) -> None:
            self.vec = vec
            super().__init__(vec.num_envs, vec.single_observation_space, vec.single_action_space)

        def reset(self) -> Any:
            obs, infos = self.vec.reset_each(self._seeds, [options or None for options in self._options])
            self.reset_infos = [env_infos[0] if env_infos else {} for env_infos in infos]
            self._reset_seeds()
            self._reset_options()
            return obs

        def step_async(self, actions: Any) -> None:
            self.vec.send(actions)

        def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
            obs, rewards, terminated, truncated, all_infos = self.vec.recv_each()
            done = terminated | truncated
            time_limit = (truncated & ~terminated).tolist()
            infos = [_step_info(env_infos, cut) for env_infos, cut in zip(all_infos, time_limit, strict=True)]
            for env in np.flatnonzero(done):
                self.reset_infos[env] = all_infos[env][1]
            return obs, rewards.astype(np.float32), done, infos

        def close(self) -> None:
            self.vec.close()

        def get_images(self) -> Sequence[Any]:
            return self.vec.render()

        def has_attr(self, attr_name: str) -> bool:
            return all(self.vec.ask(partial(asks.has_attr, attr_name)))

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return list(self.vec.ask(partial(asks.get_attr, attr_name), self._ids(indices)))

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            self.vec.ask(partial(asks.put_attr, attr_name, value), self._ids(indices))

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            return list(self.vec.ask(partial(asks.call, method_name, args, kwargs), self._ids(indices)))

        def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
            return list(self.vec.ask(partial(asks.is_wrapped, wrapper_class), self._ids(indices)))

        def _ids(self, indices: Any) -> list[int]:
            return env_indices(self._get_indices(indices), self.num_envs)

    return ParallelVecEnv


def _step_info(env_infos: Infos, cut: bool) -> dict[str, Any]:
    """Convert the infos of one env to SB3's format: the last observation is `terminal_observation`.

    Args:
        env_infos: Infos of the step, followed at the end of an episode by those of the reset.
        cut: Whether the episode was truncated.
    """
    info: dict[str, Any] = {}
    if env_infos and "final_obs" in env_infos[0]:
        info = {**env_infos[0]["final_info"], "terminal_observation": env_infos[0]["final_obs"]}
    elif env_infos:
        info = dict(env_infos[0])
    info["TimeLimit.truncated"] = cut
    return info
