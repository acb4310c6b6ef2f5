"""Today's code gives the weights that were stored, and loads and resumes the runs that were stored.

Other golden tests compare runs with each other: a change that moves all bits together would pass them.
`make golden` renews the hashes (tests/golden/stored_runs.py); checkpoints are never written by a test.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.stored_cases import CASES, CHECKPOINTS, COMMON, INLINE_ONLY, RESUMED
from tests.golden.stored_runs import (
    FOLDERS,
    RENEW,
    STORED,
    StopAfter,
    agent,
    machine,
    mismatch,
    resume_once,
    stored_hashes,
    trained,
    workers_of,
)

import paceline
from paceline.cli import main
from paceline.envs.make import load

PATHS: list[str] = json.loads((STORED / "paths.json").read_text())["paths"]
AGENTS: dict[str, Any] = {
    "ppo": paceline.PPO,
    "dqn": paceline.DQN,
    "impala": paceline.IMPALA,
    "appo": paceline.APPO,
    "a3c": paceline.A3C,
}


def expected(part: str, name: str) -> str:
    """The stored hash for this machine; skips where there is none."""
    stored = stored_hashes()
    if machine() not in stored:
        known = "; ".join(stored)
        pytest.skip(f"no hashes stored for this machine ({machine()}); there are for: {known}. Add them: {RENEW}")
    assert name in stored[machine()][part], f"{name}: has no stored hash. Add it: {RENEW}"
    return stored[machine()][part][name]


@pytest.mark.parametrize(("name", "workers"), [(name, workers) for name in CASES for workers in workers_of(name)])
def test_the_weights_are_those_stored(name: str, workers: int) -> None:
    stored = expected("cases", name)
    found = trained(CASES[name], num_workers=workers).weights_sha256
    assert found == stored, mismatch(f"{name}, num_workers={workers}", stored, found)


@pytest.mark.parametrize("name", RESUMED)
def test_stopped_and_resumed_the_weights_are_those_stored(name: str, tmp_path: Path) -> None:
    stored = expected("cases", name)
    half = trained(CASES[name], StopAfter(2), num_workers=0, output_dir=tmp_path / "run")
    assert half.steps < CASES[name]["total_timesteps"]
    # `learn` counts its own budget from here; the config's budget, without an argument, counts from the start.
    found = trained(CASES[name], num_workers=2, output_dir=tmp_path / "run", resume=True).weights_sha256
    assert found == stored, mismatch(f"{name}, resumed", stored, found)


def test_every_machine_has_every_hash_and_no_two_cases_are_alike() -> None:
    stored = stored_hashes()
    assert stored, f"no machine has hashes, so every comparison is skipped. Renew: {RENEW}"
    for key, parts in stored.items():
        assert set(parts) == {"cases", "resumed"}, key
        for part, cases in (("cases", CASES), ("resumed", CHECKPOINTS)):
            assert set(parts[part]) == set(cases), f"{key}: not the cases that there are. Renew there: {RENEW}"
            assert len(set(parts[part].values())) == len(cases), f"{key}: two of {part} have the same weights"


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_stored_run_loads_and_acts(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(FOLDERS / name, tmp_path / "run")
    assert main(["verify", str(run)]) == 0, capsys.readouterr().out
    with AGENTS[CHECKPOINTS[name]["algo"]].load(run) as it:
        assert np.isfinite(it.get_weights()).all()
        assert it.evaluate(1).mean_ep_length >= 1


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_stored_run_resumes(name: str, tmp_path: Path) -> None:
    before = json.loads((FOLDERS / name / "summary.json").read_text())
    found = resume_once(name, tmp_path / "run")
    assert found["iterations"] == before["iterations"] + 1
    assert found["steps"] > before["steps"]
    assert found["episodes"] >= before["episodes"]
    stored = expected("resumed", name)
    assert found["weights_sha256"] == stored, mismatch(f"{name}, a stored run", stored, found["weights_sha256"])


@pytest.mark.parametrize("name", [name for name, case in CHECKPOINTS.items() if case["algo"] not in INLINE_ONLY])
def test_a_stored_run_resumes_on_workers_with_the_same_weights(name: str, tmp_path: Path) -> None:
    stored = expected("resumed", name)
    found = resume_once(name, tmp_path / "run", workers=2)["weights_sha256"]
    assert found == stored, mismatch(f"{name}, a stored run on 2 workers", stored, found)


def test_the_stored_runs_are_what_they_are_for() -> None:
    """Small, one for each name, and whole run folders."""
    size = sum(path.stat().st_size for path in STORED.rglob("*") if path.is_file())
    assert size < 1_500_000
    assert {path.name for path in FOLDERS.iterdir()} == set(CHECKPOINTS)
    for name in CHECKPOINTS:
        assert {"config.yaml", "summary.json", "checkpoints"} <= {path.name for path in (FOLDERS / name).iterdir()}


@pytest.mark.parametrize("path", PATHS)
def test_an_import_path_of_users_configs_still_resolves(path: str) -> None:
    """Configs and docs name these, and so do users' own files: a class that moves leaves an alias behind."""
    assert callable(load(path, "a path that users' configs name"))


def test_the_list_of_import_paths_is_complete() -> None:
    """All that configs, docs and saved configs name as `module:Name`, or import from a module of the package."""
    root = Path(__file__).parents[2]
    files = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "configs").glob("*.yaml")]
    files += [*STORED.rglob("*.yaml"), *STORED.rglob("manifest.json"), *(root / "examples").glob("*.py")]
    # That page is about the package's inner names, which may change; a test runs it.
    files.remove(root / "docs" / "how-to" / "add-an-algorithm.md")
    named: set[str] = set()
    for file in files:
        text = file.read_text(encoding="utf-8")
        named |= set(re.findall(r"paceline(?:\.[a-z_]+)+:[A-Za-z]\w*", text))
        for module, names in re.findall(r"^\s*from (paceline(?:\.[a-z_]+)+) import ([\w, ]+)$", text, re.MULTILINE):
            named |= {f"{module}:{name.strip()}" for name in names.split(",")}
    assert named, "nothing found: look at the pattern"
    assert not named - set(PATHS), "add them to tests/golden/stored/paths.json"


@pytest.mark.parametrize("path", sorted((STORED / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_stored_config_with_import_paths_trains(path: Path, tmp_path: Path) -> None:
    argv = ["train", "ppo", "--config", str(path), "--output-dir", str(tmp_path / "run"), "--quiet"]
    argv += ["--n-envs", "8", "--group-size", "4", "--n-steps", "4", "--batch-size", "32", "--num-workers", "0"]
    assert main([*argv, "--n-eval-episodes", "0", "--total-timesteps", "32"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 32


def test_an_agent_takes_the_stored_settings_by_their_names() -> None:
    for settings in (*CASES.values(), *CHECKPOINTS.values()):
        config = agent(settings).config
        assert config.run.algo == settings["algo"]
        assert config.n_envs == {**COMMON, **settings}["n_envs"]
