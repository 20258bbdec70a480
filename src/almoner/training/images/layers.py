"""Layers for private networks: convolutions with standardised weights.

Source: Qiao et al. (2019), https://arxiv.org/abs/1903.10520; De et al. (2022), https://arxiv.org/abs/2204.13650
"""

from almoner import _extras

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn
    from torch.nn.utils.parametrize import register_parametrization

__all__ = ["standardised"]

_EPSILON = 1e-4  # added to variances


class StandardisedWeight(nn.Module):
    """A convolution's weight with mean 0 and variance 1 / (numbers in a filter), for each of its filters."""

    def forward(self, weight: Tensor) -> Tensor:
        """The weight to use, of the same shape."""
        flat = weight.flatten(1)
        variance, mean = torch.var_mean(flat, dim=1, correction=0, keepdim=True)
        return ((flat - mean) / torch.sqrt(flat.shape[1] * variance + _EPSILON)).view(weight.shape)


def standardised(module: nn.Module) -> nn.Module:
    """Change a module in place: all convolutions in it get standardised weights.

    Call it before the optimizer is made. Weights are standardised, not records, so that no records are mixed.

    >>> net = standardised(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8)))
    >>> bool(net[0].weight.mean((1, 2, 3)).abs().max() < 1e-6)
    True
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            register_parametrization(layer, "weight", StandardisedWeight())
    return module
