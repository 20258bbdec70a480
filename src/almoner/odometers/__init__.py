"""Odometers: bounds on the privacy loss so far that hold at every moment at once.

Two promises, two methods (theory 6.1). ``epsilon()`` is pathwise: with probability at least 1 - delta the realised loss
is at no time above the bound. ``ex_post_epsilon()`` is smaller, and enough for stopping: for every stopping time T and
event E, P(E) <= E_Q[e^(bound at T) 1_E] + delta. A running total read off at a time of one's choice is neither.

Renyi             any mechanism; the default
Planned           a plan, sampled rounds above all: from the first round on near what stopping makes unavoidable
Gaussian          Gaussian and zCDP mechanisms: normal mixtures, no tuning needed
Line              Gaussian and zCDP mechanisms: the smallest at one planned total
Capped            stop at a target while keeping the running bound
Mixture           Whitehouse et al., corrected           for comparison
Stitched          Whitehouse et al., corrected           for comparison
Lecuyer           Lécuyer                                for comparison
Rogers            Rogers et al., constants second-hand   for comparison
FeldmanZrnic      Feldman & Zrnic: a number of filters fixed in advance
GaussianRestarts  Koskela et al.: the same for Gaussian filters

>>> from almoner import mechanisms
>>> odometer = Renyi(delta=1e-6)
>>> odometer.charge(mechanisms.Gaussian(sigma=20.0))
>>> round(odometer.epsilon(), 3), round(odometer.ex_post_epsilon(), 3)
(0.292, 0.237)
"""

from almoner.odometers._capped import Capped, Rounds
from almoner.odometers._normal import Gaussian, Line
from almoner.odometers._odometer import Odometer
from almoner.odometers._planned import Planned
from almoner.odometers._published import FeldmanZrnic, GaussianRestarts, Lecuyer, Mixture, Rogers, Stitched
from almoner.odometers._renyi import Renyi

__all__ = [
    "Capped", "FeldmanZrnic", "Gaussian", "GaussianRestarts", "Lecuyer", "Line", "Mixture", "Odometer", "Planned",
    "Renyi", "Rogers", "Rounds", "Stitched",
]  # fmt: skip
