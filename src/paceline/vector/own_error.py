"""Raises the exception of an env in the process that steps the vector env, as `SyncVectorEnv` does."""

from __future__ import annotations

from paceline.errors import EnvError, PacelineError, WorkerError


def own_error(error: BaseException) -> Exception | None:
    """The exception that an env raised in `step` or `reset`, to be raised from `error`.

    None if no env raised, or if its exception could not be sent to this process.

    Args:
        error: What the channel raised. It names worker, env, step and action; its first line is added as a note.
    """
    own = error.__cause__
    if not isinstance(error, EnvError | WorkerError) or not isinstance(own, Exception):
        return None
    if isinstance(own, PacelineError):  # a rule of Paceline that the env broke, such as the shape of its observation
        return None
    error.__cause__ = error.__context__ = None  # otherwise each would be the cause of the other
    own.add_note(str(error).splitlines()[0])
    return own
