"""Builds the `TrainConfig` of a `paceline cyber` command: env, reward shaper and defaults tuned for network defence.

    no workflow     NetworkDefence, 52 inputs, the env's own reward
    workflows       WorkflowDefence, 52 + 25 inputs, the env's reward and the alignment reward

Does not import torch.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.scenario import RedAgent, RuleSet
from paceline.domains.cyber.workflow import PLACES, Definition, read_workflow, workflow_name
from paceline.errors import ConfigError, check_optional

PLAIN_ENV = "paceline/NetworkDefence-v0"
WORKFLOW_ENV = "paceline/WorkflowDefence-v0"
ALIGNMENT = "paceline.domains.cyber.workflow:Alignment"

BATCH_SIZE = 2000
"""Largest default minibatch size."""

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
"""Defaults of training settings, tuned for this env. configs/network_defence.yaml has the same values."""
GAME: dict[str, Any] = {"red_agent": "meander", "max_steps": 100, "rules": "leaderboard-2022"}
"""Defaults of the env's arguments."""
EPISODES = 100_000
"""Default budget in episodes."""
SHOWN: dict[str, Any] = {
    "env": f"{PLAIN_ENV}, or {WORKFLOW_ENV} with a workflow",
    **SETTINGS,
    "batch_size": f"the largest divisor up to {BATCH_SIZE}",
    "total_episodes": EPISODES,
    "total_timesteps": "no limit",
}
"""The defaults of settings as the help page shows them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CyberOptions:
    """Env and workflow. An option that is not given comes from the resumed run, or else from the defaults."""

    red_agent: RedAgent | None = None
    """Attacker. bline takes the shortest path to the operational server, meander attacks every host, sleep does
    nothing. Default: meander."""
    max_steps: int | None = None
    """Steps per episode. Default: 100."""
    rules: RuleSet | None = None
    """Rule set of CAGE Challenge 2: that of the 2022 leaderboard or the newest one (head). Default:
    leaderboard-2022."""
    green: bool | None = None
    """Add the green agent: a benign user whose scans look like the attacker's. Default: false."""
    workflow: tuple[str, ...] | None = None
    """Order of priority of the host types, e.g. op_server,enterprise,op_host,defender,user. It is part of the
    observation, and fixing hosts in this order is rewarded. Of several, each episode draws one."""
    alignment_lambda: float | None = None
    """Reward of an episode whose fixes all comply with the workflow (lambda). Default: 30."""
    compliance: Definition | None = None
    """When a fix complies. ordered: every type of higher priority was fixed earlier in the episode. state: its type has
    the highest priority of those that the attacker holds. Default: ordered."""
    compliance_threshold: float | None = None
    """With a workflow: stop when the mean compliance of the last 100 episodes reaches this. Default: 0.95."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_optional("max_steps", self.max_steps, "Try 100.", at_least=1)
        check_optional("alignment_lambda", self.alignment_lambda, "Try 30.", at_least=0)
        check_optional("compliance_threshold", self.compliance_threshold, "Try 0.95.", above=0)

    @property
    def workflows(self) -> list[str]:
        """The given workflows, each as a comma-separated text."""
        names = self.workflow or ()
        return [workflow_name(read_workflow(names[i : i + PLACES])) for i in range(0, len(names), PLACES)]

    @property
    def game(self) -> dict[str, Any]:
        """The given arguments of the env."""
        given = {"red_agent": self.red_agent, "max_steps": self.max_steps, "rules": self.rules, "green": self.green}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def shaping(self) -> dict[str, Any]:
        """The given arguments of the reward shaper."""
        given = {"alignment_lambda": self.alignment_lambda, "compliance": self.compliance}
        return {name: value for name, value in given.items() if value is not None}


def beneath(named: Set[str]) -> dict[str, Any]:
    """Defaults for settings that are not given.

    Args:
        named: Names of the settings given by flags, by a config file or by a resumed run.
    """
    settings = {"env": PLAIN_ENV, **SETTINGS}
    if not {"total_episodes", "total_timesteps", "duration"} & named:
        settings["total_episodes"] = EPISODES
    if "num_envs_per_worker" in named:
        del settings["n_envs"]
    return settings


def suited(config: TrainConfig, options: CyberOptions, named: Set[str]) -> TrainConfig:
    """Apply the options to a config: env, reward shaper and minibatch size.

    Args:
        config: All other settings.
        options: The command's own options.
        named: Names of the settings given by flags, by a config file or by a resumed run.

    Raises:
        ConfigError: The config has another env, or an option needs a workflow and none is given.
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
            "alignment_lambda, compliance, compliance_threshold: need a workflow (none given). "
            "Use --workflow op_server,enterprise,op_host,defender,user, for example."
        )
    if "batch_size" not in named:
        changes["batch_size"] = _largest_divisor(config.batch_steps, BATCH_SIZE)
    return config.merge(**changes)


def _largest_divisor(number: int, at_most: int) -> int:
    return max(divisor for divisor in range(1, min(number, at_most) + 1) if number % divisor == 0)
