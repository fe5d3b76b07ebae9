"""The state of a fit between two outer iterations, as plain arrays and plain records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

__all__ = ["Checkpoint"]


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a fit needs to go on from here, with nothing of how it runs or is stored.

    Attributes
    ----------
    arrays : mapping of str to array
        Of numbers, by names such as "graph_data".
    record : mapping of str to values
        Nested mappings, sequences, texts, numbers (NaN and infinities too), booleans and None.
    """

    arrays: Mapping[str, NDArray[Any]]
    record: Mapping[str, Any]
