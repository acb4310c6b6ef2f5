"""`NativeChannel`: steps all envs with the env's own vector version, in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode

from paceline.envs.env_thread import TaskOutcome
from paceline.envs.make import SAME_AS_SINGLE, Env, EnvRecipe, describe
from paceline.errors import ConfigError, EnvError
from paceline.memory.shared import Arrays
from paceline.runtime.protocol import shares
from paceline.vector.channel import Packed
from paceline.vector.leaves import read_batch
from paceline.vector.server import News, Reset, StepOrder, VectorProgram

WHY = "the env's own vector version steps all envs at once in this process"


class NativeChannel:
    """A vector version in place of single envs, as a `Channel`. All envs step together, and none can be asked alone.

    Args:
        program: The envs; spaces without variable-size parts.
        recipe: Makes the vector version.

    Raises:
        ConfigError: The spaces have variable-size parts.
    """

    def __init__(self, program: VectorProgram, recipe: EnvRecipe) -> None:
        if program.obs.loose or program.action.loose:
            raise ConfigError("native_vector='always': Text, Graph and Sequence spaces need single envs. Use 'auto'.")
        self.num_workers = 0
        self.shares = shares(program.num_envs, 0)
        fields = {field.name: np.zeros(field.shape, field.dtype) for field in program.fields(0)}
        self.memory: Arrays = fields
        self._n, self._obs, self._action = program.num_envs, program.obs, program.action
        self._obs_arrays = program.obs.arrays(fields, 0, self._n)
        self._action_arrays = program.action.arrays(fields, 0, self._n)
        self._results = [fields[name] for name in ("reward", "terminated", "truncated")]
        self._vector = recipe.make_vector(self._n)
        self._extras = {name: getattr(self._vector, extra.read) for name, extra in program.extras.items()}
        self._order: StepOrder = None
        self._begun = False
        self._news: list[News] = []

    def pack(self, order: StepOrder) -> Packed:
        """Nothing to serialise in the same process."""
        return order

    def begin(self, worker: int, order: Packed) -> None:  # noqa: ARG002 - there is one
        """Store the order for `wait`."""
        self._order, self._begun = order, True

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:  # noqa: ARG002 - there is one
        """Execute the stored order. Blocks while the envs step.

        Raises:
            EnvError: The vector version raised.
            ConfigError: Only some of the envs are to be stepped.
        """
        if self._begun:
            self._begun = False
            try:
                obs, infos = self._reset(self._order) if isinstance(self._order, Reset) else self._step()
            except ConfigError:
                raise
            except Exception as error:
                raise EnvError(f"the env's own vector version raised in {doing}: {describe(error)}.") from error
            read_batch(self._obs, self._obs_arrays, obs)
            for name, read in self._extras.items():
                self.memory[f"extra/{name}"][...] = read()
            infos_of = ((env, _of_one(infos, env)) for env in range(self._n)) if infos else ()
            self._news = [(env, (info,), ()) for env, info in infos_of if info]
        return list(workers)

    def news(self, worker: int) -> list[News]:  # noqa: ARG002 - there is one
        """Infos of the last step."""
        news, self._news = self._news, []
        return news

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, TaskOutcome]:  # noqa: ARG002
        """A refusal for every env: there are no single envs."""
        text = "The env's own vector version has no single envs to ask. Use make_vec(..., native_vector='never')."
        return {env: (None, ConfigError(text)) for env in envs}

    def pids(self) -> list[int]:
        """Empty: there are no workers."""
        return []

    def close(self) -> None:
        """Close the vector version."""
        self._vector.close()

    def _reset(self, order: Reset) -> tuple[Any, dict[str, Any]]:
        due = self.memory["due"].astype(np.bool_)
        first, options = order.seeds[0], order.options[0]
        seed: int | list[int | None] | None
        if due.all() and first is not None and order.seeds == list(range(first, first + self._n)):
            seed = first  # many vector versions take a number only
        else:
            seeds = iter(order.seeds)
            seed = None if set(order.seeds) == {None} else [next(seeds) if one else None for one in due]
        if not due.all():
            options = {**(options or {}), "reset_mask": due}
        for results in self._results:
            results[due] = 0
        obs, infos = self._vector.reset(seed=seed, options=options)  # type: ignore[arg-type] # a list is allowed
        return obs, infos

    def _step(self) -> tuple[Any, dict[str, Any]]:
        if not self.memory["due"].all():
            raise ConfigError(
                "send: the env's own vector version steps all envs together. To step some of them, use "
                "make_vec(..., native_vector='never')."
            )
        actions = self._action.batch(lambda path: self._action_arrays[path].copy())
        obs, *results, infos = self._vector.step(actions)
        for array, result in zip(self._results, results, strict=True):
            array[...] = result
        return obs, infos


def native_recipe(
    recipe: EnvRecipe, num_envs: int, num_workers: int | Literal["auto"], mode: AutoresetMode
) -> EnvRecipe | None:
    """How `make_vec` makes the env's own vector version; None if it steps single envs.

    With `native_vector="auto"` it uses a vector version that declares to have the data of single envs, unless
    something that is asked for needs single envs: workers, wrappers, rendering.

    Raises:
        ConfigError: `native_vector="always"` with workers, without a vector version, or in a mode that it lacks.
    """
    always = recipe.native_vector == "always"
    if always and num_workers not in ("auto", 0):
        raise ConfigError(
            f"num_workers={num_workers}: native_vector='always' steps all envs in this process. Leave one of them out."
        )
    metadata = recipe.vector_metadata or {}
    fits = (
        bool(metadata.get(SAME_AS_SINGLE)) and num_workers in ("auto", 0) and recipe.kwargs.get("render_mode") is None
    )
    if not recipe.use_native(num_envs) or not (always or fits):
        return None
    own = metadata.get("autoreset_mode")
    if own is mode:
        return recipe
    if metadata.get(SAME_AS_SINGLE):
        return replace(recipe, kwargs={**recipe.kwargs, "autoreset_mode": mode})
    declared = "declares none" if own is None else f"has {AutoresetMode(own).value!r}"
    raise ConfigError(
        f"autoreset_mode={mode.value!r}: the vector version of env {recipe.name!r} {declared}. "
        "Use that, or native_vector='never'."
    )


def unused(recipe: EnvRecipe) -> str:
    """What to say about the env's own vector version if single envs are stepped instead; empty if there is none."""
    metadata = recipe.vector_metadata
    if metadata is None or recipe.native_vector == "never":
        return ""
    if metadata.get(SAME_AS_SINGLE):
        return f"; the vector version of {recipe.name} is usually faster (num_workers='auto', no render_mode)"
    return (
        f"; the vector version of {recipe.name} may be faster (native_vector='always'), but its episodes differ from "
        "those of single envs with the same seed"
    )


def _of_one(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The info dict of one env: the inverse of Gymnasium's `VectorEnv._add_info`."""
    found = {}
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue
        if f"_{name}" in infos and not infos[f"_{name}"][env]:
            continue
        found[name] = _of_one(values, env) if isinstance(values, Mapping) else values[env]
    return found
