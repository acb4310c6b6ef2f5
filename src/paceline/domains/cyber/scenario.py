"""`Scenario`: the settings of a game of network defence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from paceline.errors import ConfigError, check_range, nearest

RedAgent = Literal["bline", "meander", "sleep"]
RuleSet = Literal["leaderboard-2022", "head"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """The settings of a game."""

    red_agent: RedAgent = "bline"
    """The attacker: `bline` takes the shortest path to the operational server, `meander` takes every host on its way,
    `sleep` does nothing."""
    green: bool = False
    """Whether benign users scan hosts now and then, which looks like an attacker's scan."""
    rules: RuleSet = "leaderboard-2022"
    """`leaderboard-2022`: a Restore leaves Haraka broken on User3 and User4 until the episode ends, and the attacker
    remembers every port that it has ever seen open. `head`: neither."""
    q1: bool = True
    """Whether the first Restore of Op_Server0 makes OTService unstoppable for the rest of the episode."""
    max_steps: int = 100
    """Steps after which every episode is truncated; nothing else ends it. The usual lengths are 30, 50 and 100."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("red_agent", self.red_agent, get_args(RedAgent)),
            ("rules", self.rules, get_args(RuleSet)),
        ):
            if value not in known:
                raise ConfigError(f"{name}={value!r}: unknown. {nearest(str(value), known)}")
        for name, flag in (("green", self.green), ("q1", self.q1)):
            if not isinstance(flag, bool):
                raise ConfigError(f"{name}={flag!r}: must be True or False.")
        if not isinstance(self.max_steps, int):
            raise ConfigError(f"max_steps={self.max_steps!r}: must be an integer. The usual values are 30, 50 and 100.")
        check_range("max_steps", self.max_steps, "The usual values are 30, 50 and 100.", at_least=1)
