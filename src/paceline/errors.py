"""Every exception Paceline raises.

    PacelineError
    ├── ConfigError         a setting is invalid; nothing has started yet  (exit 2)
    │   └── MissingExtra    an optional package is not installed           (exit 2)
    ├── EnvError            an env raised, or broke the Gymnasium API      (exit 1)
    │   └── EnvHung         a step or reset in this process timed out
    ├── WorkerError         a worker failed; carries the remote traceback  (exit 1)
    │   └── WorkerLost      the worker process is gone; it may be replaced
    │       ├── WorkerDied  it exited without a report: signal or exit code
    │       └── WorkerHung  it missed its deadline and was killed
    ├── LearnerError        the update cannot continue (NaN, ...)          (exit 1)
    ├── CallbackError       a user's callback raised                       (exit 1)
    ├── CheckpointError     corrupt, incompatible or unsafe checkpoint     (exit 1)
    └── NotSaved            a run ended, and its files could not be written (exit 1)

A message reads ``what: rule (values). What to do.``
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class PacelineError(Exception):
    """Base class of all Paceline errors; `exit_code` is the exit status of the command line."""

    exit_code = 1


class ConfigError(PacelineError):
    """A setting is invalid. Raised before any process starts."""

    exit_code = 2


class MissingExtra(ConfigError):
    """The requested feature needs an optional package that is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs an extra: pip install 'paceline[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
        )


class EnvError(PacelineError):
    """An env raised, or returned something that its spaces do not allow.

    `__cause__` is the exception of an env that raised in `step` or `reset`.
    """


class EnvHung(EnvError):
    """A step or reset of an env in this process exceeded its timeout and was interrupted."""


class WorkerError(PacelineError):
    """A worker failed. The text includes the worker's own traceback; `__cause__` is the exception if it can be sent."""


class WorkerLost(WorkerError):
    """A worker process is gone. The runtime may start a replacement.

    Args:
        text: What happened.
        worker: Index of the worker.
        detail: Where in its code the worker was, on several lines; appended to the error text.
        cause: The same location if the failure would repeat there (an error in the env, for instance); empty if the
            failure came from outside (a signal, for instance).
    """

    def __init__(self, text: str, worker: int = 0, detail: str = "", cause: str = "") -> None:
        super().__init__(f"{text}\n\n{detail}" if detail else text)
        self.text, self.worker, self.detail, self.cause = text, worker, detail, cause


class WorkerDied(WorkerLost):
    """A worker process ended without sending a report: it was killed, crashed or exited."""


class WorkerHung(WorkerLost):
    """A worker missed its deadline and was killed."""


class LearnerError(PacelineError):
    """The update cannot continue, for example because a loss is NaN."""


class CallbackError(PacelineError):
    """A user's callback raised; the text names the callback."""


class CheckpointError(PacelineError):
    """A checkpoint is truncated, corrupt, from an incompatible run, or unsafe to load."""


class NotSaved(PacelineError):
    """A run has ended, but its last checkpoint or another of its files could not be written, as on a full disk."""


LISTED = 20
"""Most names that an error text lists."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: nearly the same, or the only one that begins so; else None."""
    names, typed = {each.lower(): each for each in sorted(known)}, name.lower()
    longer = [each for each in names if len(typed) > 2 and each.startswith(typed)]
    close = longer if len(longer) == 1 else difflib.get_close_matches(typed, names, n=1, cutoff=0.75)
    return names[close[0]] if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """The last sentence of an error about an unknown name: the name that was probably meant, or all names."""
    names = sorted(known)
    if close := closest(name, names):
        return f"Did you mean {close!r}?"
    return (
        f"Known: {', '.join(names)}." if len(names) <= LISTED else f"None of the {len(names)} known names is similar."
    )


def check_range(
    name: str,
    value: float,
    hint: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> None:
    """Raise ConfigError unless a setting is a finite number inside its range.

    Args:
        name: The setting, spelled as the user writes it.
        value: The value it was given.
        hint: The advice that ends the message.
        at_least: Inclusive lower bound.
        above: Exclusive lower bound.
        at_most: Inclusive upper bound.
    """
    bounds = {"at least": at_least, "above": above, "at most": at_most}
    rules = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ok = ok and (at_least is None or value >= at_least) and (above is None or value > above)
    if not (ok and (at_most is None or value <= at_most)):
        raise ConfigError(f"{name}={value!r}: must be {' and '.join(rules)}. {hint}")


def check_optional(name: str, value: float | None, hint: str, **bounds: float) -> None:
    """`check_range` for a setting that may be left out: None is allowed."""
    if value is not None:
        check_range(name, value, hint, **bounds)
