"""Contribution of each view to a score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["shares_of_views"]

# In nats; one sample apart from a million others has information 1e-5.
_ROUNDING = 1e-7


def shares_of_views(names: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return nonnegative scores as shares of their sum, or equal shares if the sum is only rounding error.

    Parameters
    ----------
    names
        Names of the views.
    scores
        Score of each view, in nats.

    Examples
    --------
    >>> shares_of_views(("color", "form"), (0.75, 0.25))
    {'color': 0.75, 'form': 0.25}
    """
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    if not positive.sum() > _ROUNDING:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
