"""Time the calls of collecting and learning one by one, for the suite `waterfall`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.batch import Trajectory
from paceline.collect.rollout import SETTLED_STEPS
from paceline.envs.seeding import episode_seed
from paceline.memory.gather import Gather
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena
from paceline.memory.slots import Slots
from paceline.nets.actor import DeferredValueActor
from paceline.nets.array_net import array_net_for
from paceline.nets.flat import bind
from paceline.ops.adam import FlatAdam
from paceline.ops.clip import clip_norm
from paceline.ops.distributions import head_for
from paceline.ops.minibatch_moments import minibatch_moments
from paceline.ops.returns import gae, next_values
from paceline.ops.scores import score
from paceline.ops.surrogate import surrogate
from paceline.runtime.protocol import Share
from paceline.train.algorithms.ppo import PPOPlan, ppo_plan
from paceline.train.training import Training


def plan_of(training: Training) -> PPOPlan:
    """The plan of a PPO training.

    Raises:
        TypeError: The training has another algorithm.
    """
    plan = ppo_plan(training.plan)
    if plan is None:
        raise TypeError("the probes only support PPO")
    return plan


class Stopwatch:
    """Adds up the time between laps by name."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._at = perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to `name`."""
        now = perf_counter()
        self.spent[name] += now - self._at  # type: ignore[assignment]  # seconds, not counts
        self._at = now


@dataclass(frozen=True, slots=True)
class Probes:
    """A program for workers that builds a `Probe` from the training's plan."""

    plan: PPOPlan

    def __call__(self, arena: Arena, share: Share) -> Probe:
        """Build the probe inside the worker."""
        return Probe(self.plan, arena, share)


class Probe:
    """Makes the calls of collecting and learning one by one, on the groups of one worker."""

    def __init__(self, plan: PPOPlan, arena: Arena, share: Share) -> None:
        base, shape, spec = plan.base, plan.base.shape, plan.base.shape.spec
        self._plan, self._spec, self._arena = plan, spec, arena
        self._job: Any = plan(arena, share)
        self._beat = arena["heartbeat"][share.worker]
        self._first, count = share.first_group * shape.group_size, share.groups * shape.group_size
        self._envs = [base.env.make() for _ in range(count)]
        self._episode = 0
        slots = Slots(arena, shape)
        self._rows = slots.rows(share.first_group, share.groups)
        self._head = head_for(spec.action)
        self._noise = self._head.draw_noise(np.random.default_rng(share.worker), (shape.n_steps, count))
        acting, learning = base.policy.build(spec), base.policy.build(spec)
        weights = torch.from_numpy(arena["weights"])
        bind(acting, weights)
        bind(learning, weights, frozen=False)
        self._net = array_net_for(learning, spec)
        actor = base.actor(acting, share.groups)
        if not isinstance(actor, DeferredValueActor):
            raise TypeError("the probes only support the built-in MLP")
        self._actor, self._own = actor, slots.columns(share.first_group, share.groups)
        self._params = np.zeros((shape.n_steps, count, spec.action.param_size), np.float32)
        self._shards, self._shard = Shards(arena), share.worker % plan.shards
        steps = shape.n_steps * shape.n_envs
        self._minibatch = min(plan.settings.batch_size or steps, steps)
        shuffled = np.random.default_rng(share.worker).permutation(steps)
        self._index = shuffled[: self._minibatch // plan.shards]
        samples = slots.samples()
        self._gather_obs = Gather({name: leaf.numpy() for name, leaf in samples.obs.items()})
        self._gather = Gather({"action": samples.action.numpy(), "samples": self._shards.samples.numpy()})

    def begin(self) -> None:
        """Fill the slots with a real rollout."""
        self._job.reset()
        self._job.collect(0)
        for env in self._envs:
            env.reset(seed=0)

    def measure(self, seconds: float) -> dict[str, float]:
        """Seconds per row of a rollout, per reset, and per shard."""
        watch, rows, resets, shards = Stopwatch(), 0, 0, 0
        began = perf_counter()
        while perf_counter() - began < seconds:
            resets += self._collect(watch)
            rows += len(self._noise)
            for _ in range(8):
                self._learn(watch)
                shards += 1
            self._beat[0] += 1
        units = {"resets": max(1, resets), **dict.fromkeys(("gather", "learn forward", "loss", "backward"), shards)}
        return {name: spent / units.get(name, rows) for name, spent in watch.spent.items()}

    def close(self) -> None:
        """Close the envs."""
        for env in self._envs:
            env.close()
        self._job.close()

    def _collect(self, watch: Stopwatch) -> int:
        """Collect one rollout; returns the number of episodes that ended."""
        steps = [env.step for env in self._envs]
        first, resets = self._spec.action.start, 0
        for row, kept, noise in zip(self._rows, self._params, self._noise, strict=False):
            watch.lap("nothing")
            params = self._actor.act(row.obs)
            watch.lap("forward")
            action = self._head.choose(params, noise, row.mask)
            watch.lap("sample")
            kept[...] = params
            row.action[...] = action
            watch.lap("write")
            actions = (action + first).tolist()
            watch.lap("nothing")
            outcomes = [step(each) for step, each in zip(steps, actions, strict=True)]
            watch.lap("step")
            ended = [i for i, outcome in enumerate(outcomes) if outcome[2] or outcome[3]]
            watch.lap("nothing")
            for i in ended:
                self._episode += 1
                self._envs[i].reset(seed=episode_seed(0, self._first + i, self._episode))
            watch.lap("resets")
            resets += len(ended)
        own, chunk = self._own, max(1, SETTLED_STEPS // len(self._envs))
        for start in range(0, len(own.value), chunk):
            rows = slice(start, start + chunk)
            self._actor.values({name: leaf[rows] for name, leaf in own.obs.items()}, own.value[rows])
        watch.lap("forward")
        params = self._params.reshape(-1, self._params.shape[2])
        own.log_prob[...] = self._head.log_prob(params, own.action.reshape(-1)).reshape(own.log_prob.shape)
        watch.lap("sample")
        return resets

    def _learn(self, watch: Stopwatch) -> None:
        """Compute one shard of a minibatch: gather rows, gradient, store the gradient."""
        index, cfg = self._index, self._plan.settings
        watch.lap("nothing")
        obs, rest = self._gather_obs(index), self._gather(index)
        action = rest["action"]
        old_log_prob, advantage, returns, old_value = rest["samples"].T
        watch.lap("gather")
        params, value = self._net(obs, learns=True)
        watch.lap("learn forward")
        scored = score(self._head, params, action)
        loss = surrogate(
            scored.log_prob,
            scored.entropy,
            value,
            old_log_prob=old_log_prob,
            advantage=advantage,
            returns=returns,
            old_value=old_value,
            total=self._minibatch,
            clip_range=cfg.clip_range,
            clip_range_vf=cfg.clip_range_vf,
            ent_coef=cfg.ent_coef,
            vf_coef=cfg.vf_coef,
        )
        d_params = scored.pullback(loss.d_log_prob, loss.d_entropy)
        watch.lap("loss")
        self._net.pullback(d_params, loss.d_value)
        watch.lap("backward")
        self._shards.grads[self._shard].numpy()[...] = self._net.gradient.numpy()
        watch.lap("gather")  # includes storing the gradient


class DriverProbe:
    """Times what only the driver computes during an update."""

    def __init__(self, training: Training) -> None:
        self._batch: Trajectory = training.rollouts.next(training.learner.version)
        self._config = training.config.training
        vector = training.weights.vector.clone()
        self._adam, self._grads = FlatAdam(vector), torch.randn(plan_of(training).shards, len(vector))
        self._sum = torch.empty(len(vector))
        self._columns = np.empty((self._batch.reward.numel(), 4), np.float32)
        self.minibatch = min(self._config.batch_size or len(self._columns), len(self._columns))

    def measure(self, seconds: float) -> dict[str, float]:
        """Seconds per batch, per epoch and per minibatch."""
        watch, passes, began = Stopwatch(), 0, perf_counter()
        shuffle = np.random.Generator(np.random.Philox(key=0))
        while perf_counter() - began < seconds:
            watch.lap("nothing")
            advantage = self._prepare()
            watch.lap("prepare")
            rows = np.flatnonzero(self._batch.valid.numpy())
            order = shuffle.permutation(rows)
            pieces = -(-len(rows) // self.minibatch)
            minibatch_moments(advantage[order], [len(rows) * piece // pieces for piece in range(pieces + 1)])
            watch.lap("order")
            grad = self._sum
            np.add.reduce(self._grads.numpy(), 0, out=grad.numpy())
            clip_norm(grad, 0.5)
            self._adam.step(grad, 1e-4)
            watch.lap("optimise")
            passes += 1
        return {name: spent / passes for name, spent in watch.spent.items() if name != "nothing"}

    def _prepare(self) -> NDArray[np.float32]:
        batch, value, finals = self._batch, self._batch.value[:-1], self._batch.finals
        advantage, returns = gae(
            batch.reward,
            value,
            next_values(batch.value, finals.t, finals.env, finals.value),
            batch.terminated,
            batch.terminated | batch.truncated,
            gamma=self._config.gamma,
            lam=self._config.gae_lambda,
        )
        arrays = [column.numpy().reshape(-1) for column in (batch.log_prob, advantage, returns, value)]
        for place, array in zip(self._columns.T, arrays, strict=True):
            place[...] = array
        return arrays[1]
