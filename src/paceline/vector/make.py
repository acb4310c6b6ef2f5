"""`make_vec`: makes a parallel vector env from an env id or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, Literal

from gymnasium.vector import AutoresetMode

from paceline.envs.extras import named_extras
from paceline.envs.make import Env, EnvRecipe, EnvSource, EnvWrapper, NativeChoice
from paceline.envs.step_cost import EnvThreads, step_cost
from paceline.errors import ConfigError, check_range
from paceline.runtime.forkserver import StartMethod, default_start_method
from paceline.runtime.start_method import check_start_method
from paceline.system import threads
from paceline.vector.channel import Channel, InlineChannel, ProcessChannel, Processes
from paceline.vector.choose import Choice, choose, hand_over_s
from paceline.vector.env import ParallelVectorEnv
from paceline.vector.leaves import SpaceLeaves
from paceline.vector.native import WHY, NativeChannel, native_recipe, unused
from paceline.vector.server import VectorProgram

TRIAL_S = 0.5
"""Duration of the trial that measures the cost of an env's step."""


def make_vec(
    env: EnvSource | Sequence[Callable[[], Env]],
    num_envs: int | None = None,
    num_workers: int | Literal["auto"] = "auto",
    start_method: StartMethod | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[EnvWrapper] = (),
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    env_threads: EnvThreads = "auto",
    env_timeout_s: float = 60.0,
    start_timeout_s: float = 120.0,
    pin_cores: Sequence[int] | None = None,
    native_vector: NativeChoice = "auto",
) -> ParallelVectorEnv:
    """Make a Gymnasium vector env whose envs live in worker processes, several in each.

    It first makes one env in this process to read its spaces. With `num_workers="auto"` that env also takes random
    steps for half a second, to measure their cost. If the env has a vector version of its own that declares to have
    the data of single envs, that is stepped instead, in this process.

    Args:
        env: A Gymnasium id, `module:Id-v0`, `module:callable`, a callable that makes a new env each time, or a list of
            such callables, one for each env.
        num_envs: Number of envs; optional with a list.
        num_workers: Worker processes; 0 steps the envs in this process, `auto` uses the number predicted to be fastest.
        start_method: How workers start: `forkserver`, `spawn` or `fork`; None for the platform's default.
        env_kwargs: Arguments for the env.
        wrappers: Applied to every env, innermost first: callables, or `module:Name`.
        autoreset_mode: Gymnasium's autoreset mode.
        copy: Return copies of observations; otherwise views of shared memory, which the next step overwrites.
        env_threads: Envs that a worker steps at the same time, in threads; `auto` means all if a step mostly waits,
            one if it computes.
        env_timeout_s: Timeout of a step or reset of one env.
        start_timeout_s: Timeout for making a worker's envs and for their first reset.
        pin_cores: Pin workers to these cores, in turn; an empty list means all cores.
        native_vector: Whether to step the env's own vector version: `auto`, `never`, or `always`, also if its data
            differ from those of single envs. It steps all envs together, and none can be asked alone (`call`).

    Raises:
        ConfigError: An argument is invalid; no process has been started.
        EnvError: An env could not be made.
        WorkerError: A worker could not make its envs.
    """
    recipes, n = _recipes(env, num_envs, dict(env_kwargs or {}), tuple(wrappers), native_vector)
    _check(n, num_workers, env_threads, env_timeout_s, start_timeout_s)
    mode = _mode(autoreset_mode)
    method = start_method or default_start_method()
    check_start_method(method)
    native = native_recipe(recipes[0], n, num_workers, mode)
    cores = None if pin_cores is None else threads.pinned_cores(pin_cores)
    first = recipes[0].make(who="env 0")
    try:
        like = (dict(first.metadata), first.render_mode, first.spec)
        obs, action = SpaceLeaves.of(first.observation_space, "obs"), SpaceLeaves.of(first.action_space, "action")
        extras = named_extras(first)
        if native is not None:
            choice = Choice(0, 1, f"{WHY} ({n} envs)")
        elif num_workers == "auto":
            choice = choose(step_cost(first, TRIAL_S), n, env_threads, threads.core_budget())
        else:
            choice = Choice(num_workers, env_threads, f"{num_workers} workers, as requested")
    finally:
        first.close()
    program = VectorProgram(
        recipes=recipes,
        num_envs=n,
        obs=obs,
        action=action,
        autoreset_mode=mode,
        env_threads=choice.env_threads,
        extras=extras,
    )
    how = Processes(start_method=method, cores=cores, env_timeout_s=env_timeout_s, start_timeout_s=start_timeout_s)
    channel: Channel
    with ExitStack() as undo:
        if choice.num_workers > 0:
            channel = undo.enter_context(closing(ProcessChannel(program, choice.num_workers, how)))
            if num_workers == "auto" and not choice.pays(cost_s := hand_over_s(channel, choice)):
                channel.close()
                choice = choice.without_workers(cost_s)
        if native is not None:
            channel = undo.enter_context(closing(NativeChannel(program, native)))
        elif choice.num_workers == 0:
            channel = undo.enter_context(closing(InlineChannel(program)))
        note = unused(recipes[0]) if native is None else ""
        made = ParallelVectorEnv(program, channel, like, copy=copy, why=choice.why + note)
        undo.pop_all()
    return made


def _recipes(
    env: EnvSource | Sequence[Callable[[], Env]],
    num_envs: int | None,
    kwargs: dict[str, Any],
    wrappers: tuple[EnvWrapper, ...],
    native_vector: NativeChoice,
) -> tuple[tuple[EnvRecipe, ...], int]:
    """One recipe for all envs or one per env, and the number of envs."""
    if isinstance(env, str) or callable(env):
        if num_envs is None:
            raise ConfigError("num_envs: required unless `env` is a list of functions. Pass the number of envs.")
        return (EnvRecipe(source=env, kwargs=kwargs, wrappers=wrappers, native_vector=native_vector),), num_envs
    if not isinstance(env, Sequence):
        raise ConfigError(
            "env: must be an id, an import path, a function that makes an env, or a list of such functions "
            f"(got {type(env).__name__})."
        )
    recipes = tuple(
        EnvRecipe(source=source, kwargs=kwargs, wrappers=wrappers, native_vector=native_vector) for source in env
    )
    if not recipes or num_envs not in (None, len(recipes)):
        raise ConfigError(f"env: a list must have one function per env ({num_envs}; got {len(recipes)}).")
    return recipes, len(recipes)


def _check(
    n: int, num_workers: int | Literal["auto"], env_threads: EnvThreads, env_timeout_s: float, start_timeout_s: float
) -> None:
    check_range("num_envs", n, "Try 8.", at_least=1)
    if num_workers != "auto":
        hint = "Use 0 to step them in this process, or 'auto'."
        check_range("num_workers", num_workers, hint, at_least=0)
        if num_workers > n:
            raise ConfigError(f"num_workers={num_workers}: must not be above num_envs ({n}). {hint}")
    if env_threads != "auto":
        check_range("env_threads", env_threads, "Use 1 to step one env after another, or 'auto'.", at_least=1)
    check_range("env_timeout_s", env_timeout_s, "Try 60.", above=0)
    check_range("start_timeout_s", start_timeout_s, "Try 120.", above=0)


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(one.value for one in AutoresetMode)
        raise ConfigError(f"autoreset_mode={mode!r}: unknown. Known: {known}.") from None
