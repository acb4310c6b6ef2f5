"""One file per algorithm. Each defines an `Algorithm`, which the table in `config/algorithms.py` names."""

from __future__ import annotations

import importlib

from paceline.config.algorithms import ALGORITHMS
from paceline.errors import ConfigError
from paceline.runtime.protocol import Job
from paceline.train.plan import Algorithm


def algorithm(name: str) -> Algorithm[Job]:
    """Import and return the algorithm with this name in the table `ALGORITHMS`.

    Raises:
        ConfigError: The entry of the table does not name an `Algorithm`.
    """
    path = ALGORITHMS[name].algorithm
    module, _, attribute = path.partition(":")
    found: object = vars(importlib.import_module(module)).get(attribute)
    if not isinstance(found, Algorithm):
        raise ConfigError(f"algo={name!r}: {path} is not an Algorithm. Assign one there: {attribute} = Algorithm(...).")
    return found
