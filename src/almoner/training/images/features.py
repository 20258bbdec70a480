"""Features of images that no data was needed for: scattering transforms, whitened by drawings (extra ``torch``).

The features of a record depend on that record and on public settings alone, so they cost no privacy. A private linear
model on them is hard to beat at small epsilon (Tramèr & Boneh 2021).
"""

import hashlib
import json
from collections.abc import Callable
from math import pi
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from almoner import _check, _disk
from almoner.errors import ArgumentError
from almoner.training.images.drawings import Drawings

__all__ = ["Patches", "Scattering", "Whitened", "cached"]

CONTRAST = 10 / 255  # added, squared, to the variance that a patch is divided by: what is nearly even stays small
EVEN = 0.1  # added to the variances along the principal axes of patches before they are evened out
SAMPLE = 80_000  # patches of drawings that are looked at, at most
TOGETHER = 8  # images at a time, so that what is computed stays small


class Scattering(nn.Module):
    """The scattering transform of images: averages of moduli of wavelet transforms, of order 0, 1 and 2.

    Morlet wavelets at ``scales`` octaves (J >= 1) and ``angles`` orientations (L >= 1), averaged over windows of 2**J
    pixels, of images of a shape (height, width), each at least 2**(J + 1). There is nothing to train. The numbers are
    those of kymatio's ``Scattering2D(J=scales, shape=shape, L=angles)``. ``channels`` are the outputs for each input
    channel, 1 + J L + L^2 J (J - 1) / 2; ``output_shape`` is (channels, height, width).

    Guarantee: the output of a record depends on that record and on public settings alone.
    Source: Bruna & Mallat (2013), Invariant scattering convolution networks; Tramèr & Boneh (2021).
    """

    def __init__(self, shape: tuple[int, int], *, scales: int = 2, angles: int = 8) -> None:
        super().__init__()
        _check.whole(1, scales=scales, angles=angles)
        if len(shape) != 2 or min(shape) < 2 ** (scales + 1):
            raise ArgumentError(f"shape={shape!r} must be (height, width), each at least 2**(scales + 1) pixels")
        self.shape, self.scales, self.angles = (int(shape[0]), int(shape[1])), scales, angles
        window = 2**scales
        padded = [((side + window) // window + 1) * window for side in self.shape]
        gaps = [full - side for side, full in zip(self.shape, padded, strict=True)]
        self._padding = [half for gap in gaps for half in (gap // 2, (gap + 1) // 2)]
        self.channels = 1 + scales * angles + angles**2 * scales * (scales - 1) // 2
        self.output_shape = (self.channels, padded[0] // window - 2, padded[1] // window - 2)
        for name, spectrum in _filters((padded[0], padded[1]), scales, angles).items():
            self.register_buffer(name, torch.from_numpy(spectrum), persistent=False)

    def extra_repr(self) -> str:
        """The settings."""
        return f"shape={self.shape}, scales={self.scales}, angles={self.angles}, order=2"

    def forward(self, images: Tensor) -> Tensor:
        """(records, channels * self.channels, *self.output_shape[1:]): for each channel the average, order 1, order 2.

        Images are (records, channels, height, width) or without the channels; float32 or float64; else ArgumentError.
        """
        images = _with_channels(images, self.shape)
        flat = images.reshape(-1, 1, *self.shape)
        top, bottom, left, right = self._padding
        padded = nn.functional.pad(flat, (left, right, top, bottom), mode="reflect")
        spectrum = torch.fft.fft2(padded)
        firsts = [self._modulus(spectrum, scale, 0) for scale in range(self.scales)]
        parts = [self._averaged(padded, 0), *(self._averaged(first, scale) for scale, first in enumerate(firsts))]
        parts += [self._second_order(first, scale) for scale, first in enumerate(firsts[:-1])]
        return torch.cat(parts, dim=1).reshape(images.shape[0], -1, *self.output_shape[1:])

    def _second_order(self, first: Tensor, scale: int) -> Tensor:
        """(n, L * rest, h, w): for each angle of the first wavelet all larger scales and all angles of the second."""
        records, spectrum = first.shape[0], torch.fft.fft2(first.reshape(-1, 1, *first.shape[2:]))
        parts = []
        for larger in range(scale + 1, self.scales):
            second = self._averaged(self._modulus(spectrum, larger, scale), larger)
            parts.append(second.reshape(records, self.angles, self.angles, *second.shape[2:]))
        return torch.cat(parts, dim=2).reshape(records, -1, *parts[0].shape[3:])

    def _modulus(self, spectrum: Tensor, scale: int, level: int) -> Tensor:
        """The modulus of what the wavelets of a scale make of a signal with that spectrum, at their own resolution."""
        wavelets = self.get_buffer(f"wavelet_{scale}_{level}").to(spectrum.real.dtype)
        modulus: Tensor = torch.fft.ifft2(_thinned(spectrum * wavelets, 2 ** (scale - level))).abs()
        return modulus

    def _averaged(self, signal: Tensor, level: int) -> Tensor:
        """Averages over windows, without the margin."""
        rows, columns = (self.get_buffer(f"{kind}_{level}").to(signal) for kind in ("rows", "columns"))
        return rows @ signal @ columns.mT


class Patches(nn.Module):
    """Likeness of the patches of an image to patches of drawings, or like their negatives, averaged over windows.

    Each patch of ``size`` x ``size`` pixels, every ``stride``, is brought to mean 0 and variance about 1 by itself,
    whitened, and compared with the filters by inner products; of these and of their negatives, what exceeds a threshold
    is averaged over ``cells`` x ``cells`` windows that overlap. Filters come in mirrored pairs, and both are averaged:
    an image and its mirror image have the same features, where ``stride`` divides the width less ``size``. Filters, of
    which so many are not mirrored, and the whitening of patches come from drawings, drawn when the first image comes.

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
        """(records, 2 * filters, cells, cells): what exceeds the threshold, and of the negatives; of the images' type.

        Images are (records, channels, height, width) or without the channels; float32 or float64; else ArgumentError.
        """
        images = _with_channels(images, self.shape)
        if self.products is None:
            self._learn(images)
        return torch.cat([self._features(part) for part in torch.split(images, TOGETHER)])

    def _features(self, images: Tensor) -> Tensor:
        products = self._contrasted(images) @ self.products.to(images)
        pooled, parts = self.get_buffer("_pooled").to(images), []
        for sign in (1, -1):
            excess = (sign * products).sub_(self.threshold).clamp_(min=0)
            cells = pooled @ excess.reshape(len(images), -1, excess.shape[1])
            both = cells.reshape(len(images), self.cells, self.cells, 2, self.filters)
            parts.append((both[:, :, :, 0] + both[:, :, :, 1].flip(2)) / 2)
        return torch.cat(parts, dim=3).permute(0, 3, 1, 2).contiguous()

    def _contrasted(self, images: Tensor) -> Tensor:
        """(records * positions, channels * size * size), each patch with mean 0 and variance at most 1."""
        patches = nn.functional.unfold(images, self.size, stride=self.stride).transpose(1, 2)
        patches = patches.reshape(-1, patches.shape[2])
        patches = patches - patches.mean(dim=1, keepdim=True)
        return patches / (patches.square().mean(dim=1, keepdim=True) + CONTRAST**2).sqrt()

    @torch.no_grad()
    def _learn(self, images: Tensor) -> None:
        """The filters after whitening, (channels * size * size, 2 * filters)."""
        channels = images.shape[1]
        pictures = torch.from_numpy(self.drawings.images(self.shape, channels)).double()
        patches = torch.cat([self._contrasted(part) for part in torch.split(pictures, TOGETHER)])
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


class Whitened(nn.Module):
    """Few numbers of about equal weight for each image, learned from drawings: what a private linear model wants.

    The features of each record, of a transform with a ``repr`` that names its settings, are normalised by themselves
    (mean 0 and variance 1 in each of the groups of channels). Then come a centre, so many principal axes (fewer than
    drawings) and their variances, all from ``drawings``; each record is scaled to length 1. ``power`` in [0, 1]: 0
    leaves the variances as they are, 1 makes them equal; ``floor`` is added to each first. It costs no privacy.

    Guarantee: the output of a record depends on that record and on public settings alone.
    """

    centre: Tensor
    axes: Tensor

    def __init__(
        self,
        transform: nn.Module,
        drawings: Drawings,
        *,
        groups: int = 27,
        dimensions: int = 500,
        power: float = 0.5,
        floor: float = 0.3,
    ) -> None:
        super().__init__()
        _check.whole(1, groups=groups, dimensions=dimensions)
        _check.within(0, 1, power=power)
        _check.positive(floor=floor)
        if dimensions >= drawings.count:
            raise ArgumentError(f"dimensions={dimensions} must be below the number of drawings, {drawings.count}")
        self.transform, self.drawings, self.groups = transform, drawings, groups
        self.dimensions, self.power, self.floor = dimensions, power, floor
        self.register_buffer("centre", None, persistent=False)
        self.register_buffer("axes", None, persistent=False)

    def extra_repr(self) -> str:
        """The settings."""
        settings = f"groups={self.groups}, dimensions={self.dimensions}, power={self.power:g}, floor={self.floor:g}"
        return f"drawings={self.drawings!r}, {settings}"

    def forward(self, images: Tensor) -> Tensor:
        """(records, dimensions) of length 1, for images (records, channels, height, width) or without the channels."""
        normalised = self._normalised(images)
        if self.axes is None:
            self.learn(images[:1])
        return nn.functional.normalize((normalised - self.centre) @ self.axes, dim=1)

    @torch.no_grad()
    def learn(self, like: Tensor) -> None:
        """Draw, and find the centre and the axes, unless that was done: else it is done when the first image comes.

        By the drawings' inner products, as there are fewer than features. Of ``like`` only shape and type count.
        """
        if self.axes is not None:
            return
        height, width = like.shape[-2:]
        pictures = torch.from_numpy(self.drawings.images((height, width), 1 if like.ndim == 3 else like.shape[1]))
        features = torch.cat([self._normalised(part) for part in torch.split(pictures.to(like), 25)])
        if features.shape[1] < self.dimensions:
            raise ArgumentError(f"dimensions={self.dimensions} must be at most the {features.shape[1]} features")
        self.centre = features.mean(dim=0)
        features -= self.centre
        squares, vectors = torch.linalg.eigh(features.double() @ features.double().mT / len(features))
        squares, vectors = squares.flip(0)[: self.dimensions], vectors.flip(1)[:, : self.dimensions]
        largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
        vectors = vectors * torch.sign(largest)  # an axis has two directions, and no library promises which it gives
        lengths = (len(features) * squares.clamp(min=1e-12)).sqrt()  # of features along each axis, over all drawings
        scales = (squares.clamp(min=0) + self.floor) ** (-self.power / 2)
        self.axes = features.mT @ (vectors / lengths * scales).to(features)

    def _normalised(self, images: Tensor) -> Tensor:
        features: Tensor = self.transform(images)
        if features.shape[1] % self.groups:
            raise ArgumentError(f"groups={self.groups} must divide the {features.shape[1]} channels of the features")
        return nn.functional.group_norm(features, self.groups).flatten(1)


def cached(
    transform: Callable[[Tensor], Tensor], images: ArrayLike, folder: str | Path | None, *, batch: int = 50
) -> NDArray[np.float32]:
    """(records, ...) float32 features of all images, computed once and mapped, read-only from a private folder, if any.

    The transform, public, treats each record by itself, and its ``repr`` names its settings: there is one file for each
    pair of settings and images. Images are (records, ...) private: what ``numpy.asarray`` takes, or a memory map; whole
    numbers from 0 to 255 are divided by 255, and so many are transformed at a time. Raises ArgumentError for images of
    the wrong shape or type, and for an unfinished or foreign file in the folder.
    """
    _check.whole(1, batch=batch)
    if folder is None:
        with TemporaryDirectory() as passing:
            return np.array(cached(transform, images, passing, batch=batch))
    images = np.asarray(images)
    if images.ndim < 2 or not len(images):
        raise ArgumentError("images must be an array of at least one record with at least one axis each")
    if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
        raise ArgumentError(f"images must be floats, or uint8 from 0 to 255, not {images.dtype}")
    about = {"transform": repr(transform), "images": _digest(images, batch), "shape": list(images.shape)}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
    folder = Path(folder)
    _disk.private_folder(folder)
    path = folder / f"features-{key}.npy"
    if not path.exists():
        _write(transform, images, path, batch)
    try:
        features: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
        fits = features.dtype == np.float32 and len(features) == len(images)
    except (ValueError, EOFError):
        fits = False
    if not fits:
        raise ArgumentError(f"folder: {path.name} does not hold these features: delete it")
    return features


def _write(transform: Callable[[Tensor], Tensor], images: NDArray[np.generic], path: Path, batch: int) -> None:
    first = _apply(transform, images[:1])
    with _disk.whole_file(path) as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(images), *first.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(images), batch):
            part = images[start : start + batch]
            features = _apply(transform, part)
            if features.shape != (len(part), *first.shape[1:]):
                raise ArgumentError("transform: it must give every record features of one shape")
            file.write(np.ascontiguousarray(features, "<f4").tobytes())


def _apply(transform: Callable[[Tensor], Tensor], images: NDArray[np.generic]) -> NDArray[np.float32]:
    scale = 255 if images.dtype == np.uint8 else 1
    batch = torch.from_numpy(np.ascontiguousarray(images, np.float32) / np.float32(scale))
    with torch.no_grad():
        features: NDArray[np.float32] = transform(batch).to("cpu", torch.float32).numpy()
    if not np.isfinite(features).all():
        raise ArgumentError("transform: the features of every record must be finite")
    return features


def _digest(images: NDArray[np.generic], batch: int) -> str:
    digest = hashlib.sha256(f"{images.dtype.str} {images.shape}".encode())
    for start in range(0, len(images), batch):
        digest.update(np.ascontiguousarray(images[start : start + batch]).tobytes())
    return digest.hexdigest()


def _with_channels(images: Tensor, shape: tuple[int, int]) -> Tensor:
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


def _filters(padded: tuple[int, int], scales: int, angles: int) -> dict[str, NDArray[np.float64]]:
    """Spectra of wavelets, which are real, by scale, and averages; and by the octave by which inputs are thinned."""
    spectra = {}
    for scale in range(scales):
        turns = [(int(angles / 2 - 1) - k) * pi / angles for k in range(angles)]
        wavelets = np.stack([_morlet(padded, scale, turn, 4 / angles) for turn in turns])
        for level in range(scale + 1):
            spectra[f"wavelet_{scale}_{level}"] = _cropped(_cropped(wavelets, level, 1), level, 2)
    for level in range(scales):
        for kind, side in zip(("rows", "columns"), padded, strict=True):
            spectra[f"{kind}_{level}"] = _averages(side, scales, level)
    return spectra


def _averages(side: int, scales: int, level: int) -> NDArray[np.float64]:
    """(kept, side / 2**level): averages over windows of 2**scales pixels of a line thinned 2**level times, each way."""
    sigma, thinned = 0.8 * 2 ** (scales - 1), 2 ** (scales - level)
    places = np.arange(-2 * side, 3 * side)
    wrapped = np.exp(-(places**2) / (2 * sigma**2)).reshape(5, side).sum(axis=0) / np.sqrt(2 * pi * sigma**2)
    spectrum, short = np.fft.fft(wrapped).real, side // 2**level
    filtered = np.fft.fft(np.eye(short), axis=0) * _cropped(spectrum, level, 0)[:, None]
    folded = filtered.reshape(thinned, short // thinned, short).mean(axis=0)
    return np.ascontiguousarray(np.fft.ifft(folded, axis=0).real[1:-1])


def _morlet(shape: tuple[int, int], scale: int, angle: float, slant: float) -> NDArray[np.float64]:
    """The Fourier transform of a Morlet wavelet: a plane wave in a Gaussian window, with mean zero."""
    sigma, frequency = 0.8 * 2**scale, 3 / 4 * pi / 2**scale
    wave, window = _gabor(shape, sigma, angle, frequency, slant), _gabor(shape, sigma, angle, 0.0, slant)
    spectrum: NDArray[np.float64] = np.fft.fft2(wave - wave.sum() / window.sum() * window).real
    return spectrum


def _gabor(
    shape: tuple[int, int], sigma: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """A plane wave in a Gaussian window, wrapped around the edges."""
    height, width = shape
    rows, columns = np.mgrid[-2 * height : 3 * height, -2 * width : 3 * width]
    along = rows * np.cos(angle) + columns * np.sin(angle)
    across = -rows * np.sin(angle) + columns * np.cos(angle)
    wide = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * frequency * along)
    wrapped: NDArray[np.complex128] = wide.reshape(5, height, 5, width).sum(axis=(0, 2))
    return wrapped / (2 * pi * sigma**2 / slant)


def _cropped(spectra: NDArray[np.float64], level: int, axis: int) -> NDArray[np.float64]:
    """Filters for signals that are thinned 2**level times along an axis: the frequencies that are left."""
    side = spectra.shape[axis]
    short = side // 2**level
    return np.delete(spectra, np.s_[short // 2 : short // 2 + side - short], axis)


def _thinned(spectrum: Tensor, factor: int) -> Tensor:
    """The spectrum of every factor-th pixel of a signal."""
    *rest, height, width = spectrum.shape
    parts = spectrum.reshape(*rest, factor, height // factor, factor, width // factor)
    rows = sum(parts[..., row, :, :, :] for row in range(1, factor)) + parts[..., 0, :, :, :]
    total: Tensor = sum(rows[..., column, :] for column in range(1, factor)) + rows[..., 0, :]
    return total / factor**2 if factor > 1 else spectrum
