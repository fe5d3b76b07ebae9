"""What the variables of a file are that are no arrays, and how they are called in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["MatlabCellArray", "NoMatrix", "describe"]


@dataclass(frozen=True)
class MatlabCellArray:
    """A one-level cell array of numeric matrices."""

    items: tuple[Any, ...]

    def named(self, name: str) -> dict[str, Any]:
        """Return its matrices by the names they have as views: name_0, name_1, ..."""
        return {f"{name}_{index}": item for index, item in enumerate(self.items)}


@dataclass(frozen=True)
class NoMatrix:
    """A variable that cannot be a view."""

    matlab_class: str


def describe(value: Any) -> str:
    """Say what a variable is: its kind and shape."""
    if isinstance(value, NoMatrix):
        return value.matlab_class
    if isinstance(value, MatlabCellArray):
        return f"cell array of {len(value.items)} matrices"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", ())
    kind = {"O": "cell or object array", "V": "struct", "U": "text"}.get(
        getattr(dtype, "kind", "O"), str(dtype)
    )
    return f"{kind}, shape {tuple(shape)}"
