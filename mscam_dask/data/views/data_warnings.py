"""What was found in data that passed validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["DataIssue", "ValidationReport"]


@dataclass(frozen=True)
class DataIssue:
    """Something about the data that is accepted, but that its owner should know.

    Attributes
    ----------
    view
        Name of the view, "" for all of them together.
    kind
        "zero rows", "constant columns", or "repeated samples" where fewer samples differ than there
        are clusters asked for.
    count
        How many.
    first
        The first few, by position.
    total
        Number of rows (columns) the view has.
    """

    view: str
    kind: Literal["zero rows", "constant columns", "repeated samples"]
    count: int
    first: tuple[int, ...]
    total: int

    @property
    def message(self) -> str:
        """One sentence on what was found, one on what it means and what can be done."""
        listing = ", ".join(map(str, self.first)) + (
            ", ..." if self.count > len(self.first) else ""
        )
        if self.kind == "zero rows":
            return (
                f"View {self.view!r}: {self.count} of {self.total} samples are all zero (rows "
                f"{listing}). They are alike in this view, which then says nothing about them; the "
                "other views decide. If zero stands for 'not measured', drop these samples or "
                "this view."
            )
        if self.kind == "repeated samples":
            n_distinct = self.total - self.count
            return (
                f"Only {n_distinct} of {self.total} samples differ from each other: the others (rows "
                f"{listing}) are equal to an earlier one in every view. In more than {n_distinct} "
                "clusters equal samples are divided by chance: set n_clusters to at most "
                f"{n_distinct}, or check how the views were made."
            )
        return (
            f"View {self.view!r}: {self.count} of {self.total} columns have one value only (columns "
            f"{listing}). They carry no information and count as zero after scaling; they can be "
            "dropped."
        )


@dataclass(frozen=True)
class ValidationReport:
    """What `validate` looked at and found.

    Attributes
    ----------
    n_samples
    view_names
    findings
        Of all views, in their order.
    digests
        `view_digest` of each view by name, recorded or as it was read; empty unless asked for.
    """

    n_samples: int
    view_names: tuple[str, ...]
    issues: tuple[DataIssue, ...]
    digests: dict[str, str] = field(default_factory=dict)
