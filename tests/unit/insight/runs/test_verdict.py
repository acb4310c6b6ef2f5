from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete, config, read_all, sides

from paceline.insight.runs.likeness import remarks
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.sides import Side
from paceline.insight.runs.verdict import verdict
from paceline.measure.cpu import CpuSupply


@pytest.fixture
def pair(tmp_path: Path) -> list[RunResult]:
    """The same returns, one process and four workers."""
    seq = complete(tmp_path / "seq", returns=float)
    par = complete(tmp_path / "par", returns=float, num_workers=4, fps=30_000.0, phases={"learn": 9.0, "env": 4.0})
    return read_all(seq, par)


def group(tmp_path: Path, name: str, level: float, fps: tuple[float, ...], first_seed: int = 0) -> list[RunResult]:
    """Runs whose return is flat, a little apart."""
    paths = [
        complete(tmp_path / f"{name}{i}", returns=lambda _, i=i: level + i, fps=each, seed=first_seed + i)  # type: ignore[misc]
        for i, each in enumerate(fps)
    ]
    return read_all(*paths)


def test_the_verdict_names_speed_up_learning_and_bottleneck(pair: list[RunResult]) -> None:
    assert verdict(sides(*pair)) == (
        "par (4 workers) ran 3.00 times as fast as seq (30,000 against 10,000 steps/s), learned the same step for step "
        "(identical returns and losses over the 30,000 steps that both took), and is now limited by learning "
        "(60% of its time; stepping envs 27%, other work 13%)."
    )


def test_equal_weights_after_equal_steps_are_identical(pair: list[RunResult]) -> None:
    twins = [replace(run, weights_sha256="abc") for run in pair]
    assert "learned exactly the same (identical weights after 30,000 steps)" in verdict(sides(*twins))
    apart = [twins[0], replace(twins[1], steps=29_000)]
    assert "exactly" not in verdict(sides(*apart))
    assert "exactly" not in verdict(sides(twins[0], replace(twins[1], seed=8)))


def test_the_verdict_names_slower_and_equal_runs(pair: list[RunResult]) -> None:
    seq, par = pair
    slow = verdict(sides(seq, replace(par, fps=5_000.0, phases={"wait": 12.0, "learn": 3.0})))
    assert "ran slower than seq, at 0.50 times its speed" in slow
    assert "limited by waiting for workers (80% of its time; learning 20%)" in slow
    assert "ran about as fast as seq" in verdict(sides(seq, replace(par, fps=10_300.0)))


def test_one_run_per_side_may_be_chance(tmp_path: Path) -> None:
    runs = read_all(
        complete(tmp_path / "a", returns=lambda i: 10.0, seed=1),
        complete(tmp_path / "b", returns=lambda i: 20.0, seed=2),
    )
    text = verdict(sides(*runs))
    assert "had a mean return of 20.0 against 10.0 over the first 30,000 steps" in text
    assert "may be chance" in text


def test_groups_whose_bands_overlap_learned_the_same(tmp_path: Path) -> None:
    a = group(tmp_path, "a", 100.0, (1000.0, 1010.0, 1020.0))
    b = group(tmp_path, "b", 101.0, (2000.0, 2020.0, 2040.0), first_seed=5)
    text = verdict(sides(a, b))
    assert "ran 2.00 times as fast as A (2,020 against 1,010 steps/s; 95% t-interval 1.9" in text
    assert "learned the same as far as 3 against 3 runs can show" in text
    assert "overlap on 100% of the first 30,000 steps" in text


@pytest.mark.parametrize(("level", "word"), [(300.0, "better"), (20.0, "worse")])
def test_groups_whose_bands_do_not_overlap_learned_differently(tmp_path: Path, level: float, word: str) -> None:
    a = group(tmp_path, "a", 100.0, (1000.0, 1000.0))
    b = group(tmp_path, "b", level, (1000.0, 1000.0), first_seed=5)
    text = verdict(sides(a, b))
    assert f"learned {word} per step (mean return of {level + 0.5} against 100.5" in text
    assert "overlap on only 0% of" in text


def test_a_difference_within_the_spread_is_no_speed_up(tmp_path: Path) -> None:
    a = group(tmp_path, "a", 100.0, (1000.0, 2000.0))
    b = group(tmp_path, "b", 100.0, (1500.0, 2500.0))
    assert "ran not reliably faster or slower than A" in verdict(sides(a, b))


def test_the_verdict_begins_with_serious_differences(pair: list[RunResult]) -> None:
    seq, par = pair
    text = verdict(sides(seq, replace(par, n_envs=8, config=config(run__duration="30s"))))
    assert text.startswith(
        "Not like for like (n_envs 32 against 8; duration 60 s against 30 s): par (4 workers) ran 3.00"
    )


def test_other_tasks_are_not_judged(pair: list[RunResult]) -> None:
    seq, par = pair
    assert verdict(sides(seq, replace(par, env="Acrobot-v1"))) == (
        "These runs cannot be compared, neither in speed nor in learning: "
        "they differ in env CartPole-v1 against Acrobot-v1."
    )


def test_the_verdict_is_about_the_fastest_side_with_the_same_task(pair: list[RunResult]) -> None:
    seq, par = pair
    slow = replace(par, path=Path("slow"), fps=12_000.0)
    odd = replace(par, path=Path("odd"), fps=99_000.0, env="Acrobot-v1")
    text = verdict(sides(seq, slow, par, odd))
    assert text.startswith("The fastest other side, par (4 workers), ran 3.00 times as fast as seq")
    assert text.endswith("; odd did another task and cannot be compared.")


def test_nothing_to_compare(pair: list[RunResult]) -> None:
    seq, par = pair
    assert "seq took no steps, so there is nothing to compare" in verdict(sides(replace(seq, fps=0.0), par))
    blank: list[Side] = list(sides(replace(seq, progress={}), replace(par, progress={}, phases={})))
    assert verdict(blank).endswith("recorded too little to compare learning.")


def test_a_single_side_is_summed_up_without_a_ranking(tmp_path: Path) -> None:
    assert verdict(sides(group(tmp_path, "a", 100.0, (1000.0, 1200.0, 1400.0)))) == (
        "3 seeds of one config (ppo on CartPole-v1): final evaluation 480.0 ± 0.0, mean return of the last 100 "
        "episodes 101.0 ± 2.48, 1,200 ± 497 steps/s (mean ± half of its 95% t-interval)."
    )


def test_waiting_for_workers_is_limited_by_what_they_do(pair: list[RunResult]) -> None:
    seq, par = pair
    waiting = replace(par, phases={"wait": 13.8, "sync": 0.6}, worker_s={"env": 6.0, "inference": 2.0, "idle": 2.0})
    assert "limited by stepping envs (60% of its workers' time; choosing actions 20%)" in verdict(sides(seq, waiting))
    uneven = replace(waiting, worker_s={"env": 4.0, "inference": 1.0, "idle": 5.0})
    assert "limited by waiting for workers (92% of its time" in verdict(sides(seq, uneven))


def test_no_bottleneck_is_named_when_others_had_the_cores(pair: list[RunResult]) -> None:
    seq, par = pair
    starved = replace(par, supply=CpuSupply(cores=2, own=0.44, others=1.5, waiting=1.1))
    text = verdict(sides(seq, starved))
    assert "limited by" not in text
    assert (
        "got too little CPU to tell what limits it: it got 0.4 of the 1.5 cores that it asked for, while other "
        "programs or virtual machines used 75% of the 2 cores" in text
    )
    assert [said for said in remarks(sides(seq, starved), []) if said.startswith("par got less CPU than it asked for")]
    assert "limited by learning" in verdict(sides(seq, replace(par, supply=CpuSupply(cores=2, own=1.9, others=0.1))))
