from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete, read_progress, recorded, summarised

from paceline.errors import ConfigError
from paceline.insight.runs.listing import listed
from paceline.insight.runs.results import read_run
from paceline.measure.cpu import CpuSupply

STORED = Path(__file__).parents[3] / "golden" / "stored" / "checkpoints"
"""Run folders of an earlier version."""


def test_summary_is_read(tmp_path: Path) -> None:
    run = read_run(summarised(tmp_path / "a", weights_sha256="ab"))
    assert run.finished
    assert (run.algo, run.env, run.seed, run.n_envs, run.num_workers) == ("ppo", "CartPole-v1", 7, 32, 0)
    assert (run.steps, run.episodes, run.wall_s, run.fps) == (100_000, 900, 10.0, 10_000.0)
    assert (run.final_eval, run.best_eval, run.peak_memory_mb) == (480.0, 500.0, 300.0)
    assert (run.startup_s, run.group_size, run.weights_sha256) == (1.5, 4, "ab")
    assert run.phases["env"] == 4.0
    assert run.mean_return is None
    assert run.command == "paceline train ppo --output-dir a"
    assert run.section("training")["n_steps"] == 128
    assert run.machine["cpu"] == "Testium 9"


def test_unfinished_run_is_read_from_its_progress(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a")
    (path / "config.yaml").write_text(
        "env: {env: CartPole-v1, n_envs: 32}\nparallel: {num_workers: auto}\nrun: {algo: ppo, seed: 3}\n"
    )
    (path / "layout.json").write_text('{"num_workers": 2}')
    run = read_run(path)
    assert not run.finished
    assert (run.algo, run.env, run.seed, run.n_envs, run.num_workers) == ("ppo", "CartPole-v1", 3, 32, 2)
    assert (run.steps, run.episodes, run.wall_s) == (3000, 30, 1.5)
    assert run.fps == pytest.approx(3000 / 1.4)  # 0.1 s were evaluation
    assert (run.final_eval, run.best_eval, run.mean_return) == (90.0, 100.0, 40.0)
    assert run.peak_memory_mb == 300.0
    assert run.phases["collect"] == pytest.approx(0.75)
    assert run.restarts == 1


def test_steps_per_second_of_earlier_versions_are_computed_by_the_present_definition(tmp_path: Path) -> None:
    path = summarised(tmp_path / "a", phases={"learn": 4.0, "eval": 1.0, "checkpoint": 1.0}, fps=25_000.0)
    content = json.loads((path / "summary.json").read_text())
    assert read_run(path).fps == 25_000.0
    del content["training_s"]  # an earlier version wrote it: 100,000 steps / 4 s, without the 4 s in no phase
    (path / "summary.json").write_text(json.dumps(content))
    assert read_run(path).fps == 12_500.0
    assert listed(path).fps == 12_500.0


def test_rows_of_earlier_versions_count_all_but_evaluations(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a")
    lines = [line.split(",") for line in (path / "progress.csv").read_text().splitlines()]
    column = lines[0].index("time/training_s")
    assert read_run(path).fps == listed(path).fps == pytest.approx(3000 / 1.4)
    for line in lines[1:]:
        line[column] = ""  # a run that an earlier version began
    (path / "progress.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    assert read_run(path).fps == pytest.approx(3000 / 1.4)
    (path / "progress.csv").write_text("".join(",".join(line[:column] + line[column + 1 :]) + "\n" for line in lines))
    assert read_run(path).fps == pytest.approx(3000 / 1.4)


def test_cpu_use_is_the_mean_from_the_first_sample_on(tmp_path: Path) -> None:
    assert read_run(recorded(tmp_path / "a")).cpu_percent == pytest.approx((102 + 103) / 2)
    assert read_run(recorded(tmp_path / "b", iterations=1)).cpu_percent is None


def test_the_cpu_that_the_run_got_is_read_from_samples_or_from_the_summary_of_a_short_run(tmp_path: Path) -> None:
    path = summarised(tmp_path / "a", supply=CpuSupply(cores=2, own=0.5, others=1.25, waiting=1.0))
    assert read_run(path).supply == CpuSupply(cores=2, own=0.5, others=1.25, waiting=1.0)
    assert read_run(path).cpu_percent == 50.0
    assert read_run(summarised(tmp_path / "earlier")).supply is None
    # CPU use of 102 % and 103 % was recorded, and that of others since the second sample.
    long = recorded(tmp_path / "b", others=(30.0, 40.0, 60.0))
    summarised(long, steps=3000, supply=CpuSupply(cores=2, own=9.0, others=9.0))
    read = read_run(long).supply
    assert read is not None
    assert (read.own, read.others) == pytest.approx((1.025, 0.5))
    assert read.waiting is None


@pytest.mark.parametrize("config", [None, "", "[1, 2]", "env: 3\nrun: [", "!!python/object:os.system {}"])
def test_unfinished_run_without_a_usable_config(tmp_path: Path, config: str | None) -> None:
    path = recorded(tmp_path / "a")
    if config is not None:
        (path / "config.yaml").write_text(config)
    run = read_run(path)
    assert run.env is None
    assert run.num_workers is None
    assert run.steps == 3000


def test_a_resumed_run_with_an_older_summary_is_unfinished(tmp_path: Path) -> None:
    path = complete(tmp_path / "a", returns=float, iterations=30)
    assert read_run(path).finished
    summarised(path, steps=20_000)
    run = read_run(path)
    assert not run.finished
    assert run.steps == 30_000
    assert "older than progress.csv" in run.stop_reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ('{"steps": 1', "not JSON"),
        ("[]", "not a mapping"),
        ("{}", "steps is missing"),
        ('{"steps": "many"}', "steps is 'many'"),
        ('{"steps": true}', "steps is True"),
        ('{"steps": 1, "episodes": 1, "wall_s": [], "fps": 1}', "wall_s is"),
        ('{"steps": 1, "episodes": 1, "wall_s": 1, "fps": NaN}', "fps is nan"),
        ('{"steps": 1, "episodes": 1, "wall_s": 1, "fps": 1, "final_eval": 3}', "final_eval is 3"),
        ('{"steps": 1, "episodes": 1, "wall_s": 1, "fps": 1, "phases": {"a": "b"}}', "a is 'b'"),
        (b"\xff\xfe\x00", "cannot be read .not text"),
    ],
)
def test_damaged_summary_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    (tmp_path / "summary.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=rf"summary\.json: .*{message}"):
        read_run(tmp_path)


def test_a_run_without_an_iteration_has_nothing_to_compare(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a") / "progress.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(ConfigError, match=r"progress\.csv: empty"):
        read_run(tmp_path / "a")


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        read_run(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"neither summary\.json nor progress\.csv"):
        read_run(tmp_path)


def test_progress_rows_are_numbers(tmp_path: Path) -> None:
    first, second, _ = read_progress(recorded(tmp_path / "a"))
    assert first["time/fps"] == 2000.0
    assert "eval/mean_reward" not in first
    assert second["eval/mean_reward"] == 100.0


def test_summary_has_the_keys_that_readers_rely_on(tmp_path: Path) -> None:
    content = json.loads((summarised(tmp_path / "a") / "summary.json").read_text())
    assert set(content) >= {
        "algo", "env", "seed", "n_envs", "num_workers", "group_size", "steps", "episodes", "iterations", "wall_s",
        "startup_s", "training_s", "fps", "final_eval", "best_eval", "phases", "peak_memory_mb", "lag", "restarts",
        "weights_sha256", "finished", "stop_reason",
    }  # fmt: skip
    assert content["final_eval"] == {"mean_reward": 480.0, "mean_ep_length": 480.0, "success_rate": None}


@pytest.mark.parametrize("folder", sorted(STORED.iterdir()), ids=lambda folder: folder.name)
def test_stored_runs_with_old_summary_keys_are_read(folder: Path) -> None:
    stored = json.loads((folder / "summary.json").read_text())
    assert "restarted" not in stored, "the stored runs are older than the rename of strayed"
    run = read_run(folder)
    assert (run.steps, run.restarts) == (stored["steps"], stored["restarts"])
