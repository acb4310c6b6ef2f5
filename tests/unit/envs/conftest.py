"""Fixtures for tests of envs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode
from tests.simulator import Simulator
from tests.unit.envs.toys import of_groups

from paceline.envs.block import EnvBlock
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.spec import EnvSpec


@pytest.fixture(params=["single", "threads", "NextStep", "SameStep", "Disabled"])
def make(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[[], EnvBlock], EnvSpec]]:
    """Makes a block of 6 simulators, of one kind."""
    kwargs: dict[str, Any] = {}
    native = request.param not in ("single", "threads")
    if native:
        gym.register(
            "tests/Simulator-v0",
            entry_point="tests.simulator:Simulator",
            vector_entry_point="tests.simulator:VectorSimulator",
        )
        kwargs = {"kwargs": {"autoreset_mode": AutoresetMode(request.param)}, "native_vector": "always"}
    recipe = EnvRecipe(source="tests/Simulator-v0" if native else Simulator, **kwargs)
    spec = EnvRecipe(source=Simulator).probe()

    def block() -> EnvBlock:
        setup = of_groups(recipe, spec, seed=3, groups=2, group_size=3)
        return make_block(setup, 3 if request.param == "threads" else 1)

    yield block, spec
    gym.registry.pop("tests/Simulator-v0", None)
