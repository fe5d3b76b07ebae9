"""What readers are given and what they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.views.sources import VIEW_TYPES, RowSource, ViewType
from mscam_dask.errors import ConfigurationError, DataError

__all__ = [
    "LABEL_NAMES",
    "Selection",
    "Source",
    "SourceContents",
    "is_label_vector",
    "not_allowed",
    "oriented",
    "unreadable",
    "view_type_named",
]

LABEL_NAMES = (
    *("labels", "label", "y", "gt", "gnd", "truth", "target", "class"),
    *("truelabel", "truelabels", "true_label", "true_labels", "groundtruth", "ground_truth"),
)
"""Names, in any case, under which a vector of whole numbers or text is taken for labels."""


@dataclass(frozen=True)
class Source:
    """One file, and how it is to be read where that cannot be seen from the file.

    Parameters
    ----------
    path
        File or directory.
    name
        Name of its view, for formats that hold one; by default the file's name without ending.
    samples_in
        "columns" for (features, samples) matrices, which are then transposed; of a text file the
        header has the sample ids then, and the column of ids the names of features.
    header
        Whether the first line of a text file names the columns; None: it does when it is not
        all numbers, or these number the columns (0, 1, 2, ... above measured values).
    id_column
        Name or position (0, 1, ...) of the column of a text file with sample ids; None: the
        first column, when it is not numeric or is called id, sample or the like, or ends in id
        (patient_id, PatientID) and has whole numbers that differ.
    delimiter
        Of a text file; None: comma for .csv, tab for .tsv, any white space otherwise.
    """

    path: str | Location
    name: str | None = None
    samples_in: Literal["rows", "columns"] = "rows"
    header: bool | None = None
    id_column: str | int | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.samples_in not in ("rows", "columns"):
            raise ConfigurationError(
                f"samples_in={self.samples_in!r} for {self.path}; allowed are 'rows' and 'columns'."
            )

    @property
    def file(self) -> Path:
        """The path, as a Path; of a URL its last part."""
        place = as_location(self.path)
        return place if isinstance(place, Path) else Path(place.name)

    @property
    def view_name(self) -> str:
        """Name of the only view of this file."""
        return self.name if self.name is not None else self.file.stem


@dataclass(frozen=True)
class Selection:
    """Which views to read (None: all) and what is called labels (None: see `LABEL_NAMES`)."""

    views: tuple[str, ...] | None = None
    labels: str | None = None

    def wants(self, name: str, *, cell_array: str | None = None) -> bool:
        """Tell whether a view is to be read, by its name or that of the cell array it is in.

        One that is not may be left untouched.
        """
        return self.views is None or name in self.views or cell_array in self.views

    def is_labels(self, name: str) -> bool:
        """Tell whether a variable is to be taken for labels; one asked for as a view is none."""
        if self.labels is not None:
            return name == self.labels
        return name.lower() in LABEL_NAMES and not (self.views is not None and name in self.views)


@dataclass(frozen=True, eq=False)
class SourceContents:
    """What one source holds.

    Attributes
    ----------
    where
        The source, for messages.
    views
        Its views that were asked for; files stay open as long as the reader's stack.
    skipped
        Names of what may be its other views, left untouched.
    cell_arrays
        Names of the views of each cell array, by its name, as far as they were asked for.
    labels, label_names, sample_ids
        What else it says of the samples, None where nothing.
    labels_explicit
        Whether labels are those asked for by name, not by convention.
    notes
        What was taken for what, and what was left out.
    """

    where: str
    views: tuple[RowSource, ...]
    labels: NDArray[Any] | None = None
    label_names: tuple[str, ...] | None = None
    sample_ids: tuple[str, ...] | None = None
    labels_explicit: bool = False
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    cell_arrays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def is_label_vector(values: NDArray[Any]) -> bool:
    """Tell whether an array has one entry per sample, (n,), (n, 1) or (1, n), not of objects."""
    return (
        values.dtype.kind in "biufUS"
        and values.ndim in (1, 2)
        and values.size == max(values.shape, default=0)
    )


def oriented(values: Any, source: Source) -> Any:
    """Return the table with samples on rows, as `source` says; a view, not a copy."""
    return values.T if source.samples_in == "columns" and np.ndim(values) == 2 else values


def view_type_named(recorded: object, view: str, source: Source) -> ViewType:
    """Return the view type a file records for a view.

    Raises
    ------
    DataError
        When it is none of the metrics.
    """
    for view_type in VIEW_TYPES:
        if recorded == view_type:
            return view_type
    raise DataError(
        f"{source.path} says {recorded!r} for view {view!r}; allowed are {list(VIEW_TYPES)}. Correct "
        "the file, or save it without and give view_type=..."
    )


def not_allowed(source: Source, error: PermissionError) -> DataError:
    """Error of a source that this user may not read."""
    file = source.path if error.filename is None else error.filename
    return DataError(
        f"{file} may not be read ({error.strerror or error}). Ask its owner for the right to read it "
        "(chmod a+r, and a+rx for the directories above it), or give a copy of your own."
    )


@contextmanager
def unreadable(source: Source, what: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn a library's errors while reading into a DataError that names the file."""
    caught: tuple[type[Exception], ...] = (OSError, *errors)
    is_text = UnicodeDecodeError in errors
    try:
        yield
    except DataError:
        raise
    except PermissionError as error:
        raise not_allowed(source, error) from error
    except caught as error:
        if is_text and isinstance(error, UnicodeDecodeError):
            raise DataError(
                f"{source.path} cannot be read as {what}: byte 0x{error.object[error.start]:02x} is no "
                "UTF-8. Save text of another encoding as UTF-8 (iconv -f latin1 -t utf-8 FILE); "
                "convert or unpack what is no text."
            ) from error
        raise DataError(
            f"{source.path} cannot be read as {what}: {error}. Check that the file is complete "
            "and what its name says it is."
        ) from error
