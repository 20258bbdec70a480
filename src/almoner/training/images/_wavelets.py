"""The wavelets and the averages of scattering transforms, as spectra and small matrices."""

from math import pi

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["filters", "thinned"]


def filters(padded: tuple[int, int], scales: int, angles: int) -> dict[tuple[str, int, int], Tensor]:
    """Spectra of wavelets, which are real, and averages, by kind, scale, and the octave by which inputs are thinned."""
    spectra = {}
    for scale in range(scales):
        wavelets = np.stack(
            [_morlet(padded, scale, (int(angles / 2 - 1) - k) * pi / angles, 4 / angles) for k in range(angles)]
        )
        for level in range(scale + 1):
            spectra["wavelet", scale, level] = torch.from_numpy(_cropped(wavelets, level))
    for level in range(scales):
        for kind, side in zip(("rows", "columns"), padded, strict=True):
            spectra[kind, scales, level] = torch.from_numpy(_averages(side, scales, level))
    return spectra


def _averages(side: int, scales: int, level: int) -> NDArray[np.float64]:
    """(kept, side / 2**level): averages over windows of 2**scales pixels of a line thinned 2**level times.

    The window is a product of one over rows and one over columns, so that two small matrices do what it does.
    """
    sigma, thinned = 0.8 * 2 ** (scales - 1), 2 ** (scales - level)
    places = np.arange(-2 * side, 3 * side)
    wrapped = np.exp(-(places**2) / (2 * sigma**2)).reshape(5, side).sum(axis=0) / np.sqrt(2 * pi * sigma**2)
    spectrum = np.fft.fft(wrapped).real
    half, short = side // 2 ** (level + 1), side // 2**level
    spectrum[half : half + side - short] = 0
    filtered = np.fft.fft(np.eye(short), axis=0) * spectrum.reshape(-1, short).sum(axis=0)[:, None]
    folded = filtered.reshape(thinned, short // thinned, short).mean(axis=0)
    return np.ascontiguousarray(np.fft.ifft(folded, axis=0).real[1:-1])


def _morlet(shape: tuple[int, int], scale: int, angle: float, slant: float) -> NDArray[np.float64]:
    """The Fourier transform of a Morlet wavelet: a plane wave in a Gaussian window, with mean zero."""
    sigma, frequency = 0.8 * 2**scale, 3 / 4 * pi / 2**scale
    wave = _gabor(shape, sigma, angle, frequency, slant)
    window = _gabor(shape, sigma, angle, 0.0, slant)
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


def _cropped(spectra: NDArray[np.float64], level: int) -> NDArray[np.float64]:
    """Filters for signals that are thinned 2**level times: the frequencies that are left."""
    factor = 2**level
    _, height, width = spectra.shape
    kept = spectra.copy()
    kept[:, height // (2 * factor) : height // (2 * factor) + height - height // factor] = 0
    kept[:, :, width // (2 * factor) : width // (2 * factor) + width - width // factor] = 0
    folded: NDArray[np.float64] = kept.reshape(-1, factor, height // factor, factor, width // factor).sum(axis=(1, 3))
    return folded


def thinned(spectrum: Tensor, factor: int) -> Tensor:
    """The spectrum of every factor-th pixel of a signal."""
    *rest, height, width = spectrum.shape
    parts = spectrum.reshape(*rest, factor, height // factor, factor, width // factor)
    rows = sum(parts[..., row, :, :, :] for row in range(1, factor)) + parts[..., 0, :, :, :]
    total: Tensor = sum(rows[..., column, :] for column in range(1, factor)) + rows[..., 0, :]
    return total / factor**2 if factor > 1 else spectrum
