from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from paceline.integrations.cyborg import env, fast_reset, install

MODULES = (
    "CybORG",
    "CybORG.Agents",
    "CybORG.Agents.Wrappers",
    "CybORG.Shared.Enums",
    "CybORG.Shared.EnvironmentController",
    "CybORG.Simulator.Host",
    "CybORG.Simulator.Session",
    "CybORG.Simulator.SimulationController",
)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clear the caches of the simulator lookup before every test."""
    for kept in (install.simulator, fast_reset._host_class):
        kept.cache_clear()
    monkeypatch.setattr(env, "_logged", False)
    yield
    for kept in (install.simulator, fast_reset._host_class):
        kept.cache_clear()


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in as CybORG, fresh from its file: nothing of an earlier test is patched into it."""
    monkeypatch.delenv("CYBORG_PATH", raising=False)
    spec = importlib.util.spec_from_file_location("CybORG", Path(__file__).with_name("standin.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
