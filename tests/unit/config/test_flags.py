from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.config import flags
from paceline.config.flags import NoOptions, parse
from paceline.config.ppo_settings import PPOConfig
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError


def read(*argv: str) -> TrainConfig:
    return parse(argv, prog="paceline train ppo", description="Trains.", extra=NoOptions)[0]


ENV = ("--env", "CartPole-v1")


def test_no_flags_but_the_env_gives_the_defaults() -> None:
    assert read(*ENV) == TrainConfig.from_flat(env="CartPole-v1")


def test_a_command_with_many_flags(tmp_path: Path) -> None:
    path = tmp_path / "ppo_parallel.yaml"
    path.write_text("env: {env: CartPole-v1}\ntraining: {learning_rate: 1e-3, n_steps: 64}", encoding="utf-8")
    line = f"--config {path} --duration 1.0 --output-dir runs/parallel_1h --num-workers 4 --num-envs-per-worker 8"
    config = read(*line.split())
    assert (config.run.budget_s, config.run.output_dir) == (3600.0, Path("runs/parallel_1h"))
    assert (config.parallel.num_workers, config.n_envs) == (4, 32)
    assert (config.training.learning_rate, config.training.n_steps) == (1e-3, 64)


def test_an_omitted_flag_never_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    changed = TrainConfig.from_flat(
        env="X-v0", n_envs=8, n_steps=32, batch_size=64, gamma=0.5, normalize_advantage=False, hidden_sizes=(3,),
        quiet=True, num_workers=2, clip_range_vf=0.3, wrappers="m:A", env_kwargs={"a": 1}, pin_cores="0", seed=9,
    )  # fmt: skip
    path.write_text(changed.to_yaml(), encoding="utf-8")
    assert read("--config", str(path)) == changed
    assert read("--config", str(path), "--gamma", "0.6") == changed.merge(gamma=0.6)
    # A flag that is given with its default value overrides the file.
    assert read("--config", str(path), "--normalize-advantage").training.normalize_advantage is True
    assert read("--config", str(path), "--clip-range-vf", "none").training.clip_range_vf is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "argv",
    [
        ("--n_steps", "64", "--gae-lambda", "9e-1"),
        ("--n-steps=64", "--gae_lambda=0.9"),
        ("--n-steps", "6.4e1", "--gae_lambda", ".9"),
    ],
)
def test_dashes_underscores_equals_signs_and_exponents(argv: tuple[str, ...]) -> None:
    training: Any = read(*ENV, *argv).training
    assert (training.n_steps, training.gae_lambda) == (64, 0.9)


def test_aliases() -> None:
    config = read(*ENV, "--num-episodes", "1e3", "--parallel_start_method", "spawn", "--lr=1e-3", "--workers", "2")
    assert (config.training.learning_rate, config.parallel.num_workers) == (1e-3, 2)
    assert (config.run.total_episodes, config.parallel.start_method) == (1000, "spawn")


def test_lists_and_mappings() -> None:
    config = read(*ENV, "--env-kwargs", "a=1e-3", "b=two words", "--wrappers", "m:A", "m:B", "--hidden-sizes", "8", "4")
    assert config.env.env_kwargs == {"a": 1e-3, "b": "two words"}
    assert (config.env.wrappers, config.policy.hidden_sizes) == (("m:A", "m:B"), (8, 4))
    again = read(*ENV, "--env-kwargs", '{"a": 1e-3, "b": "two words"}', "--wrappers", "m:A,m:B", "--hidden_sizes=8,4")
    assert again == config


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--quiet",), True),
        (("--quiet", "false"), False),
        (("--no-quiet",), False),
        (("--no_quiet",), False),
        ((), False),
    ],
)
def test_switches(argv: tuple[str, ...], expected: bool) -> None:
    assert read(*ENV, *argv, "--seed", "1").run.quiet is expected


def test_a_switch_that_is_on_can_be_turned_off() -> None:
    assert read(*ENV, "--no-normalize-advantage").training.normalize_advantage is False
    assert read(*ENV, "--no-normalize-reward").env.normalize_reward is False


def test_resume_with_and_without_a_path() -> None:
    assert read(*ENV, "--output-dir", "runs/a", "--resume").run.resume_from == Path("runs/a")
    assert read(*ENV, "--resume", "runs/b").run.resume_from == Path("runs/b")


@pytest.mark.parametrize(
    ("argv", "cores"),
    [(("--pin-cores",), ()), (("--pin_cores", "--quiet"), ()), (("--pin-cores", "0-2"), (0, 1, 2)), ((), None)],
)
def test_pin_cores_with_and_without_a_value(argv: tuple[str, ...], cores: tuple[int, ...] | None) -> None:
    assert read(*ENV, *argv).parallel.cores == cores


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--n-step", "5"), "--n-step: no such flag. Did you mean '--n-steps'?"),
        (("--learning_rat=5",), "--learning_rat: no such flag. Did you mean '--learning-rate'?"),
        (("--num-eposides", "5"), "--num-eposides: no such flag. Did you mean '--num-episodes'?"),
        (("--lambda", "1"), "--lambda: no such flag. Did you mean '--gae-lambda'?"),
        (("--verbose", "1"), "--verbose: no such flag. The progress display is on unless quiet is set."),
        (("--sync-every", "2"), "--sync-every: no such flag. It is a setting of impala and appo, not of ppo."),
        (("--no-quiet=1",), "--no-quiet: no such flag."),
        (("--zzz", "1"), "--zzz: no such flag. `paceline train ppo --help-all` lists all settings."),
        (("--algo", "ppo"), "--algo: no such flag."),
        (("--n-steps",), "--n-steps: needs a value. Write --n-steps INT."),
        (("--n-steps", "--quiet"), "--n-steps: needs a value. Write --n-steps INT."),
        (("stray",), "stray: not expected here."),
        (("--n-envs", "0"), "n_envs=0: must be at least 1."),
        (("--n-envs", "-3"), "n_envs=-3: must be at least 1."),
        (("--n-envs", "1.5"), "n_envs='1.5': must be an integer"),
        (("--batch-size", "1500"), "batch_size=1500: must divide n_steps*n_envs = 64*32 = 2048"),
        (("--num-workers", "atuo"), "num_workers='atuo': must be an integer or 'auto'"),
        (("--start-method", "forkservr"), "Did you mean 'forkserver'?"),
        (("--duration", "soon"), "duration='soon': must be a time"),
        (("--env-kwargs", "x=!!python/name:os.system"), "env_kwargs="),
    ],
)
def test_mistakes_are_refused_with_values_and_the_nearest_name(argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(*ENV, *argv)
    assert said in str(raised.value)


def test_a_flag_given_twice_has_the_last_value() -> None:
    assert read(*ENV, "--seed", "1", "--seed", "2").run.seed == 2


def test_values_may_be_negative_numbers() -> None:
    assert read(*ENV, "--stop-at-score", "-1e2").run.stop_at_score == -100
    assert read(*ENV, "--env-kwargs", "--seed", "-.5e1", "--seed", "3").run.seed == 3


def test_help_shows_the_defaults_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    own = {"env": "Acrobot-v1", "n_envs": 100, "n_steps": 77, "normalize_reward": True, "batch_size": "as it fits"}
    with pytest.raises(SystemExit):
        flags.read(["--help-all"], prog="p", description="d", extra=NoOptions, defaults=own)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag, default in (
        ("--env", "Acrobot-v1"), ("--n-envs", "100"), ("--n-steps", "77"), ("--normalize-reward", "true"),
        ("--batch-size", "as it fits"), ("--gamma", "0.99"),
    ):  # fmt: skip
        text = shown.partition(f" {flag} ")[2].partition(" --")[0]
        assert text.partition("efault: ")[2] == f"{default})"


@dataclass(frozen=True, kw_only=True)
class Own:
    json: Path | None = None
    """Where to write."""
    windows: int = 5
    """How many."""


def test_a_command_may_have_flags_of_its_own() -> None:
    config, own = parse([*ENV, "--json", "x.json", "--windows", "1e1"], prog="p", description="d", extra=Own)
    assert own == Own(json=Path("x.json"), windows=10)
    assert config.env.env == "CartPole-v1"
    with pytest.raises(ConfigError, match=r"--windws: no such flag. Did you mean '--windows'\?"):
        parse([*ENV, "--windws", "3"], prog="p", description="d", extra=Own)


def test_defaults_of_a_command_give_way_to_flags_and_files(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("env: {env: CartPole-v1}\ntraining: {n_epochs: 2}\n")
    words = ["--config", str(path), "--num-envs", "8"]
    given = flags.read(words, prog="", description="", extra=NoOptions)
    config = given.config({"env": "Acrobot-v1", "n_epochs": 9, "n_envs": 99, "gamma": 0.5})
    assert isinstance(config.training, PPOConfig)
    assert (config.env_name, config.n_envs) == ("CartPole-v1", 8)
    assert (config.training.n_epochs, config.training.gamma) == (2, 0.5)
    assert given.config().training.gamma == 0.99


@pytest.mark.parametrize("argv", [("--resume", "{}/cartpole_2"), ("--resume", "--output-dir", "{}/cartpole_2")])
def test_resuming_what_is_not_there_names_the_path_and_a_similar_one(argv: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "cartpole_1").mkdir()
    with pytest.raises(ConfigError, match=r"^resume='.*/cartpole_2': no such folder. Did you mean '.*/cartpole_1'\?"):
        parse([word.format(tmp_path) for word in argv], prog="p", description="d", extra=NoOptions)


def test_resuming_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a run \(config.yaml is missing\)"):
        parse(["--resume", str(tmp_path)], prog="p", description="d", extra=NoOptions)
