"""`paceline cyber`: its flags and errors, and a small training and evaluation end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.domains.cyber.fake_search import Fake, make, no_word

from paceline.cli import main
from paceline.config.train_config import TrainConfig
from paceline.domains.cyber import command as cyber
from paceline.domains.cyber.training import SHOWN
from paceline.errors import MissingExtra
from paceline.train import run as running

ROOT = Path(__file__).parents[4]
WORKFLOW = "op_server,enterprise,op_host,defender,user"
OTHER = "user,op_host,op_server,enterprise,defender"
SMALL = (
    "--n-envs", "16", "--update-steps", "6", "--max-steps", "6", "--n-epochs", "1", "--num-workers", "0",
    "--n-eval-episodes", "1", "--quiet", "--red-agent", "bline",
)  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """Configs that would have been trained."""
    found: list[TrainConfig] = []

    class Done:
        stop_reason = "total_episodes"

    def train(config: TrainConfig, **_: Any) -> Any:
        found.append(config)
        return Done()

    monkeypatch.setattr(running, "train", train)
    monkeypatch.setattr(cyber, "begin", lambda config: None)
    return found


def test_a_command_with_a_workflow(asked: list[TrainConfig], tmp_path: Path) -> None:
    words = (
        f"cyber train --red-agent meander --n-envs 100 --update-steps 100 --total-episodes 100000 --max-steps 100 "
        f"--workflow {WORKFLOW} --alignment-lambda 30 --compliance-threshold .95 --n-eval-episodes 20 --seed 3 "
        f"--checkpoint-dir {tmp_path} --num-workers 2"
    )
    assert main(words.split()) == 0
    config = asked[0]
    assert config.env.env == "paceline/WorkflowDefence-v0"
    assert config.env.env_kwargs == {
        "red_agent": "meander", "max_steps": 100, "rules": "leaderboard-2022", "workflow": WORKFLOW,
    }  # fmt: skip
    assert config.env.shaper_kwargs == {"alignment_lambda": 30.0}
    assert config.run.stop_at == {"compliance": 0.95}
    assert (config.n_envs, config.rollout_steps, config.run.total_episodes) == (100, 100, 100_000)
    assert (config.group_size(image=False), config.run.seed) == (5, 3)
    assert config.run.checkpoint_dir == tmp_path


def test_without_a_workflow_it_is_plain_ppo(asked: list[TrainConfig]) -> None:
    assert (
        main(
            [
                "cyber",
                "train",
                "--red-agent",
                "bline",
                "--green",
                "--rules",
                "head",
                "--duration",
                "5m",
                "--batch-size",
                "500",
            ]
        )
        == 0
    )
    config = asked[0]
    assert config.env.env == "paceline/NetworkDefence-v0"
    assert config.env.env_kwargs == {"red_agent": "bline", "max_steps": 100, "rules": "head", "green": True}
    assert (config.env.shaper, config.run.stop_at) == (None, {})
    assert (config.run.budget_s, config.run.total_episodes, config.training.batch_size) == (300.0, None, 500)


def test_several_workflows_are_drawn_from(asked: list[TrainConfig]) -> None:
    assert main(["cyber", "train", "--workflow", WORKFLOW, OTHER, "--compliance", "state"]) == 0
    assert asked[0].env.env_kwargs["workflow"] == [WORKFLOW, OTHER]
    assert asked[0].env.shaper_kwargs == {"compliance": "state"}


def test_the_config_file_says_what_the_command_does(asked: list[TrainConfig]) -> None:
    path = ROOT / "configs" / "network_defence.yaml"
    assert main(["cyber", "train"]) == 0
    assert main(["cyber", "train", "--config", str(path)]) == 0
    assert asked[0] == asked[1] == TrainConfig.from_yaml(path)
    assert main(["cyber", "train", "--config", str(path), "--red-agent", "bline", "--n-epochs", "2"]) == 0
    kwargs = {**asked[0].env.env_kwargs, "red_agent": "bline"}
    assert asked[2] == asked[0].merge(env_kwargs=kwargs, n_epochs=2) != asked[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian", "cyber trian: no such command. Did you mean 'train'?"),
        ("train --red-agent meandr", "Did you mean 'meander'?"),
        ("train --rules leaderboard", "Did you mean 'leaderboard-2022'?"),
        ("train --workflow op_server,enterprise,op_host,defender,usr", "Did you mean 'user'?"),
        ("train --workflow op_server,user", "must name each of the 5 types once"),
        ("train --alignment-lamda 3", "no such flag. Did you mean '--alignment-lambda'?"),
        ("train --alignment-lambda 3", "need a workflow (none given)"),
        ("train --compliance order", "Did you mean 'ordered'?"),
        ("train --env CartPole-v1", "trains paceline/NetworkDefence-v0"),
        ("search --total-timesteps 100", "a search counts episodes"),
        ("search --resume --overwrite --output-dir s", "Give one of the two"),
        ("search --resume", "needs the folder of the search to resume"),
        ("search --n-workflows 121", "must be at least 1 and at most 120"),
        ("eval nowhere --red-agent blin", "Did you mean 'bline'?"),
        ("eval nowhere --episode 3", "Did you mean '--episodes'?"),
    ],
)
def test_usage_errors_exit_with_2(
    words: str, said: str, asked: list[TrainConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cyber, "require_scikit_learn", lambda: None)
    assert main(["cyber", *words.split()]) == 2
    assert said in capsys.readouterr().err
    assert not asked


def test_a_search_without_scikit_learn_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing() -> None:
        raise MissingExtra("a search over workflows", "search")

    monkeypatch.setattr(cyber, "require_scikit_learn", missing)
    assert main(["cyber", "search", "--output-dir", str(tmp_path / "s")]) == 2
    assert "pip install 'paceline[search]'" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_train_resume_and_eval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    aligned = (
        "--workflow",
        WORKFLOW,
        "--compliance",
        "state",
        "--compliance-threshold",
        "2",
        "--alignment-lambda",
        "5",
    )
    assert main(["cyber", "train", *SMALL, *aligned, "--total-episodes", "16", "--output-dir", str(folder)]) == 0
    header = (folder / "progress.csv").read_text().splitlines()[0]
    assert "rollout/alignment_mean,rollout/compliance_mean,rollout/fixes_mean" in header
    # A resumed run keeps its settings, except those given now.
    assert main(["cyber", "train", "--output-dir", str(folder), "--resume", "--total-episodes", "32"]) == 0
    config = TrainConfig.from_yaml(folder / "config.yaml")
    assert config.env.env_kwargs["red_agent"] == "bline"
    assert config.env.shaper_kwargs == {"compliance": "state", "alignment_lambda": 5.0}
    assert config.run.stop_at == {"compliance": 2.0}
    assert json.loads((folder / "summary.json").read_text())["episodes"] == 32

    capsys.readouterr()
    out = tmp_path / "scores.json"
    words = ["--episodes", "150", "--steps", "3,5", "--red-agent", "bline,sleep", "--json", str(out)]
    assert main(["cyber", "eval", str(folder), *words]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "150 episodes, leaderboard-2022 rules, most probable actions" in printed[0]
    assert [line.split("\t")[:2] for line in printed[2:]] == [
        ["bline", "3"],
        ["bline", "5"],
        ["sleep", "3"],
        ["sleep", "5"],
    ]
    rows = json.loads(out.read_text())["rows"]
    assert rows[3]["mean"] <= 0.0
    assert all(row["episodes"] == 150 for row in rows)


def test_the_line_after_a_trial_says_that_the_best_tie(tmp_path: Path) -> None:
    search = make(tmp_path, n_workflows=2)
    search.run(Fake(), no_word)
    first, second = search.trials
    assert cyber._trial_line(second, [first]).endswith(f"best so far {first.reward:.2f} with {first.workflow}")
    assert cyber._trial_line(second, [first, second]).endswith("with 2 workflows, which tie")


@pytest.mark.parametrize("command", ["train", "search"])
def test_help_shows_the_defaults_of_network_defence(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["cyber", command, "--help-all"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, default in SHOWN.items():
        flag = f"--{name.replace('_', '-')} "
        expected = f"(default: {str(default).lower() if default is True else default})"
        assert any(expected in text[:400] for text in shown.split(flag)[1:]), name
