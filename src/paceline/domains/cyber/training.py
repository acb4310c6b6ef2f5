"""From the options of `paceline cyber` to the config of a training: which game and reward, and settings that suit it.

    no workflow     NetworkDefence, 52 inputs, the env's own reward
    workflows       WorkflowDefence, 52 + 25 inputs, the env's reward and the alignment reward

Free of torch.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Literal

from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.workflow import PLACES, Definition, read_workflow, workflow_name
from paceline.errors import ConfigError, check_range

PLAIN_ENV = "paceline/NetworkDefence-v0"
WORKFLOW_ENV = "paceline/WorkflowDefence-v0"
ALIGNMENT = "paceline.domains.cyber.workflow:Alignment"

RedAgent = Literal["meander", "bline", "sleep"]
Rules = Literal["leaderboard-2022", "head"]

NATIVE_GROUP = 16
"""The smallest group that is worth a vector env."""
BATCH_SIZE = 2000
"""The largest minibatch."""

SETTINGS: dict[str, Any] = {
    "n_envs": 100,
    "n_steps": 100,
    "n_epochs": 4,
    "learning_rate": 1e-3,
    "lr_schedule": "linear",
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.005,
    "normalize_reward": True,
    "n_eval_episodes": 20,
    "save_freq": 1_000_000,
}
"""What holds unless flags or a config file say otherwise; configs/network_defence.yaml says the same."""
GAME: dict[str, Any] = {"red_agent": "meander", "max_steps": 100, "rules": "leaderboard-2022"}
"""The same for the env."""
EPISODES = 100_000
"""The budget where none is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CyberOptions:
    """The game, and the workflow to keep to. What is not given is taken from a resumed run, else from the defaults."""

    red_agent: RedAgent | None = None
    """Who attacks; meander where nothing is said."""
    max_steps: int | None = None
    """Steps of an episode; 100 where nothing is said."""
    rules: Rules | None = None
    """Which of the two published rule sets; leaderboard-2022 where nothing is said."""
    green: bool | None = None
    """Whether a user is at work, whose scans look like the attacker's."""
    workflow: tuple[str, ...] | None = None
    """Host types, the most urgent first, as in op_server,enterprise,op_host,defender,user. The policy is shown it, and
    paid for keeping to it. Of several, each episode draws one."""
    alignment_lambda: float | None = None
    """What a compliance of 1 is worth in an episode; 30 where nothing is said."""
    compliance: Definition | None = None
    """Which fixes are compliant: those with every more urgent type fixed before in the episode (ordered), or those of
    the most urgent type that the attacker holds (state). Ordered where nothing is said."""
    compliance_threshold: float | None = None
    """With a workflow, stop once the last 100 episodes have this mean compliance; 0.95 where nothing is said."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.max_steps is not None:
            check_range("max_steps", self.max_steps, "Try 100.", at_least=1)
        if self.alignment_lambda is not None:
            check_range("alignment_lambda", self.alignment_lambda, "Try 30.", at_least=0)
        if self.compliance_threshold is not None:
            check_range("compliance_threshold", self.compliance_threshold, "Try 0.95.", above=0)

    @property
    def workflows(self) -> list[str]:
        """The workflows that are named, each as it is written."""
        names = self.workflow or ()
        return [workflow_name(read_workflow(names[i : i + PLACES])) for i in range(0, len(names), PLACES)]

    @property
    def game(self) -> dict[str, Any]:
        """Arguments of the env that were given."""
        given = {"red_agent": self.red_agent, "max_steps": self.max_steps, "rules": self.rules, "green": self.green}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def shaping(self) -> dict[str, Any]:
        """Arguments of the shaper that were given."""
        given = {"alignment_lambda": self.alignment_lambda, "compliance": self.compliance}
        return {name: value for name, value in given.items() if value is not None}


def beneath(named: Set[str]) -> dict[str, Any]:
    """The settings that hold where nothing else says them.

    Args:
        named: The settings that flags or a config file name.
    """
    settings = {"env": PLAIN_ENV, **SETTINGS}
    if not {"total_episodes", "total_timesteps", "duration"} & named:
        settings["total_episodes"] = EPISODES
    if "num_envs_per_worker" in named:
        del settings["n_envs"]
    return settings


def suited(config: TrainConfig, options: CyberOptions, named: Set[str]) -> TrainConfig:
    """The same with the options' game and reward, and sizes that suit the number of envs.

    Args:
        config: Of everything else.
        options: What was asked for.
        named: The settings given by flags, by a config file or by a resumed run.

    Raises:
        ConfigError: The env is another, or options need a workflow and there is none.
    """
    if config.env.env not in (PLAIN_ENV, WORKFLOW_ENV):
        raise ConfigError(
            f"cyber: trains {PLAIN_ENV} (got env={config.env_name!r}). Use paceline train ppo --env {config.env_name}."
        )
    kwargs = {**GAME, **config.env.env_kwargs, **options.game}
    if workflows := options.workflows:
        kwargs["workflow"] = workflows[0] if len(workflows) == 1 else workflows
    changes: dict[str, Any] = {"env": PLAIN_ENV, "env_kwargs": kwargs}
    if "workflow" in kwargs:
        changes |= {
            "env": WORKFLOW_ENV,
            "shaper": ALIGNMENT,
            "shaper_kwargs": {**config.env.shaper_kwargs, **options.shaping},
            "stop_at": {"compliance": options.compliance_threshold or config.run.stop_at.get("compliance", 0.95)},
        }
    elif options.shaping or options.compliance_threshold is not None:
        raise ConfigError(
            "alignment_lambda, compliance, compliance_threshold: are of a workflow (none given). "
            "Use --workflow op_server,enterprise,op_host,defender,user, say."
        )
    if "group_size" not in named:
        changes["group_size"] = group_size(config.n_envs)
    if "batch_size" not in named:
        changes["batch_size"] = _largest_divisor(config.batch_steps, BATCH_SIZE)
    return config.merge(**changes)


def group_size(n_envs: int) -> int | None:
    """Envs per group: two groups of vector envs where that is possible, one where it is not; None for few envs."""
    for groups in range(2, n_envs // NATIVE_GROUP + 1):
        if n_envs % groups == 0:
            return n_envs // groups
    return n_envs if n_envs >= NATIVE_GROUP else None


def _largest_divisor(number: int, at_most: int) -> int:
    return max(divisor for divisor in range(1, min(number, at_most) + 1) if number % divisor == 0)
