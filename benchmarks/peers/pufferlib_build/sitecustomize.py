"""Work around two bugs in the setup script of PufferLib 3.0.0, which does not build from its published source.

Without its own games (NO_OCEAN) the script uses a list that it only defines with them. With a CUDA compiler on the path
it requires the rest of CUDA. Python runs this file at start-up while harness/peer_venvs.py builds PufferLib.
"""

import builtins
import os
from pathlib import Path

os.environ["NO_OCEAN"] = "1"
builtins.c_extension_paths = []  # type: ignore[attr-defined]
os.environ["PATH"] = os.pathsep.join(
    folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "nvcc").exists()
)
