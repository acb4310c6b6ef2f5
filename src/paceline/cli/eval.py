"""`paceline eval RUN`: evaluate a trained agent; optionally record a video."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from paceline.config.arguments import parse_arguments
from paceline.config.coerce import coerce
from paceline.errors import check_range
from paceline.measure.panel import number, plural


def run(argv: Sequence[str]) -> int:
    """Play evaluation episodes with the newest weights of a run and print return and length."""
    parser = argparse.ArgumentParser(
        prog="paceline eval",
        description="Evaluate the newest checkpoint of a run and print the mean return.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "run", metavar="RUN", help="run folder, one of its checkpoints, its best_model, or a saved model"
    )
    parser.add_argument("--episodes", "-n", default="10", metavar="N", help="episodes to play (default: 10)")
    parser.add_argument(
        "--video",
        metavar="FILE",
        help="write a .gif or .mp4 of the first 30 seconds (.mp4 and envs that draw with pygame need the extra video)",
    )
    parser.add_argument("--seed", metavar="S", help="seed of the episodes (default: as in the run's own evaluations)")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions as in training (default: the most probable action)"
    )
    given = parse_arguments(parser, argv)
    episodes: int = coerce(given.episodes, int, "episodes")
    check_range("episodes", episodes, "Try 10.", at_least=1)
    seed: int | None = None if given.seed is None else coerce(given.seed, int, "seed")
    if seed is not None:
        check_range("seed", seed, "Try 0.", at_least=0, at_most=2**63 - 1)
    video = None if given.video is None else Path(given.video)
    # Imported only now, because it loads torch, which takes longer than parsing the command line.
    from paceline.measure.video import check_path
    from paceline.train.play import play

    if video is not None:
        check_path(video)
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws into memory and needs no display
    played = play(Path(given.run), episodes=episodes, seed=seed, deterministic=not given.stochastic, video=video)
    console, result = Console(highlight=False), played.result
    trained = "" if played.steps is None else f", trained for {played.steps:,} steps"
    lines = [
        f"{played.env}: {played.snapshot}{trained}",
        f"return {number(result.mean_reward)} ± {number(result.std_reward)} "
        f"(lowest {number(min(result.returns))}, highest {number(max(result.returns))}), "
        f"length {number(result.mean_ep_length)}, {plural(episodes, 'episode')}, "
        f"{'sampled actions' if given.stochastic else 'most probable actions'}",
    ]
    if result.cut:
        lines.append(f"{plural(result.cut, 'episode')} cut at {max(result.lengths):,} steps; the env may never end")
    if video is not None and played.video_s is not None:
        lines.append(f"video: {video}, {played.video_s:.0f} s of {plural(played.video_episodes, 'episode')}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    return 0
