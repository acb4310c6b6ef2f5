"""Frames of an env as a GIF or MP4 file.

GIF needs nothing more than Pillow, which is always there. MP4 needs imageio with its ffmpeg.
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
"""Viewers play a GIF of more than 50 frames/s at ten; half of that is as smooth and half as large."""
GIF_WIDTH = 480
LENGTH_S = 30.0
"""A video ends here: frames wait in memory until they are written."""


class Video:
    """Collects frames and writes the file when it is closed.

    Args:
        path: The file, .gif or .mp4.
        fps: Frames per second that the env means to show.

    Raises:
        ConfigError: Another suffix, or nothing can be written there.
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
        """Whether further frames are left out."""
        return len(self._frames) >= LENGTH_S * self._fps

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return len(self._frames) / self._fps

    def add(self, frame: Any) -> None:
        """Take in one frame: [H, W, 3] uint8.

        Raises:
            ConfigError: It is something else.
        """
        if self.full:
            return
        picture = np.asarray(frame)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            what = "None" if frame is None else f"{picture.dtype} {picture.shape}"
            raise ConfigError(
                f"video: a frame must be an RGB array, [H, W, 3] uint8 (render() gave {what}). "
                "Does the env know render_mode='rgb_array'?"
            )
        if self._seen % self._every == 0:
            self._frames.append(_small(picture) if self.path.suffix.lower() == ".gif" else _even(picture))
        self._seen += 1

    def write(self) -> None:
        """Write the file whole, or leave what was there."""
        if not self._frames:
            return
        # Named like the target: both writers choose the format by the suffix.
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
    """Refuse what could not be written in the end, before anything is played."""
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
        raise MissingExtra("an MP4 video (a GIF needs none)", "video") from error


def _small(picture: NDArray[np.uint8]) -> Image.Image:
    """At most `GIF_WIDTH` wide, in 256 colours: a sixth of the memory."""
    image = Image.fromarray(picture)
    if image.width > GIF_WIDTH:
        image = image.resize((GIF_WIDTH, round(image.height * GIF_WIDTH / image.width)), Image.Resampling.BILINEAR)
    return image.convert("P", palette=Image.Palette.ADAPTIVE)


def _even(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Even height and width, as the codec wants them; copied, since an env may reuse its array."""
    return picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2].copy()
