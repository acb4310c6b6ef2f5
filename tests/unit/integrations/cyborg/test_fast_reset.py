"""Faster resets of CybORG: each host is backed up once, YAML is parsed once, and nothing else changes."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import pytest

from paceline.integrations.cyborg import CybORGEnv
from paceline.integrations.cyborg.fast_reset import _Network, _Yaml, scenario_read_once


def test_each_host_is_backed_up_once_per_reset(standin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backups: list[str] = []
    stock = standin.Host.create_backup

    def counted(host: Any) -> None:
        backups.append(host.hostname)
        stock(host)

    monkeypatch.setattr(standin.Host, "create_backup", counted)
    for fast, times in (("reset", 1), (False, 3)):
        env = CybORGEnv(fast=fast)
        backups.clear()
        env.reset(seed=1)
        assert len(backups) == 13 * times
        assert set(backups) == set(env._state.hosts)


def test_a_restore_brings_back_the_processes_of_the_reset(standin: ModuleType) -> None:
    names = []
    for fast in ("reset", False):
        env = CybORGEnv(fast=fast)
        env.reset(seed=1)
        host = env._state.hosts["Op_Server0"]
        host.processes.clear()
        host.restore()
        names.append([(process.name, process.pid) for process in host.processes])
    assert names[0] == names[1] != []


def test_subnets_are_those_of_the_network_and_are_listed_once() -> None:
    network = _Network("10.0.0.0/24")
    assert [str(subnet) for subnet in network.subnets(new_prefix=26)] == [f"10.0.0.{i}/26" for i in (0, 64, 128, 192)]
    assert _Network("10.0.0.0/24").subnets(new_prefix=26) is network.subnets(new_prefix=26)
    assert _Network("10.0.1.0/24").subnets(new_prefix=26) != network.subnets(new_prefix=26)


class CountingYaml:
    """A YAML module that counts its calls."""

    FullLoader = "full"

    def __init__(self) -> None:
        self.calls = 0

    def load(self, text: str, **options: Any) -> dict[str, Any]:
        self.calls += 1
        return {"text": text, "options": options, "list": []}


def test_a_text_is_parsed_once_and_every_reader_gets_a_copy() -> None:
    stock = CountingYaml()
    yaml = _Yaml(stock)
    text = "unique to test_fast_reset"
    first, second = (yaml.load(io.StringIO(text), Loader="a") for _ in range(2))
    assert stock.calls == 1
    first["list"].append(1)
    assert second["list"] == []
    yaml.load(io.StringIO(text), Loader="b")
    yaml.load(io.StringIO(text + "!"), Loader="a")
    assert stock.calls == 3
    assert yaml.FullLoader == "full"


def test_the_yaml_module_is_put_back_also_after_an_error(standin: Any) -> None:
    stock = standin.yaml
    replaced = []

    def fail() -> None:
        with scenario_read_once():
            replaced.append(standin.yaml)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert isinstance(replaced[0], _Yaml)
    assert standin.yaml is stock
