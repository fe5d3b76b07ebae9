"""The seed of a fit, from what scikit-learn takes as `random_state`."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from mscam_dask.errors import ConfigurationError

__all__ = ["seed_of"]


_ALLOWED = "allowed is a whole number >= 0, a RandomState or None"


def seed_of(random_state: object, *, is_continued: bool = False) -> int:
    """Whole number that all randomness of a fit follows from.

    Parameters
    ----------
    random_state : int, RandomState or None
        A number is taken as it is; the others are drawn from.
    is_continued : bool
        Whether another fit may go on from this one's checkpoints, and has to find the same.

    Raises
    ------
    ConfigurationError
        It is none of these; or it is another one each time, and `is_continued`.
    """
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ConfigurationError(f"random_state={random_state} is not usable: {_ALLOWED}.")
        return int(random_state)
    if is_continued and (random_state is None or random_state is np.random):
        raise ConfigurationError(
            f"random_state={random_state!r} draws another seed for each fit, and a checkpoint_store is "
            "set: no other fit could go on from its checkpoints. Set random_state to a whole number."
        )
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ConfigurationError(
            f"random_state={random_state!r} is not usable: {_ALLOWED}."
        ) from error
    return int(generator.randint(2**31 - 1))
