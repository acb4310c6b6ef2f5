"""`ParallelVectorEnv`: a Gymnasium vector env whose envs live in worker processes, several in each.

    step(actions)              all envs, one wake-up per worker; returns the same as SyncVectorEnv, step for step
    send(actions, ids), recv   some envs; recv returns those that are ready first

Observations, actions, rewards and flags are in shared memory; infos are pickled, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from gymnasium import error as gym_error
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from paceline.envs.env_thread import result_of
from paceline.envs.make import Env
from paceline.errors import PacelineError
from paceline.vector import asks
from paceline.vector.channel import Channel, own_error
from paceline.vector.flights import Flights, by_worker
from paceline.vector.leaves import Path, write_batch
from paceline.vector.requests import checked_ids, masked, seeds_of
from paceline.vector.seat import Infos
from paceline.vector.server import LooseActions, Reset, StepOrder, VectorProgram

StepResult = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
ReadyBatch = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any], NDArray[np.intp]]


class ParallelVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """Steps many envs in worker processes. Made by `make_vec`; not thread-safe.

    If an env raises, the vector env closes and raises the env's exception; its cause is a `WorkerError` (`EnvError`
    with `num_workers=0`) with the worker, the env, the step and the action. If the exception cannot be pickled, or a
    worker dies or hangs, the `WorkerError` itself is raised.

    Args:
        program: The program that workers run.
        channel: The transport to the workers.
        like: The metadata, render mode and spec of a single env.
        copy: Return copies of observations. Otherwise they are views of shared memory, which the next step overwrites.
        why: Reason for the number of workers, for the user.
    """

    def __init__(
        self,
        program: VectorProgram,
        channel: Channel,
        like: tuple[dict[str, Any], str | None, EnvSpec | None],
        *,
        copy: bool,
        why: str,
    ) -> None:
        self.num_envs, self.copy, self.why = program.num_envs, copy, why
        self.num_workers = channel.num_workers
        self.autoreset_mode = program.autoreset_mode
        metadata, self.render_mode, self.spec = like
        self.metadata = {**metadata, "autoreset_mode": program.autoreset_mode}
        self.single_observation_space, self.single_action_space = program.obs.space, program.action.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._channel, self._flights = channel, Flights(channel, self.num_envs)
        self._obs, self._action = program.obs, program.action
        memory = channel.memory
        self._obs_arrays = program.obs.arrays(memory, 0, self.num_envs)
        self._action_arrays = program.action.arrays(memory, 0, self.num_envs)
        self._reward, self._terminated, self._truncated = (
            memory[name] for name in ("reward", "terminated", "truncated")
        )
        self._began, self._all_began = np.zeros(self.num_envs, np.bool_), False
        self._extras = {name: memory[f"extra/{name}"] for name in program.extras}
        self._failure = ""

    # -- Gymnasium's own ------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset every env, or those selected by `options["reset_mask"]`.

        Args:
            seed: Seed of the first env (env i gets `seed + i`), a list with one per env, or None.
            options: Passed to every env's `reset`, without `reset_mask`, a bool array [num_envs].

        Returns:
            Observations of all envs, and the infos of those that were reset.
        """
        envs = self._begin_reset("reset", seed, options)
        self._take(len(envs), "reset")
        return self._show(slice(None)), self._infos(None)

    def step(self, actions: Any) -> StepResult:
        """Take one action in every env. See `gymnasium.vector.VectorEnv.step`.

        Args:
            actions: A batch of the action space, or a list with one action per env. Float actions are converted to the
                dtype of the space: the env gets float32 for float64 if its space is float32.
        """
        self._rest("step")
        self._require_begun(None)
        loose = write_batch(self._action, self._action_arrays, actions, None, self.num_envs)
        if loose:
            self._send_loose(list(range(self.num_envs)), loose)
        else:
            self._flights.send_all()
        self._take(None, "step")
        return (
            self._show(slice(None)),
            self._reward.copy(),
            self._terminated.copy(),
            self._truncated.copy(),
            self._infos(None),
        )

    def extras(self) -> dict[str, NDArray[Any]]:
        """The envs' extras as of the last step or reset, [num_envs, ...] by name.

        They are read from shared memory, without a message. When SAME_STEP autoreset ends an episode, its last extras
        are in `final_info`.
        """
        return {name: values.copy() if self.copy else values for name, values in self._extras.items()}

    def render(self) -> tuple[Any, ...]:
        """Render every env; one frame per env."""
        return self.ask(partial(asks.call, "render", (), {}))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every env, or get an attribute; one result per env."""
        if name in ("reset", "step", "close"):
            raise ValueError(f"call: `{name}` must not be called on single envs. Use `{name}` of the vector env.")
        return self.ask(partial(asks.call, name, args, kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of every env."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every env: a list or tuple has one value per env, any other value goes to all envs."""
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"set_attr: a list must have one value per env ({self.num_envs}; got {len(each)}).")
        self.ask(partial(asks.set_attr, name, each))

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Copies of the envs' random generators."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The envs' seeds."""
        return self.get_attr("np_random_seed")

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002 - Gymnasium's
        """Close the envs and end the workers, even in the middle of a step; returns within seconds."""
        if hasattr(self, "_channel"):
            self._channel.close()

    # -- asynchronous: send and recv ------------------------------------------------------------------------------

    def async_reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Start a reset of every env without waiting; `recv` returns the observations. Arguments as for `reset`."""
        self._begin_reset("async_reset", seed, options)

    def send(self, actions: Any, ids: ArrayLike | None = None) -> None:
        """Start a step of some envs without waiting.

        A worker steps all envs of one `send` together, and they become ready together. For a busy worker the actions
        are queued; they start during a later `recv`, once the worker is idle.

        Args:
            actions: A batch with one action for each of `ids`.
            ids: Env indices in any order, without envs that have a step pending; None for all.
        """
        self._require_open()
        envs = checked_ids(ids, self.num_envs, self._flights.out)
        self._require_begun(envs)
        loose = write_batch(self._action, self._action_arrays, actions, envs, len(envs))
        if ids is None and not loose:
            self._flights.send_all()
            return
        order = np.argsort(envs)
        ascending = envs[order].tolist()
        if loose:
            self._send_loose(ascending, {path: [column[i] for i in order] for path, column in loose.items()})
            return
        self._send_each(ascending, lambda _: None)

    def recv(self, min_ready: int = 1) -> ReadyBatch:
        """Block until at least `min_ready` envs are ready; returns all that are ready then.

        Args:
            min_ready: From 1 to the number of envs with a pending step.

        Returns:
            Observations, rewards, terminations, truncations, infos and ids, in ascending order of ids: the first row
            of everything, and of the arrays in the infos, belongs to `ids[0]`.
        """
        ids = self._recv(min_ready)
        whole = ids[-1] - ids[0] + 1 == len(ids)
        at = slice(ids[0], ids[-1] + 1) if whole else ids
        return *self._results(at), self._infos(ids), np.array(ids, np.intp)

    # -- for adapters ---------------------------------------------------------------------------------------------

    def reset_each(
        self, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> tuple[Any, list[Infos]]:
        """Like `reset`, with options per env; returns the infos per env, not batched."""
        self._rest("reset")
        self._send_reset(list(range(self.num_envs)), list(seeds), list(options))
        self._take(self.num_envs, "reset")
        return self._show(slice(None)), self._infos_each()

    def recv_each(self) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], list[Infos]]:
        """Like `recv` of all envs; returns the infos per env, not batched."""
        self._recv(self.num_envs)
        return *self._results(slice(None)), self._infos_each()

    def ask(self, do: Callable[[Env, int], Any], ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Call `do(env, index)` for each of `ids` (None: all), in the process that owns the env; returns the results.

        cloudpickle serialises the function and its results.
        """
        self._rest("call")
        envs = list(range(self.num_envs)) if ids is None else list(ids)
        try:
            outcomes = self._channel.ask(do, envs)
        except BaseException as error:
            # Ctrl-C leaves replies in the pipes, and the next call would read them as its own.
            if isinstance(error, PacelineError) or not isinstance(error, Exception):
                self._fail(error, "call")
            raise
        return tuple(result_of(outcomes[env]) for env in envs)

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return self._channel.pids()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _recv(self, min_ready: int) -> list[int]:
        """Block until at least `min_ready` envs are ready; returns all that are."""
        self._require_open()
        out = len(self._flights.out)
        if out == 0:
            raise gym_error.NoAsyncCallError("recv: no step is pending. Call `send` or `async_reset` first.", "recv")
        if not 1 <= min_ready <= out:
            raise ValueError(
                f"min_ready={min_ready}: must be from 1 to the number of envs with a pending step ({out})."
            )
        return self._take(min_ready, "step")

    def _begin_reset(
        self, what: str, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> list[int]:
        """Start a reset; returns the envs that are reset."""
        self._rest(what)
        envs, own = masked(options, self.num_envs)
        seeds = seeds_of(seed, self.num_envs)
        self._send_reset(envs, [seeds[env] for env in envs], [own] * len(envs))
        return envs

    def _send_reset(self, envs: list[int], seeds: list[int | None], options: list[dict[str, Any] | None]) -> None:
        self._send_each(envs, lambda places: Reset([seeds[i] for i in places], [options[i] for i in places]))
        self._began[envs] = True
        self._all_began = bool(self._began.all())

    def _send_loose(self, envs: list[int], loose: LooseActions) -> None:
        self._send_each(envs, lambda places: {path: [column[i] for i in places] for path, column in loose.items()})

    def _send_each(self, envs: list[int], order: Callable[[list[int]], StepOrder]) -> None:
        """Send each worker its order. All are pickled first, so that a failure sends none.

        Args:
            envs: The envs, ascending.
            order: Makes a worker's order from the positions of its envs in `envs`.
        """
        shared = by_worker(self._flights.worker_of, envs)
        packed = {worker: self._channel.pack(order(places)) for worker, places in shared.items()}
        for worker, places in shared.items():
            self._flights.send(worker, [envs[place] for place in places], packed[worker])

    def _take(self, at_least: int | None, doing: str) -> list[int]:
        """Block until `at_least` envs are ready and return them; None (after `send_all`) waits for all, returns []."""
        try:
            if at_least is not None:
                return self._flights.take(at_least, doing)
            self._flights.take_all(doing)
            return []
        except BaseException as error:
            # After Ctrl-C workers still finish their steps, and a later `recv` returns them. In this process
            # (num_workers=0) the interrupt cuts a step off, so the envs are in an unknown state: close.
            if isinstance(error, PacelineError) or (self.num_workers == 0 and not isinstance(error, Exception)):
                self._fail(error, doing)
                if (own := own_error(error)) is not None:
                    raise own from error
            raise

    def _fail(self, error: BaseException, doing: str) -> None:
        """Close the vector env and keep the reason for later calls: the state of the envs is unknown."""
        what = str(error).splitlines()[0] if isinstance(error, PacelineError) else f"{type(error).__name__} in {doing}"
        self._failure = f" It was closed because of: {what}"
        self.close()

    def _results(self, at: Any) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Observations, rewards, terminations and truncations of the envs `at`."""
        return self._show(at), np.array(self._reward[at]), np.array(self._terminated[at]), np.array(self._truncated[at])

    def _show(self, at: Any) -> Any:
        """The observations of the envs `at`, as a batch."""
        arrays, loose = self._obs_arrays, self._flights.loose

        def leaf(path: Path) -> Any:
            if path in arrays:
                # Indexing with a list copies already.
                return arrays[path][at].copy() if self.copy and isinstance(at, slice) else arrays[path][at]
            number = self._obs.loose.index(path)
            envs = range(self.num_envs)[at] if isinstance(at, slice) else at
            parts = tuple(loose[env][number] if env in loose else None for env in envs)
            # Values from workers were unpickled, so they are copies already.
            return deepcopy(parts) if self.copy and self.num_workers == 0 else parts

        return self._obs.batch(leaf)

    def _infos(self, ids: list[int] | None) -> dict[str, Any]:
        """The infos of `ids` (None: all envs), batched as Gymnasium does."""
        infos_of = self._flights.infos
        if not infos_of:
            return {}
        batch: VectorEnv[Any, Any, Any] = self
        if ids is not None:
            batch = VectorEnv()
            batch.num_envs = len(ids)
        infos: dict[str, Any] = {}
        for place, env in enumerate(range(self.num_envs) if ids is None else ids):
            for info in infos_of.get(env, ()):
                infos = batch._add_info(infos, info, place)
        return infos

    def _infos_each(self) -> list[Infos]:
        infos_of = self._flights.infos
        return [infos_of.get(env, ()) for env in range(self.num_envs)]

    def _require_begun(self, envs: NDArray[np.intp] | None) -> None:
        if not self._all_began and not (envs is not None and self._began[envs].all()):
            raise gym_error.ResetNeeded("step: an env has not been reset. Call `reset` before the first `step`.")
        if self.autoreset_mode is AutoresetMode.DISABLED:
            ended = self._terminated | self._truncated
            if (ended if envs is None else ended[envs]).any():
                raise gym_error.ResetNeeded(
                    f"step: envs {np.flatnonzero(ended).tolist()[:8]} have ended, and autoreset is disabled. Call "
                    "`reset(options={'reset_mask': mask})` with the envs to reset."
                )

    def _rest(self, what: str) -> None:
        """Raise unless the vector env is open and no step is pending."""
        self._require_open()
        if self._flights.out:
            raise gym_error.AlreadyPendingCallError(
                f"{what}: {len(self._flights.out)} envs have a pending step. Call `recv` first.", what
            )

    def _require_open(self) -> None:
        if self.closed:
            raise gym_error.ClosedEnvironmentError(f"The vector env is closed.{self._failure}")
