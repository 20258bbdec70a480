"""Hockey-stick divergences in mpmath's precision, as oracles: of Gaussians, and of one round followed by a Gaussian."""

from mpmath import mp, mpf

from almoner import mechanisms as m

CONTINUOUS = [m.Laplace(10.0), m.Laplace(2.0), m.SampledGaussian(2.0, 1.0, 0.01), m.SampledGaussian(1.0, 1.0, 0.1)]


def hockey(e, b):
    """H(e; b), from mpmath's normal distribution function."""
    return mp.ncdf(-e / b + b / 2) - mp.exp(e) * mp.ncdf(-e / b - b / 2)


def two_points(low, high):
    """Losses and masses of the pair with two losses."""
    p = (1 - mp.exp(low)) / (1 - mp.exp(low - high))
    return [(high, p), (low, 1 - p)]


def curve_of(mechanism):
    """The exact hockey-stick curves of a mechanism with continuous losses, with their kinks: one for each direction."""
    if isinstance(mechanism, m.Laplace):
        s = mpf(mechanism.sensitivity) / mpf(mechanism.scale)

        def one(e):
            return 1 - mp.exp(e) if e <= -s else mpf(0) if e >= s else 1 - mp.exp((e - s) / 2)

        return [(one, (-s, s))]
    q, z = mpf(mechanism.sample_rate), mpf(mechanism.sigma) / mpf(mechanism.sensitivity)
    kink = mp.log(1 - q)

    def there(e):  # (1-q) N(0) + q N(1) against N(0)
        over = mp.exp(e) - 1 + q
        if over <= 0:
            return 1 - mp.exp(e)
        t = z**2 * mp.log(over / q) + mpf(1) / 2
        return q * mp.ncdf((1 - t) / z) - over * mp.ncdf(-t / z)

    def back(e):
        return there(-e) * mp.exp(e) + 1 - mp.exp(e)

    return [(there, (kink,)), (back, (-kink,))]


def after_round(mechanism, e, rest):
    """F(e) of the exact mechanism, every direction, followed by N(rest, 1) against N(0, 1)."""
    if isinstance(mechanism, m.Pure):
        return [
            mp.fsum(p * hockey(e - loss, rest) for loss, p in two_points(-mpf(mechanism.epsilon), mechanism.epsilon))
        ]
    if isinstance(mechanism, m.Exponential):
        eta = mpf(mechanism.eta)
        ends = [(t * eta / 7 - eta, t * eta / 7) for t in range(1, 7)]
        return [mp.fsum(p * hockey(e - loss, rest) for loss, p in two_points(*end)) for end in ends]
    mean, values = rest**2 / 2, []
    for curve, kinks in curve_of(mechanism):
        ends = [mean + rest * t for t in (-11, -6, -3, 0, 3, 6, 11)]
        ends = sorted(ends + [e - kink for kink in kinks if ends[0] < e - kink < ends[-1]])
        inside = mp.quad(lambda z, curve=curve: curve(e - z) * mp.npdf(z, mean, rest), ends, maxdegree=5)
        values.append(inside + mp.ncdf(-11) * curve(e - ends[-1]))
    return values
