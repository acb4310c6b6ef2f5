"""Invalid settings of a game are refused by name, by the single env and by the vector env."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError

ENV = "paceline/NetworkDefence-v0"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"red_agent": "blin"}, "red_agent='blin': unknown. Did you mean 'bline'?"),
        ({"rules": "leaderbord"}, "Did you mean 'leaderboard-2022'?"),
        ({"max_steps": 0}, "max_steps=0: must be at least 1"),
        ({"max_steps": 2.5}, "max_steps=2.5: must be an integer"),
        ({"green": "no"}, "green='no': must be True or False"),
        ({"q1": 1}, "q1=1: must be True or False"),
        ({"read_agent": "bline"}, "unknown argument 'read_agent'. Did you mean 'red_agent'?"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], text: str) -> None:
    for make in (
        EnvRecipe(source=ENV, kwargs=settings).make,
        partial(EnvRecipe(source=ENV, kwargs=settings).make_vector, 2),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert text in str(caught.value)
