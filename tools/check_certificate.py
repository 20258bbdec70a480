"""Check certificates of epsilon that almoner wrote, using nothing of it: python tools/check_certificate.py FILE...

Accepted means: the run, fixed in advance, is (epsilon, delta)-DP for adding or removing one person. Arithmetic is on
whole numbers, fractions and mpmath's intervals, rounded against the claim. docs/certificates.md explains it.
"""

import hashlib
import json
import re
import sys
from fractions import Fraction
from functools import cache
from math import comb
from pathlib import Path

from mpmath import iv

iv.prec, SCALE = 180, 136
ONE = 1 << SCALE  # fixed point: an interval is a pair (low, high) of whole numbers of 2^-136
FIELDS = {"gaussian": set(), "renyi": {"order"}, "losses": {"step", "places", "bits", "beyond"}}
COMMON = {"format", "kind", "adjacency", "theorem", "epsilon", "delta", "bound", "rounds", "digest"}
ADJACENCY = "add or remove one person, with all of that person's records"
THEOREMS = {
    "gaussian": "theory 3.3: rounds fixed in advance; 4.3: within this budget, under full adaptivity",
    "renyi": "theory 3.2: rounds fixed in advance; 4.1: within this budget at this order, under full adaptivity",
    "losses": "theory 7.2: rounds fixed in advance; 4.11: as a filter's plan, under full adaptivity",
}
# fmt: off
KINDS = {
    "Gaussian": ("sigma", "sensitivity"), "SampledGaussian": ("sigma", "sensitivity", "sample_rate"),
    "Laplace": ("scale", "sensitivity"), "Pure": ("epsilon",), "Approximate": ("epsilon", "delta"), "Zcdp": ("rho",),
}
# fmt: on


class Refused(Exception): ...


def need(condition, why):
    if not condition:
        raise Refused(why)


def number(value, low, high, what):
    need(isinstance(value, str) and len(value) <= 200, f"{what} must be a number written as text")
    need(re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?|[0-9]+/[0-9]*[1-9][0-9]*", value), f"{what} is no number")
    found = Fraction(value)
    need(low <= found <= high, f"{what} is out of range")
    return found


def whole(value, low, high, what):
    need(type(value) is int and low <= value <= high, f"{what} must be a whole number in [{low}, {high}]")
    return value


@cache
def ratio(x):
    return iv.mpf(x.numerator) / x.denominator


def fixed(x):
    ends = []
    for (sign, mantissa, exponent, _), up in zip(x._mpi_, (False, True), strict=True):
        need(mantissa or not exponent, "a number is too large")
        value, shift = (-int(mantissa) if sign else int(mantissa)), exponent + SCALE
        ends.append(value << shift if shift >= 0 else -(-value >> -shift) if up else value >> -shift)
    return tuple(ends)


def product(a, b):
    ends = [x * y for x in a for y in b]
    return min(ends) >> SCALE, -(-max(ends) >> SCALE)


ROOT = fixed(1 / iv.sqrt(2 * iv.pi))


def normal(low, high):
    """Bounds on the normal distribution function: at low 1/2 + density times sum of x^(2n+1) / (2n+1)!!; slope < 1."""
    if abs(low) > 15 * ONE:
        return (ONE - 1, ONE) if low > 0 else (0, 1 + high - low)  # Phi(-15) < 2^-160
    if low < 0:
        least, most = normal(-low, -low)
        return ONE - most, ONE - least + high - low
    densities = product(fixed(iv.exp(-((iv.mpf(low) / ONE) ** 2) / 2) * 2**170), ROOT)  # precise, as sums are large
    sums = []
    for up in (0, 1):
        square, term, total, odd = (low * low + up * (ONE - 1)) >> SCALE, low, 0, 1
        while term > 4 or square > odd * (ONE >> 1):
            total, odd = total + term, odd + 2
            term = -((-term * square >> SCALE) // odd) if up else (term * square >> SCALE) // odd
        sums.append(total + up * (4 * term + 16))  # the rest: each term is at most half of the one before
    least, most = sums[0] * densities[0] >> SCALE + 170, -(-sums[1] * densities[1] >> SCALE + 170)
    return ONE // 2 + least, ONE // 2 + most + high - low


def distribution(kind, p, at, exact):
    """Of one round, the probabilities of a loss of at most `at` under both laws; `exact` is `at` as a fraction."""
    if kind in ("Gaussian", "SampledGaussian"):
        z, q, loss = ratio(p["sigma"] / p["sensitivity"]), ratio(p.get("sample_rate", Fraction(1))), at
        if q != 1:
            over = iv.exp(at) - 1 + q
            if over.b <= 0:
                return (0, 0), (0, 0)
            need(over.a > 0, "step: a point of the grid is where the losses begin; take another")
            loss = iv.log(over / q)
        t, rate = z * loss + 1 / (2 * z), fixed(q)
        back, moved = normal(*fixed(t)), normal(*fixed(t - 1 / z))
        both = product((ONE - rate[1], ONE - rate[0]), back), product(rate, moved)
        return (both[0][0] + both[1][0], both[0][1] + both[1][1]), back
    s = p["sensitivity"] / p["scale"] if kind == "Laplace" else p["epsilon"]
    if not -s <= exact < s:
        return ((0, 0), (0, 0)) if exact < s else ((ONE, ONE), (ONE, ONE))
    if kind == "Laplace":
        return fixed(iv.exp((at - ratio(s)) / 2) / 2), fixed(1 - iv.exp(-(at + ratio(s)) / 2) / 2)
    return fixed(1 / (1 + iv.exp(ratio(s)))), fixed(1 / (1 + iv.exp(-ratio(s))))


def laws(kind, p, step, places, bits, sizes):
    h = ratio(step)
    near, far = fixed(1 / (1 - iv.exp(-h)))[1], fixed(1 / (iv.exp(h) - 1))[1]
    masses = [[0] * (2 * places + 1) for _ in range(2)]
    below, top = distribution(kind, p, -h * places, -step * places), -places
    masses[0][0], leak_add = below[0][1], below[1][1]
    for j in range(-places, places):
        above = distribution(kind, p, h * (j + 1), step * (j + 1))
        cells = [(a[0] - b[1], a[1] - b[0]) for a, b in zip(above, below, strict=True)]
        for left, mine, other, law in ((j, *cells, masses[0]), (-j - 1, *cells[::-1], masses[1])):
            to_right, to_left = mine[1] - product(sizes[left], other)[0], product(sizes[left + 1], other)[1] - mine[0]
            law[left + 1 + places] += max(0, -(-to_right * near >> SCALE))
            law[left + places] += max(0, -(-to_left * far >> SCALE))
        below, top = above, j + 1
        if min(below[0][0], below[1][0]) > ONE - (ONE >> bits):
            break
    masses[1][places - top] += ONE - below[1][0]
    found, failing, shift = [], fixed(ratio(p.get("delta", Fraction(0))))[1], SCALE - bits
    for side, leak in enumerate((ONE - below[0][0], leak_add)):
        coefficients = [-(-mass >> shift) for mass in masses[side]]
        used = [place for place, mass in enumerate(coefficients) if mass]
        found.append((used[0] - places, coefficients[used[0] : used[-1] + 1], -(-(leak + failing) >> shift)))
    return found


def times(a, b, places, bits):
    width = (2 * bits + 40) // 8
    packed = [int.from_bytes(b"".join(c.to_bytes(width, "little") for c in law[1]), "little") for law in (a, b)]
    length = len(a[1]) + len(b[1])
    raw = (packed[0] * packed[1]).to_bytes(width * length, "little")
    sums = [-(-int.from_bytes(raw[k : k + width], "little") >> bits) for k in range(0, width * length, width)]
    first, (all_a, all_b) = a[0] + b[0], (sum(a[1]), sum(b[1]))
    need(first <= 0 and max(all_a, all_b) < 2 << bits, "bits: rounding adds too much mass")
    infinite = -(-(a[2] * (all_b + b[2]) + all_a * b[2]) >> bits)
    if first < -places:
        sums = [sum(sums[: 1 - places - first]), *sums[1 - places - first :]]
        first = -places
    infinite += sum(sums[places + 1 - first :])
    return first, sums[: places + 1 - first], infinite


def power(law, count, places, bits):
    result = law
    for digit in bin(count)[3:]:
        result = times(result, result, places, bits)
        result = times(result, law, places, bits) if digit == "1" else result
    return result


def check_losses(c, rounds, epsilon):
    step, most = number(c["step"], Fraction(1, 10**6), 1, "step"), number(c["beyond"], 0, 1, "beyond")
    places, bits = whole(c["places"], 1, 20_000, "places"), whole(c["bits"], 32, 100, "bits")
    total = [(0, [1 << bits], 0)] * 2
    sizes = {j: fixed(iv.exp(ratio(step) * j)) for j in range(-places, places + 1)}
    for kind, p, count in rounds:
        for side, law in enumerate(laws(kind, p, step, places, bits, sizes)):
            total[side] = times(total[side], power(law, count, places, bits), places, bits)
    beyond = max(Fraction(law[2], 1 << bits) for law in total)
    need(beyond <= most, "beyond: more mass counts as infinite")
    deltas, less = [], fixed(iv.exp(-ratio(step)))[0]
    for first, coefficients, infinite in total:
        shrink, value = fixed(iv.exp(ratio(epsilon) - ratio(step) * first))[0], infinite << SCALE
        for mass in coefficients:
            value += mass * max(0, ONE - shrink)
            shrink = shrink * less >> SCALE
        deltas.append(Fraction(value, 1 << SCALE + bits))
    return max(deltas)


def check_gaussian(c, rounds, epsilon):
    need(all(kind == "Gaussian" for kind, _, _ in rounds), "rounds: only Gaussian ones are mu-GDP exactly")
    mu = iv.sqrt(ratio(sum(count * (p["sensitivity"] / p["sigma"]) ** 2 for _, p, count in rounds)))
    e = ratio(epsilon)
    high, low = normal(*fixed(-e / mu + mu / 2))[1], normal(*fixed(-e / mu - mu / 2))[0]
    return Fraction(high - product(fixed(iv.exp(e)), (low, low))[0], ONE)


def divergence(kind, p, a):
    if kind == "Zcdp":
        return ratio(a * p["rho"])
    if kind == "Gaussian":
        return ratio(a * (p["sensitivity"] / p["sigma"]) ** 2 / 2)
    need(kind == "SampledGaussian" and a.denominator == 1 and a <= 2000, "rounds: no divergence at this order")
    n, q, z = int(a), p["sample_rate"], p["sigma"] / p["sensitivity"]
    share = [ratio(comb(n, k) * (1 - q) ** (n - k) * q**k) for k in range(n + 1)]
    moment = sum(share[k] * iv.exp(ratio(k * (k - 1) / (2 * z * z))) for k in range(n + 1))
    return iv.log(moment) / (n - 1)


def check_renyi(c, rounds, epsilon):
    a = number(c["order"], Fraction(1001, 1000), 10**6, "order")
    total = sum(count * divergence(kind, p, a) for kind, p, count in rounds)
    lam = ratio(a - 1)  # delta = exp(lam (total - epsilon)) (1 - 1/a)^lam / a
    delta = iv.exp(lam * (total - ratio(epsilon)) + lam * iv.log(1 - 1 / ratio(a))) / ratio(a)
    return Fraction(fixed(delta)[1], ONE)


def check(c):
    need(isinstance(c, dict) and c.get("kind") in FIELDS and str(c.get("format")) == "1", "format or kind is not known")
    need(set(c) == COMMON | FIELDS[c["kind"]], "a field is missing, or is not known")
    content = json.dumps({k: v for k, v in c.items() if k != "digest"}, sort_keys=True, separators=(",", ":"))
    need(c["digest"] == hashlib.sha256(content.encode()).hexdigest(), "digest: the certificate was changed")
    need(c["adjacency"] == ADJACENCY and c["theorem"] == THEOREMS[c["kind"]], "adjacency or theorem is not known")
    epsilon, delta = number(c["epsilon"], 0, 500, "epsilon"), number(c["delta"], Fraction(1, 10**40), 1, "delta")
    need(isinstance(c["rounds"], list) and 1 <= len(c["rounds"]) <= 20, "rounds must be a list of 1 to 20")
    rounds = []
    for each in c["rounds"]:
        need(isinstance(each, dict) and each.get("kind") in KINDS, "rounds: a kind is not known")
        need(set(each) == {"kind", "count", *KINDS[each["kind"]]}, "rounds: a field is missing, or is not known")
        p = {n: number(each[n], Fraction(n not in ("epsilon", "delta"), 10**9), 10**9, n) for n in KINDS[each["kind"]]}
        need(p.get("sample_rate", 0) <= 1, "sample_rate is above one")
        rounds.append((each["kind"], p, whole(each["count"], 1, 10**7, "count")))
    bound = number(c["bound"], 0, delta, "bound")
    proven = {"gaussian": check_gaussian, "renyi": check_renyi, "losses": check_losses}[c["kind"]](c, rounds, epsilon)
    need(proven <= bound, f"delta at this epsilon is only proven to be at most {float(proven):.6g}")


def main(paths):
    refused = not paths
    for path in paths:
        try:
            check(json.loads(Path(path).read_text(encoding="utf-8")))
            print(f"{path}: accepted")
        except (Refused, ValueError, TypeError, KeyError, ArithmeticError, OSError, RecursionError) as error:
            refused = True
            print(f"{path}: REFUSED: {error}")
    return int(refused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
