"""Writes frames of an env as a GIF or MP4 file.

GIF only needs Pillow, which is always installed. MP4 needs imageio with ffmpeg (extra `video`). An env may need more to
draw itself: Gymnasium's classic-control and toy-text envs need pygame, which the extra installs too.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from paceline.errors import ConfigError, MissingExtra

SUFFIXES = (".gif", ".mp4")
GIF_FPS = 25.0
"""Viewers play a GIF of more than 50 frames/s at 10 frames/s. 25 looks as smooth and makes half the file size."""
GIF_WIDTH = 480
LENGTH_S = 30.0
"""Longest video in seconds, because frames stay in memory until they are written."""


class Video:
    """Collects frames, and writes the file in `write`.

    Args:
        path: The file, .gif or .mp4.
        fps: Frames per second of the env.

    Raises:
        ConfigError: The suffix is another one, or the file is not writable.
        MissingExtra: MP4 without imageio and its ffmpeg.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        check_path(path)
        self._every = max(1, round(fps / GIF_FPS)) if path.suffix.lower() == ".gif" else 1
        self._fps = fps / self._every
        self._frames: list[Any] = []
        self._seen = 0

    @property
    def full(self) -> bool:
        """Whether the video has its longest duration, so that further frames are dropped."""
        return len(self._frames) >= LENGTH_S * self._fps

    @property
    def seconds(self) -> float:
        """Duration of the video."""
        return len(self._frames) / self._fps

    def add(self, frame: Any) -> None:
        """Add one frame, [H, W, 3] uint8.

        Raises:
            ConfigError: The frame has another shape or type.
        """
        if self.full:
            return
        picture = np.asarray(frame)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            what = "None" if frame is None else f"{picture.dtype} {picture.shape}"
            raise ConfigError(
                f"video: a frame must be an RGB array, [H, W, 3] uint8 (render() gave {what}). "
                "Does the env support render_mode='rgb_array'?"
            )
        if self._seen % self._every == 0:
            self._frames.append(_gif_frame(picture) if self.path.suffix.lower() == ".gif" else _mp4_frame(picture))
        self._seen += 1

    def write(self) -> None:
        """Write the file atomically; does nothing without frames."""
        if not self._frames:
            return
        # With the suffix of the target, because both writers choose the format by it.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".video-", suffix=self.path.suffix.lower())
        os.close(handle)
        try:
            if self.path.suffix.lower() == ".gif":
                self._write_gif(Path(name))
            else:
                _imageio().mimwrite(name, self._frames, fps=self._fps, macro_block_size=1)
            os.chmod(name, 0o644)
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _write_gif(self, path: Path) -> None:
        first, *rest = self._frames
        first.save(path, save_all=True, append_images=rest, duration=1000.0 / self._fps, loop=0, optimize=False)


def check_path(path: Path) -> None:
    """Raise if a video cannot be written there; call it before playing.

    Raises:
        ConfigError: The suffix is not supported, or the file is not writable.
        MissingExtra: MP4 without imageio and ffmpeg.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"video {str(path)!r}: must end with {' or '.join(SUFFIXES)}.")
    if path.suffix.lower() == ".mp4":
        _imageio()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"video {str(path)!r}: must be writable ({error.strerror or error}). Choose another file."
        ) from error


def _imageio() -> Any:
    try:
        importlib.import_module("imageio_ffmpeg")
        return importlib.import_module("imageio.v2")
    except ImportError as error:
        raise MissingExtra("an MP4 video", "video") from error


def _gif_frame(picture: NDArray[np.uint8]) -> Image.Image:
    """Return the frame at most `GIF_WIDTH` wide and in 256 colours, which takes a sixth of the memory."""
    image = Image.fromarray(picture)
    if image.width > GIF_WIDTH:
        image = image.resize((GIF_WIDTH, round(image.height * GIF_WIDTH / image.width)), Image.Resampling.BILINEAR)
    return image.convert("P", palette=Image.Palette.ADAPTIVE)


def _mp4_frame(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy with even height and width, which the codec needs; a copy, since an env may reuse its array."""
    return picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2].copy()
