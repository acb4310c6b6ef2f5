"""Client side of central inference: a worker sends observations to the process that runs the policy, and gets actions.

envs.step -> write obs to the arena -> request ... step other lanes meanwhile ... -> read params, value from the arena
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arrays, Field
from paceline.nets.features import Leaves
from paceline.runtime.protocol import InferenceChannel
from paceline.spec import EnvSpec

PREFIX = "central/"


def mailbox_fields(spec: EnvSpec, n_envs: int) -> Iterator[Field]:
    """Arena fields for the inference requests (observations) and replies (params, values) of all envs."""
    for leaf in spec.obs:
        yield Field.of(f"{PREFIX}obs/{leaf.name}", (n_envs, *leaf.shape), leaf.dtype)
    yield Field.of(f"{PREFIX}params", (n_envs, spec.action.param_size), np.float32)
    yield Field.of(f"{PREFIX}value", (n_envs,), np.float32)


class Mailbox:
    """Views of the arena's request and reply fields for some envs.

    Args:
        arena: Holds `mailbox_fields`.
        spec: Spec of the envs.
        columns: The envs.
    """

    def __init__(self, arena: Arrays, spec: EnvSpec, columns: slice) -> None:
        self.obs = {leaf.name: arena[f"{PREFIX}obs/{leaf.name}"][columns] for leaf in spec.obs}
        self.params: NDArray[np.float32] = arena[f"{PREFIX}params"][columns]
        self.value: NDArray[np.float32] = arena[f"{PREFIX}value"][columns]


class RemoteActor:
    """An `Actor` that sends each forward pass to an inference server.

    Args:
        lane: Number of the lane that it acts for.
        server: Index of the server.
        mailbox: The lane's request and reply arrays.
    """

    def __init__(self, lane: int, server: int, mailbox: Mailbox) -> None:
        self._lane, self._server, self._mailbox = lane, server, mailbox
        self._asked, self._waited_s = False, 0.0
        self.channel: InferenceChannel | None = None
        """The connection to the server; must be set before the first request."""

    def ask(self, obs: Leaves) -> None:
        """Send a request without waiting; the next call of the actor returns the reply."""
        for name, leaf in self._mailbox.obs.items():
            leaf[...] = obs[name]
        self._connected().ask(self._lane, self._server)
        self._asked = True

    def __call__(self, obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return params and values for `obs`. Blocks for the reply; sends the request first if `ask` has not."""
        if not self._asked:
            self.ask(obs)
        self._waited_s += self._connected().wait(self._lane)
        self._asked = False
        return self._mailbox.params, self._mailbox.value

    def waited_s(self) -> float:
        """Seconds idle waiting for replies since the last call of this method."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def rest(self) -> None:
        """Notify the server that no more requests come in this rollout."""
        self._connected().end(self._lane, self._server)

    def _connected(self) -> InferenceChannel:
        if self.channel is None:
            raise RuntimeError("remote actor: has no connection to an inference server yet. Call connect() first.")
        return self.channel
