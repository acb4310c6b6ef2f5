"""Accelerates CybORG resets and the construction of games by caching and by skipping redundant copies."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from ipaddress import IPv4Network
from typing import IO, Any

from paceline.integrations.cyborg.install import PACKAGE, Parts
from paceline.integrations.cyborg.rebind import with_names


def reset(parts: Parts) -> None:
    """Cache the list of subnets to draw from, and back up each new host once instead of once per agent."""
    state = parts.controller.state
    make = with_names(state._initialise_state, IPv4Network=_Network, Host=_host_class())

    def initialise(scenario: Any) -> None:
        make(scenario)
        for host in state.hosts.values():
            host.complete = True
            host.create_backup()

    state._initialise_state = initialise


class _Network:
    """Replacement of IPv4Network with cached subnets."""

    def __init__(self, address: str) -> None:
        self._address = address

    def subnets(self, *, new_prefix: int) -> tuple[IPv4Network, ...]:
        return _subnets(self._address, new_prefix)


@cache
def _subnets(address: str, new_prefix: int) -> tuple[IPv4Network, ...]:
    return tuple(IPv4Network(address).subnets(new_prefix=new_prefix))


@cache
def _host_class() -> type[Any]:
    stock: Any = importlib.import_module(f"{PACKAGE}.Simulator.Host").Host

    class Host(stock):  # type: ignore[misc]
        """Skips backups until the host is complete, because each backup replaces the one before."""

        complete = False

        def create_backup(self) -> None:
            if self.complete:
                super().create_backup()

    # The constructor deep-copies only for the first backup, which is not needed.
    Host.__init__ = with_names(stock.__init__, deepcopy=lambda original: original)  # type: ignore[method-assign]
    return Host


@contextmanager
def scenario_read_once() -> Iterator[None]:
    """Inside the block, CybORG gets copies of YAML files that were parsed before. Parsing takes 100 ms and more."""
    readers = ("Shared.EnvironmentController", "Simulator.SimulationController")
    modules: dict[Any, Any] = {
        module: module.yaml for module in (importlib.import_module(f"{PACKAGE}.{name}") for name in readers)
    }
    try:
        for module, yaml in modules.items():
            module.yaml = _Yaml(yaml)
        yield
    finally:
        for module, yaml in modules.items():
            module.yaml = yaml


class _Yaml:
    """Replacement of the module `yaml` in CybORG's modules; parses each text once."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    def load(self, stream: IO[str], **options: Any) -> Any:
        text = stream.read()
        key = (text, *options.values())
        if key not in _read:
            _read[key] = pickle.dumps(self._stock.load(text, **options))
        return pickle.loads(_read[key])


_read: dict[tuple[Any, ...], bytes] = {}
"""Pickled results of `yaml.load`, by text and options."""
