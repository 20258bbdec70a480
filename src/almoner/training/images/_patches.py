"""Features of small patches of images, compared with patches of drawings: nothing is learned from anybody's images.

Names and symbols
    positions     where a patch is taken: every ``stride`` pixels, down and across
    filters       whitened patches of drawings, of length 1, and then the same ones mirrored
"""

import numpy as np
import torch
from torch import Tensor, nn

from almoner import _check
from almoner.errors import ArgumentError
from almoner.training.images.drawings import Drawings

__all__ = ["Patches", "with_channels"]

CONTRAST = 10 / 255
"""Added, as a square, to the variance of a patch that it is divided by: what is nearly even stays small."""

EVEN = 0.1
"""Added to the variances along the principal axes of patches before they are evened out."""

SAMPLE = 80_000
"""Patches of drawings that are looked at, at most."""

TOGETHER = 8
"""Images at a time, so that what is computed stays small."""


class Patches(nn.Module):
    """Likeness of the patches of an image to patches of drawings, or like their negatives, averaged over windows.

    Each patch is brought to mean 0 and variance about 1 by itself, whitened, and compared with the filters by inner
    products; of these and of their negatives, what exceeds a threshold is averaged over ``cells`` x ``cells`` windows
    that overlap. Filters come in mirrored pairs, and both are averaged: an image and its mirror image have the same
    features, where ``stride`` divides the width less ``size``.

    Args:
        shape: public. (height, width) of the images, each at least ``size`` + ``stride`` * (``cells`` - 1) pixels.
        drawings: public. Where filters and the whitening of patches come from; drawn when the first image comes.
        filters: public. How many, not counting the mirrored ones.
        size: public. Pixels of a side of a patch.
        stride: public. Pixels from one patch to the next.
        threshold: public, >= 0. What products must exceed.
        cells: public. Windows down, and across.

    Guarantee: the output of a record depends on that record and on public settings alone.
    Source: Coates & Ng (2012), Learning feature representations with k-means.
    """

    products: Tensor

    def __init__(
        self,
        shape: tuple[int, int],
        drawings: Drawings,
        *,
        filters: int = 800,
        size: int = 6,
        stride: int = 2,
        threshold: float = 0.5,
        cells: int = 3,
    ) -> None:
        super().__init__()
        _check.whole(1, filters=filters, stride=stride, cells=cells)
        _check.whole(2, size=size)
        _check.within(0, 1e6, threshold=threshold)
        if len(shape) != 2 or min(shape) < size + stride * (cells - 1):
            raise ArgumentError(f"shape={shape!r} must be (height, width), each at least size + stride * (cells - 1)")
        self.shape, self.drawings, self.filters = (int(shape[0]), int(shape[1])), drawings, filters
        self.size, self.stride, self.threshold, self.cells = size, stride, float(threshold), cells
        height, width = (_windows((side - size) // stride + 1, cells) for side in self.shape)
        pooled = torch.einsum("ia,jb->ijab", height, width).reshape(cells**2, -1)
        self.register_buffer("_pooled", pooled, persistent=False)
        self.register_buffer("products", None, persistent=False)

    def extra_repr(self) -> str:
        """The settings."""
        settings = f"size={self.size}, stride={self.stride}, threshold={self.threshold:g}, cells={self.cells}"
        return f"shape={self.shape}, drawings={self.drawings!r}, filters={self.filters}, {settings}"

    def forward(self, images: Tensor) -> Tensor:
        """The features of images.

        Args:
            images: (records, channels, height, width), or (records, height, width) for one channel; float32 or float64.

        Returns:
            (records, 2 * filters, cells, cells) of the images' type: what exceeds the threshold, and of the negatives.

        Raises:
            ArgumentError: images of another shape, or not of floats.
        """
        images = with_channels(images, self.shape)
        if self.products is None:
            self._learn(images)
        return torch.cat([self._features(part) for part in torch.split(images, TOGETHER)])

    def _features(self, images: Tensor) -> Tensor:
        products = self._contrasted(images, self.stride) @ self.products.to(images)
        pooled = self.get_buffer("_pooled").to(images)
        parts = []
        for sign in (1, -1):
            excess = (sign * products).sub_(self.threshold).clamp_(min=0)
            cells = pooled @ excess.reshape(len(images), -1, excess.shape[1])
            both = cells.reshape(len(images), self.cells, self.cells, 2, self.filters)
            parts.append((both[:, :, :, 0] + both[:, :, :, 1].flip(2)) / 2)
        return torch.cat(parts, dim=3).permute(0, 3, 1, 2).contiguous()

    def _contrasted(self, images: Tensor, stride: int) -> Tensor:
        """(records * positions, channels * size * size), each patch with mean 0 and variance at most 1."""
        patches = nn.functional.unfold(images, self.size, stride=stride).transpose(1, 2)
        patches = patches.reshape(-1, patches.shape[2])
        patches = patches - patches.mean(dim=1, keepdim=True)
        return patches / (patches.square().mean(dim=1, keepdim=True) + CONTRAST**2).sqrt()

    @torch.no_grad()
    def _learn(self, images: Tensor) -> None:
        """The filters after whitening, (channels * size * size, 2 * filters)."""
        channels = images.shape[1]
        pictures = torch.from_numpy(self.drawings.images(self.shape, channels)).double()
        patches = torch.cat([self._contrasted(part, self.stride) for part in torch.split(pictures, TOGETHER)])
        chosen = np.random.default_rng(self.drawings.seed).permutation(len(patches))[:SAMPLE]
        patches = patches[torch.from_numpy(chosen)]
        mirrored = self._mirrored(patches, channels)
        variances, axes = torch.linalg.eigh((patches.mT @ patches + mirrored.mT @ mirrored) / (2 * len(patches)))
        whitening = (axes * (variances.clamp(min=0) + EVEN).rsqrt()) @ axes.mT
        white = patches @ whitening
        lengths = white.norm(dim=1)
        filters = nn.functional.normalize(white[lengths > lengths.median() / 2][: self.filters])
        if len(filters) < self.filters:
            raise ArgumentError(f"filters={self.filters} must be at most about half of the drawings' patches")
        both = torch.cat([filters, self._mirrored(filters, channels)])
        self.products = (whitening @ both.mT).to(images)

    def _mirrored(self, patches: Tensor, channels: int) -> Tensor:
        return patches.reshape(-1, channels, self.size, self.size).flip(3).reshape(len(patches), -1)


def with_channels(images: Tensor, shape: tuple[int, int]) -> Tensor:
    """Images as (records, channels, height, width); refuses those of another shape, or not of floats."""
    if images.ndim not in (3, 4) or tuple(images.shape[-2:]) != shape:
        raise ArgumentError(f"images must have the shape (records, channels, {shape[0]}, {shape[1]})")
    if images.dtype not in (torch.float32, torch.float64):
        raise ArgumentError(f"images must be float32 or float64, not {images.dtype}: divide whole numbers by 255")
    return images.unsqueeze(1) if images.ndim == 3 else images


def _windows(positions: int, cells: int) -> Tensor:
    """(cells, positions): averages over windows of about 3 / 7 of a line for three cells, from one end to the other."""
    length = max(1, round(positions * 1.3 / cells))
    starts = [round(cell * (positions - length) / max(1, cells - 1)) for cell in range(cells)]
    averages = torch.zeros(cells, positions)
    for cell, start in enumerate(starts):
        averages[cell, start : start + length] = 1 / length
    return (averages + averages.flip(0, 1)) / 2  # where they do not lie evenly: the same from both ends
