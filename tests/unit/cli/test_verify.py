from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.insight.snapshots import damage, run_of_three, snapshot

from paceline.cli import main
from paceline.train import checkpoint


def test_a_good_run_exits_with_0_and_lists_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of_three(tmp_path)
    assert main(["verify", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert [line.split()[-1][-3:] for line in said.splitlines() if line.startswith("good")] == ["300", "200", "100"]
    for words in ("algorithm ppo, env CartPole-v1", "steps 4,096", "learner/weights: float32 [3], 12 bytes"):
        assert words in said
    assert "rollouts/history: int64 [5, 2]" in said


def test_a_damaged_checkpoint_exits_with_1_and_offers_the_previous_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, previous, newest = run_of_three(tmp_path)
    damage(newest)
    for path in (newest, tmp_path):
        assert main(["verify", str(path), "--quiet"]) == 1
        said = capsys.readouterr().out
        assert f"damaged  {newest / checkpoint.STATE}: sha256" in said
        assert f"The newest undamaged one is {previous}." in said
        assert "learner/weights" not in said


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"weights": 2}, "weights have shape (2,), but the network has 3"),
        ({"value": float("nan")}, "weights are NaN or infinite"),
    ],
)
def test_weights_of_wrong_shape_or_nan_are_damaged(
    how: dict[str, float], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = snapshot(tmp_path / "one", **how)  # type: ignore[arg-type]
    assert main(["verify", str(path)]) == 1
    assert said in capsys.readouterr().out


def test_a_missing_manifest_or_another_format_counts_as_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = snapshot(tmp_path / "one")
    manifest = json.loads((path / checkpoint.MANIFEST).read_text())
    (path / checkpoint.MANIFEST).write_text(json.dumps({**manifest, "format": 99}))
    assert main(["verify", str(path)]) == 1
    assert "unknown format 99" in capsys.readouterr().out
    (path / checkpoint.MANIFEST).unlink()
    assert main(["verify", str(path)]) == 1
    assert "not a checkpoint (no manifest.json)" in capsys.readouterr().out


def test_empty_folders_and_typos_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert "contains no checkpoint" in capsys.readouterr().err
    assert main(["verify", str(tmp_path), "--quit"]) == 2
    assert "Did you mean '--quiet'?" in capsys.readouterr().err


def test_it_needs_no_torch_and_unpickles_nothing(tmp_path: Path) -> None:
    run_of_three(tmp_path)
    script = (
        "import sys, pickle; from paceline.cli import main\n"
        "def never(*_, **__): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = never\n"
        f"code = main(['verify', {str(tmp_path)!r}]); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
