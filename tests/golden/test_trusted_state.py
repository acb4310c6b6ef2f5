"""`--trust-env-state`: exact resumes of envs that cannot be replayed from their seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.config.train_config import TrainConfig
from paceline.errors import EnvError
from paceline.train.run import Run, open_folder

CASES: dict[str, dict[str, Any]] = {
    "an env that ignores its seed": {"env": "tests.games:Stubborn", "n_envs": 4, "group_size": 2, "n_steps": 12},
    "a native vector env": {
        "env": "CartPole-v1",
        "n_envs": 4,
        "group_size": 2,
        "n_steps": 12,
        "native_vector": "always",
    },
    "a native vector env that could step all groups of a worker": {
        "env": "tests.unit.envs.toys:toys/Independent-v0",
        "n_envs": 4,
        "group_size": 2,
        "n_steps": 12,
        "native_vector": "always",
    },
}


def trained(steps: int, folder: Path | None = None, **settings: Any) -> tuple[str, list[str]]:
    """The hash of the weights, and what the run had to say."""
    config = TrainConfig.from_flat(
        **{"total_timesteps": steps, "n_eval_episodes": 0, "quiet": True, "num_workers": 0, **settings},
        output_dir=folder,
    )
    with Run(config, folder=open_folder(config) if folder else None) as run:
        notes = list(run.notes)
        return run.go().weights_sha256, notes


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_uninterrupted_one_only_with_the_pickled_envs(case: str, tmp_path: Path) -> None:
    settings = CASES[case]
    whole, _ = trained(192, **settings)
    for trust in (True, False):
        folder = tmp_path / str(trust)
        trained(96, folder, trust_env_state=trust, **settings)
        workers = 2 if trust else 0
        resumed, notes = trained(192, folder, resume=True, trust_env_state=trust, num_workers=workers, **settings)
        assert (resumed == whole) == trust
        assert any("started a new episode" in note for note in notes) != trust


def test_pickled_envs_are_not_touched_without_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = CASES["an env that ignores its seed"]
    trained(96, tmp_path / "run", trust_env_state=True, **settings)

    def forbidden(_: bytes) -> Any:
        raise AssertionError("unpickled something")

    monkeypatch.setattr("paceline.envs.group.cloudpickle.loads", forbidden)
    _, notes = trained(192, tmp_path / "run", resume=True, **settings)
    assert any("started a new episode" in note for note in notes)


def test_an_env_that_cannot_be_pickled_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> bytes:
        raise TypeError("cannot pickle a lock")

    monkeypatch.setattr("paceline.envs.block.cloudpickle.dumps", broken)
    with pytest.raises(EnvError, match=r"env 0.*cannot pickle a lock.*--trust-env-state"):
        trained(96, tmp_path / "run", trust_env_state=True, **CASES["an env that ignores its seed"])


def test_a_run_folder_cannot_ask_for_trust_itself(tmp_path: Path) -> None:
    trained(96, tmp_path / "run", trust_env_state=True, **CASES["an env that ignores its seed"])
    assert "trust_env_state: true" in (tmp_path / "run" / "config.yaml").read_text()
    assert not TrainConfig.from_run(tmp_path / "run").run.trust_env_state
    assert TrainConfig.from_run(tmp_path / "run", trust_env_state=True).run.trust_env_state
