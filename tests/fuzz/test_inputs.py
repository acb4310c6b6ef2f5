"""Fuzzed inputs: always a PacelineError, never another exception, a hang or executed code."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.config.algorithms import ALGORITHMS
from paceline.config.coerce import duration_s
from paceline.config.flags import NoOptions, parse
from paceline.config.train_config import SECTIONS, TrainConfig, section_of
from paceline.errors import CheckpointError, ConfigError, PacelineError
from paceline.spec import EnvSpec
from paceline.train import checkpoint
from paceline.train.run import Run

Test = Callable[..., None]


def examples(few: int, many: int) -> Callable[[Test], Test]:
    """The same test twice: with few examples, and, marked slow, with many."""
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]

    def twice(test: Test) -> Test:
        counts = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.slow)]

        @pytest.mark.parametrize("count", counts)
        def run(count: int, tmp_path: Path) -> None:
            settings(max_examples=count, deadline=None, database=None, suppress_health_check=quiet)(test)(tmp_path)

        run.__name__ = test.__name__
        return run

    return twice


@contextmanager
def or_refused(kind: type[PacelineError], words: str = "") -> Iterator[None]:
    """What is inside works, or is refused by an error of that kind that has these words."""
    try:
        yield
    except kind as error:
        if not str(error) or words not in str(error):
            raise AssertionError(f"{words!r} is not in {str(error)!r}") from error


class Trap:
    """Where code of a file would leave a trace."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "struck"

    def assert_untouched(self) -> None:
        assert not self.mark.exists(), "something in the input was run"


NUMBERS = st.one_of(st.integers(), st.floats(), st.integers(-3, 3), st.sampled_from([0, 1, 2**31, 2**63, -1, 1e308]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=12))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)
NAMES = sorted({name for algo in ALGORITHMS for name in section_of(algo)})


@examples(15, 3000)
@given(
    algo=st.sampled_from(sorted(ALGORITHMS)), given_settings=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)
)
def test_no_settings_fail_otherwise(tmp_path: Path, algo: str, given_settings: dict[str, Any]) -> None:
    with or_refused(ConfigError):
        config = TrainConfig.from_flat(**{"env": "CartPole-v1", "algo": algo, **given_settings})
        # What was taken can be written, read back, and is then the same.
        (tmp_path / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
        assert TrainConfig.from_yaml(tmp_path / "config.yaml").to_dict() == config.to_dict()


TAGS = [
    "!!python/object/apply:os.system ['touch {mark}']",
    "!!python/object/new:type [x]",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/tuple [1]",
    "!!binary aGk=",
    "!!timestamp 2001-01-01",
    "&a [*a]",
    "<<: {{a: b}}",
]


@examples(25, 3000)
@given(data=st.data())
def test_no_yaml_runs_anything_or_fails_otherwise(tmp_path: Path, data: st.DataObject) -> None:
    trap, path = Trap(tmp_path), tmp_path / "config.yaml"
    kind = data.draw(st.sampled_from(["text", "bytes", "tag", "sections"]))
    if kind == "text":
        path.write_text(data.draw(st.text(st.characters(codec="utf-8"), max_size=80)), encoding="utf-8")
    elif kind == "bytes":
        path.write_bytes(data.draw(st.binary(max_size=80)))
    elif kind == "tag":
        value = data.draw(st.sampled_from(TAGS)).format(mark=trap.mark)
        section = data.draw(st.sampled_from([*SECTIONS, "env"]))
        path.write_text(f"env:\n  env: CartPole-v1\n{'run' if section == 'env' else section}:\n  seed: {value}\n")
    else:
        keys = st.sampled_from([*NAMES, "x", "env"])
        content = data.draw(
            st.dictionaries(st.sampled_from([*SECTIONS, "x"]), st.dictionaries(keys, VALUES, max_size=3))
        )
        path.write_text(yaml.safe_dump(content))
    with or_refused(ConfigError):
        TrainConfig.from_yaml(path)
    trap.assert_untouched()


WORDS = st.one_of(
    st.sampled_from([f"--{name.replace('_', '-')}" for name in NAMES]),
    st.text(string.printable, max_size=8),
    st.sampled_from(["--", "-", "=", "--env=", "--seed", "1", "__import__('os')", "{}", "[", "a=b", "nan", "1e400"]),
)


@examples(5, 600)
@given(words=st.lists(WORDS, max_size=5))
def test_no_command_line_fails_otherwise(tmp_path: Path, words: list[str]) -> None:
    if "--config" in words or any(word.startswith(("-h", "--h")) for word in words):
        return
    with or_refused(PacelineError):
        try:
            parse(["--env", "CartPole-v1", *words], prog="x", description="x", algo="ppo", extra=NoOptions)
        except SystemExit as end:
            if end.code not in (0, 2):
                raise AssertionError(f"exit code {end.code}") from end


@examples(50, 5000)
@given(value=VALUES)
def test_no_duration_fails_otherwise(tmp_path: Path, value: Any) -> None:
    with or_refused(ConfigError, "duration"):
        assert duration_s(value) > 0


def save(folder: Path) -> Path:
    path = folder / checkpoint.step_name(1)
    checkpoint.save(
        path, {"learner/weights": np.arange(4, dtype=np.float32)}, {"identity": {"algo": "ppo"}, "steps": 1}
    )
    return path


@examples(40, 4000)
@given(data=st.data())
def test_no_bytes_make_a_checkpoint_run_anything_or_fail_otherwise(tmp_path: Path, data: st.DataObject) -> None:
    path = save(tmp_path)
    file = path / data.draw(st.sampled_from([checkpoint.STATE, checkpoint.MANIFEST]))
    before = file.read_bytes()
    kind = data.draw(st.sampled_from(["cut", "flip", "replace", "header"]))
    if kind == "cut":
        after = before[: data.draw(st.integers(0, len(before) - 1))]
    elif kind == "flip":
        at = data.draw(st.integers(0, len(before) - 1))
        after = before[:at] + bytes([before[at] ^ data.draw(st.integers(1, 255))]) + before[at + 1 :]
    elif kind == "replace":
        after = data.draw(st.binary(max_size=120))
    else:  # a safetensors file that promises anything
        header = json.dumps({"learner/weights": data.draw(VALUES)}).encode()
        after = len(header).to_bytes(8, "little") + header + b"\0" * data.draw(st.integers(0, 32))
    file.write_bytes(after)
    if data.draw(st.booleans()) and file.name == checkpoint.STATE:  # with a manifest that agrees
        manifest = json.loads((path / checkpoint.MANIFEST).read_text())
        manifest["files"][checkpoint.STATE]["sha256"] = checkpoint._sha256(file)
        (path / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    with or_refused(CheckpointError, str(path)):
        loaded = checkpoint.load(path)
        assert isinstance(loaded.meta, dict)
        checkpoint.require_match(loaded, {"algo": "ppo"})


@examples(25, 2000)
@given(
    content=VALUES
    | st.fixed_dictionaries({"format": SCALARS | st.just(checkpoint.FORMAT), "files": VALUES, "meta": VALUES})
)
def test_no_manifest_fails_otherwise(tmp_path: Path, content: Any) -> None:
    path = save(tmp_path)
    (path / checkpoint.MANIFEST).write_text(json.dumps(content))
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


LEAVES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-2, 2)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.builds(
        lambda shape, dtype: spaces.Box(0, 1, tuple(shape), dtype),
        st.lists(st.integers(0, 3), max_size=4),
        st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.bool_]),
    ),
    st.builds(spaces.Text, st.integers(1, 4)),
    st.builds(lambda one: spaces.Sequence(one), st.builds(spaces.Discrete, st.integers(1, 3))),
)
SPACES = st.one_of(
    LEAVES,
    st.builds(spaces.Dict, st.dictionaries(st.text("abc/", min_size=1, max_size=3), LEAVES, min_size=1, max_size=3)),
    st.builds(lambda parts: spaces.Tuple(parts), st.lists(LEAVES, max_size=2)),
)


class AnyEnv(gym.Env[Any, Any]):
    """An env of any spaces."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, False, True, {}


@examples(25, 2000)
@given(observation=SPACES, action=SPACES)
def test_no_spaces_fail_otherwise(tmp_path: Path, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    with or_refused(PacelineError):
        assert EnvSpec.of(observation, action, masked=False).obs


@examples(5, 300)
@given(observation=SPACES, action=SPACES)
def test_an_env_of_any_spaces_trains_or_is_refused(
    tmp_path: Path, observation: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    config = TrainConfig.from_flat(
        env=lambda: AnyEnv(observation, action), n_envs=2, n_steps=4, num_workers=0, total_timesteps=16,
        n_eval_episodes=1, n_epochs=1, hidden_sizes=(4,), quiet=True,
    )  # fmt: skip
    with or_refused(PacelineError), Run(config) as run:
        run.go()
