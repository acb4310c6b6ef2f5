"""Shows every setting of an algorithm in the signature and the docstring of its Python class.

`Agent.__init__` takes `**settings`, because algorithms have different ones. Type checkers and editors know them from
`config/keywords.py`; `help(PPO)`, `inspect.signature(PPO)` and Jupyter know them from here.
"""

from __future__ import annotations

import inspect
import itertools
import textwrap
from inspect import Parameter, Signature

from paceline.config.algorithms import ALGORITHMS
from paceline.config.python_settings import keyword_settings

WIDTH = 100

ARGS = """
Args:
    env: A Gymnasium id, `module:callable`, or a callable that makes an env.
    verbose: 1 shows progress while learning: a panel on a terminal, an output that updates in place in Jupyter,
        otherwise a line every five seconds. Default: 0, silent.
    **settings: Any of the settings below.
"""

HEADINGS = {
    "training": "Settings of the algorithm:",
    "env": "Settings of the env:",
    "parallel": "Settings of workers, processes and machines:",
    "policy": "Settings of the network:",
    "run": "Settings of budget, output, checkpoints and evaluation:",
}


class _Source(str):
    """An annotation that a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class DocumentedSettings(type):
    """Metaclass of the agents. A class with `algo` has the signature and the docstring of its settings."""

    algo: str

    @property
    def __signature__(cls) -> Signature | None:
        """The constructor's parameters: the env, `verbose` and every setting with its default."""
        if not cls._documented():
            return None  # inspect then looks at __init__
        parameters = [
            Parameter("env", Parameter.POSITIONAL_OR_KEYWORD, annotation=_Source("str | Callable[..., Any]")),
            Parameter("verbose", Parameter.KEYWORD_ONLY, default=0, annotation=_Source("int")),
        ]
        for one in keyword_settings(cls.algo):
            annotation = _Source(one.type_text)
            parameters.append(Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=annotation))
        return Signature(parameters)

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        """The docstring in the source, followed by the settings with their help texts."""
        written = vars(cls).get("__doc__")
        return f"{inspect.cleandoc(written or '')}\n{ARGS}\n{settings_text(cls.algo)}" if cls._documented() else written

    def _documented(cls) -> bool:
        return vars(cls).get("algo") in ALGORITHMS


def settings_text(algo: str) -> str:
    """The settings of an algorithm with types, defaults and help texts, section by section."""
    lines: list[str] = []
    for section, settings in itertools.groupby(keyword_settings(algo), lambda one: one.section):
        lines += ["", HEADINGS[section]]
        for one in settings:
            lines.append(f"    {one.name}: {one.type_text}" + (f" = {one.default_text}" if one.default_text else ""))
            lines += textwrap.wrap(one.text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines).strip()
