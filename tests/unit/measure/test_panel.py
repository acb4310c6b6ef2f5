"""The text of first and last lines, log lines and the live panel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.measure.iterations import INFO, SUMMARY, drawn, iteration, view

from paceline.measure.cpu import CpuSupply
from paceline.measure.panel import (
    bar,
    bar_line,
    duration,
    first_lines,
    last_lines,
    number,
    plain_line,
    sparkline,
)
from paceline.measure.record import EvaluationRow, Goal, WorkerActivity


def test_first_line_names_envs_workers_start_method_and_threads() -> None:
    first, folder = first_lines(INFO)
    for part in ("ppo", "CartPole-v1", "32 envs", "8 groups of 4", "2 workers", "forkserver", "1 thread", "seed 7"):
        assert part in first
    assert "runs/[red]x" in folder
    sequential = first_lines(replace(INFO, num_workers=0, start_method=None, resumed_steps=5000))
    assert "sequential" in sequential[0]
    assert "worker" not in sequential[0]
    assert sequential[1] == "resumed at step 5,000"


def test_plain_line_begins_with_the_episode_where_the_budget_is_episodes() -> None:
    now = iteration(4, last_return=123.4, last_length=1234)
    assert plain_line(view(now, goal=Goal(steps=10_000, episodes=50))).startswith(
        "[0:02] episode 40/50 | reward 123.4 | length 1,234 | mean(100) 12.5 | 10 episodes in this rollout | 32 envs | "
        "2,000 steps/s | "
    )
    by_steps = plain_line(view(now, goal=Goal(steps=5_000, episodes=1_000_000)))
    assert by_steps.startswith("[0:02] 4,000 / 5,000 steps | episode 40/1,000,000 | reward")
    none_yet = plain_line(view(iteration(1, ep_rew_mean=None, ep_len_mean=None, iteration_episodes=1)))
    assert "reward" not in none_yet
    assert "mean(100)" not in none_yet
    assert "| 1 episode in this rollout |" in none_yet


def test_lag_is_shown_where_there_is_one() -> None:
    parallel = {"policy_lag_mean": 0.52, "policy_lag_max": 3.0}
    assert "lag 0.52 (max 3)" in drawn(view(iteration(1, parallel=parallel)))
    assert "lag 0.52 (max 3)" in plain_line(view(iteration(1, parallel=parallel)))
    assert "lag" not in drawn(view(iteration(1, parallel={"policy_lag_mean": 0.0, "policy_lag_max": 0.0})))


def test_panel_has_a_line_for_each_worker() -> None:
    workers = [WorkerActivity(0.3, 0.1, 97.0, 45.0), WorkerActivity(0.1, 0.05)]
    text = drawn(view(iteration(1, workers=workers)))
    first, second = text.splitlines()[-2:]
    assert first.split()[0] == "0"
    for part in ("env  60%", "inference  20%", "idle  20%", "97 % cpu", "45 MB"):
        assert part in first
    assert "idle  70%" in second
    assert "cpu" not in second


def test_plain_line_says_everything_in_one_line() -> None:
    line = plain_line(view(iteration(4), last_eval=EvaluationRow(480.0, 1.0)))
    for part in (
        "0:02",
        "4,000 / 10,000 steps",
        "2,000 steps/s",
        "mean(100) 12.5",
        "eval 480.0",
        "collect 60%",
        "0:03 left",
    ):
        assert part in line
    assert "\n" not in line


def test_panel_shows_progress_speed_return_and_time() -> None:
    text = drawn(
        view(
            iteration(4, workers=[WorkerActivity(0.25, 0.125), WorkerActivity(0.375, 0.0)]),
            returns=[1.0, 5.0, 9.0],
            last_eval=EvaluationRow(480.0, 1.0),
            best_eval=EvaluationRow(490.0, 1.0),
        )
    )
    for part in ("40%", "0:03 left", "2,000 steps/s", "20 episodes/s", "12.5", "▁▅█", "480.0 last", "490.0 best",
                 "collect 60%", "learn 30%", "other 10%", "2 of 2   idle 25%", "1,234 MB PSS"):  # fmt: skip
        assert part in text, part


def test_panel_counts_iterations_and_gradient_steps() -> None:
    assert "4 iterations   1,224 updates" in drawn(view(iteration(4, train={"n_updates": 1224.0})))
    text = drawn(view(iteration(1, train={"n_updates": 1.0})))
    assert "1 iteration   1 update\n" in text
    assert "update" not in drawn(view(iteration(4)))


DQN = {"loss": 0.01234, "epsilon": 0.05, "buffer_size": 20_000.0, "n_updates": 7.0}
GAMES = {"elo": 1081.6, "win_rate_random": 0.614, "win_rate_self": 0.5, "loss": 0.3}


def test_statistics_of_the_task_and_of_learning_are_shown() -> None:
    dqn = view(iteration(4, train=DQN), iteration(5, train={"epsilon": 0.04}))
    assert "learning loss 0.0123   epsilon 0.04   replay buffer 20,000" in drawn(dqn), "no update has changed the loss"
    assert "| 2,000 steps/s | 20 episodes/s | loss 0.0123 | epsilon 0.04 | replay buffer 20,000 |" in plain_line(dqn)
    games = drawn(view(iteration(4, train=GAMES)))
    assert "task     Elo 1,082   win rate against random 61%, self 50%\n" in games
    assert "learning loss 0.3\n" in games
    shaped = drawn(view(iteration(4, reward_parts={"compliance": 0.5556}, success_rate=0.25)))
    assert "task     success rate 25%   compliance 0.556\n" in shaped
    newest = iteration(4, train={**DQN, **GAMES}, success_rate=0.25).statistics()
    last = last_lines(replace(SUMMARY, statistics=newest, episodes_per_s=1234.5), INFO, Goal(steps=4_000))
    assert ", 1,234 episodes/s" in last[0]
    assert last[1] == (
        "at the end: success rate 25%, Elo 1,082, win rate against random 61%, self 50%, loss 0.3, "
        "epsilon 0.05, replay buffer 20,000"
    )


def test_panel_before_the_first_iteration_and_without_episodes() -> None:
    assert "starting" in drawn(view())
    assert "no episode has ended yet" in drawn(view(iteration(1, ep_rew_mean=None, ep_len_mean=None)))


def test_the_first_rollout_shows_how_much_of_it_is_collected() -> None:
    begun = view(info=replace(INFO, rollout_steps=4096), collected=1024, wall_s=65.0)
    line = "first rollout: 1,024 of 4,096 steps collected"
    assert drawn(begun) == f"{bar(0.25, 30).plain} {line}, 1:05\n"
    assert drawn(begun, 60) == f"{'━' * 8} {line}, 1:05\n"
    assert drawn(begun, 40) == f"{line[:39]}…\n"
    assert bar_line(begun, 80).plain.startswith("━")
    assert plain_line(begun) == f"[1:05] {line} | 32 envs"
    without_a_common_rollout = view(collected=1024, wall_s=65.0)
    assert drawn(without_a_common_rollout).startswith("first rollout: 1,024 steps collected, 1:05")
    assert plain_line(view(wall_s=3.0)) == "[0:03] starting | 32 envs"


def test_panel_shows_dead_workers_restarts_and_silence() -> None:
    now = iteration(4, parallel={"workers_alive": 1, "worker_restarts": 3})
    text = drawn(view(now, since_s=75.0))
    assert "1 of 2" in text
    assert "3 restarts" in text
    assert "no update for 1:15, 0 steps collected" in text
    collecting = view(now, since_s=75.0, collected=300, info=replace(INFO, rollout_steps=400))
    assert "no update for 1:15, 300 of 400 steps collected" in drawn(collecting)


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_panel_keeps_to_its_width_and_height(width: int) -> None:
    text = drawn(view(iteration(4), returns=[float(i) for i in range(500)]), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert len(text.splitlines()) == 5


def test_bars_are_exactly_as_wide_as_asked() -> None:
    for fraction in (0.0, 0.013, 0.5, 0.999, 1.0):
        assert len(bar(fraction, 20).plain) == 20


def test_sparkline() -> None:
    assert sparkline([0.0, 7.0], 10) == "▁█"
    assert sparkline([float(i) for i in range(8)], 8) == "▁▂▃▄▅▆▇█"
    assert len(sparkline([float(i) for i in range(1000)], 24)) == 24
    assert sparkline([3.0, 3.0, 3.0], 10) == "▁▁▁"
    assert sparkline([1.0, float("nan"), 2.0], 10) == "▁█"
    assert sparkline([], 10) == sparkline([1.0], 10) == ""


def test_numbers_and_durations_are_formatted() -> None:
    assert [duration(s) for s in (0.4, 65, 3725)] == ["0:00", "1:05", "1:02:05"]
    found = [number(value) for value in (0.0, 0.01234, -3.14159, 40.0, 1234.56)]
    assert found == ["0.0", "0.0123", "-3.14", "40.0", "1,234.6"]


def test_last_lines() -> None:
    text = "\n".join(last_lines(SUMMARY, INFO, Goal(steps=4_000)))
    for part in ("finished (total_timesteps)", "4,000 steps", "2,000 steps/s", "evaluation 480.0", "best 490.0",
                 "collect 60%", "workers replaced: 1", "runs/[red]x"):  # fmt: skip
        assert part in text, part
    again = last_lines(SUMMARY, replace(INFO, resumed_steps=4_000), Goal(steps=4_000))
    assert again[0].startswith("nothing to do: ")
    assert again[1].startswith("finished (")
    assert last_lines(replace(SUMMARY, finished=False), INFO, Goal(steps=4_000))[0].startswith("stopped")


def test_the_bar_shows_progress_time_speed_and_return() -> None:
    line = bar_line(view(*(iteration(i) for i in range(1, 6))), 120).plain
    assert line.startswith("━" * 30 + "  50%  5,000/10,000 steps  0:02, 0:02 left  2,000 steps/s  return 12.5")


def test_the_bar_counts_in_the_unit_of_the_budget() -> None:
    assert " 10%  10/100 episodes  " in bar_line(view(iteration(1), goal=Goal(episodes=100)), 120).plain
    assert "  1,000 steps  " in bar_line(view(iteration(1), goal=Goal(seconds=60)), 120).plain


def test_the_bar_fits_its_width() -> None:
    assert len(bar_line(view(iteration(5)), 60).plain) == 60
    assert bar_line(view(), 60).plain == "starting, 0:00"


def test_the_log_and_the_last_lines_say_what_workers_do() -> None:
    workers = [WorkerActivity(0.1, 0.05, learn_s=0.25), WorkerActivity(0.2, 0.05, learn_s=0.25)]
    line = plain_line(view(iteration(1, workers=workers, phases={"wait": 0.5})))
    assert "wait 100% | workers: env 30% inference 10% learn 50% idle 10%" in line
    assert "workers:" not in plain_line(view(iteration(1)))
    done = replace(SUMMARY, worker_s={"env": 1.0, "inference": 0.5, "learn": 0.0, "idle": 0.5})
    assert "workers: env 50% inference 25% idle 25%" in last_lines(done, INFO, Goal(steps=4_000))
    assert not any(each.startswith("workers:") for each in last_lines(SUMMARY, INFO, Goal(steps=4_000)))


def test_the_last_lines_label_the_memory_of_workers() -> None:
    done = replace(SUMMARY, worker_peak_mb=[66.4, 71.8])
    assert "peak memory of a worker: 66 to 72 MB (PSS)" in last_lines(done, INFO, Goal(steps=4_000))


def test_the_last_lines_name_the_limit_unless_others_had_the_cores() -> None:
    assert "limited by collecting (60% of its time; learning 30%, other work 10%)" in last_lines(
        SUMMARY, INFO, Goal(steps=4_000)
    )
    starved = replace(SUMMARY, supply=CpuSupply(cores=2, own=0.5, others=1.5, waiting=1.0))
    text = "\n".join(last_lines(starved, INFO, Goal(steps=4_000)))
    assert "too little CPU to tell what limits this run: it got 0.5 of the 1.5 cores that it asked for" in text
    assert "limited by" not in text
