"""Train with a loop written for Opacus: its ``make_private``, answered by Almoner. Needs Opacus 1.6 (extra ``opacus``).

``PrivacyEngine(epsilon=, delta=)`` charges a filter before every step, ``PrivacyEngine(odometers.Renyi(...))`` counts,
to stop when you like, and ``PrivacyEngine(epochs=)`` is for runs whose noise, rate and steps are fixed in advance, as
those of ``PrivacyEngine().make_private_with_epsilon(...)``. Samples, sums of clipped gradients and noise are Almoner's.
``individual`` charges each person for the person's clipping bound. ``Accountant`` is for engines of Opacus's own, too.

Names and symbols
    C, z, q       clip (max_grad_norm), noise multiplier, sample rate; sigma = z C is the noise on a sum; public
    bounds        (n,) what each person's gradient is clipped to if that person is sampled; private

The sample rate is one over the number of batches, and the divisor is the rate times the number of people: using it
declares both numbers public.

Source: theory 4.1 to 4.4, 4.11, 5.1, 5.2, 5.6, 5.7, 6.1, 7.2
"""

from almoner import _extras

with _extras.need("opacus", "torch", extra="opacus"):
    from almoner.interop.opacus._accountant import Accountant
    from almoner.interop.opacus._engine import PrivacyEngine
    from almoner.interop.opacus._optimizer import PrivateOptimizer, individual

__all__ = ["Accountant", "PrivacyEngine", "PrivateOptimizer", "individual"]
