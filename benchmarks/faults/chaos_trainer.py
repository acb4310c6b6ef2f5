"""The `paceline` command with a slow fsync while the file CONTROL/slow exists.

python -m benchmarks.faults.chaos_trainer CONTROL COMMAND ...
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from paceline.cli import main

SLOW_S = 0.7

if __name__ == "__main__":
    slow, fsync = Path(sys.argv[1]) / "slow", os.fsync

    def slowly(fd: int) -> None:
        """As os.fsync, delayed while the file exists."""
        if slow.exists():
            time.sleep(SLOW_S)
        fsync(fd)

    os.fsync = slowly
    sys.exit(main(sys.argv[2:]))
