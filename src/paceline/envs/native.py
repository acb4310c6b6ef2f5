"""The step loop over native vector envs, one per group, in all of Gymnasium's autoreset modes.

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
    """Steps groups of envs, each group with the env's own vector implementation.

    Args:
        setup: The envs.
    """

    def __init__(self, setup: BlockSetup) -> None:
        spec, groups, group_size = setup.spec, setup.groups, setup.group_size
        self.episode = setup.episode
        self._status = WorkerStatus(setup.line, setup.first_env)
        self._seed, self._first_group, self._size = setup.seed, setup.first_group, group_size
        self._actions, self._obs = ActionMap(spec), ObsMap(spec)
        self._columns = [slice(g * group_size, (g + 1) * group_size) for g in range(groups)]
        self.readings = Readings(spec.extras, setup.n, str) if spec.extras else None
        self._readers: list[GroupReader] = []
        self._pending = np.zeros(setup.n, np.bool_)  # envs whose next step only resets them
        self._row = 0
        self._envs: list[VectorEnv[Any, Any, Any]] = []
        try:
            for g in self._status.each(groups, group_size):
                self._envs.append(setup.recipe.make_vector(group_size, who=self._who(g)))
            self._modes = [self._check_env(g, env, spec) for g, env in enumerate(self._envs)]
            if self.readings is not None:
                self._readers = [
                    GroupReader(env, spec.extras, self.readings, self._columns[g], self._who(g))
                    for g, env in enumerate(self._envs)
                ]
        except BaseException:
            self.close()
            raise

    def reset(self, row: Row) -> None:
        """Start the episodes numbered in `episode`; writes `row.obs` and `row.mask`."""
        self._pending.fill(False)
        for g in self._status.each(len(self._columns), self._size):
            columns = self._columns[g]
            seed = group_seed(self._seed, self._first_group + g, int(self.episode[columns].max()))
            obs, infos = self._reset_group(g, seed=seed)
            self._obs.check(obs, infos, self._who(g), (self._size,))
            self._show(obs, infos, columns, row)
            if self._readers:
                self._readers[g].began(infos)
        if self.readings is not None:
            self.readings.show_current(row)
        if row.mask is not None:
            self._obs.check_legal(row.mask, self._first_group * self._size)

    def step(self, action: NDArray[Any], row: Row, after: Row) -> FinalObs:
        """Step every group once; ended envs start their next episode. See `EnvBlock.step`."""
        self._row += 1
        actions = self._actions.batch(action)
        finals: list[tuple[int, dict[str, NDArray[Any]]]] = []
        row.valid[...] = ~self._pending
        row.success.fill(0)
        if self.readings is not None:
            self.readings.before_step()
        for g, (env, mode, columns) in enumerate(zip(self._envs, self._modes, self._columns, strict=True)):
            self._status.at(g * self._size, self._size)
            try:
                obs, row.reward[columns], terminated, truncated, infos = env.step(actions[columns])
                row.terminated[columns], row.truncated[columns] = terminated, truncated
                if (ended := terminated | truncated).any():
                    row.success[columns] = np.where(ended, _successes(infos, mode), 0)
            except Exception as error:
                raise EnvError(
                    f"{self._who(g)} raised in step {self._row} with actions {actions[columns].tolist()}: "
                    f"{describe(error)}. To reproduce: reset(seed="
                    f"{group_seed(self._seed, self._first_group + g)}) and repeat the same actions."
                ) from error
            if self._row <= CHECKED_STEPS:
                self._obs.check(obs, infos, self._who(g), (self._size,))
            self._show(obs, infos, columns, after)
            if self._readers:
                self._read(g, infos, ended)
            if mode is not AutoresetMode.NEXT_STEP:
                finals += self._end_now(g, obs, infos, row, after)
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
            self._obs.check_legal(after.mask, self._first_group * self._size)
        return finals

    def restore(self, histories: Sequence[History], row: Row, _watch: Watch | None = None, /) -> list[int]:
        """Load the pickled groups if all histories have one; otherwise start new episodes in all envs.

        An env of a vector env cannot be replayed without the others.
        """
        if all(histories[columns.start].state for columns in self._columns):
            for g, columns in enumerate(self._columns):
                self._envs[g], self._pending[columns] = cloudpickle.loads(histories[columns.start].state)
            for i, history in enumerate(histories):
                self.episode[i] = history.episode
                history.show(i, row)
            return []
        for i, history in enumerate(histories):
            self.episode[i] = history.episode + 1
        self.reset(row)
        return list(range(len(histories)))

    def dump(self) -> list[bytes]:
        """Pickle the groups; each entry is at the position of the group's first env. See `EnvBlock.dump`."""
        entries = [b""] * len(self.episode)
        for g, columns in enumerate(self._columns):
            entries[columns.start] = pickled((self._envs[g], self._pending[columns]), self._who(g))
        return entries

    def close(self) -> None:
        """Close the envs, also if one of them raises. May be called twice."""
        close_all(self._envs, self._who)

    def _end_now(self, g: int, obs: Any, infos: dict[str, Any], row: Row, after: Row) -> FinalObs:
        """Return the final observations of truncated envs, and reset ended envs in mode DISABLED."""
        columns = self._columns[g]
        ended = row.terminated[columns] | row.truncated[columns]
        if not ended.any():
            return ()
        cut = np.flatnonzero(ended & ~row.terminated[columns])
        if self._modes[g] is AutoresetMode.SAME_STEP:
            return [(columns.start + int(j), self._obs.copy(self._last_obs(g, infos, int(j)))) for j in cut]
        finals = [(columns.start + int(j), self._obs.copy(_pick(obs, int(j)))) for j in cut]
        fresh, infos = self._reset_group(g, options={"reset_mask": ended})
        if self._readers:
            self._readers[g].began(infos, ended)
        self._show(_pick(fresh, ended), infos, columns.start + np.flatnonzero(ended), after, ended)
        return finals

    def _read(self, g: int, infos: dict[str, Any], ended: NDArray[np.bool_]) -> None:
        """Read the extras of a group right after its step."""
        reader, own_reset = self._readers[g], self._modes[g] is AutoresetMode.SAME_STEP
        pending = self._pending[self._columns[g]]
        reader.stepped(infos, ended & ~pending, own_reset=own_reset)
        # Envs that this step only reset are at the start of an episode; so are ended envs in mode SAME_STEP.
        begun = ended if own_reset else pending
        if begun.any():
            reader.began(infos, begun)

    def _last_obs(self, g: int, infos: dict[str, Any], j: int) -> Any:
        """Return the final observation of env j of the group, from an array of observations or from stacked ones."""
        last = infos.get("final_obs")
        given = infos.get("_final_obs")
        if last is None or (given is not None and not given[j]):
            raise EnvError(
                f"{self._who(g)}: SAME_STEP autoreset must provide infos['final_obs'] when an episode ends "
                f"(env {j} of the group was truncated). Use native_vector='never'."
            )
        return _pick(last, j)

    def _show(
        self, obs: Any, infos: dict[str, Any], at: Any, row: Row, chosen: NDArray[np.bool_] | None = None
    ) -> None:
        """Write a group's observations and masks, or only those of the chosen envs."""
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

    def _reset_group(
        self, g: int, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        try:
            return self._envs[g].reset(seed=seed, options=options)
        except Exception as error:
            raise EnvError(f"{self._who(g)} raised in reset(seed={seed}): {describe(error)}.") from error

    def _check_env(self, g: int, env: VectorEnv[Any, Any, Any], spec: EnvSpec) -> AutoresetMode:
        made = EnvSpec.of(env.single_observation_space, env.single_action_space, masked=spec.masked)
        require_same_spaces(made, spec, self._who(g))
        if env.num_envs != self._size:
            raise EnvError(f"{self._who(g)}: must have {self._size} envs (num_envs={env.num_envs}).")
        try:
            return AutoresetMode(env.metadata["autoreset_mode"])
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"{self._who(g)}: metadata['autoreset_mode'] must be one of {[m.value for m in AutoresetMode]} "
                f"(got {env.metadata.get('autoreset_mode')!r}). Use native_vector='never'."
            ) from error

    def _who(self, g: int) -> str:
        group = self._first_group + g
        first = group * self._size
        return f"vector env of group {group} (envs {first}-{first + self._size - 1}, seed {self._seed})"


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
