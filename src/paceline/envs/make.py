"""Makes envs from what the user specifies: a Gymnasium id, an import path or a function.

A recipe is sent to every worker, which makes all its envs with it. `probe` finds errors in a recipe before any worker
starts.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, get_args

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as Registered
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from paceline.envs.extras import ExtraReader, named_extras
from paceline.envs.wrappers import FrameStack, OneOfVector
from paceline.errors import ConfigError, EnvError, MissingExtra, PacelineError, nearest
from paceline.moved import current_module
from paceline.spec import MASK_KEY, EnvSpec

Env: TypeAlias = gym.Env[Any, Any]
EnvSource: TypeAlias = str | Callable[..., Env]
EnvWrapper: TypeAlias = str | Callable[[Env], Env]
NativeChoice: TypeAlias = Literal["auto", "always", "never"]

NATIVE_FROM = 16
"""Smallest group for which a native vector env is the faster choice.

CartPole-v1's vector env takes 18.3 microseconds per env step in groups of 4, 9.0 in groups of 8 and 2.4 in groups of
32; a single env takes 10.8. A vector env that is faster in smaller groups can declare it: `metadata["native_from"]`.
"""

SAME_AS_SINGLE = "same_as_single_envs"
"""Key of a vector env's metadata: each of its envs has a random stream of its own, and the data of a single env with
the same seed, in every autoreset mode (an argument of its constructor). `reset` takes one seed per env."""

_PACKAGES = {"ALE": ("ale_py", "atari")}
"""Namespaces whose ids are registered when a package is imported: the package, and the extra that installs it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvRecipe:
    """How to make the env of a run. Can be pickled with cloudpickle, including lambdas and closures."""

    source: EnvSource
    """A Gymnasium id, `module:Id-v0`, `module:callable`, or a callable that makes a new env each time."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments for the env's constructor (and Gymnasium's `max_episode_steps`)."""
    wrappers: tuple[EnvWrapper, ...] = ()
    """Applied in order, innermost first: import paths (`module:Name`) or callables."""
    frame_stack: int = 1
    """Number of observations that are stacked into one; applied outside all wrappers."""
    native_vector: NativeChoice = "auto"
    """Whether to use the env's own vector implementation."""
    vector_per_group: bool = False
    """Give each group a vector env of its own, also if the env would allow one for all groups of a worker."""

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) and not callable(self.source):
            raise ConfigError(
                f"env: must be an id, an import path or a function that makes envs (got a {type(self.source).__name__} "
                "object). Pass `lambda: MyEnv()` instead of an env object: every worker makes its own envs."
            )
        if self.frame_stack < 1:
            raise ConfigError(f"frame_stack={self.frame_stack}: must be at least 1.")
        if self.native_vector not in get_args(NativeChoice):
            raise ConfigError(
                f"native_vector={self.native_vector!r}: unknown. {nearest(self.native_vector, get_args(NativeChoice))}"
            )
        if self.native_vector == "always" and self._wrapped:
            raise ConfigError(
                "native_vector='always': wrappers and frame_stack need single envs "
                f"({len(self.wrappers)} wrappers, frame_stack={self.frame_stack}). Use 'auto' or drop them."
            )

    @property
    def name(self) -> str:
        """Name of the env in folders and messages."""
        if isinstance(self.source, str):
            return self.source
        return str(getattr(self.source, "__qualname__", type(self.source).__qualname__))

    @property
    def _wrapped(self) -> bool:
        return bool(self.wrappers) or self.frame_stack > 1

    def make(self, *, who: str = "env") -> Env:
        """Make one env, wrapped.

        Args:
            who: Name of the env for error texts.

        Raises:
            ConfigError: The env or a wrapper cannot be found, or does not take these arguments.
            EnvError: The constructor raised.
        """
        target = _find(self.source)
        kwargs = _fresh(self.kwargs)
        label = f"env {self.name!r}"
        env: Env
        if isinstance(target, Registered) and target.entry_point is None:
            env = OneOfVector(self.make_vector(1, who=who))
        elif isinstance(target, Registered):
            given = {**target.kwargs, **{k: v for k, v in kwargs.items() if k != "max_episode_steps"}}
            with _constructor_errors(label, who, target.entry_point, given):
                # Gymnasium's checker costs more than many envs; the block checks the first steps itself.
                env = gym.make(target, disable_env_checker=True, **kwargs)
        else:
            with _constructor_errors(label, who, target, kwargs):
                env = _require_env(target(**kwargs), label)
        for wrapper in self.wrappers:
            name = wrapper if isinstance(wrapper, str) else getattr(wrapper, "__qualname__", repr(wrapper))
            wrap = load(wrapper, "wrapper") if isinstance(wrapper, str) else wrapper
            with _constructor_errors(f"wrapper {name!r}", f"{who}: wrapper {name!r}", None, {}):
                env = _require_env(wrap(env), f"wrapper {name!r}")
        if self.frame_stack > 1:
            env = FrameStack(env, self.frame_stack)
        extras = named_extras(env)
        return ExtraReader(env, extras) if extras else env

    def make_vector(self, num_envs: int, *, who: str = "vector env") -> VectorEnv[Any, Any, Any]:
        """Make the env's own vector implementation, unwrapped.

        Raises:
            ConfigError: The env has no vector implementation, or it does not take these arguments.
            EnvError: The constructor raised.
        """
        target = _find(self.source)
        if not isinstance(target, Registered) or target.vector_entry_point is None:
            raise ConfigError(f"env {self.name!r}: has no vector_entry_point. Use native_vector='never' or 'auto'.")
        kwargs = _fresh(self.kwargs)
        given = {"num_envs": num_envs, **target.kwargs, **kwargs}
        with _constructor_errors(f"env {self.name!r}", who, target.vector_entry_point, given):
            vector = gym.make_vec(target, num_envs, vectorization_mode="vector_entry_point", **kwargs)
        if not isinstance(vector, VectorEnv):
            raise ConfigError(
                f"env {self.name!r}: vector_entry_point made a {type(vector).__name__}, not a gymnasium VectorEnv."
            )
        return vector

    def use_native(self, group_size: int) -> bool:
        """Whether to step groups of this size with the env's own vector implementation."""
        if self.native_vector == "never" or self._wrapped:
            return False
        target = _find(self.source)
        if not isinstance(target, Registered) or target.vector_entry_point is None:
            if self.native_vector == "always":
                raise ConfigError(f"native_vector='always': env {self.name!r} has no vector_entry_point. Use 'auto'.")
            return False
        if self.native_vector == "always" or target.entry_point is None:
            return True
        metadata = self.vector_metadata
        return metadata is not None and group_size >= metadata.get("native_from", NATIVE_FROM)

    @property
    def one_vector(self) -> bool:
        """Whether one native vector env may step all groups of a worker: if its envs are the same as single envs."""
        return not self.vector_per_group and bool((self.vector_metadata or {}).get(SAME_AS_SINGLE, False))

    @property
    def vector_metadata(self) -> dict[str, Any] | None:
        """The metadata of the env's own vector implementation; None if there is none that can be stepped safely."""
        target = _find(self.source)
        if self._wrapped or not isinstance(target, Registered) or target.vector_entry_point is None:
            return None
        return _vector_metadata(target)

    def probe(self, look: Callable[[Env], object] | None = None) -> EnvSpec:
        """Make one env, reset it, read its spaces and close it.

        Args:
            look: Called with the env before its reset, to read other properties of it.

        Raises:
            ConfigError: The recipe is invalid, or a space is missing or not supported.
            EnvError: The env raised.
        """
        env = self.make()
        try:
            if look is not None:
                look(env)
            try:
                _, info = env.reset(seed=0)
            except PacelineError:
                raise
            except Exception as error:
                raise EnvError(
                    f"env {self.name!r} raised in reset(seed=0): {describe(error)}. Call reset in a script to debug it."
                ) from error
            try:
                observations, actions = env.observation_space, env.action_space
            except AttributeError as error:
                raise ConfigError(
                    f"env {self.name!r}: must have an observation_space and an action_space ({describe(error)}). "
                    "Set both in its constructor."
                ) from error
            spec = EnvSpec.of(observations, actions, masked=MASK_KEY in (info or {}))
            return replace(spec, extras=named_extras(env))
        finally:
            env.close()

    def __reduce__(self) -> tuple[Any, ...]:
        registered = gym.registry.get(self.source) if isinstance(self.source, str) else None
        return _rebuild, ({f.name: getattr(self, f.name) for f in fields(self)}, registered)


def _rebuild(values: dict[str, Any], registered: Registered | None) -> EnvRecipe:
    # A worker does not know an id that the user's script or notebook has registered, so the registry entry comes along.
    if registered is not None:
        gym.registry.setdefault(registered.id, registered)
    return EnvRecipe(**values)


def describe(error: BaseException) -> str:
    """Return `Type: text` of an exception, even if its `__str__` fails."""
    try:
        text = str(error)
    except Exception:
        text = "(its __str__ failed)"
    return f"{type(error).__name__}: {text}"


def _find(source: EnvSource) -> Registered | Callable[..., Any]:
    """Return the registry entry of an id, or the callable at an import path."""
    if not isinstance(source, str):
        return source
    module, colon, name = source.partition(":")
    if not colon:
        return _registered(source)
    imported = _import(module, f"env {source!r}")
    if name in gym.registry:
        return gym.registry[name]
    if not name.isidentifier():  # `Id-v0` and `space/Id-v0` can only be ids
        return _registered(name)
    return _attribute(imported, name, f"env {source!r}")


def _registered(env_id: str) -> Registered:
    if env_id not in gym.registry and (package := _PACKAGES.get(env_id.partition("/")[0])):
        try:
            importlib.import_module(package[0])
        except ImportError as error:
            raise MissingExtra(f"env {env_id!r}", package[1]) from error
    if env_id not in gym.registry:
        close = difflib.get_close_matches(env_id, list(gym.registry), n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}?" if close else "Write module:Id-v0 to import the module that registers it."
        raise ConfigError(f"env {env_id!r}: not registered. {hint}")
    return gym.registry[env_id]


def load(path: str, what: str) -> Callable[..., Any]:
    """What an import path names.

    Raises:
        ConfigError: There is no such thing; `what` says what it should have been.
    """
    module, _, name = path.rpartition(":" if ":" in path else ".")
    what = f"{what} {path!r}"
    if not module or not name:
        raise ConfigError(f"{what}: must have the form module:Name, for example gymnasium.wrappers:FlattenObservation.")
    return _attribute(_import(module, what), name, what)


def _import(module: str, what: str) -> Any:
    try:
        return importlib.import_module(current_module(module))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what}: no module named {error.name!r}. Install it, or put its folder on PYTHONPATH."
        ) from error
    except Exception as error:
        raise ConfigError(f"{what}: importing {module!r} failed: {describe(error)}.") from error


def _attribute(module: Any, name: str, what: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and key[:1] != "_"]
        trouble = "has no callable" if found is None else f"{type(found).__name__} is not callable:"
        raise ConfigError(f"{what}: {module.__name__} {trouble} {name!r}. {nearest(name, known)}")
    return found  # type: ignore[no-any-return]


@contextmanager
def _constructor_errors(label: str, who: str, creator: Any, given: dict[str, Any]) -> Iterator[None]:
    """Convert exceptions of a constructor: ConfigError for wrong arguments or missing packages, otherwise EnvError.

    Args:
        label: Name of the env or wrapper, for ConfigError.
        who: Name of the env, for EnvError.
        creator: The constructor, to compare its signature with `given`; None to skip that.
        given: The arguments.
    """
    try:
        yield
    except PacelineError:
        raise
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise ConfigError(f"{label}: a package it needs is missing: {describe(error)}.") from error
    except Exception as error:
        wrong = _wrong_kwargs(creator, given) if isinstance(error, TypeError) else None
        if wrong:
            raise ConfigError(f"{label}: {wrong}") from error
        raise EnvError(
            f"{who} raised in its constructor: {describe(error)}. Make it in a script to debug it."
        ) from error


def _require_env(made: Any, label: str) -> Env:
    if isinstance(made, gym.Env):
        return made
    raise ConfigError(f"{label}: made a {type(made).__name__}, not a gymnasium.Env. Convert old gym envs to Gymnasium.")


def _wrong_kwargs(creator: Any, given: dict[str, Any]) -> str | None:
    """Return an error text about arguments that the constructor does not take, or that are missing; None if all fit."""
    try:
        signature = inspect.signature(load_env_creator(creator) if isinstance(creator, str) else creator)
    except (TypeError, ValueError):
        return None
    known = set(signature.parameters) - {"kwargs", "args"}
    unknown = sorted(set(given) - known)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    if unknown and not takes_any:
        hint = nearest(unknown[0], known) if known else "It takes no arguments."
        return f"env_kwargs: unknown argument {unknown[0]!r}. {hint}"
    missing = sorted(
        name
        for name, p in signature.parameters.items()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and name not in given
    )
    return f"env_kwargs: argument {missing[0]!r} is required. Give it with --env-kwargs." if missing else None


def _fresh(value: Any) -> Any:
    """Copy containers but not their contents, so that an env which changes its arguments does not affect other envs.

    A deep copy would multiply large arrays by the number of envs.
    """
    if isinstance(value, dict):
        return {key: _fresh(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_fresh(item) for item in value]
    return set(value) if isinstance(value, set) else value


def _vector_metadata(target: Registered) -> dict[str, Any] | None:
    """Return the metadata of a vector env; None without `autoreset_mode`, because stepping it is not safe then."""
    try:
        creator: Any = target.vector_entry_point
        creator = load_env_creator(creator) if isinstance(creator, str) else creator
    except Exception:
        return None
    metadata = getattr(creator, "metadata", None)
    if not isinstance(metadata, dict):
        return {}
    return metadata if "autoreset_mode" in metadata else None
