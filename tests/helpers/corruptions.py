"""Corrupt certificates, and count how many the checker refuses: python tests/helpers/corruptions.py [HOW MANY]."""

import copy
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from almoner import mechanisms as m
from almoner.accounting import certificates

__all__ = ["CHECKER", "RUNS", "checker", "corrupted", "refused", "signed", "stronger"]

CHECKER = Path(__file__).parents[2] / "tools" / "check_certificate.py"
RUNS = {
    "gaussian": (m.Repeated(m.Gaussian(20.0), 100), None),
    "renyi": (m.Composed((m.Repeated(m.SampledGaussian(1.1, 1.0, 0.01), 1000), m.Zcdp(0.01))), 8),
    "sampled": (m.Repeated(m.SampledGaussian(1.5, 1.0, 0.05), 40), None),
    "failing": (m.Repeated(m.Approximate(0.1, 1e-6), 5), None),
    "tail": (m.Repeated(m.SampledGaussian(0.5, 1.0, 0.01), 10), None),
    "mixed": (m.Composed((m.Repeated(m.Laplace(10.0), 20), m.Pure(0.1), m.Approximate(0.2, 1e-6))), None),
}


def checker() -> ModuleType:
    """The checker, as a module."""
    spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(check: ModuleType, certificate: object) -> bool:
    """Whether the checker refuses, in the way in which its command does."""
    try:
        check.check(certificate)
    except (check.Refused, ValueError, TypeError, KeyError, ArithmeticError, OSError, RecursionError):
        return True
    return False


def signed(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with the digest of what it says now: anybody can compute it."""
    text = json.dumps({k: v for k, v in certificate.items() if k != "digest"}, sort_keys=True, separators=(",", ":"))
    return {**certificate, "digest": hashlib.sha256(text.encode()).hexdigest()}


def corrupted(certificate: dict[str, Any], random: Random) -> object:
    """One character of the file changed, dropped or doubled; the digest is left as it is."""
    while True:
        text = json.dumps(certificate)
        place = random.randrange(len(text))
        other = random.choice('0123456789.eE-+/ abcxyz"{}[],:')
        text = text[:place] + random.choice([other, "", text[place] * 2]) + text[place + 1 :]
        try:
            changed = json.loads(text)
        except ValueError:
            return text
        if changed != certificate:
            return changed


FACTORS = {
    "epsilon": 0.97,
    "bound": 0.5,
    "delta": 0.9,
    "beyond": 0.4,
    "sigma": 0.9,
    "scale": 0.9,
    "sensitivity": 1.1,
    "sample_rate": 1.2,
    "rho": 3.0,
}


def stronger(certificate: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field changed in the direction in which more is claimed than was proven, with a digest that fits."""
    for name in (*(set(certificate) - {"digest"}), "nothing"):
        if name in FACTORS:
            yield name, signed({**certificate, name: repr(float(certificate[name]) * FACTORS[name])})
        for wrong in ("nan", "-1", "1e9999", "1/0", "", None, True, [], {}, 1.5):
            yield f"{name}={wrong!r}", signed({**certificate, name: wrong})
        yield f"no {name}", signed({key: value for key, value in certificate.items() if key != name} | {"nothing": 1})
    for place, each in enumerate(certificate["rounds"]):
        more = 1 / 0.9 if each["kind"] in ("Pure", "Approximate") else None
        for name, value in each.items():
            change = copy.deepcopy(certificate)
            if name == "kind":
                change["rounds"][place][name] = "Nothing"
            elif name == "count":
                change["rounds"][place][name] = 2 * value
            elif name == "delta":
                change["rounds"][place][name] = "1e-4"
            else:
                factor = 1.5 * more if more else FACTORS[name]
                change["rounds"][place][name] = repr(float(value) * factor)
            yield f"rounds[{place}].{name}", signed(change)


def main(how_many: int) -> int:
    """Refused corruptions, of all kinds of certificates in turn; the exit code is 1 if one was accepted."""
    check, random = checker(), Random(0)
    made = [certificates.of_run(run, delta=1e-5, order=order) for run, order in RUNS.values()]
    accepted = [
        one for number in range(how_many) if not refused(check, one := corrupted(made[number % len(made)], random))
    ]
    claims = [(name, one) for each in made for name, one in stronger(each)]
    believed = [name for name, one in claims if not refused(check, one)]
    print(f"refused: {how_many - len(accepted)} of {how_many} corrupted files,", end=" ")
    print(f"{len(claims) - len(believed)} of {len(claims)} stronger claims")
    print(*believed, sep="\n", end="")
    return int(bool(accepted or believed))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
