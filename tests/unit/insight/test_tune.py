"""`paceline tune` end to end on short windows: what it reports, not how fast it is."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from paceline.cli import tune as command
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.insight import learner_probe
from paceline.insight.learner_probe import LearnerProbe
from paceline.insight.windows import iterate
from paceline.train.build import build

SMALL = ["--env", "CartPole-v1", "--n-envs", "8", "--n-steps", "16", "--n-epochs", "1", "--num-workers", "0"]


def test_it_measures_and_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out" / "tune.json"
    assert command.run([*SMALL, "--rounds", "1", "--window-s", "0.01", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert result["num_workers"] == 0
    learner = result["learner"]
    assert learner["current"] == {"grad_shards": 1, "learner_threads": 1}
    assert [one["grad_shards"] for one in learner["settings"] if one["learner_threads"] == 1] == [1, 2, 4]
    assert all(one["updates_per_s"] > 0 for one in learner["settings"])
    assert 0 < learner["learn_share"] < 1
    shown = capsys.readouterr().out
    assert "CartPole-v1, 8 envs, no workers" in shown
    assert "No setting is faster beyond the noise" in shown


def test_the_training_is_only_read() -> None:
    config = TrainConfig.from_flat(
        env="CartPole-v1", n_envs=8, n_steps=16, n_epochs=1, num_workers=0, normalize_obs=True
    )
    with closing(build(config)) as training:
        training.rollouts.reset()
        iterate(training)
        before = {name: value.tobytes() for name, value in training.state().items()}
        with closing(LearnerProbe(training)) as probe:
            probe.round(0.01)
            assert all(rate > 0 for rates in probe.speeds().updates_per_s.values() for rate in rates)
        assert {name: value.tobytes() for name, value in training.state().items()} == before


def test_a_turn_learns_from_part_of_the_rollout_where_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_probe, "turn_size", lambda *_: (1, 3))
    config = TrainConfig.from_flat(env="CartPole-v1", n_envs=8, n_steps=16, batch_size=32, num_workers=0)
    with closing(build(config)) as training:
        training.rollouts.reset()
        iterate(training)
        with closing(LearnerProbe(training)) as probe:
            assert [probe._update(number) for number in range(len(probe.settings))] == [3] * len(probe.settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [("--pipeline", "pipeline envs are stepped"), ("--rounds 0", "rounds=0"), ("--window-s -1", "window_s=-1")],
)
def test_what_makes_no_sense_is_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command.run([*SMALL, *words.split()])
