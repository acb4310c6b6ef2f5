"""A pipeline has a fixed lag of one version: the same weights for any number of workers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.golden.test_same_weights import CASES, EXACT, config, reference, train, worker_counts

from paceline.errors import CheckpointError


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_workers_trains_the_same_weights(case: str) -> None:
    expected = reference(case, pipeline=True)
    assert expected.lag["max"] == 1, "the first batch is fresh, the others are one update old"
    assert expected.weights_sha256 != reference(case).weights_sha256
    for workers in worker_counts(case):
        found = train(config(case, workers, pipeline=True))
        assert found.weights_sha256 == expected.weights_sha256, f"{workers} workers"
        assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


@pytest.mark.parametrize("case", EXACT)
def test_an_interrupted_run_goes_on_with_the_batch_that_was_not_learned_from(case: str, tmp_path: Path) -> None:
    expected = reference(case, pipeline=True)
    first = train(config(case, 2, pipeline=True, output_dir=tmp_path / "cut"), interrupt_in=2)
    assert (first.stop_reason, first.steps) == ("SIGINT", expected.steps // 2)
    last = train(config(case, 3, pipeline=True, output_dir=tmp_path / "cut", resume=True))
    assert last.weights_sha256 == expected.weights_sha256
    assert (last.steps, last.episodes) == (expected.steps, expected.episodes)


def test_a_run_with_a_pipeline_is_not_resumed_without(tmp_path: Path) -> None:
    train(config("CartPole", 0, pipeline=True, output_dir=tmp_path / "run"), interrupt_in=2)
    with pytest.raises(CheckpointError, match="pipeline is True there and False here"):
        train(config("CartPole", 0, output_dir=tmp_path / "run", resume=True, pipeline=False))


def test_the_lag_is_in_the_record(tmp_path: Path) -> None:
    train(config("CartPole", 2, pipeline=True, output_dir=tmp_path / "run"))
    with (tmp_path / "run" / "progress.csv").open() as file:
        lags = [float(row["parallel/policy_lag_max"]) for row in csv.DictReader(file)]
    assert lags == [0.0, 1.0, 1.0]
