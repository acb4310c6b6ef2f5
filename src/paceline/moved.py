"""Where modules were before they moved, so that import paths in saved configs and checkpoints still resolve.

A config names an env, a wrapper, a shaper or a policy as `module:Name`. Paths of the old modules are translated
wherever such a path is imported, and wherever a checkpoint's paths are compared with a config's. Add a line when a
module that users may name moves; tests/golden/stored/paths.json lists the paths that must resolve.
"""

from __future__ import annotations

MOVED = {
    "paceline.envs.cyber": "paceline.domains.cyber",
    "paceline.envs.games": "paceline.domains.games",
    "paceline.insight.cyber": "paceline.domains.cyber",
    "paceline.train.net_player": "paceline.domains.games.net_player",
}
"""Old package or module, and its new name."""


def current_module(module: str) -> str:
    """The present name of a module, given its present or an earlier one."""
    for old, new in MOVED.items():
        if module == old or module.startswith(f"{old}."):
            return new + module.removeprefix(old)
    return module


def current_path(path: str) -> str:
    """The same for a path such as `module:Name`. Text that is no such path is returned as it is."""
    module, colon, name = path.partition(":")
    return f"{current_module(module)}{colon}{name}"
