"""The comparison with other libraries: contestants, workloads and the settings that all share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.paths import ROOT

OURS = "paceline-parallel"
"""The contestant that all others are compared with."""
LIMIT = "bare"
"""A loop on each core that only steps envs: an upper bound for any training."""
LIMIT_SHARE = 0.94
"""Target for `OURS` as a share of `LIMIT`."""
PIPELINED = "paceline-pipeline"
"""Collects while it learns, as some other libraries do, so that each batch is one update old."""

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
"""Hyper-parameters of all contestants when speed is measured."""

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
"""Hyper-parameters of all peers when they solve CartPole with 8 envs: SB3's tuned settings. The learning rate falls to
zero; in SB3 and sbx the clip range does, too."""
TUNED_ENVS = 8
OWN_CONFIG = ROOT / "configs" / "cartpole.yaml"
"""Paceline's settings when it solves CartPole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """An env, the number of envs, and the target of the comparison."""

    title: str
    env: str
    n_envs: int = 32
    window_s: float
    """Long enough for an iteration of most contestants."""
    target: float
    """Speed of `OURS` that is claimed, in multiples of the fastest peer."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    image: bool = False
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Changes to `Peer.variant` on this workload, by name of the virtual environment."""

    def task(self, contestant: Peer, seed: int) -> dict[str, Any]:
        """The settings that `peers/task.py` reads."""
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
        variants={"paceline": {"num_workers": "auto"}},  # the default
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
    module: str
    """Module that the child process runs."""
    venv: str
    """Its virtual environment in .venvs/, built from peers/requirements-VENV.txt."""
    variant: dict[str, Any] = field(default_factory=dict)
    """Settings that tell contestants of one library apart."""
    counted: bool = True
    """False if it does not step the same Python env, so that its speed cannot be compared."""
    only: tuple[str, ...] = tuple(WORKLOADS)
    """Workloads that it takes part in."""
    solves: bool = False
    """Whether it takes part in solving CartPole."""


PEERS: dict[str, Peer] = {
    OURS: Peer(
        label="paceline, parallel",
        module="benchmarks.peers.run_paceline",
        venv="paceline",
        variant={"num_workers": 2},
        solves=True,
    ),
    "paceline-sequential": Peer(
        label="paceline, sequential",
        module="benchmarks.peers.run_paceline",
        venv="paceline",
        variant={"num_workers": 0},
        only=("cartpole", "busy", "atari"),
    ),
    PIPELINED: Peer(
        label="paceline, pipeline",
        module="benchmarks.peers.run_paceline",
        venv="paceline",
        variant={"num_workers": 2, "pipeline": True},
        only=("cartpole", "sleep"),
    ),
    LIMIT: Peer(
        label="bare envs: no policy, no learning",
        module="benchmarks.peers.run_bare",
        venv="paceline",
        counted=False,
        only=("busy", "sleep"),
    ),
    "sb3-dummy": Peer(label="SB3 Dummy", module="benchmarks.peers.run_sb3", venv="sb3", solves=True),
    "sb3-dummy-1": Peer(
        label="SB3 Dummy, 1 thread", module="benchmarks.peers.run_sb3", venv="sb3", variant={"threads": 1}, solves=True
    ),
    "sb3-subproc": Peer(label="SB3 Subproc", module="benchmarks.peers.run_sb3", venv="sb3", variant={"subproc": True}),
    "cleanrl": Peer(label="CleanRL style, Sync", module="benchmarks.peers.run_cleanrl", venv="cleanrl", solves=True),
    "cleanrl-1": Peer(
        label="CleanRL style, Sync, 1 thread",
        module="benchmarks.peers.run_cleanrl",
        venv="cleanrl",
        variant={"threads": 1},
        solves=True,
    ),
    "cleanrl-async": Peer(
        label="CleanRL style, Async", module="benchmarks.peers.run_cleanrl", venv="cleanrl", variant={"async": True}
    ),
    "sf-sync": Peer(
        label="Sample Factory, sync",
        module="benchmarks.peers.run_sample_factory",
        venv="sample_factory",
        variant={"async": False},
    ),
    "sf-async": Peer(
        label="Sample Factory, async",
        module="benchmarks.peers.run_sample_factory",
        venv="sample_factory",
        variant={"async": True},
        solves=True,
    ),
    "rllib-0": Peer(
        label="RLlib, 0 env runners",
        module="benchmarks.peers.run_rllib",
        venv="rllib",
        variant={"runners": 0},
        solves=True,
    ),
    "rllib-2": Peer(
        label="RLlib, 2 env runners", module="benchmarks.peers.run_rllib", venv="rllib", variant={"runners": 2}
    ),
    "tianshou": Peer(label="Tianshou", module="benchmarks.peers.run_tianshou", venv="tianshou", solves=True),
    "tianshou-subproc": Peer(
        label="Tianshou, Subproc",
        module="benchmarks.peers.run_tianshou",
        venv="tianshou",
        variant={"subproc": True},
        only=("busy", "sleep"),
    ),
    "sbx": Peer(label="sbx", module="benchmarks.peers.run_sb3", venv="sbx", variant={"package": "sbx"}, solves=True),
    "puffer": Peer(
        label="PufferLib Serial, 1 thread",
        module="benchmarks.peers.run_pufferlib",
        venv="pufferlib",
        variant={"threads": 1},
        solves=True,
    ),
    "puffer-mp": Peer(
        label="PufferLib, 2 workers",
        module="benchmarks.peers.run_pufferlib",
        venv="pufferlib",
        variant={"workers": True},
    ),
    "envpool": Peer(
        label="envpool's C++ env, CleanRL-style loop, 1 thread",
        module="benchmarks.peers.run_cleanrl",
        venv="envpool",
        variant={"envpool": "CartPole-v1", "threads": 1},
        counted=False,
        only=("cartpole",),
    ),
}
