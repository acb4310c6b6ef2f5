"""Import paths of modules that have moved."""

from __future__ import annotations

import importlib

import pytest

from paceline.moved import MOVED, current_module, current_path


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_moved_module_is_gone_and_its_new_name_imports(old: str, new: str) -> None:
    importlib.import_module(new)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(old)


def test_modules_below_a_moved_package_move_with_it() -> None:
    assert current_path("paceline.envs.games.ludo_net:LudoNet") == "paceline.domains.games.ludo_net:LudoNet"
    assert current_module("paceline.envs.cyber") == "paceline.domains.cyber"


@pytest.mark.parametrize(
    "path", ["my_module:Env", "paceline.envs.gamesters:X", "CartPole-v1", "paceline/Ludo-v0", "mlp"]
)
def test_other_names_stay(path: str) -> None:
    assert current_path(path) == path
