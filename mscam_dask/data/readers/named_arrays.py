"""Named arrays of a file as views and labels."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.fields import Column, tell_rows_apart
from mscam_dask.data.sparse import is_sparse
from mscam_dask.data.views.conversion import CERTAIN, as_text, id_strength, label_rank, rows_of
from mscam_dask.data.views.sources import VIEW_TYPES, RowSource, ViewType
from mscam_dask.data.views.validation import are_distances
from mscam_dask.errors import DataError

# Rows that are looked at before a matrix is read, which may be a large view.
_HEAD = 64
_OF_CELLS = re.compile(r"(?<![^\W_])(mask|missing|observed|qc|flags?)(?![^\W\d_])", re.IGNORECASE)
_FEW = 5  # rows that are in an order by chance
_SHOWN = 3  # names of one kind in a message


@dataclass
class Variables:
    """Arrays of a file by name, with the cell arrays and structs around them.

    An array is NumPy, Dask or sparse; a list is a cell array (views X_0, X_1, ...), a dict a struct (views
    s.X), a text the kind of what can be no view. Square matrices (n, n, V) are V views.
    """

    values: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    view_types: dict[str, ViewType] = field(default_factory=dict)

    def enter(self, name: str, value: Any) -> tuple[str, ...]:
        """Enter a value and what is in it; the names of its arrays."""
        self.values[name] = value
        parts: dict[str, Any] = {}
        if isinstance(value, dict):
            parts = {f"{name}.{part}": item for part, item in value.items()}
        elif isinstance(value, list) or (
            is_numeric(value) and value.ndim == 3 and value.dtype.kind != "c"
        ):
            items, view_type = (value, None) if isinstance(value, list) else _square_views(value)
            parts = {f"{name}_{index}": item for index, item in enumerate(items)}
            if view_type is not None:
                self.view_types |= dict.fromkeys((name, *parts), view_type)
        if not parts:
            return (name,)
        leaves = [leaf for part, item in parts.items() for leaf in self.enter(part, item)]
        self.groups[name] = tuple(leaves)
        return self.groups[name]

    def around(self, name: str) -> set[str]:
        """The name and those of the groups that it is in."""
        return {name, *(group for group, names in self.groups.items() if name in names)}


def contents_of(
    variables: Mapping[str, Any],
    source: Source,
    selection: Selection,
    *,
    sample_ids: tuple[str, ...] | None = None,
    skipped: Sequence[str] = (),
    least_columns: int = 1,
    view_types: Mapping[str, str] = MappingProxyType({}),
) -> SourceContents:
    """Views, labels and ids of a file with named variables (`Variables`), of which `skipped` were not read."""
    for view, recorded in view_types.items():
        if recorded not in VIEW_TYPES:
            raise DataError(
                f"{source.path} records view type {recorded!r} for view {view!r}; allowed are {list(VIEW_TYPES)}. "
                "Correct the file, or leave the attribute out and pass view_type=..."
            )
    found = Variables(view_types=dict(cast("Mapping[str, ViewType]", view_types)))
    for name, value in variables.items():
        found.enter(name, value)
    labels, may_be_labels, notes = _find_labels(found, source, selection)
    notes += [
        f"{source.path}: {name!r} {found.values[name].shape} read as {len(found.groups[name])} {view_type} "
        "views."
        for name, view_type in found.view_types.items()
        if name in found.groups
    ]
    tables, left, others = _tables_in(found, source, selection, may_be_labels, least_columns)
    left = [*skipped, *left]
    of_samples = {"labels": labels, "sample ids": sample_ids}
    for what, values in of_samples.items() if source.samples_in == "rows" else ():
        n_samples = -1 if values is None else len(values)
        have_rows = all(table.shape[0] == n_samples for table in tables.values())
        if not have_rows and all(table.shape[1] == n_samples for table in tables.values()):
            tables = {  # in blocks of rows, if it is a Dask array
                name: table.T.rechunk(("auto", -1)) if hasattr(table, "rechunk") else table.T
                for name, table in tables.items()
            }
            others |= _no_views(found, tables) if selection.views is None else {}
            notes.append(
                f"{source.path}: the samples of all views are their {n_samples} columns, as many as {what}."
            )
    types, file = found.view_types, str(source.path)
    views = [
        rows_of(table, name=name, view_type=types.get(name, "features"), file=file)
        for name, table in tables.items()
    ]
    have_views = any(
        kind.startswith(("struct", "cell"))
        or np.ndim(found.values[name]) > 2
        or found.around(name) != {name}
        for name, kind in others.items()
    )
    if others.keys() & set(selection.views or ()) or (
        not (views or left) and (labels is None or have_views)
    ):
        raise DataError(
            f"{source.path} has no view in {_listed(others) or 'it: no variable'}; allowed are matrices (n, d) of "
            "numbers, cell arrays and structs of them, and symmetric matrices (n, n, V). Save each view as "
            "a matrix of its own."
        )
    may_be_ids = {} if sample_ids else _vectors_of_ids(found, views, may_be_labels, source)
    named = [name for name in may_be_ids if id_strength(_own(name)) == CERTAIN]
    texts = [name for name in may_be_ids if found.values[name].dtype.kind in "US"]
    # the only ids by their names, or else the only text
    different = {may_be_ids[name]: name for name in reversed(named or texts)}
    if len(different) == 1:
        ((sample_ids, name),) = different.items()
        if named:
            notes.append(f"{source.path}: {name!r} taken as sample ids.")
            may_be_ids = {}
            others.pop(name, None)
    others = {name: kind for name, kind in others.items() if name not in may_be_ids}
    if others:
        notes.append(f"{source.path}: left out {_listed(others)}: no matrices of samples.")
    return SourceContents(
        where=str(source.path),
        views=tuple(views),
        labels=labels,
        sample_ids=sample_ids,
        labels_explicit=labels is not None and selection.labels is not None,
        notes=tuple(notes),
        skipped=tuple(left),
        cell_arrays={
            group: tuple(view.name for view in views if view.name in names)
            for group, names in found.groups.items()
        },
        may_be_ids=may_be_ids,
    )


def _tables_in(
    found: Variables,
    source: Source,
    selection: Selection,
    may_be_labels: Collection[str],
    least_columns: int,
) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Tables of the views of a file, names of matrices that were not asked for, and the kinds of what can be no view."""
    tables: dict[str, Any] = {}
    left, others, wanted = [], dict[str, str](), selection.views
    for name, value in found.values.items():
        around = found.around(name)
        if name in found.groups or around & {*may_be_labels}:
            continue
        ids = ids_in(value) if id_strength(_own(name)) == CERTAIN else ()
        are_ids = len(ids) > 1 and len({*ids}) == len(ids)
        if wanted is not None and around.isdisjoint(wanted):
            left += [name] if is_matrix(value) else []
        elif is_matrix(value) and (
            min(value.shape) > 0
            if wanted is not None
            else min(value.shape) >= least_columns and not are_ids
        ):
            tables[name] = value.T if source.samples_in == "columns" else value
        else:
            others[name] = _describe(value)
    others |= _no_views(found, tables) if wanted is None else {}
    return tables, left, others


def _vectors_of_ids(
    found: Variables, views: Sequence[RowSource], may_be_labels: Collection[str], source: Source
) -> dict[str, tuple[str, ...]]:
    """Variables with one id for each sample, all different: those with names of ids, text, and whole numbers.

    Labels, orders of the samples, and text that may name the features of a square view, are none. The same ids in two
    orders are refused.
    """
    are_square = any(v.view_type == "features" and v.shape[0] == v.shape[1] for v in views)
    found_ids: dict[str, tuple[str, ...]] = {}
    for name, value in found.values.items() if views else ():
        ids, strength = ids_in(value), id_strength(_own(name))
        if any(name == view.name or len(ids) != view.shape[0] for view in views):
            continue
        column, is_text = Column(ids), value.dtype.kind in "US"
        is_other = name in may_be_labels or (is_text and are_square)
        is_other |= column.counts_rows and not (is_text or strength)
        if column.is_unique and (strength == CERTAIN or not is_other):
            found_ids[name] = ids
    for one, other in itertools.combinations(found_ids, 2):
        if found_ids[one] != found_ids[other] and {*found_ids[one]} == {*found_ids[other]}:
            raise DataError(
                f"{source.path}: {one!r} and {other!r} have the same ids in different orders, so that views may have their "
                "samples in either. Save each view in a file of its own with its ids."
            )
    return found_ids


def ids_in(value: Any) -> tuple[str, ...]:
    """Texts or whole numbers of a vector as ids; none of anything else."""
    if not _is_vector(value):
        return ()
    ids = _in_memory(value).ravel()
    if ids.dtype.kind == "f":
        ids = ids.astype(np.float64)
        if not ((np.abs(ids) <= 2**53) & (np.floor(ids) == ids)).all():
            return ()
        ids = ids.astype(np.int64)
    return tuple(map(as_text, ids.tolist()))


def is_numeric(value: Any) -> bool:
    """Return whether a value is an array of numbers."""
    return isinstance(getattr(value, "dtype", None), np.dtype) and value.dtype.kind in "biufc"


def is_matrix(value: Any) -> bool:
    """Return whether a value is a two-dimensional array of numbers, dense or sparse."""
    return is_numeric(value) and value.ndim == 2


def _no_views(found: Variables, tables: dict[str, Any]) -> dict[str, str]:
    """Take matrices that are hardly views out of the tables, and say what they are: orders of samples, or marks of cells or of views."""
    shapes = Counter(table.shape for table in tables.values())
    kinds: dict[str, str] = {}
    marks: set[str] = set()
    for name, table in tables.items():
        if _are_orders(table):
            kinds[name] = "orders of samples"
        elif (
            _OF_CELLS.search(name)
            and shapes[table.shape] > 1
            and not is_sparse(table)
            and _are_marks(table)
        ):
            kinds[name] = "zeros and ones for each cell; write NaN in missing cells"
        elif 1 < table.shape[1] < len(tables) and name not in found.view_types:
            marks |= {name} if _are_marks(table, in_each_row=True) else set()
    cells = (found.groups[name] for name, value in found.values.items() if isinstance(value, list))
    marks -= {name for names in cells if not marks.issuperset(names) for name in names}
    n_views = len(tables) - len(kinds) - len(marks)
    of_views = (
        "zeros and ones for each view; write rows of NaN for samples that a view does not have"
    )
    kinds |= {name: of_views for name in sorted(marks) if tables[name].shape[1] == n_views}
    return {
        name: f"{_describe(tables.pop(name))}, {what}; --view NAME if it is a view"
        for name, what in kinds.items()
    }


def _are_marks(table: Any, *, in_each_row: bool = False) -> bool:
    """Return whether all values are 0 or 1, maybe with a 1 in each row."""
    rows = _in_memory(table)
    return bool(((rows == 0) | (rows == 1)).all() and (rows.any(axis=1).all() or not in_each_row))


def _are_orders(table: Any) -> bool:
    """Return whether the first two columns have all numbers from 0 or 1 once, as permutations have."""
    n_samples, n_columns = table.shape
    numbers = np.arange(n_samples + 1)
    if n_samples <= _FEW or is_sparse(table) or not np.isin(_in_memory(table[:1]), numbers).all():
        return False  # told without a look at each row
    return all(Column(ids_in(table[:, [p]])).counts_rows for p in range(n_columns)[:2])


def _describe(value: Any) -> str:
    """Kind and shape of a variable."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return f"{'cell array' if isinstance(value, list) else 'struct'} of {len(value)} variables"
    return f"{'text' if value.dtype.kind in 'US' else value.dtype}, shape {tuple(value.shape)}"


def _listed(kinds: Mapping[str, str]) -> str:
    """Names with their kinds; many of one kind in short."""
    names_of: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        names_of.setdefault(kind, []).append(name)
    parts = []
    for kind, names in names_of.items():
        shown = ", ".join(map(repr, names[:_SHOWN]))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        parts.append(
            f"{shown}{more} ({kind.replace('NAME', names[0]) if len(names) == 1 else kind})"
        )
    return ", ".join(parts)


def _in_memory(values: Any) -> NDArray[Any]:
    if is_sparse(values):
        return np.asarray(values.toarray())
    return np.asarray(
        values.compute(scheduler="synchronous") if hasattr(values, "compute") else values
    )


def _square_views(value: Any) -> tuple[list[Any], ViewType]:
    """The V distances or kernels of an array (n, n, V) or (V, n, n); none where it is neither, or both."""
    found: list[tuple[list[Any], ViewType]] = []
    for stack in (np.moveaxis(value, 2, 0), value):
        _, n_samples, n_columns = stack.shape
        if n_samples < 2 or n_samples != n_columns:
            continue
        rows, columns = _in_memory(stack[:, :_HEAD]), _in_memory(stack[:, :, :_HEAD])
        allowed = 1e-6 * np.nanmax(np.abs(rows), initial=0)
        if not np.allclose(rows, columns.transpose(0, 2, 1), 0, allowed, equal_nan=True):
            continue
        are_all = all(map(are_distances, rows[:, :, : rows.shape[1]]))
        found.append((list(stack), "distance" if are_all else "kernel"))
    return found[0] if len(found) == 1 else ([], "kernel")


# -- labels ---------------------------------------------------------------------------------------

_Labels = tuple[NDArray[Any], str]  # (n,), and how they were held, if not as a plain vector


def _find_labels(
    found: Variables, source: Source, selection: Selection
) -> tuple[NDArray[Any] | None, set[str], list[str]]:
    """Labels that were asked for, else of the best usual name; names of all that may be labels; notes."""
    asked, requested = selection.labels, set(selection.views or ())
    known: dict[str, _Labels] = {}
    for name, value in found.values.items():
        is_view = name in found.view_types or not requested.isdisjoint(
            (name, *found.groups.get(name, ()))
        )
        if name != asked and (is_view or not may_be_usual(name)):
            continue
        labels = labels_in(value)
        if labels is None and name != asked and selection.views is None:
            _check_no_labels(name, value, source)
        is_usual = (
            labels is not None
            and labels[0].size > 1
            and (labels[1] or _is_usual(name))
            and not tell_rows_apart(labels[0].tolist())
        )
        if labels is not None and (name == asked or is_usual):
            known[name] = labels
    if asked in found.values and asked not in known:
        raise DataError(
            f"{source.path}: {asked!r}, asked for as labels, is {_describe(found.values[asked])}; allowed "
            "are one label per sample, the same for each view in the columns of a matrix or in a cell "
            "array, and an indicator matrix (in each row a 1, else 0). Name another, such as one cell (labels='Y_0')."
        )
    best = sorted(known, key=lambda name: (not _is_usual(name), known[name][1] != ""))
    taken = asked if asked in known else best[0] if best and asked is None else None
    values, how = (None, "") if taken is None else known[taken]
    notes = [f"{source.path}: {taken!r} taken as labels{how and f': {how}'}."] if taken else []
    left = [name for name in best if name != taken]
    if left:
        notes.append(f"{source.path}: left out {left}, which may be labels.")
    return values, set(known), notes


def _check_no_labels(name: str, value: Any, source: Source) -> None:
    """Refuse a matrix of whole numbers under a name of labels: several labels of a sample must not be a view."""
    head = (
        _in_memory(value[:_HEAD]) if is_matrix(value) and value.dtype.kind != "c" else np.empty(0)
    )
    if min(np.shape(value), default=0) > 1 and (np.floor(head) == head).all():
        raise DataError(
            f"{source.path}: {name!r} ({_describe(value)}) may be several labels of each sample, or a view. Name the views "
            "(--view NAME for each), and the labels, a vector, if they are to be used (--labels NAME)."
        )


def _own(name: str) -> str:
    """Name of a field without that of its struct."""
    return name.rpartition(".")[2]


def _is_usual(name: str) -> bool:
    return _own(name) in ("y", "Y") or label_rank(_own(name)) in (1, 2)


def may_be_usual(name: str) -> bool:
    """Return whether labels have this name, maybe with a digit for each view behind it, as in y0."""
    return any(map(_is_usual, (name, re.sub(r"(?<=[a-zA-Z])\d$", "", name))))


def _is_vector(value: Any) -> bool:
    """Return whether an array has one entry per sample, (n,), (n, 1) or (1, n), not of objects."""
    return (
        hasattr(value, "dtype")
        and value.dtype.kind in "biufUS"
        and value.ndim in (1, 2)
        and math.prod(value.shape) == max(value.shape, default=0)
    )


def labels_in(value: Any) -> _Labels | None:
    """An array or cell array as labels, None where it is none."""
    if isinstance(value, list) and all(map(_is_vector, value)):
        first, *others = vectors = [_in_memory(item).ravel() for item in value]
        if others and all(vector.size == 1 for vector in vectors):
            return np.concatenate(vectors), "one in each cell"
        are_same = all(np.array_equal(first, vector) for vector in others)
        return (first, f"its {len(value)} cells are the same") if are_same else None
    if _is_vector(value):
        return _in_memory(value).ravel(), ""
    if is_matrix(value) and value.dtype.kind != "c" and min(value.shape) > 1:
        for lines, table in (("columns", value), ("rows", value.T)):
            found = _labels_in_rows(table, lines)
            if found is not None and 1 < np.unique(found[0]).size < found[0].size:
                return found
    return None


def _labels_in_rows(table: Any, lines: str) -> _Labels | None:
    """The whole number that each row repeats, or the position of the 1 in each row."""
    table = table.tocsr() if is_sparse(table) else table
    if table.shape[0] > _HEAD and _labels_in_rows(table[:_HEAD], lines) is None:
        return None
    rows = _in_memory(table)
    if (rows == rows[:, :1]).all() and (np.floor(rows) == rows).all():
        return rows[:, 0], f"its {rows.shape[1]} {lines} are the same"
    if _are_marks(rows) and (rows.sum(axis=1) == 1).all():
        return rows.argmax(axis=1), "an indicator matrix, classes counted from 0"
    return None


# -- NumPy files ----------------------------------------------------------------------------------


def one_table(values: Any, source: Source) -> SourceContents:
    """Contents of a file that is one table (n, d), which is a view whatever its name."""
    table = values.T if source.samples_in == "columns" and values.ndim == 2 else values
    view = rows_of(table, name=source.view_name, file=str(source.path))
    return SourceContents(where=str(source.path), views=(view,))
