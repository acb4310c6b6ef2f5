"""On the path while PufferLib 3.0.0 is built from its published source, which does not build as it is.

Without its own games (NO_OCEAN) its setup script asks for a list that it only makes for them; and where it finds a CUDA
compiler it wants the rest of CUDA, too. Python runs this file before anything else.
"""

import builtins
import os
from pathlib import Path

os.environ["NO_OCEAN"] = "1"
builtins.c_extension_paths = []  # type: ignore[attr-defined]
os.environ["PATH"] = os.pathsep.join(
    folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "nvcc").exists()
)
