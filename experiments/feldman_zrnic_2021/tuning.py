"""Choose the settings of `adult.py` on a split of the training file, without the test file.

    python experiments/feldman_zrnic_2021/tuning.py --features own --epsilon 0.3
    python experiments/feldman_zrnic_2021/tuning.py --quick    # one setting, few steps, one split

Prints the accuracy on the held-out quarter of the training file for a grid of clips, rates and extra steps: the mean
over four splits, each with its own noise. To choose settings by the data of these people is not covered by the
guarantee of the final model, as in the papers that we compare with.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from adult import SCHEMAS, data_folder, features

from almoner.training import Descent, LogisticRegression


def main() -> None:
    """Print the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", choices=list(SCHEMAS), default="own")
    parser.add_argument("--epsilon", type=float, default=0.3)
    parser.add_argument("--noise-multiplier", type=float, help="as printed in a paper, instead of epsilon")
    parser.add_argument("--steps", type=int, nargs="+", default=[400])
    parser.add_argument("--clips", type=float, nargs="+", default=[0.5, 0.7, 1.0])
    parser.add_argument("--rates", type=float, nargs="+", default=[16, 32, 48, 64])
    parser.add_argument("--extra", type=float, nargs="+", default=[0.0, 0.25, 0.5], help="extra steps, as a share")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--no-filter", action="store_true", help="private gradient descent without individual accounts")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="one setting, few steps, one split")
    given = parser.parse_args()
    if given.quick:
        given.steps, given.clips, given.rates, given.extra, given.splits = [20], [0.7], [48], [0.25], 1
    x, y = features(SCHEMAS[given.features], data_folder(given.data) / "adult.data")
    for steps, clip, rate, extra in itertools.product(given.steps, given.clips, given.rates, given.extra):
        scores = [_score(x, y, split, given, steps, clip, rate, extra) for split in range(given.splits)]
        last, averaged = 100 * np.mean(scores, axis=0)
        print(f"steps {steps}  clip {clip:g}  rate {rate:g}  extra {extra:g}  last {last:.2f}  averaged {averaged:.2f}")


def _score(
    x: object, y: object, split: int, given: argparse.Namespace, steps: int, clip: float, rate: float, extra: float
) -> tuple[float, float]:
    """Accuracy of the last and of the averaged iterate on one split."""
    order = np.random.default_rng(100 + split).permutation(len(y))
    learn, judge = order[: len(y) * 3 // 4], order[len(y) * 3 // 4 :]
    iterates = {}
    model = LogisticRegression(
        epsilon=None if given.noise_multiplier else given.epsilon,
        noise_multiplier=given.noise_multiplier,
        max_grad_norm=clip,
        learning_rate=rate,
        steps=steps,
        descent=Descent(momentum=0.0, extra_steps=round(extra * steps), pace=0.0),  # Algorithm 8
        individual=not given.no_filter,
        fit_intercept=False,
        classes=[0, 1],
        n_people=len(learn),
        seed=split,
    )
    model.fit(x[learn], y[learn], observe=lambda number, parameters: iterates.update(last=parameters))
    last = np.mean((x[judge] @ iterates["last"] > 0).ravel() == y[judge])
    return float(last), float(model.score(x[judge], y[judge]))


if __name__ == "__main__":
    main()
