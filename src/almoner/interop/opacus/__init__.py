"""Train with Opacus within a budget, or with an account for every person. Needs Opacus 1.6 (extra ``opacus``).

``PrivacyEngine(epsilon=, delta=)`` is Opacus's engine with an ``Accountant`` that charges a filter before every step.
``PrivacyEngine(odometers.Renyi(...))`` has an ``OdometerAccountant``, to stop when you like; ``PrivacyEngine(epochs=)``
has a ``FixedAccountant``, for runs whose noise, rate and steps are fixed in advance.
``individual`` takes what an engine's ``make_private`` returned and charges each person for the person's clipping bound.

Names and symbols
    C, z, q       clip (max_grad_norm), noise multiplier, sample rate; sigma = z C is the noise on a sum; public
    bounds        (n,) what each person's gradient is clipped to if that person is sampled; private

Noise, clip and divisor stay Opacus's. Its sample rate is one over the number of batches, and its divisor is the rate
times the number of records: using it declares both numbers public.

Source: theory 4.1 to 4.4, 4.11, 5.1, 5.2, 5.6, 6.1, 7.2; the source of Opacus 1.6.0
"""

from almoner import _extras

with _extras.need("opacus", "torch", extra="opacus"):
    from almoner.interop.opacus._engine import Accountant, FixedAccountant, OdometerAccountant, PrivacyEngine
    from almoner.interop.opacus._optimizer import IndividualOptimizer, individual

__all__ = ["Accountant", "FixedAccountant", "IndividualOptimizer", "OdometerAccountant", "PrivacyEngine", "individual"]
