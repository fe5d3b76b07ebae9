"""What each view contributes to a score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["shares_of_views"]

# Nats; one sample of a million apart from the rest is information of 1e-5.
_ROUNDING = 1e-7


def shares_of_views(names: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return non-negative scores as shares of their sum; equal when none is above rounding.

    Parameters
    ----------
    names
        Of the views.
    scores
        Of each, in nats.

    Examples
    --------
    >>> shares_of_views(("colour", "form"), (0.75, 0.25))
    {'colour': 0.75, 'form': 0.25}
    """
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    if not positive.sum() > _ROUNDING:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
