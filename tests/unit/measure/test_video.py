from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from paceline.errors import ConfigError, MissingExtra
from paceline.measure import video
from paceline.measure.video import Video, check_path


def frames(n: int, *, height: int = 20, width: int = 30) -> list[NDArray[np.uint8]]:
    """A white column that wanders over black."""
    found = []
    for i in range(n):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:, i % width] = 255
        found.append(frame)
    return found


def filmed(path: Path, pictures: list[NDArray[np.uint8]], *, fps: float = 10.0) -> Video:
    film = Video(path, fps)
    for picture in pictures:
        film.add(picture)
    film.write()
    return film


def test_gif_shows_the_frames_at_the_pace_of_the_env(tmp_path: Path) -> None:
    film = filmed(tmp_path / "deep" / "er" / "x.gif", frames(8))
    assert film.seconds == pytest.approx(0.8)
    with Image.open(film.path) as image:
        assert image.info["duration"] == 100
        assert image.info["loop"] == 0
        shown = [np.asarray(frame.convert("L")) for frame in ImageSequence.Iterator(image)]
    assert [int(frame[0].argmax()) for frame in shown] == list(range(8))
    assert [path.name for path in film.path.parent.iterdir()] == ["x.gif"]  # nothing left of the writing


def test_fast_envs_are_thinned_and_wide_ones_scaled(tmp_path: Path) -> None:
    film = filmed(tmp_path / "x.gif", frames(100, height=50, width=960), fps=50.0)
    assert film.seconds == pytest.approx(2.0)
    with Image.open(film.path) as image:
        assert image.size == (480, 25)
        assert image.info["duration"] == 40
        assert getattr(image, "n_frames", 1) == 50


def test_frames_beyond_the_longest_duration_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "LENGTH_S", 1.0)
    film = Video(tmp_path / "x.gif", 10.0)
    for number, picture in enumerate(frames(25)):
        assert film.full == (number >= 10)
        film.add(picture)
    assert film.seconds == pytest.approx(1.0)


def test_an_env_may_reuse_its_array(tmp_path: Path) -> None:
    film = Video(tmp_path / "x.gif", 10.0)
    picture = frames(1)[0]
    film.add(picture)
    picture[:] = 77
    film.write()
    with Image.open(film.path) as image:
        assert np.asarray(image.convert("L"))[0, 0] == 255


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (None, "gave None"),
        (np.zeros((4, 4), np.uint8), r"gave uint8 \(4, 4\)"),
        (np.zeros((4, 4, 3), np.float32), "gave float32"),
    ],
)
def test_a_frame_that_is_not_an_rgb_array_is_refused(tmp_path: Path, frame: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Video(tmp_path / "x.gif", 10.0).add(frame)


def test_paths_are_checked_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end with \.gif or \.mp4"):
        check_path(tmp_path / "x.avi")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="must be writable"):
        check_path(tmp_path / "file" / "x.gif")


def test_mp4_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtra, match=r"paceline\[video\]"):
        Video(tmp_path / "x.mp4", 30.0)


def test_mp4_is_written_by_imageio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def mimwrite(name: str, pictures: list[NDArray[np.uint8]], **settings: Any) -> None:
        seen.update(settings, shapes={picture.shape for picture in pictures}, n=len(pictures))
        Path(name).write_bytes(b"film")

    writer: Any = types.ModuleType("imageio.v2")
    writer.mimwrite = mimwrite
    for name, module in (("imageio_ffmpeg", types.ModuleType("x")), ("imageio.v2", writer)):
        monkeypatch.setitem(sys.modules, name, module)
    film = filmed(tmp_path / "x.mp4", frames(5, height=21, width=31), fps=60.0)
    assert film.path.read_bytes() == b"film"
    assert (seen["n"], seen["fps"], seen["shapes"]) == (5, 60.0, {(20, 30, 3)})


def test_a_failed_write_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.gif"
    path.write_bytes(b"earlier")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Video, "_write_gif", fail)
    with pytest.raises(OSError, match="No space"):
        filmed(path, frames(2))
    assert path.read_bytes() == b"earlier"
    assert len(list(tmp_path.iterdir())) == 1
