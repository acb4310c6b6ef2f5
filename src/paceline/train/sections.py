"""The sections of a config that no algorithm owns: env, parallel, policy and run.

A docstring under a field is its help text on the command line. Ranges are checked on
construction; relations between sections in `paceline.train.config`.
"""

from __future__ import annotations

import math
import multiprocessing
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paceline.algos.settings import SETTINGS
from paceline.errors import ConfigError, check_range, nearest
from paceline.train.coerce import core_list, duration_s

DEFAULT_N_ENVS = 32
DEFAULT_TIMESTEPS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """What is learned, and how many of it."""

    env: str | Callable[..., Any]
    """Gymnasium id, module:Id-v0 or module:callable; in Python also a callable."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the env: key=value pairs or JSON."""
    wrappers: tuple[str | Callable[..., Any], ...] = ()
    """Wrappers put around each env, innermost first: module:Name."""
    frame_stack: int = 1
    """Observations the policy sees at once."""
    n_envs: int | None = None
    """Envs in all, whatever the number of workers; none means 32."""
    native_vector: Literal["auto", "always", "never"] = "auto"
    """Whether the env's own vector version steps a whole group."""
    normalize_obs: bool = False
    """Scale vector observations by their running mean and deviation."""
    normalize_reward: bool = False
    """Scale rewards by the deviation of their running discounted sum."""
    opponents: dict[str, Any] = field(default_factory=dict)
    """In a game of two, who is met how often: random=.25,heuristic=.25,self=.5. Self means earlier snapshots of the
    agent, and random before the first. Nothing given: the env's own opponent."""
    snapshot_every: int = 10_000
    """Episodes between two snapshots of the agent for self-play."""
    pool_size: int = 10
    """Snapshots that are kept."""
    pool_offered: int | None = None
    """The newest of them that are met; none takes half."""
    opponent_sampling: Literal["uniform", "recent", "hardest"] = "uniform"
    """Which of those: all equally often, newer ones more often, or those more often that beat the agent."""
    opponent_epsilon: float = 0.5
    """How much a snapshot explores, as a share of what the agent does (dqn)."""
    shaper: str | Callable[..., Any] | None = None
    """What adds to the reward inside the worker: module:Name; in Python also a class. See RewardShaper."""
    shaper_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the shaper: key=value pairs or JSON."""
    env_timeout_s: float = 60.0
    """A worker without a sign of life for this long is taken for hung: its stack is logged, and it is replaced."""
    start_timeout_s: float = 120.0
    """The same for the construction and the first reset of an env."""
    on_nan: Literal["raise", "warn", "replace"] = "raise"
    """What follows when an env gives NaN or an infinity: raise names the env and ends the run, warn goes on,
    replace puts 0 in its place."""

    @property
    def timeouts_s(self) -> tuple[float, float]:
        """How long a start and a step may take."""
        return self.start_timeout_s, self.env_timeout_s

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.env:
            raise ConfigError("env: must be named (got nothing). Use --env CartPole-v1, say.")
        for wrapper in self.wrappers:
            if isinstance(wrapper, str) and not re.fullmatch(r"[\w.]+:[\w.]+", wrapper):
                raise ConfigError(f"wrappers={wrapper!r}: must be an import path. Write module:Name.")
        if self.n_envs is not None:
            check_range("n_envs", self.n_envs, f"Try {DEFAULT_N_ENVS}.", at_least=1)
        if isinstance(self.shaper, str) and not re.fullmatch(r"[\w.]+:[\w.]+", self.shaper):
            raise ConfigError(f"shaper={self.shaper!r}: must be an import path. Write module:Name.")
        if self.shaper_kwargs and self.shaper is None:
            raise ConfigError("shaper_kwargs: there is no shaper. Name one with --shaper module:Name.")
        check_range("frame_stack", self.frame_stack, "Use 1 for no stacking.", at_least=1)
        check_range("snapshot_every", self.snapshot_every, "Try 10000.", at_least=1)
        check_range("pool_size", self.pool_size, "Try 10.", at_least=1)
        if self.pool_offered is not None:
            check_range("pool_offered", self.pool_offered, "Leave it out.", at_least=1)
        check_range("opponent_epsilon", self.opponent_epsilon, "Use 0 for none.", at_least=0, at_most=1)
        for name, share in self.opponents.items():
            if isinstance(share, bool) or not isinstance(share, int | float):
                raise ConfigError(f"opponents: {name}={share!r} must be a number. Write random=.5,self=.5, say.")
        check_range("env_timeout_s", self.env_timeout_s, "Try 60.", above=0)
        check_range("start_timeout_s", self.start_timeout_s, "Try 120.", above=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelConfig:
    """Who does the work. Nothing here but group_size changes the result."""

    num_workers: int | Literal["auto"] = "auto"
    """Worker processes; 0 is sequential, auto measures for about a second and picks."""
    num_envs_per_worker: int | None = None
    """Shorthand: n_envs becomes max(num_workers, 1) times this."""
    group_size: int | None = None
    """Envs that share one policy forward; none computes it from n_envs. Part of the result."""
    env_threads: int | Literal["auto"] = "auto"
    """Envs that a worker steps at the same time; auto is 1, and all of them where a step waits rather than computes."""
    inference: Literal["auto", "local", "central"] = "auto"
    """Who runs the policy: local is each worker for its own envs, central the driver for all, on the learner's device;
    auto is central where that is a GPU."""
    inference_groups: int | None = None
    """With central inference, groups that go through the policy at once; none takes a quarter of them."""
    inference_devices: tuple[str, ...] = ()
    """With central inference, where groups go in turn: cuda:0,cuda:1; nothing given: the learner's device."""
    start_method: Literal["forkserver", "spawn", "fork"] | None = None
    """How workers start; none takes forkserver on Linux and spawn elsewhere."""
    pin_cores: str | None = None
    """Cores to pin workers to: 0-7, 0,2,4, or auto (also without a value) for all allowed ones."""
    recovery: Literal["exact", "restart", "fail"] = "exact"
    """What follows when a worker is lost: exact puts its envs back where they were, so that the run is the same as
    without (in ppo and batched dqn, for envs that replay; else as restart), restart begins new episodes, fail ends
    the run."""
    max_restarts: int = 3
    """How often one worker is replaced with nothing collected in between, after a longer wait each time."""
    runtime: Literal["local", "ray"] = "local"
    """Where workers run: on this machine, or on the nodes of a Ray cluster (needs the extra ray)."""
    ray_address: str | None = None
    """The Ray cluster: auto for the one that this machine belongs to, or HOST:PORT. None starts one here, that nobody
    else can reach."""
    nodes: int | None = None
    """Nodes of the Ray cluster to use; none takes all that have room."""
    workers_per_node: int | None = None
    """Workers on each of them; none takes a CPU each, as many as the smallest node has."""
    on_node_loss: Literal["continue", "wait"] = "continue"
    """When a node is lost: the others take over its envs until a new one joins, or training waits for that."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.num_workers != "auto":
            check_range("num_workers", self.num_workers, "Use 0 for sequential, or auto.", at_least=0)
        if self.num_envs_per_worker is not None:
            check_range("num_envs_per_worker", self.num_envs_per_worker, "Try 8.", at_least=1)
        if self.group_size is not None:
            check_range("group_size", self.group_size, "Leave it out to have it computed.", at_least=1)
        if self.env_threads != "auto":
            check_range("env_threads", self.env_threads, "Use 1 to step one env after another, or auto.", at_least=1)
        if self.inference_groups is not None:
            check_range("inference_groups", self.inference_groups, "Leave it out for a quarter of all.", at_least=1)
        if self.inference == "local" and (self.inference_groups or self.inference_devices):
            raise ConfigError("inference='local': inference_groups and inference_devices are for central inference.")
        known = multiprocessing.get_all_start_methods()
        if self.start_method is not None and self.start_method not in known:
            raise ConfigError(
                f"start_method={self.start_method!r}: must be one this platform has ({', '.join(known)}). "
                "Leave it out for the default."
            )
        check_range("max_restarts", self.max_restarts, "Use 0 to end the run at once.", at_least=0)
        if self.pin_cores is not None:
            core_list(self.pin_cores)
        self._check_ray()

    def _check_ray(self) -> None:
        for name in ("nodes", "workers_per_node"):
            if (value := getattr(self, name)) is not None:
                check_range(name, value, "Leave it out to take what there is.", at_least=1)
        given = [name for name in ("ray_address", "nodes", "workers_per_node") if getattr(self, name) is not None]
        if self.runtime != "ray":
            if given:
                raise ConfigError(f"{given[0]}: is about a Ray cluster (runtime={self.runtime}). Add --runtime ray.")
            return
        if self.num_workers != "auto":
            raise ConfigError(
                f"num_workers={self.num_workers}: with --runtime ray workers are counted by node. Use "
                "--workers-per-node, and --nodes."
            )
        if self.pin_cores is not None:
            raise ConfigError("pin_cores: cores of which node? Leave it out with --runtime ray.")
        if self.ray_address is None and (self.nodes or 1) > 1:
            raise ConfigError(
                f"nodes={self.nodes}: without --ray-address a Ray of this machine is started, which is one node. Use "
                "--ray-address auto on a node of your cluster."
            )
        if self.ray_address is not None and not re.fullmatch(r"auto|[^\s/]+:\d{1,5}", self.ray_address):
            raise ConfigError(
                f"ray_address={self.ray_address!r}: must be auto or HOST:PORT, without a scheme. The driver runs on a "
                "node of the cluster; try auto."
            )

    @property
    def known_workers(self) -> int | None:
        """Workers, where that is known before anything is started."""
        if self.runtime == "ray":
            return None if self.nodes is None or self.workers_per_node is None else self.nodes * self.workers_per_node
        return None if self.num_workers == "auto" else self.num_workers

    @property
    def cores(self) -> tuple[int, ...] | None:
        """Cores to pin workers to: None for no pinning, empty for all allowed ones."""
        return None if self.pin_cores is None else core_list(self.pin_cores)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """The net that acts and is trained."""

    policy: str | type[Any] = "auto"
    """auto, mlp, nature_cnn, impala_cnn or module:Class; in Python also a class."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    activation: Literal["tanh", "relu", "elu"] = "tanh"
    """Nonlinearity between layers."""
    compile: bool = False
    """Compile the gradient of networks other than mlp (torch.compile): needs a C++ compiler and, the first time, ten
    seconds or more. Measure whether it pays. Part of the result: fused kernels round differently."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for size in self.hidden_sizes:
            check_range("hidden_sizes", size, "Try 64 64.", at_least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """How long, where to, and what is kept. Of several budgets the first one spent ends the run."""

    algo: str = "ppo"
    """The algorithm."""
    seed: int = 0
    """Same seed, same run."""
    device: str = "cpu"
    """Where the learner computes: cpu, cuda, cuda:N, mps or auto."""
    total_timesteps: int | None = None
    """Budget in steps of all envs together; 1,000,000 where no budget is given."""
    total_episodes: int | None = None
    """Budget in finished episodes."""
    duration: float | str | None = None
    """Budget of time: 90s, 15m or 2h; a bare number is hours."""
    output_dir: Path | None = None
    """The run's folder; none makes one under runs/."""
    checkpoint_dir: Path | None = None
    """Where checkpoints go; none puts them into the run's folder."""
    resume: bool | Path = False
    """Go on from the newest checkpoint of output_dir, or from the one named."""
    trust_env_state: bool = False
    """Keep pickled envs in checkpoints and resume from them, for envs that cannot be replayed from their seed. Loading
    runs code from the file: for your own checkpoints only."""
    init_from: Path | None = None
    """Start from the weights of this run, and nothing else of it."""
    overwrite: bool = False
    """Replace an earlier run in output_dir."""
    eval_freq: int = 0
    """Steps between evaluations; 0 evaluates once, at the end."""
    n_eval_episodes: int = 10
    """Episodes of an evaluation; 0 evaluates never."""
    save_freq: int = 100_000
    """Steps between checkpoints; 0 saves once, at the end."""
    keep_checkpoints: int = 3
    """Newest checkpoints kept."""
    stop_at_score: float | None = None
    """Stop once the last 100 episodes (with eval_freq: an evaluation) have this mean return."""
    stop_at: dict[str, Any] = field(default_factory=dict)
    """Stop once the last 100 episodes have at least these means of what a shaper tells of them: compliance=.95."""
    track: bool = False
    """Log to Weights & Biases too; needs the extra wandb."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        """Check the ranges, and settings that contradict each other."""
        if self.algo not in SETTINGS:
            raise ConfigError(f"algo={self.algo!r}: no such algorithm. {nearest(self.algo, SETTINGS)}")
        check_range("seed", self.seed, "Try 0.", at_least=0, at_most=2**63 - 1)
        if not re.fullmatch(r"cpu|mps|auto|cuda(:\d+)?", self.device):
            hint = nearest(self.device, ["cpu", "cuda", "cuda:0", "mps", "auto"])
            raise ConfigError(f"device={self.device!r}: must be cpu, cuda, cuda:N, mps or auto. {hint}")
        if self.total_timesteps is not None:
            check_range("total_timesteps", self.total_timesteps, "Try 1e6.", at_least=1)
        if self.total_episodes is not None:
            check_range("total_episodes", self.total_episodes, "Try 1000.", at_least=1)
        if self.duration is not None:
            duration_s(self.duration)
        check_range("eval_freq", self.eval_freq, "Use 0 to evaluate at the end only.", at_least=0)
        check_range("n_eval_episodes", self.n_eval_episodes, "Use 0 to evaluate never.", at_least=0)
        check_range("save_freq", self.save_freq, "Use 0 to save at the end only.", at_least=0)
        check_range("keep_checkpoints", self.keep_checkpoints, "Try 3.", at_least=1)
        if self.stop_at_score is not None and not math.isfinite(self.stop_at_score):
            raise ConfigError(f"stop_at_score={self.stop_at_score!r}: must be a finite number. Try 475, say.")
        if self.stop_at_score is not None and self.eval_freq and not self.n_eval_episodes:
            raise ConfigError(
                "stop_at_score: with eval_freq it goes by evaluations, and n_eval_episodes=0 has none. Try 10."
            )
        for name, goal in self.stop_at.items():
            if isinstance(goal, bool) or not isinstance(goal, int | float) or not math.isfinite(goal):
                raise ConfigError(f"stop_at: {name}={goal!r} must be a finite number. Write compliance=.95, say.")
        if self.resume and (self.overwrite or self.init_from is not None):
            other = "overwrite" if self.overwrite else "init_from"
            raise ConfigError(f"resume with {other}: resuming keeps and restores everything. Give one of the two.")
        if self.resume is True and self.output_dir is None:
            raise ConfigError("resume: needs the run to go on with. Use --resume RUN, or --output-dir RUN --resume.")

    @property
    def resume_from(self) -> Path | None:
        """The run or checkpoint to go on from."""
        if isinstance(self.resume, Path):
            return self.resume
        return self.output_dir if self.resume else None

    @property
    def budget_steps(self) -> int | None:
        """Steps after which to stop; the default budget where none of the three was given."""
        if self.total_episodes is None and self.duration is None:
            return self.total_timesteps or DEFAULT_TIMESTEPS
        return self.total_timesteps

    @property
    def budget_s(self) -> float | None:
        """Seconds after which to stop."""
        return None if self.duration is None else duration_s(self.duration)
