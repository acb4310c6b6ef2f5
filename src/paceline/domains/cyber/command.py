"""`paceline cyber train|search|eval`: train and evaluate network defenders, and search for the best workflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from paceline.config.arguments import parse_arguments
from paceline.config.coerce import coerce
from paceline.config.flags import Given, read
from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.actions import TYPES
from paceline.domains.cyber.gp_ucb import gaussian_process, require_scikit_learn
from paceline.domains.cyber.scenario import RedAgent, RuleSet
from paceline.domains.cyber.search import Search, SearchPlan
from paceline.domains.cyber.training import SHOWN, CyberOptions, beneath, suited
from paceline.domains.cyber.trials import CSV, JSON, PICTURE, TEXT, Trial
from paceline.errors import ConfigError, nearest
from paceline.measure.folder import to_json, write_output
from paceline.measure.panel import plural
from paceline.measure.table import print_table
from paceline.train.start_up import begin, exit_code

SCORES = ("attacker", "steps", "mean", "standard error")


def run(argv: Sequence[str]) -> int:
    """Find the command, run it and return the exit code."""
    commands = {"train": _train, "search": _search, "eval": _eval}
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(
            "usage: paceline cyber COMMAND [FLAGS]\n\n"
            "Train PPO agents that defend a simulated network of 13 hosts against a scripted attacker\n"
            "(CAGE Challenge 2). A workflow is the order of priority in which a defender takes back types of hosts.\n\n"
            "  train    train a defender of paceline/NetworkDefence-v0, optionally with a workflow\n"
            "  search   search the 120 workflows for the one with the highest reward\n"
            "  eval     evaluate a defender: mean reward after 30, 50 and 100 steps\n\n"
            "`paceline cyber COMMAND --help` describes the flags of a command.\n"
        )
        return 0 if argv else 2
    if argv[0] not in commands:
        raise ConfigError(f"cyber {argv[0]}: no such command. {nearest(argv[0], commands)}")
    return commands[argv[0]](argv[1:])


def _config(given: Given[Any], options: CyberOptions) -> TrainConfig:
    named = given.names()
    return suited(given.config(beneath(named)), options, named)


def _begin(config: TrainConfig, title: str) -> None:
    """Start the fork server before this process loads torch, so that both load it at the same time."""
    begin(config)
    from paceline.runtime.worker import set_title

    set_title(f"paceline: cyber {title}")


def _train(argv: Sequence[str]) -> int:
    given = read(
        argv,
        prog="paceline cyber train",
        description="Train PPO on network defence with tuned defaults. With a workflow, the order is part of the "
        "observation and compliance with it is rewarded. Accepts every flag of `paceline train ppo`.",
        extra=CyberOptions,
        defaults=SHOWN,
    )
    config = _config(given, given.options)
    _begin(config, "train")
    from paceline.train.run import train

    summary = train(config, argv=["paceline", "cyber", "train", *argv])
    return exit_code(summary.stop_reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions(CyberOptions):
    """Flags of `cyber search`, in addition to those of `cyber train`."""

    gp_beta: float = 2.0
    """Exploration weight (beta) of GP-UCB: standard deviations added to the predicted mean."""
    n_workflows: int = 120
    """Largest number of workflows to train."""
    n_initial: int = 4
    """Workflows drawn at random before the Gaussian process chooses; those of --workflow come first."""
    workflow_episodes: int = 10_000
    """Episodes per workflow; --total-episodes limits the whole search."""
    warm_start: bool = True
    """Start each training with the weights of the previous one."""


def _search(argv: Sequence[str]) -> int:
    given = read(
        argv,
        prog="paceline cyber search",
        description="Train with one workflow after another, each until its compliance passes the threshold or its "
        "budget is spent. A Gaussian process over the rewards chooses the next. Needs the extra search.",
        extra=SearchOptions,
        defaults=SHOWN,
    )
    options = given.options
    folder, config, resume = _search_config(given, options)
    require_scikit_learn()
    run = config.run
    plan = SearchPlan(
        gp_beta=options.gp_beta,
        n_workflows=options.n_workflows,
        n_initial=options.n_initial,
        total_episodes=run.total_episodes,
        workflow_episodes=options.workflow_episodes,
        duration_s=run.budget_s,
        warm_start=options.warm_start,
        seed=run.seed,
        first=tuple(options.workflows),
    )
    command = ["paceline", "cyber", "search", *argv]
    if run.overwrite and resume:
        raise ConfigError("resume with overwrite: resuming keeps the earlier trials. Give one of the two.")
    if run.overwrite:
        for name in (CSV, JSON, TEXT, PICTURE):
            (folder / name).unlink(missing_ok=True)
    search = Search(folder, plan, {"command": command, "settings": _deciding(config)}, gaussian_process)
    if search.trials and not resume:
        raise ConfigError(
            f"output_dir {str(folder)!r}: holds a search already ({plural(len(search.trials), 'workflow')}). "
            "Choose another folder, continue with --resume, or replace it with --overwrite."
        )
    _begin(config, "search")
    from paceline.domains.cyber.search_report import report, write_report
    from paceline.domains.cyber.workflow_training import WorkflowTrainer

    console = Console(stderr=True, highlight=False)

    def report_trial(search: Search) -> None:
        write_report(search)
        console.print(_trial_line(search.trials[-1], search.leaders), markup=False, soft_wrap=True)

    reason = search.run(WorkflowTrainer(config, command), report_trial)
    if search.trials:
        write_report(search)
    sys.stdout.write(report(search, search.belief()))
    sys.stdout.write(
        f"ended by {reason}; written: {', '.join(str(folder / name) for name in (CSV, JSON, TEXT, PICTURE))}\n"
    )
    return exit_code(reason)


def _search_config(given: Given[SearchOptions], options: SearchOptions) -> tuple[Path, TrainConfig, bool]:
    """The folder of the search, the config of its runs, and whether to resume the search.

    The config has a placeholder workflow, which every trial replaces.
    """
    flags = dict(given.flags)
    if "total_timesteps" in flags:
        raise ConfigError("total_timesteps: a search counts episodes. Use --total-episodes.")
    resume = flags.pop("resume", None)
    if resume not in (None, "true"):
        raise ConfigError(f"resume={resume!r}: a search resumes in its own folder. Use --output-dir DIR --resume.")
    if resume and "output_dir" not in flags:
        raise ConfigError("resume: needs the folder of the search to resume. Use --output-dir DIR --resume.")
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(flags.pop("output_dir", None) or f"runs/cyber_search__{flags.get('seed', 0)}__{stamp}")
    plain = Given(given.algo, flags, given.path, options)
    return folder, _config(plain, replace(options, workflow=options.workflow or TYPES)), bool(resume)


def _deciding(config: TrainConfig) -> dict[str, Any]:
    """The settings that a resumed search must share with the earlier one."""
    sections = config.to_dict()
    env = {key: value for key, value in sections["env"].items() if not key.endswith("_timeout_s")}
    env["env_kwargs"] = {key: value for key, value in env["env_kwargs"].items() if key != "workflow"}
    run = {key: sections["run"][key] for key in ("n_eval_episodes", "stop_at", "init_from")}
    return {**env, **sections["training"], **sections["policy"], **run}


def _trial_line(trial: Trial, leaders: Sequence[Trial]) -> str:
    compliance = "" if trial.compliance is None else f", compliance {trial.compliance:.3f}"
    best = leaders[0].workflow if len(leaders) == 1 else f"{len(leaders)} workflows, which tie"
    return (
        f"workflow {trial.number}: {trial.workflow}: reward {trial.reward:.2f}{compliance} after "
        f"{trial.episodes:,} episodes; best so far {leaders[0].reward:.2f} with {best}"
    )


def _eval(argv: Sequence[str]) -> int:
    given = _eval_flags(argv)
    episodes: int = coerce(given.episodes, int, "episodes")
    steps: tuple[int, ...] = coerce(given.steps, tuple[int, ...], "steps")
    agents: tuple[str, ...] = coerce(given.red_agent or "", tuple[RedAgent, ...], "red_agent")
    game = {} if given.rules is None else {"rules": coerce(given.rules, RuleSet, "rules")}
    game |= {"green": True} if given.green else {}
    seed: int = coerce(given.seed, int, "seed")
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.domains.cyber.scores import scores

    found = scores(
        Path(given.run),
        episodes=episodes,
        steps=steps,
        red_agents=agents,
        seed=seed,
        deterministic=not given.stochastic,
        **game,
    )
    if given.json is not None:
        write_output(Path(given.json), to_json(found), "json")
    console = Console(highlight=False)
    trained = "" if found.trained_steps is None else f", trained for {found.trained_steps:,} steps"
    drawn = "sampled actions" if given.stochastic else "most probable actions"
    title = f"{found.snapshot}{trained}: {plural(episodes, 'episode')}, {found.rules} rules, {drawn}"
    lines = [[row.red_agent, str(row.steps), f"{row.mean:.2f}", f"{row.error:.2f}"] for row in found.rows]
    console.print(title, markup=False, soft_wrap=True)
    print_table(console, SCORES, lines, left=["attacker"])
    return 0


def _eval_flags(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="paceline cyber eval",
        description="Evaluate a trained defender: mean cumulative reward after several numbers of steps.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "run", metavar="RUN", help="run folder, one of its checkpoints, its best_model, or a saved model"
    )
    parser.add_argument("--episodes", "-n", default="1000", metavar="N", help="episodes per attacker (default: 1000)")
    parser.add_argument(
        "--steps",
        default="30,50,100",
        metavar="A,B",
        help="steps after which the reward is reported (default: 30,50,100)",
    )
    parser.add_argument(
        "--red-agent", metavar="A,B",
        help=f"attackers: {', '.join(get_args(RedAgent))} (default: the one it was trained against)",
    )  # fmt: skip
    parser.add_argument(
        "--rules", metavar="R", help=f"{' or '.join(get_args(RuleSet))} (default: those of the training)"
    )
    parser.add_argument("--green", action="store_true", help="with the green agent (a benign user)")
    parser.add_argument("--seed", default="0", metavar="S", help="seed of the episodes (default: 0)")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions as in training (default: the most probable action)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the result to this JSON file")
    return parse_arguments(parser, argv)
