"""Seed of a fit from a scikit-learn `random_state`."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from mscam_dask.errors import ConfigurationError

__all__ = ["seed_of"]


_ALLOWED = "allowed is a whole number >= 0, a RandomState or None"


def seed_of(random_state: object, *, is_continued: bool = False) -> int:
    """Seed that determines all random numbers of a fit.

    Parameters
    ----------
    random_state : int, RandomState or None
        A whole number is the seed; from the others a seed is drawn.
    is_continued : bool
        Whether another fit may resume from the checkpoints, and so needs the same seed.

    Raises
    ------
    ConfigurationError
        `random_state` is none of these, or differs for each fit although `is_continued`.
    """
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ConfigurationError(f"random_state={random_state} is not usable: {_ALLOWED}.")
        return int(random_state)
    if is_continued and (random_state is None or random_state is np.random):
        raise ConfigurationError(
            f"random_state={random_state!r} draws another seed for each fit, so no fit can resume from "
            "the checkpoints of checkpoint_store. Set random_state to a whole number."
        )
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ConfigurationError(
            f"random_state={random_state!r} is not usable: {_ALLOWED}."
        ) from error
    return int(generator.randint(2**31 - 1))
