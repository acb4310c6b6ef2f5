"""The sections of a config that all algorithms share: env, parallel, policy and run.

A docstring under a field is its help text on the command line. Ranges are checked on
construction; relations between sections in `paceline.config.train_config`.
"""

from __future__ import annotations

import math
import multiprocessing
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paceline.config.algorithms import ALGORITHMS
from paceline.config.coerce import core_list, duration_s
from paceline.errors import ConfigError, check_optional, check_range, nearest

DEFAULT_N_ENVS = 32
DEFAULT_TIMESTEPS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """Which env, how many of them, and how their data is preprocessed."""

    env: str | Callable[..., Any]
    """Gymnasium id, module:Id-v0 or module:callable; in Python also a callable."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the env: key=value pairs or JSON."""
    wrappers: tuple[str | Callable[..., Any], ...] = ()
    """Wrappers around each env, innermost first: module:Name."""
    frame_stack: int = 1
    """Stack this many frames into one observation."""
    n_envs: int | None = None
    """Number of envs over all workers. Default: 32."""
    native_vector: Literal["auto", "always", "never"] = "auto"
    """Use the env's built-in vector env for each group, if it has one."""
    normalize_obs: bool = False
    """Normalise vector observations by their running mean and standard deviation."""
    normalize_reward: bool | None = None
    """Divide rewards by the running standard deviation of the discounted return. Default: true for ppo, else false."""
    opponents: dict[str, Any] = field(default_factory=dict)
    """Opponents in a two-player game and their shares: random=.25,heuristic=.25,self=.5. self: snapshots of the agent
    (random until the first exists). Default: the env's own opponent."""
    snapshot_every: int = 10_000
    """Episodes between snapshots of the agent."""
    pool_size: int = 10
    """Snapshots kept in the opponent pool."""
    pool_offered: int | None = None
    """Draw opponents from the newest N snapshots only. Default: half of the pool."""
    opponent_sampling: Literal["uniform", "recent", "hardest"] = "uniform"
    """How snapshots are drawn: uniform, recent (newer ones more often) or hardest (those that beat the agent more
    often)."""
    opponent_epsilon: float = 0.5
    """Epsilon of snapshots as a fraction of the agent's epsilon (dqn)."""
    shaper: str | Callable[..., Any] | None = None
    """Reward shaper, run inside the worker: module:Name; in Python also a class. See RewardShaper."""
    shaper_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the shaper: key=value pairs or JSON."""
    env_timeout_s: float = 60.0
    """Timeout of a step in seconds. A worker that exceeds it counts as hung: its stack is logged and it is replaced."""
    start_timeout_s: float = 120.0
    """Timeout in seconds for making an env and its first reset."""
    on_nan: Literal["raise", "warn", "replace"] = "raise"
    """If an env returns NaN or infinity: raise names the env and ends the run, warn logs and continues, replace uses 0
    instead."""

    @property
    def timeouts_s(self) -> tuple[float, float]:
        """Timeouts in seconds: making and first resetting an env, and one step."""
        return self.start_timeout_s, self.env_timeout_s

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.env:
            raise ConfigError("env: required (got nothing). Use --env CartPole-v1, for example.")
        for wrapper in self.wrappers:
            if isinstance(wrapper, str) and not re.fullmatch(r"[\w.]+:[\w.]+", wrapper):
                raise ConfigError(f"wrappers={wrapper!r}: must be an import path. Write module:Name.")
        check_optional("n_envs", self.n_envs, f"Try {DEFAULT_N_ENVS}.", at_least=1)
        if isinstance(self.shaper, str) and not re.fullmatch(r"[\w.]+:[\w.]+", self.shaper):
            raise ConfigError(f"shaper={self.shaper!r}: must be an import path. Write module:Name.")
        if self.shaper_kwargs and self.shaper is None:
            raise ConfigError("shaper_kwargs: needs a shaper (none given). Add --shaper module:Name.")
        check_range("frame_stack", self.frame_stack, "Use 1 for no stacking.", at_least=1)
        check_range("snapshot_every", self.snapshot_every, "Try 10000.", at_least=1)
        check_range("pool_size", self.pool_size, "Try 10.", at_least=1)
        check_optional("pool_offered", self.pool_offered, "Leave it out.", at_least=1)
        check_range("opponent_epsilon", self.opponent_epsilon, "Use 0 for none.", at_least=0, at_most=1)
        for name, share in self.opponents.items():
            if isinstance(share, bool) or not isinstance(share, int | float):
                raise ConfigError(
                    f"opponents: {name}={share!r} must be a number. Write random=.5,self=.5, for example."
                )
        check_range("env_timeout_s", self.env_timeout_s, "Try 60.", above=0)
        check_range("start_timeout_s", self.start_timeout_s, "Try 120.", above=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelConfig:
    """Workers, processes and machines.

    None of these settings changes the weights, except group_size and num_envs_per_worker (which sets n_envs), and
    recovery=restart after the loss of a worker.
    """

    num_workers: int | Literal["auto"] = "auto"
    """Worker processes. 0: sequential; auto: measure for about a second and choose."""
    num_envs_per_worker: int | None = None
    """Envs per worker: sets n_envs to max(num_workers, 1) * this."""
    group_size: int | None = None
    """Envs per policy call. Changes the weights. Default: the largest divisor of n_envs up to 8 that makes at least 8
    groups (images: 2)."""
    env_threads: int | Literal["auto"] = "auto"
    """Envs that a worker steps concurrently, in threads. auto: 1, or all of them if a step mostly waits (I/O,
    sleep)."""
    inference: Literal["auto", "local", "central"] = "auto"
    """Where the policy runs. local: in each worker, for its own envs; central (experimental, never run on a GPU): in
    the driver, for all envs, on the learner's device; auto: central if that device is a GPU."""
    inference_groups: int | None = None
    """Central inference: env groups per policy call. Default: a quarter of all groups."""
    inference_devices: tuple[str, ...] = ()
    """Central inference: devices used in turn, e.g. cuda:0,cuda:1. Default: the learner's device."""
    start_method: Literal["forkserver", "spawn", "fork"] | None = None
    """multiprocessing start method. Default: forkserver on Linux, spawn elsewhere."""
    pin_cores: str | None = None
    """Pin workers to CPU cores: 0-7 or 0,2,4; auto (or no value): all cores this process may use. Default: no
    pinning."""
    recovery: Literal["exact", "restart", "fail"] = "exact"
    """If a worker dies or hangs. exact: replace it and replay its envs to the same state, so that the weights do not
    change (ppo and dqn in batch mode, for envs that are deterministic given their seed; else like restart). restart:
    replace it and start new episodes. fail: end the run."""
    max_restarts: int = 3
    """Give up after this many restarts of a worker in a row without any collected data. The delay grows each time."""
    runtime: Literal["local", "ray"] = "local"
    """local: workers on this machine. ray: workers on the nodes of a Ray cluster (needs the extra ray)."""
    ray_address: str | None = None
    """Address of the Ray cluster: auto (the one this machine belongs to) or HOST:PORT. Default: start a private local
    cluster."""
    nodes: int | None = None
    """Ray nodes to use. Default: all nodes with free CPUs."""
    workers_per_node: int | None = None
    """Workers per Ray node. Default: one per CPU of the smallest node."""
    on_node_loss: Literal["continue", "wait"] = "continue"
    """If a node is lost. continue: the other nodes run its envs until a new one joins; wait: pause until one joins."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.num_workers != "auto":
            check_range("num_workers", self.num_workers, "Use 0 for sequential, or auto.", at_least=0)
        check_optional("num_envs_per_worker", self.num_envs_per_worker, "Try 8.", at_least=1)
        check_optional("group_size", self.group_size, "Leave it out to have it computed.", at_least=1)
        if self.env_threads != "auto":
            check_range("env_threads", self.env_threads, "Use 1 to step one env after another, or auto.", at_least=1)
        check_optional("inference_groups", self.inference_groups, "Leave it out for a quarter of all.", at_least=1)
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
            check_optional(name, getattr(self, name), "Leave it out to use all nodes and CPUs.", at_least=1)
        given = [name for name in ("ray_address", "nodes", "workers_per_node") if getattr(self, name) is not None]
        if self.runtime != "ray":
            if given:
                raise ConfigError(f"{given[0]}: needs a Ray cluster (runtime={self.runtime}). Add --runtime ray.")
            return
        if self.num_workers != "auto":
            raise ConfigError(
                f"num_workers={self.num_workers}: with runtime=ray the number of workers is set per node. Use "
                "--workers-per-node, and --nodes."
            )
        if self.pin_cores is not None:
            raise ConfigError("pin_cores: unsupported with runtime=ray, cores differ between nodes. Leave it out.")
        if self.ray_address is None and (self.nodes or 1) > 1:
            raise ConfigError(
                f"nodes={self.nodes}: without --ray-address a local Ray cluster of one node is started. Use "
                "--ray-address auto on a node of your cluster."
            )
        if self.ray_address is not None and not re.fullmatch(r"auto|[^\s/]+:\d{1,5}", self.ray_address):
            raise ConfigError(
                f"ray_address={self.ray_address!r}: must be auto or HOST:PORT, without a scheme. The driver runs on a "
                "node of the cluster; try auto."
            )

    @property
    def known_workers(self) -> int | None:
        """Number of workers, or None if it is only known after the start (auto, or nodes not given)."""
        if self.runtime == "ray":
            return None if self.nodes is None or self.workers_per_node is None else self.nodes * self.workers_per_node
        return None if self.num_workers == "auto" else self.num_workers

    @property
    def asks_for_central_inference(self) -> bool:
        """Whether the driver must run the policy, whatever the learner's device."""
        return self.inference == "central" or bool(self.inference_devices or self.inference_groups)

    @property
    def cores(self) -> tuple[int, ...] | None:
        """Cores to pin workers to: None for no pinning, empty for all allowed ones."""
        return None if self.pin_cores is None else core_list(self.pin_cores)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """The network."""

    policy: str | type[Any] = "auto"
    """Network: auto, mlp, nature_cnn, impala_cnn or module:Class; in Python also a class."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of an mlp."""
    value_hidden_sizes: tuple[int, ...] | None = None
    """Units of each hidden layer of the value network of an mlp. Default: the same as hidden_sizes. Another value lets
    the learner compute in torch instead of numpy, which is slower for small networks."""
    activation: Literal["tanh", "relu", "elu"] = "tanh"
    """Activation function."""
    features_extractor: str | type[Any] | None = None
    """Module of your own in front of the mlp: module:Class; in Python also a class. Gets the observation space, returns
    features [N, F]."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, sizes in (("hidden_sizes", self.hidden_sizes), ("value_hidden_sizes", self.value_hidden_sizes)):
            for size in sizes or ():
                check_range(name, size, "Try 64 64.", at_least=1)
        if isinstance(self.features_extractor, str) and ":" not in self.features_extractor:
            raise ConfigError(
                f"features_extractor={self.features_extractor!r}: must be an import path. Write module:Class."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Budget, output, checkpoints and evaluation. Of several budgets, the first one used up ends the run."""

    algo: str = "ppo"
    """Algorithm."""
    seed: int = 0
    """Random seed."""
    device: str = "cpu"
    """Device of the learner: cpu, cuda, cuda:N, mps or auto."""
    total_timesteps: int | None = None
    """Budget in env steps, summed over all envs. Default: 1,000,000 if no other budget is given."""
    total_episodes: int | None = None
    """Budget in finished episodes. Default: no limit."""
    duration: float | str | None = None
    """Budget in wall-clock time: 90s, 15m or 2h; a number without a unit is in hours. The final
    evaluation comes after it. Default: no limit."""
    output_dir: Path | None = None
    """Run folder. Default: a new folder under runs/."""
    checkpoint_dir: Path | None = None
    """Checkpoint folder, stored with its absolute path. Default: inside the run folder."""
    resume: bool | Path = False
    """Resume from the newest checkpoint in output_dir, or from the run or checkpoint at PATH."""
    trust_env_state: bool = False
    """Pickle envs into checkpoints and unpickle them on resume, for envs that cannot be replayed from their seed.
    Unpickling runs code from the file: use it with your own checkpoints only."""
    init_from: Path | None = None
    """Start with the weights of this run (nothing else is loaded from it)."""
    overwrite: bool = False
    """Replace an existing run in output_dir."""
    eval_freq: int = 0
    """Steps between evaluations. 0: evaluate once, at the end."""
    n_eval_episodes: int = 10
    """Episodes per evaluation. 0: never evaluate."""
    eval_env: str | Callable[..., Any] | None = None
    """Env of the evaluations, as for env, with the same wrappers and spaces. Default: the training env."""
    eval_env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of eval_env; without eval_env, those that replace env_kwargs in evaluations."""
    save_freq: int = 100_000
    """Steps between checkpoints. 0: save once, at the end."""
    keep_checkpoints: int = 3
    """Number of newest checkpoints to keep."""
    stop_at_score: float | None = None
    """Stop when the mean return reaches this, over the last 100 episodes (with eval_freq: in an evaluation).
    Default: never."""
    stop_at: dict[str, Any] = field(default_factory=dict)
    """Stop when the measures of the reward shaper reach these means over the last 100 episodes, e.g.
    compliance=.95."""
    track: bool = False
    """Also log to Weights & Biases (needs the extra wandb)."""
    quiet: bool = False
    """No progress display."""

    def __post_init__(self) -> None:
        """Check the ranges, and settings that contradict each other."""
        if self.algo not in ALGORITHMS:
            raise ConfigError(f"algo={self.algo!r}: no such algorithm. {nearest(self.algo, ALGORITHMS)}")
        check_range("seed", self.seed, "Try 0.", at_least=0, at_most=2**63 - 1)
        if not re.fullmatch(r"cpu|mps|auto|cuda(:\d+)?", self.device):
            hint = nearest(self.device, ["cpu", "cuda", "cuda:0", "mps", "auto"])
            raise ConfigError(f"device={self.device!r}: must be cpu, cuda, cuda:N, mps or auto. {hint}")
        check_optional("total_timesteps", self.total_timesteps, "Try 1e6.", at_least=1)
        check_optional("total_episodes", self.total_episodes, "Try 1000.", at_least=1)
        if self.duration is not None:
            duration_s(self.duration)
        check_range("eval_freq", self.eval_freq, "Use 0 to evaluate at the end only.", at_least=0)
        check_range("n_eval_episodes", self.n_eval_episodes, "Use 0 to never evaluate.", at_least=0)
        check_range("save_freq", self.save_freq, "Use 0 to save at the end only.", at_least=0)
        check_range("keep_checkpoints", self.keep_checkpoints, "Try 3.", at_least=1)
        if self.stop_at_score is not None and not math.isfinite(self.stop_at_score):
            raise ConfigError(f"stop_at_score={self.stop_at_score!r}: must be a finite number. Try 475.")
        if self.stop_at_score is not None and self.eval_freq and not self.n_eval_episodes:
            raise ConfigError(
                "stop_at_score: with eval_freq it compares evaluations, and n_eval_episodes=0 disables them. Try 10."
            )
        if self.checkpoint_dir is not None:  # absolute, so that the run can be resumed from another working directory
            object.__setattr__(self, "checkpoint_dir", self.checkpoint_dir.absolute())
        for name, goal in self.stop_at.items():
            if isinstance(goal, bool) or not isinstance(goal, int | float) or not math.isfinite(goal):
                raise ConfigError(f"stop_at: {name}={goal!r} must be a finite number. Write compliance=.95.")
        if self.resume and (self.overwrite or self.init_from is not None):
            other = "overwrite" if self.overwrite else "init_from"
            raise ConfigError(f"resume with {other}: resuming keeps and restores everything. Give one of the two.")
        if self.resume is True and self.output_dir is None:
            raise ConfigError(
                "resume: needs a run to resume (no output_dir given). Use --resume RUN, or --output-dir RUN --resume."
            )

    @property
    def resume_from(self) -> Path | None:
        """The run or checkpoint to resume from."""
        if isinstance(self.resume, Path):
            return self.resume
        return self.output_dir if self.resume else None

    @property
    def budget_steps(self) -> int | None:
        """Steps after which to stop: as given, or the default if no budget of any kind is given."""
        if self.total_episodes is None and self.duration is None:
            return self.total_timesteps or DEFAULT_TIMESTEPS
        return self.total_timesteps

    @property
    def budget_s(self) -> float | None:
        """Wall-clock seconds after which to stop; None without a limit."""
        return None if self.duration is None else duration_s(self.duration)
