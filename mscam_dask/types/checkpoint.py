"""State of a fit between two outer iterations, as plain arrays and plain records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

__all__ = ["Checkpoint"]


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """State from which a fit can be resumed, independent of its executor and of the storage.

    Attributes
    ----------
    arrays : mapping of str to array
        Numeric arrays by name, such as "graph_data".
    record : mapping of str to values
        Nested mappings, sequences, strings, numbers (NaN and infinities too), booleans and None.
    """

    arrays: Mapping[str, NDArray[Any]]
    record: Mapping[str, Any]
