"""Who is compared on what: contestants, workloads and the settings that all share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = HERE / "peers"
OURS = "paceline-parallel"
"""Whom the others are compared with."""
LIMIT = "bare"
"""The envs alone, on every core: nobody can be faster."""
LIMIT_SHARE = 0.94
"""What is claimed of it."""
PIPELINED = "paceline-pipeline"
"""Learns while it collects, as some of the others do: each batch is one update old."""

SHARED: dict[str, Any] = {
    "n_steps": 128,
    "batch_size": 1024,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
"""The same for all when speed is measured."""

TUNED: dict[str, Any] = {
    **SHARED,
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "linear": True,
    "total_steps": 100_000,
}
"""What the peers' users take for CartPole, with 8 envs. The learning rate falls to zero; with SB3 and sbx, whose
settings these are, the clip range too."""
TUNED_ENVS = 8
OWN_CONFIG = HERE.parent / "configs" / "cartpole.yaml"
"""Our own settings for CartPole, where they are there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """An env, how many of it, and what is claimed about it."""

    title: str
    env: str
    n_envs: int = 32
    window_s: float
    """Long enough for an iteration of most contestants."""
    target: float
    """Speed that is claimed over the fastest peer."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    image: bool = False
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What a library does differently here, by its environment."""

    def task(self, contestant: Peer, seed: int) -> dict[str, Any]:
        """The settings as `peers/task.py` reads them."""
        return {
            "env": self.env,
            "env_kwargs": self.env_kwargs,
            "n_envs": self.n_envs,
            "image": self.image,
            "ppo": SHARED,
            "variant": {**contestant.variant, **self.variants.get(contestant.venv, {})},
            "seed": seed,
            "solve_at": None,
            "config": None,
        }


WORKLOADS = {
    "cartpole": Workload(title="CartPole-v1, 32 envs", env="CartPole-v1", window_s=6.0, target=2.5),
    "busy": Workload(
        title="Busy 1 ms of CPU, 32 envs", env="busy", env_kwargs={"cpu_ms": 1.0}, window_s=10.0, target=1.3
    ),
    "sleep": Workload(
        title="Sleep 2 ms, 32 envs",
        env="busy",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 2.0},
        window_s=6.0,
        target=3.0,
        variants={"paceline": {"num_workers": "auto"}},  # as it comes
    ),
    "atari": Workload(
        title="Atari Breakout 84x84x4, NatureCNN, 8 envs, one minibatch of 1024",
        env="breakout",
        n_envs=8,
        image=True,
        window_s=12.0,
        target=1.5,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """One way to run one library."""

    label: str
    script: str
    venv: str
    """Its environment under .venvs/, and its requirements file."""
    variant: dict[str, Any] = field(default_factory=dict)
    counted: bool = True
    """Whether it steps the same Python env, so that being faster means something."""
    only: tuple[str, ...] = tuple(WORKLOADS)
    """Workloads it can run."""
    solves: bool = False
    """Whether it takes part in solving CartPole."""


PEERS: dict[str, Peer] = {
    OURS: Peer(
        label="paceline, parallel", script="run_paceline.py", venv="paceline", variant={"num_workers": 2}, solves=True
    ),
    "paceline-sequential": Peer(
        label="paceline, sequential",
        script="run_paceline.py",
        venv="paceline",
        variant={"num_workers": 0},
        only=("cartpole", "busy", "atari"),
    ),
    PIPELINED: Peer(
        label="paceline, pipeline",
        script="run_paceline.py",
        venv="paceline",
        variant={"num_workers": 2, "pipeline": True},
        only=("cartpole", "sleep"),
    ),
    LIMIT: Peer(
        label="bare envs: no policy, no learning",
        script="run_bare.py",
        venv="paceline",
        counted=False,
        only=("busy", "sleep"),
    ),
    "sb3-dummy": Peer(label="SB3 Dummy", script="run_sb3.py", venv="sb3", solves=True),
    "sb3-dummy-1": Peer(
        label="SB3 Dummy, 1 thread", script="run_sb3.py", venv="sb3", variant={"threads": 1}, solves=True
    ),
    "sb3-subproc": Peer(label="SB3 Subproc", script="run_sb3.py", venv="sb3", variant={"subproc": True}),
    "cleanrl": Peer(label="CleanRL style, Sync", script="run_cleanrl.py", venv="cleanrl", solves=True),
    "cleanrl-1": Peer(
        label="CleanRL style, Sync, 1 thread",
        script="run_cleanrl.py",
        venv="cleanrl",
        variant={"threads": 1},
        solves=True,
    ),
    "cleanrl-async": Peer(
        label="CleanRL style, Async", script="run_cleanrl.py", venv="cleanrl", variant={"async": True}
    ),
    "sf-sync": Peer(
        label="Sample Factory, sync", script="run_sample_factory.py", venv="sample_factory", variant={"async": False}
    ),
    "sf-async": Peer(
        label="Sample Factory, async",
        script="run_sample_factory.py",
        venv="sample_factory",
        variant={"async": True},
        solves=True,
    ),
    "rllib-0": Peer(
        label="RLlib, 0 env runners", script="run_rllib.py", venv="rllib", variant={"runners": 0}, solves=True
    ),
    "rllib-2": Peer(label="RLlib, 2 env runners", script="run_rllib.py", venv="rllib", variant={"runners": 2}),
    "tianshou": Peer(label="Tianshou", script="run_tianshou.py", venv="tianshou", solves=True),
    "tianshou-subproc": Peer(
        label="Tianshou, Subproc",
        script="run_tianshou.py",
        venv="tianshou",
        variant={"subproc": True},
        only=("busy", "sleep"),
    ),
    "sbx": Peer(label="sbx", script="run_sb3.py", venv="sbx", variant={"package": "sbx"}, solves=True),
    "puffer": Peer(
        label="PufferLib Serial, 1 thread",
        script="run_pufferlib.py",
        venv="pufferlib",
        variant={"threads": 1},
        solves=True,
    ),
    "puffer-mp": Peer(
        label="PufferLib, 2 workers", script="run_pufferlib.py", venv="pufferlib", variant={"workers": True}
    ),
    "envpool": Peer(
        label="envpool's C++ env, CleanRL-style loop, 1 thread",
        script="run_cleanrl.py",
        venv="envpool",
        variant={"envpool": "CartPole-v1", "threads": 1},
        counted=False,
        only=("cartpole",),
    ),
}
