"""Stores all parameters of a module in one flat float32 vector, which may be in shared memory.

    storage  [ layer 1 weight | pad | layer 1 bias | pad | conv weight (channels_last) | ... ]
                 ^ p.data                 ^ p.data             ^ p.data

Workers bind the same module to the same bytes and read weights in place, so publishing new weights costs nothing. The
optimiser updates one tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paceline.errors import ConfigError

ALIGN = 16
"""Alignment of each parameter, in floats: one cache line of 64 bytes, where vector loads are fastest."""


def move_parameters(module: nn.Module, storage: Tensor) -> None:
    """Move a module's parameters, with their values, into one vector.

    Args:
        module: Every parameter must be float32; tied parameters are stored once.
        storage: `[size_of(module)]` float32 on the module's device. The caller owns it and keeps it alive at least as
            long as the module.
    """
    _check_storage(module, storage)
    storage.zero_()  # because norms and hashes include the padding
    for parameter, view in _views(module, storage):
        view.copy_(parameter.detach())
        parameter.data = view


class FlatGradient:
    """Allocates one vector for the gradients of a module, into which `backward()` accumulates.

    Zero it with `vector.zero_()`.

    Args:
        module: Its parameters must not be moved afterwards.
    """

    def __init__(self, module: nn.Module) -> None:
        first = next(module.parameters())
        self.vector = torch.zeros(size_of(module), device=first.device)
        for parameter, view in _views(module, self.vector):
            if parameter.requires_grad:
                parameter.grad = view


def size_of(module: nn.Module) -> int:
    """Return the length of the flat vector of `module`, including padding."""
    return sum(_padded(parameter) for parameter in module.parameters())


def bind(module: nn.Module, storage: Tensor, *, frozen: bool = True) -> None:
    """Make the parameters of `module` views of the weights in `storage`, without copying.

    The module then reads the weights that the learner writes there.

    Args:
        module: Its own weights are discarded.
        storage: As in `move_parameters`.
        frozen: Switch gradients off, for collecting.
    """
    _check_storage(module, storage)
    if frozen:
        module.requires_grad_(False)
    for parameter, view in _views(module, storage):
        parameter.data = view


def _check_storage(module: nn.Module, storage: Tensor) -> None:
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"parameter {name!r}: must be torch.float32 ({parameter.dtype}). Build the policy in float32."
            )
    size = size_of(module)
    if storage.dtype != torch.float32 or storage.shape != (size,) or not storage.is_contiguous():
        raise ConfigError(
            f"flat storage: must be a contiguous float32 vector of length {size} "
            f"(got {storage.dtype} of shape {tuple(storage.shape)}). Allocate size_of(module) floats."
        )


def _padded(parameter: Tensor) -> int:
    return -(-parameter.numel() // ALIGN) * ALIGN


def _views(module: nn.Module, vector: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Yield each parameter (tied ones once) with its part of `vector`."""
    offset = vector.storage_offset()
    for parameter in module.parameters():
        yield parameter, vector.as_strided(parameter.shape, _strides(parameter), offset)
        offset += _padded(parameter)


def _strides(parameter: Tensor) -> tuple[int, ...]:
    if parameter.dim() == 4:
        # Convolution weights are stored as channels_last, because CPU convolutions are fastest in that layout.
        # module.to(memory_format=...) would move them out of the vector.
        _, channels, height, width = parameter.shape
        return height * width * channels, 1, width * channels, channels
    return torch.empty(parameter.shape, device="meta").stride()
