"""Convolutional policies: memory layouts, image sizes and mixed leaves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from paceline.errors import ConfigError
from paceline.nets.cnn import ImpalaCNN, NatureCNN
from paceline.nets.flat import move_parameters, size_of
from paceline.spec import EnvSpec

CLASSES = pytest.mark.parametrize("cls", [NatureCNN, ImpalaCNN])


def pixels(*shape: int, action: spaces.Space[object] | None = None) -> EnvSpec:
    return EnvSpec.of(spaces.Box(0, 255, shape, np.uint8), action or spaces.Discrete(3))


@CLASSES
def test_shapes_and_gradients(cls: type[NatureCNN] | type[ImpalaCNN]) -> None:
    policy = cls(pixels(40, 36, 3))
    params, value = policy(torch.randint(0, 256, (5, 40, 36, 3), dtype=torch.uint8))
    assert params.shape == (5, 3)
    assert value.shape == (5,)
    (params.square().sum() + value.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())


@CLASSES
def test_channels_first_and_last_images_give_the_same_output(cls: type[NatureCNN] | type[ImpalaCNN]) -> None:
    torch.manual_seed(0)
    last, first = cls(pixels(40, 36, 3)), cls(pixels(3, 40, 36))
    first.load_state_dict(last.state_dict())
    image = torch.randint(0, 256, (2, 40, 36, 3), dtype=torch.uint8)
    with torch.no_grad():
        for a, b in zip(last(image), first(image.permute(0, 3, 1, 2).contiguous()), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_pixels_stay_channels_last_through_all_layers() -> None:
    policy = NatureCNN(pixels(36, 36, 4))
    move_parameters(policy, torch.zeros(size_of(policy)))
    strides = []
    for layer in policy.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(
                lambda _, args, out: strides.append(
                    [t.is_contiguous(memory_format=torch.channels_last) for t in (args[0], out)]
                )
            )
    policy(torch.zeros(2, 36, 36, 4, dtype=torch.uint8))
    assert strides == [[True, True]] * 3


def test_pixels_are_scaled_to_one() -> None:
    policy = NatureCNN(pixels(36, 36, 3))
    seen = []
    policy.trunks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    image = torch.full((1, 36, 36, 3), 255, dtype=torch.uint8)
    policy(image)
    torch.testing.assert_close(seen[0], torch.ones(1, 3, 36, 36))
    assert (image == 255).all(), "the stored pixels must not change"


def test_outputs_depend_on_every_image_and_leaf() -> None:
    space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (36, 36, 3), np.uint8),
            "map": spaces.Box(0, 255, (40, 40, 1), np.uint8),
            "speed": spaces.Box(-1, 1, (2,)),
            "gear": spaces.Discrete(3),
        }
    )
    policy = NatureCNN(EnvSpec.of(space, spaces.Box(-1, 1, (2,))))
    obs = {
        "camera": torch.zeros(1, 36, 36, 3, dtype=torch.uint8),
        "map": torch.zeros(1, 40, 40, 1, dtype=torch.uint8),
        "speed": torch.zeros(1, 2),
        "gear": torch.zeros(1, dtype=torch.int64),
    }
    with torch.no_grad():
        params, value = policy(obs)
        assert params.shape == (1, 4)
        for name, leaf in obs.items():
            changed = policy({**obs, name: leaf + (1 if name == "gear" else 100)})
            assert not torch.equal(changed[1], value), name


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(ConfigError, match=r"'nature_cnn'.*at least 36x36 pixels \(leaf 'obs' is 20x84\)"):
        NatureCNN(pixels(20, 84, 3))
    with pytest.raises(ConfigError, match=r"needs an image.*policy='mlp'"):
        ImpalaCNN(EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(2)))
