"""The step loop over native vector envs, in all of Gymnasium's autoreset modes.

Each group has a vector env of its own, unless the vector env says that its envs are the same as single envs: then one
steps all groups of the worker, with the same results, and a step costs one call instead of one per group.

    NEXT_STEP   step t ends the episode, step t+1 only resets: row t+1 has the last real observation and is not valid
    SAME_STEP   step t ends and resets: row t+1 has the new episode, the last real observation is in the infos
    DISABLED    like SAME_STEP, but the block calls `reset` with a mask

All three give the same episodes and the same valid transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from paceline.envs.block import (
    CHECKED_STEPS,
    ActionMap,
    BlockSetup,
    FinalObs,
    History,
    ObsMap,
    Watch,
    close_all,
    pickled,
    require_same_spaces,
)
from paceline.envs.extras import Readings
from paceline.envs.make import describe
from paceline.envs.seeding import group_seed
from paceline.envs.vector_extras import GroupReader
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.memory.worker_status import WorkerStatus
from paceline.spec import FAILED, MASK_KEY, SUCCEEDED, SUCCESS_KEY, EnvSpec


class VectorEnvs:
    """Steps groups of envs with the env's own vector implementation.

    Args:
        setup: The envs.
    """

    def __init__(self, setup: BlockSetup) -> None:
        spec, self._group_size = setup.spec, setup.group_size
        size = setup.n if setup.recipe.one_vector else setup.group_size  # envs of one vector env
        vectors = setup.n // size
        self.episode = setup.episode
        self._status = WorkerStatus(setup.line, setup.first_env)
        self._seed, self._first_group, self._size = setup.seed, setup.first_group, size
        self._actions, self._obs = ActionMap(spec), ObsMap(spec)
        self._columns = [slice(v * size, (v + 1) * size) for v in range(vectors)]
        self.readings = Readings(spec.extras, setup.n, str) if spec.extras else None
        self._readers: list[GroupReader] = []
        self._pending = np.zeros(setup.n, np.bool_)  # envs whose next step only resets them
        self._row = 0
        self._envs: list[VectorEnv[Any, Any, Any]] = []
        try:
            for v in self._status.each(vectors, size):
                self._envs.append(setup.recipe.make_vector(size, who=self._who(v)))
            self._modes = [self._check_env(v, env, spec) for v, env in enumerate(self._envs)]
            if self.readings is not None:
                self._readers = [
                    GroupReader(env, spec.extras, self.readings, self._columns[v], self._who(v))
                    for v, env in enumerate(self._envs)
                ]
        except BaseException:
            self.close()
            raise

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        self._pending.fill(False)
        for v in self._status.each(len(self._columns), self._size):
            columns = self._columns[v]
            obs, infos = self._reset_vector(v, seed=self._reset_seed(v, self.episode))
            self._obs.check(obs, infos, self._who(v), (self._size,))
            self._show(obs, infos, columns, row)
            if self._readers:
                self._readers[v].began(infos)
        if self.readings is not None:
            self.readings.show_current(row)
        if row.mask is not None:
            self._obs.check_legal(row.mask, self._first_group * self._group_size)

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every env once; ended envs start their next episode. See `EnvBlock.step`."""
        self._row += 1
        actions = self._actions.batch(action)
        finals: list[tuple[int, dict[str, NDArray[Any]]]] = []
        row.valid[...] = ~self._pending
        row.success.fill(0)
        if self.readings is not None:
            self.readings.before_step()
        for v, (env, mode, columns) in enumerate(zip(self._envs, self._modes, self._columns, strict=True)):
            self._status.at(v * self._size, self._size)
            try:
                obs, row.reward[columns], terminated, truncated, infos = env.step(actions[columns])
                row.terminated[columns], row.truncated[columns] = terminated, truncated
                if (ended := terminated | truncated).any():
                    row.success[columns] = np.where(ended, _successes(infos, mode), 0)
            except Exception as error:
                raise EnvError(
                    f"{self._who(v)} raised in step {self._row} with actions {actions[columns].tolist()}: "
                    f"{describe(error)}. To reproduce: reset(seed={self._reset_seed(v, np.zeros_like(self.episode))}) "
                    "and repeat the same actions."
                ) from error
            if self._row <= CHECKED_STEPS:
                self._obs.check(obs, infos, self._who(v), (self._size,))
            self._show(obs, infos, columns, after)
            if self._readers:
                self._read(v, infos, ended)
            if mode is not AutoresetMode.NEXT_STEP:
                finals += self._end_now(v, obs, infos, row, after)
        self._status.end()
        if self._pending.any():
            row.reward[self._pending] = 0.0
            row.terminated[self._pending] = False
            row.truncated[self._pending] = False
            row.success[self._pending] = 0
        ended = row.terminated | row.truncated
        self.episode[ended] += 1
        for mode, columns in zip(self._modes, self._columns, strict=True):
            self._pending[columns] = ended[columns] if mode is AutoresetMode.NEXT_STEP else False
        if self.readings is not None:
            self.readings.show(after)
        if after.mask is not None:
            # The mask of an ended episode may be empty, but the policy samples an action in its place as well.
            after.mask[self._pending] = True
            self._obs.check_legal(after.mask, self._first_group * self._group_size)
        return finals

    def restore(self, histories: Sequence[History], row: Row, _watch: Watch | None = None, /) -> list[int]:
        """Load the pickled vector envs if all histories have one; otherwise start new episodes in all envs.

        An env of a vector env cannot be replayed without the others.
        """
        if all(histories[columns.start].state for columns in self._columns):
            for v, columns in enumerate(self._columns):
                self._envs[v], self._pending[columns] = cloudpickle.loads(histories[columns.start].state)
            for i, history in enumerate(histories):
                self.episode[i] = history.episode
                history.show(i, row)
            return []
        for i, history in enumerate(histories):
            self.episode[i] = history.episode + 1
        self.reset(row)
        return list(range(len(histories)))

    def dump(self) -> list[bytes]:
        """Pickle the vector envs; each entry is at the position of its first env. See `EnvBlock.dump`."""
        entries = [b""] * len(self.episode)
        for v, columns in enumerate(self._columns):
            entries[columns.start] = pickled((self._envs[v], self._pending[columns]), self._who(v))
        return entries

    def close(self) -> None:
        """Close the envs, also if one of them raises. May be called twice."""
        close_all(self._envs, self._who)

    def _end_now(self, v: int, obs: Any, infos: dict[str, Any], row: Row, after: Row) -> FinalObs:
        """Return the final observations of truncated envs, and reset ended envs in mode DISABLED."""
        columns = self._columns[v]
        ended = row.terminated[columns] | row.truncated[columns]
        if not ended.any():
            return ()
        cut = np.flatnonzero(ended & ~row.terminated[columns])
        if self._modes[v] is AutoresetMode.SAME_STEP:
            return [(columns.start + int(j), self._obs.copy(self._last_obs(v, infos, int(j)))) for j in cut]
        finals = [(columns.start + int(j), self._obs.copy(_pick(obs, int(j)))) for j in cut]
        fresh, infos = self._reset_vector(v, options={"reset_mask": ended})
        if self._readers:
            self._readers[v].began(infos, ended)
        self._show(_pick(fresh, ended), infos, columns.start + np.flatnonzero(ended), after, ended)
        return finals

    def _read(self, v: int, infos: dict[str, Any], ended: NDArray[np.bool_]) -> None:
        """Read the extras of a vector env right after its step."""
        reader, own_reset = self._readers[v], self._modes[v] is AutoresetMode.SAME_STEP
        pending = self._pending[self._columns[v]]
        reader.stepped(infos, ended & ~pending, own_reset=own_reset)
        # Envs that this step only reset are at the start of an episode; so are ended envs in mode SAME_STEP.
        begun = ended if own_reset else pending
        if begun.any():
            reader.began(infos, begun)

    def _last_obs(self, v: int, infos: dict[str, Any], j: int) -> Any:
        """Return the final observation of env j of a vector env, from an array of observations or from stacked ones."""
        last = infos.get("final_obs")
        given = infos.get("_final_obs")
        if last is None or (given is not None and not given[j]):
            raise EnvError(
                f"{self._who(v)}: SAME_STEP autoreset must provide infos['final_obs'] when an episode ends "
                f"(its env {j} was truncated). Use native_vector='never'."
            )
        return _pick(last, j)

    def _show(
        self, obs: Any, infos: dict[str, Any], at: Any, row: Row, chosen: NDArray[np.bool_] | None = None
    ) -> None:
        """Write the observations and masks of a vector env, or only those of the chosen envs."""
        self._obs.write(obs, at, row.obs)
        if row.mask is None:
            return
        if self._obs.mask_in_obs:
            row.mask[at] = self._obs.mask(obs, infos, (len(row.mask[at]),))
        elif MASK_KEY in infos:
            mask = self._obs.mask(obs, infos, (self._size,))
            row.mask[at] = mask if chosen is None else mask[chosen]
        else:
            row.mask[at] = False  # the check that follows raises, except for ended episodes

    def _reset_seed(self, v: int, episode: NDArray[np.int64]) -> int | list[int]:
        """Return the seed with which a vector env begins these episodes; if it has several groups, one per env."""
        size, columns = self._group_size, self._columns[v]
        seeds = [
            group_seed(self._seed, self._first_group + start // size, int(episode[start : start + size].max()))
            for start in range(columns.start, columns.stop, size)
        ]
        return seeds[0] if len(seeds) == 1 else [seed + i for seed in seeds for i in range(size)]

    def _reset_vector(
        self, v: int, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        try:
            # Gymnasium's vector envs take a list of seeds as well, which the type of their base class leaves out.
            return self._envs[v].reset(seed=seed, options=options)  # type: ignore[arg-type]
        except Exception as error:
            raise EnvError(f"{self._who(v)} raised in reset(seed={seed}): {describe(error)}.") from error

    def _check_env(self, v: int, env: VectorEnv[Any, Any, Any], spec: EnvSpec) -> AutoresetMode:
        made = EnvSpec.of(env.single_observation_space, env.single_action_space, masked=spec.masked)
        require_same_spaces(made, spec, self._who(v))
        if env.num_envs != self._size:
            raise EnvError(f"{self._who(v)}: must have {self._size} envs (num_envs={env.num_envs}).")
        try:
            return AutoresetMode(env.metadata["autoreset_mode"])
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"{self._who(v)}: metadata['autoreset_mode'] must be one of {[m.value for m in AutoresetMode]} "
                f"(got {env.metadata.get('autoreset_mode')!r}). Use native_vector='never'."
            ) from error

    def _who(self, v: int) -> str:
        groups = self._size // self._group_size
        group = self._first_group + v * groups
        first = group * self._group_size
        name = f"group {group}" if groups == 1 else f"groups {group}-{group + groups - 1}"
        return f"vector env of {name} (envs {first}-{first + self._size - 1}, seed {self._seed})"


def _successes(infos: dict[str, Any], mode: AutoresetMode) -> NDArray[np.int8] | int:
    """Return the `Row.success` of envs whose episode has ended: [G], or 0 for all."""
    last = infos.get("final_info", {}) if mode is AutoresetMode.SAME_STEP else infos
    if not isinstance(last, dict) or SUCCESS_KEY not in last:
        return 0
    success = np.where(np.asarray(last[SUCCESS_KEY], np.bool_), SUCCEEDED, FAILED).astype(np.int8)
    return np.where(last.get(f"_{SUCCESS_KEY}", True), success, np.int8(0))


def _pick(obs: Any, index: Any) -> Any:
    """Return the part of one env, or of some envs, of stacked observations."""
    return {key: _pick(value, index) for key, value in obs.items()} if isinstance(obs, dict) else obs[index]
