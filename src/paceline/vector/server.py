"""The envs of one process, and what a worker does at each doorbell wake-up.

    due, actions --> Seat.step / Seat.reset, one after another or in threads --> obs, reward, terminated, truncated
                     infos and variable-size observations --> pickled payload, empty in most steps

Everything of fixed size is read from and written to shared memory.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from time import perf_counter, sleep
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from paceline.envs.block import require_distinct
from paceline.envs.env_thread import TaskOutcome, result_of
from paceline.envs.extras import named_extras
from paceline.envs.make import Env, EnvRecipe, describe
from paceline.envs.step_cost import EnvThreads, threads_for, wait_s
from paceline.errors import EnvError
from paceline.memory.shared import Arrays, Field
from paceline.memory.worker_status import BEAT, heartbeat_field
from paceline.runtime.protocol import Share
from paceline.spec import Extra
from paceline.vector.env_threads import EnvThreadPool
from paceline.vector.leaves import AnySpace, Path, SpaceLeaves, obs_writer
from paceline.vector.seat import Infos, Places, Seat

News: TypeAlias = tuple[int, Infos, tuple[Any, ...]]
"""Data of an env that does not go through shared memory: its index, infos and variable-size observations."""

PRELOAD = (__name__,)
"""Modules that the fork server imports before the first worker starts."""


@dataclass(frozen=True, slots=True)
class Reset:
    """StepOrder: reset the envs marked as due. The lists are in the order of those envs."""

    seeds: list[int | None]
    options: list[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Pretend:
    """StepOrder: simulate a step without touching an env, to measure the wake-up overhead (`choose.hand_over_s`)."""

    seconds: float
    waits: bool
    """Sleep instead of computing."""

    def __call__(self) -> None:
        """Sleep or busy-wait for `seconds`."""
        if self.waits:
            sleep(self.seconds)
        end = perf_counter() + (0.0 if self.waits else self.seconds)
        while perf_counter() < end:
            pass


LooseActions: TypeAlias = dict[Path, list[Any]]
"""StepOrder: step the envs that are due, with the variable-size parts of their actions, in the order of the envs."""

StepOrder: TypeAlias = Reset | LooseActions | Pretend | None
"""The payload of a wake-up. None: step with the actions in shared memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorProgram:
    """All that a worker needs to make and step its envs. Can be pickled with cloudpickle."""

    recipes: tuple[EnvRecipe, ...]
    """One for all envs, or one per env."""
    num_envs: int
    obs: SpaceLeaves
    action: SpaceLeaves
    autoreset_mode: AutoresetMode
    env_threads: EnvThreads
    extras: Mapping[str, Extra]

    def fields(self, workers: int) -> list[Field]:
        """The shared-memory fields."""
        n = self.num_envs
        return [
            *self.obs.fields(n),
            *self.action.fields(n),
            Field.of("reward", (n,), np.float64),
            Field.of("terminated", (n,), np.bool_),
            Field.of("truncated", (n,), np.bool_),
            Field.of("due", (n,), np.uint8),
            *(
                Field.of(f"extra/{name}", (n, *extra.shape), np.dtype(extra.dtype))
                for name, extra in self.extras.items()
            ),
            heartbeat_field(workers),
        ]

    def recipe(self, env: int) -> EnvRecipe:
        """How to make an env."""
        return self.recipes[env if len(self.recipes) > 1 else 0]

    def __call__(self, memory: Arrays, share: Share) -> EnvServer:
        """Make the envs of a share; here every group is one env."""
        return EnvServer(self, memory, share)


class EnvServer:
    """The envs of one process.

    Args:
        program: Describes the envs.
        memory: Holds `program.fields()`.
        share: The envs of this process.
    """

    def __init__(self, program: VectorProgram, memory: Arrays, share: Share) -> None:
        first, n = share.first_group, share.groups
        mine = slice(first, first + n)
        self._leaves, self._batch_space = program.action, batch_space(program.action.space, n)
        self._news: list[Seat] = []
        self._actions = program.action.arrays(memory, first, n)
        self._only: NDArray[Any] | None = self._actions.get(()) if not program.action.loose else None
        self._due = memory["due"][mine].data
        self._all_due = b"\x01" * n
        places = Places(
            obs_writer(program.obs, program.obs.arrays(memory, first, n)),
            memory["reward"][mine].data,
            memory["terminated"][mine].data,
            memory["truncated"][mine].data,
            {name: memory[f"extra/{name}"][mine] for name in program.extras},
            memory["heartbeat"][share.worker].data,
            self._news,
        )
        self._beat = places.beat
        self._threads = EnvThreadPool(n, _threads(program, first, n), first)
        self._seats: list[Seat] = []
        try:
            for at in range(n):
                make = partial(program.recipe(first + at).make, who=f"env {first + at}")
                env: Env = result_of(self._threads.ask(at, make))
                self._seats.append(Seat(env, first + at, at, places, program.autoreset_mode))
                _require_spaces(env, first + at, program)
            require_distinct([seat.env for seat in self._seats])
        except BaseException:
            self.close()
            raise

    def answer(self, payload: bytes) -> bytes:
        """`act` with pickled order and result: the doorbell handler."""
        news = self.act(pickle.loads(payload) if payload else None)
        return _packed(news) if news else b""

    def act(self, order: StepOrder) -> list[News]:
        """Step or reset the envs marked in `due`; returns their infos and variable-size observations.

        Raises:
            EnvError: An env raised, or its result does not match its spaces.
        """
        if isinstance(order, Pretend):
            order()
            return []
        due = bytes(self._due)
        everyone = due == self._all_due
        seats = self._seats if everyone else [seat for seat in self._seats if due[seat.at]]
        if isinstance(order, Reset):
            pairs = zip(order.seeds, order.options, strict=True)
            self._threads.each(Seat.reset, seats, [{"seed": seed, "options": options} for seed, options in pairs])
        else:
            at = slice(None) if everyone else [seat.at for seat in seats]
            self._threads.each(Seat.step, seats, self._take(at, order or {}))
        if not self._news:
            return []
        changed = sorted(self._news, key=attrgetter("at"))
        self._news.clear()
        return [(seat.number, *seat.take_news()) for seat in changed]

    def apply(self, packed: bytes) -> bytes:
        """`ask` with pickled arguments and results: the command handler."""
        return _packed_outcomes(self.ask(*cloudpickle.loads(packed)))

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> list[tuple[int, TaskOutcome]]:
        """Call `do(env, index)` for those of `envs` that this process owns; returns results or exceptions."""
        wanted = set(envs)
        seats = [seat for seat in self._seats if seat.number in wanted]
        outcomes = []
        for seat in seats:
            outcomes.append((seat.number, self._threads.ask(seat.at, partial(do, seat.env, seat.number))))
            self._beat[BEAT] += 1
        return outcomes

    def close(self) -> None:
        """Close the envs. May be called twice."""
        self._threads.close(self._seats)

    def _take(self, at: Any, loose: LooseActions) -> list[Any]:
        """The actions of some envs, as copies that the envs may keep."""
        if self._only is not None:
            return list(self._only[at].copy())
        columns: dict[Path, Any] = {path: array[at].copy() for path, array in self._actions.items()}
        return list(iterate(self._batch_space, self._leaves.batch((columns | loose).__getitem__)))


def _threads(program: VectorProgram, first: int, n: int) -> int:
    """Number of env threads; `auto` measures a temporary env."""
    measure = program.env_threads == "auto" and n > 1
    return threads_for(n, wait_s(program.recipe(first), seed=0) if measure else 0.0, program.env_threads)


def _require_spaces(env: Env, number: int, program: VectorProgram) -> None:
    """Raise EnvError if the env's spaces or extras differ from the first env's."""
    pairs: list[tuple[str, AnySpace, AnySpace]] = [
        ("observation_space", env.observation_space, program.obs.space),
        ("action_space", env.action_space, program.action.space),
    ]
    if named_extras(env) != program.extras:
        raise EnvError(f"env {number}: its extras differ from the first env's. All envs must declare the same extras.")
    for name, own, first in pairs:
        if own != first:
            raise EnvError(
                f"env {number}: its {name} ({own}) differs from the first env's ({first}). All envs must have the same."
            )


def _packed(news: list[News]) -> bytes:
    try:
        return pickle.dumps(news, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        pass  # perhaps a class of the user's script: cloudpickle serialises that by value
    for one in news:
        try:
            cloudpickle.dumps(one)
        except Exception as error:
            raise EnvError(
                f"env {one[0]}: its info cannot be sent to the main process ({describe(error)}). Put plain values or "
                "arrays into it, or use num_workers=0."
            ) from None  # the cause of an EnvError is what the env raised
    packed: bytes = cloudpickle.dumps(news)
    return packed


def _packed_outcomes(outcomes: list[tuple[int, TaskOutcome]]) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps([(number, _with_trace(outcome)) for number, outcome in outcomes])
        cloudpickle.loads(packed)
    except Exception as error:
        shown = [(number, describe(out[1]) if out[1] else type(out[0]).__name__) for number, out in outcomes]
        text = f"cannot be sent to the main process ({describe(error)}): {shown[:3]}. Use num_workers=0."
        packed = cloudpickle.dumps([(number, (None, TypeError(text))) for number, _ in outcomes])
    return packed


def _with_trace(outcome: TaskOutcome) -> TaskOutcome:
    error = outcome[1]
    if error is not None:
        error.add_note("".join(["In the worker:\n", *traceback.format_exception(error)]).rstrip())
    return outcome
