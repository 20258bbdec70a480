"""Scattering features, their files, and their whitening."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from almoner.errors import ArgumentError
from almoner.training.images.drawings import Strokes
from almoner.training.images.features import Scattering, Whitened, cached

# kymatio 0.3.0, Scattering2D(J=2, shape=(16, 20), L=4), its filters scaled by 3.1415 where ours have pi:
# the mean of each channel, and its value at the upper right
MEANS = [
    0.52989, 0.098189, 0.05409, 0.03456, 0.078396, 0.13765, 0.073466, 0.042459, 0.088373, 0.0072108, 0.0083376,
    0.0060374, 0.0052821, 0.0032508, 0.0036296, 0.0024217, 0.0021555, 0.0052295, 0.0075486, 0.0055586, 0.003628,
    0.0047528, 0.0025301, 0.0044269, 0.0060905,
]  # fmt: skip
CORNERS = [
    0.49963, 0.095486, 0.035976, 0.093669, 0.16509, 0.071579, 0.0091763, 0.066162, 0.13586, 0.015534, 0.023012,
    0.016827, 0.0047989, 0.0022061, 0.0034521, 0.0018904, 0.0018883, 0.01632, 0.021839, 0.015425, 0.0047232, 0.005491,
    0.0029725, 0.0054908, 0.0058943,
]  # fmt: skip
THREE_SCALES = [
    0.48624, 0.060067, 0.088235, 0.088978, 0.072638, 0.13007, 0.13135, 0.038429, 0.052546, 0.052323, 0.0031506,
    0.0028528, 0.0028952, 0.0026366, 0.0017969, 0.0020608, 0.010289, 0.0074409, 0.0044726, 0.017149, 0.014598,
    0.0061867, 0.010303, 0.0044919, 0.0074803, 0.017129, 0.0062499, 0.014724, 0.0069985, 0.009433, 0.0087602, 0.027495,
    0.018207, 0.01362, 0.028478, 0.013717, 0.018103,
]  # fmt: skip


def wave() -> Tensor:
    """(1, 16, 20): a chirp."""
    rows, columns = np.mgrid[:16, :20]
    return torch.from_numpy(0.5 + 0.5 * np.sin(0.7 * rows + 0.05 * columns**2))[None]


def test_scattering_gives_the_numbers_of_kymatio() -> None:
    """Every channel, in its order, has the mean and the corner that kymatio gives, for two and three scales."""
    features = Scattering((16, 20), angles=4)(wave())[0]
    assert features.mean(dim=(1, 2)).tolist() == pytest.approx(MEANS, rel=2e-4, abs=2e-6)
    assert features[:, 0, -1].tolist() == pytest.approx(CORNERS, rel=2e-4, abs=2e-6)
    deep = Scattering((16, 20), scales=3, angles=3)(wave())[0]
    assert deep[:, 0, -1].tolist() == pytest.approx(THREE_SCALES, rel=2e-4, abs=2e-6)


def test_each_record_and_each_channel_is_transformed_by_itself() -> None:
    """A record's features are the same alone, among others, and as one colour of several."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(5, 3, 12, 16, generator=generator)
    transform = Scattering((12, 16), angles=3)
    features = transform(images)
    channels, height, width = transform.output_shape
    assert features.shape == (5, 3 * channels, height, width)
    assert torch.allclose(features[2:3], transform(images[2:3]), atol=1e-7)
    assert torch.allclose(features[2, channels : 2 * channels], transform(images[2:3, 1])[0], atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"shape": (7, 28)}, "shape"),
        ({"shape": (28,)}, "shape"),
        ({"shape": (28, 28), "scales": 0}, "scales"),
        ({"shape": (28, 28), "angles": 0.5}, "angles"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], word: str) -> None:
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=word):
        Scattering(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 1, 28, 27), torch.zeros(28, 28), torch.zeros(2, 28, 28, dtype=torch.uint8)]
)
def test_images_of_another_shape_or_type_are_refused(images: Tensor) -> None:
    """The error says what images must be."""
    with pytest.raises(ArgumentError, match="images must"):
        Scattering((28, 28))(images)


def test_features_are_computed_once_and_read_from_the_folder(tmp_path: Path) -> None:
    """The second call computes nothing and gives the same numbers; other images or settings have other files."""
    calls = []

    class Double(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def extra_repr(self) -> str:
            return f"factor={self.factor}"

        def forward(self, images: Tensor) -> Tensor:
            calls.append(len(images))
            return self.factor * images

    images = np.random.default_rng(0).integers(0, 256, (7, 3, 4), dtype=np.uint8)
    features = cached(Double(2.0), images, tmp_path, batch=3)
    assert np.allclose(features, 2 * (images / 255), atol=1e-6)
    assert calls == [1, 3, 3, 1]
    assert np.array_equal(cached(Double(2.0), images, tmp_path), features)
    assert calls == [1, 3, 3, 1]
    assert np.allclose(cached(Double(3.0), images, tmp_path), 3 * (images / 255), atol=1e-6)
    assert np.allclose(cached(Double(2.0), 255 - images, tmp_path), 2 - 2 * (images / 255), atol=1e-6)
    assert len(list(tmp_path.iterdir())) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_features_that_are_not_finite_leave_no_file(tmp_path: Path) -> None:
    """A transform that fails half way, or gives NaN, leaves the folder as it was."""
    images = np.zeros((4, 2, 2), np.float32)
    images[3] = np.nan
    with pytest.raises(ArgumentError, match="finite"):
        cached(torch.nn.Identity(), images, tmp_path, batch=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("images", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 2), np.int64)])
def test_images_that_are_no_images_are_refused(images: np.ndarray, tmp_path: Path) -> None:
    """Whole numbers of unknown range, no records, and records without an axis are refused."""
    with pytest.raises(ArgumentError, match="images must"):
        cached(torch.nn.Identity(), images, tmp_path)


def small(**options: object) -> Whitened:
    """Whitening of small images by few drawings."""
    transform = Scattering((12, 12), angles=2)  # 1 + 4 + 4 channels
    return Whitened(transform, Strokes(60), **{"groups": 3, "dimensions": 20, **options})  # type: ignore[arg-type]


def test_whitened_drawings_have_the_variances_that_were_asked_for() -> None:
    """With power 1 and hardly a floor all axes of the drawings weigh the same; with 0 they are principal axes."""
    pictures = torch.from_numpy(Strokes(60).images((12, 12)))
    for power in (0.0, 1.0):
        transform = small(power=power, floor=1e-6)
        lengths = transform(pictures).norm(dim=1)
        assert torch.allclose(lengths, torch.ones(60), atol=1e-5)
        scores = (transform._normalised(pictures) - transform.centre) @ transform.axes
        assert float(scores.mean(dim=0).abs().max()) < 1e-3
        covariance = (scores.T @ scores / 60).numpy()
        expected = np.eye(20) if power else np.diag(np.sort(np.diag(covariance))[::-1])
        assert np.allclose(covariance, expected, atol=0.02 * covariance.max())
        centred = transform._normalised(pictures) - transform.centre
        if not power:  # as much variance as any 20 axes can hold
            singular = torch.linalg.svdvals(centred.double())[:20] ** 2 / 60
            assert np.allclose(np.diag(covariance), singular.numpy(), rtol=1e-3)


def test_whitening_treats_each_record_by_itself_and_does_not_look_at_it() -> None:
    """A record's features are the same alone, among others, and when others came first."""
    images = torch.rand(5, 12, 12, generator=torch.Generator().manual_seed(0))
    first, second = small(), small()
    second(images[:2])
    assert torch.allclose(first(images)[3:4], second(images[3:4]), atol=1e-5)


def test_axes_have_one_direction_whatever_the_library_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenvectors times -1 are eigenvectors: features that are kept fit axes that are found again elsewhere."""
    images = torch.rand(4, 12, 12, generator=torch.Generator().manual_seed(0))
    expected, solve = small()(images), torch.linalg.eigh

    def turned(matrix: Tensor) -> tuple[Tensor, Tensor]:
        squares, vectors = solve(matrix)
        return squares, vectors * torch.tensor([1.0, -1.0], dtype=vectors.dtype).repeat(30)

    monkeypatch.setattr(torch.linalg, "eigh", turned)
    assert torch.equal(small()(images), expected)


def test_axes_can_be_found_before_an_image_comes() -> None:
    """Of the image that is given only shape and type count."""
    images = torch.rand(4, 12, 12, generator=torch.Generator().manual_seed(0))
    early, late = small(), small()
    early.learn(torch.zeros(1, 1, 12, 12))
    assert torch.equal(early(images), late(images))


def test_fewer_axes_are_the_first_ones() -> None:
    """Keeping fewer dimensions leaves out the last ones, up to the length."""
    images = torch.rand(4, 12, 12, generator=torch.Generator().manual_seed(0))
    few, many = small(dimensions=7)(images), small()(images)[:, :7]
    assert torch.allclose(few, torch.nn.functional.normalize(many), atol=1e-4)


def test_an_image_of_one_colour_has_finite_features() -> None:
    """Nothing is divided by a variance of zero."""
    assert bool(torch.isfinite(small()(torch.zeros(2, 12, 12))).all())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dimensions": 60}, "dimensions=60"),
        ({"power": 1.5}, "power"),
        ({"floor": 0.0}, "floor"),
        ({"groups": 0}, "gro"),
    ],
)
def test_settings_of_whitening_that_make_no_sense_are_refused(options: dict[str, object], word: str) -> None:
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=word):
        small(**options)


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    """The error says how many channels there are."""
    with pytest.raises(ArgumentError, match="groups=4 must divide the 9 channels"):
        small(groups=4)(torch.zeros(1, 12, 12))


def test_a_broken_file_of_features_is_refused(tmp_path: Path) -> None:
    """A file that was cut short or written by others is named, and not read."""
    images = np.zeros((3, 2, 2), np.float32)
    cached(torch.nn.Identity(), images, tmp_path)
    (path,) = tmp_path.iterdir()
    for content in (path.read_bytes()[:-8], b"", b"foreign"):
        path.write_bytes(content)
        with pytest.raises(ArgumentError, match="delete it"):
            cached(torch.nn.Identity(), images, tmp_path)
