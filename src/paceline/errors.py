"""Every exception Paceline raises.

    PacelineError
    ├── ConfigError         a setting is wrong; nothing has been started   (exit 2)
    │   └── MissingExtra    an optional package is needed                  (exit 2)
    ├── EnvError            an environment raised or broke its contract    (exit 1)
    │   └── EnvHung         it stood still for too long, in this process
    ├── WorkerError         a worker failed; carries the remote traceback  (exit 1)
    │   └── WorkerLost      it is no more, and may be replaced
    │       ├── WorkerDied  it ended without a word: signal or exit code
    │       └── WorkerHung  it missed its deadline, and was killed
    ├── LearnerError        the update cannot go on (NaN, ...)             (exit 1)
    ├── CallbackError       a callback raised                              (exit 1)
    └── CheckpointError     a checkpoint is damaged, foreign or unsafe     (exit 1)

A message reads ``what: rule (values). What to do.``
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class PacelineError(Exception):
    """Root of the tree; `exit_code` is what the command line exits with."""

    exit_code = 1


class ConfigError(PacelineError):
    """A setting is wrong. Raised before any process starts."""

    exit_code = 2


class MissingExtra(ConfigError):
    """An optional package is needed for what was asked."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs an extra: pip install 'paceline[{extra}]'")


class EnvError(PacelineError):
    """An environment raised, or returned what its spaces do not allow."""


class EnvHung(EnvError):
    """An environment of this process stood still for too long, and was broken off."""


class WorkerError(PacelineError):
    """A worker failed. The text carries the worker's own traceback."""


class WorkerLost(WorkerError):
    """A worker is no more; another may take its place.

    Args:
        text: What happened.
        worker: Its number.
        detail: Where in its code it was, over several lines; part of the error's text.
        cause: The same for what would happen again at the same place; empty for what came from outside.
    """

    def __init__(self, text: str, worker: int = 0, detail: str = "", cause: str = "") -> None:
        super().__init__(f"{text}\n\n{detail}" if detail else text)
        self.text, self.worker, self.detail, self.cause = text, worker, detail, cause


class WorkerDied(WorkerLost):
    """A worker ended without sending anything: killed, crashed or exited."""


class WorkerHung(WorkerLost):
    """A worker missed its deadline, and was killed."""


class LearnerError(PacelineError):
    """The update cannot go on."""


class CallbackError(PacelineError):
    """A callback of the user's raised; the text names it."""


class CheckpointError(PacelineError):
    """A checkpoint is truncated, altered, foreign or unsafe to load."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error text about an unknown name: the closest known one, else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."


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
        name: The setting, as the user writes it.
        value: What it was set to.
        hint: What to do about it, the last sentence of the message.
        at_least: Smallest legal value.
        above: Largest illegal value below the range.
        at_most: Largest legal value.
    """
    rules = []
    if at_least is not None:
        rules.append(f"at least {at_least:g}")
    if above is not None:
        rules.append(f"above {above:g}")
    if at_most is not None:
        rules.append(f"at most {at_most:g}")
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ok = ok and (at_least is None or value >= at_least) and (above is None or value > above)
    if not (ok and (at_most is None or value <= at_most)):
        raise ConfigError(f"{name}={value!r}: must be {' and '.join(rules)}. {hint}")
