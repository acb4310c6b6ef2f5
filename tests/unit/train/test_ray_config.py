"""What can be said of a cluster, and what is refused before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from paceline.cli import main
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError

RAY: dict[str, Any] = {"env": "CartPole-v1", "runtime": "ray"}
CLUSTER: dict[str, Any] = {**RAY, "ray_address": "auto"}


def nodes_with(*cpus: float) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": {"CPU": count}} for count in cpus]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"env": "CartPole-v1", "nodes": 2}, "nodes: needs a Ray cluster (runtime=local). Add --runtime ray."),
        ({"env": "CartPole-v1", "ray_address": "auto"}, "ray_address: needs a Ray cluster"),
        ({**CLUSTER, "num_workers": 4}, "num_workers=4: with runtime=ray the number of workers is set per node"),
        ({**CLUSTER, "num_workers": 0}, "num_workers=0: with runtime=ray the number of workers is set per node"),
        ({**CLUSTER, "pin_cores": "0"}, "pin_cores: unsupported with runtime=ray"),
        ({**RAY, "nodes": 2}, "nodes=2: without --ray-address a local Ray cluster of one node is started"),
        ({**CLUSTER, "nodes": 0}, "nodes=0: must be at least 1"),
        ({**CLUSTER, "workers_per_node": -1}, "workers_per_node=-1: must be at least 1"),
        ({**RAY, "ray_address": "ray://head:10001"}, "must be auto or HOST:PORT"),
        ({**RAY, "ray_address": "head"}, "must be auto or HOST:PORT"),
        ({**CLUSTER, "algo": "a3c"}, "runtime=ray: workers of a3c change shared weights in place"),
        (
            {**CLUSTER, "nodes": 4, "workers_per_node": 4, "n_envs": 32},
            "nodes*workers_per_node = 4*4 = 16: a worker owns whole groups, and n_envs=32 in groups of 4 makes 8. "
            "Use --group-size 2",
        ),
        ({**CLUSTER, "num_envs_per_worker": 4}, "Use --nodes N --workers-per-node W, or --n-envs for the total"),
        ({**CLUSTER, "on_node_loss": "stop"}, "on_node_loss"),
        ({"env": "CartPole-v1", "runtime": "raye"}, "runtime"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_flat(**settings)
    assert text in str(raised.value)


def test_workers_of_all_nodes_share_the_envs() -> None:
    config = TrainConfig.from_flat(**CLUSTER, nodes=2, workers_per_node=4, num_envs_per_worker=8)
    assert config.n_envs == 64
    for address in ("auto", "10.0.0.1:6379", "head.cluster.local:6379", "[fd00::1]:6379"):
        assert TrainConfig.from_flat(**RAY, ray_address=address).parallel.ray_address == address


def test_without_the_extra_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "paceline.runtime.ray.connection.find_spec", lambda name: None if name == "ray" else found(name)
    )
    code = main(["train", "ppo", "--env", "CartPole-v1", "--runtime", "ray", "--output-dir", str(tmp_path / "run")])
    assert code == 2
    assert "--runtime ray needs an extra: pip install 'paceline[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
