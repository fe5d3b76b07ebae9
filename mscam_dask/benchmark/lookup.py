"""Whether the methods, parameters and data sets that an experiment names exist."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mscam_dask.benchmark.methods import METHODS, grid_points, make_estimator
from mscam_dask.benchmark.settings import (
    CompareTable,
    DatasetTable,
    RobustnessTable,
    SweepTable,
)
from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.parse import nearest, shown
from mscam_dask.pipeline.config.settings import BUILT_IN_SOURCES
from mscam_dask.pipeline.config.toml_document import Document

__all__ = ["DATA_VARIABLE", "dataset_table", "method_problems"]

DATA_VARIABLE = "MSCAM_DATA"
"""Environment variable that names the directory of data sets."""

_ENDINGS = (".npz", ".zarr", ".mat", ".nc", "")


def dataset_table(
    asked: str,
    declared_tables: Mapping[str, DatasetTable],
    *,
    absolute: Callable[[str], str],
    directory: str | None,
    declared: tuple[str, ...],
) -> tuple[str, DatasetTable | str | None]:
    """Find a data set by a name or path.

    Parameters
    ----------
    asked
        As in `datasets`: also the URL of a store.
    declared_tables
        The usable tables [dataset.NAME].
    absolute
        Makes the path that is written as a name absolute.
    directory
        Where names are looked for; None for that of $MSCAM_DATA.
    declared
        Names of all such tables, usable or not.

    Returns
    -------
    name : str
        For tables of results.
    found : DatasetTable, str or None
        The table, what is wrong, or None when it was said already.
    """
    if asked in declared:
        table = declared_tables.get(asked)
        return asked, None if table is None else _checked(table)
    if asked in BUILT_IN_SOURCES:
        return asked, DatasetTable(source=asked)
    if "://" in asked:
        return Path(asked).stem, _checked(DatasetTable(source=asked))
    path = Path(absolute(asked))
    if path.exists():
        return path.stem, DatasetTable(source=str(path))
    kept = _kept(asked, path, directory or os.environ.get(DATA_VARIABLE), declared)
    return Path(asked).name, kept


def _kept(
    asked: str, path: Path, folder: str | None, declared: tuple[str, ...]
) -> DatasetTable | str:
    """A data set of the directory where they are kept, or what is there instead."""
    if folder is None:
        return (
            f"there is no {path}, no table [dataset.{asked}], and neither `directory` nor "
            f"${DATA_VARIABLE} says where data sets are kept. Set one of them."
        )
    if not Path(folder).is_dir():
        return f"there is no directory {folder}, where data sets are looked for."
    for ending in _ENDINGS:
        file = Path(folder) / f"{asked}{ending}"
        if file.exists():
            return DatasetTable(source=str(file))
    there = sorted(
        {item.stem for item in Path(folder).iterdir() if item.suffix in _ENDINGS[:-1]}
        | {*declared, *BUILT_IN_SOURCES}
    )
    return (
        f"there is no such data set in {folder}, nor beside the pipeline.{nearest(asked, there)} "
        f"There are {', '.join(there)}."
    )


def _checked(table: DatasetTable) -> DatasetTable | str:
    """The table, or which of its files does not exist; a URL is asked when it is opened."""
    places = [] if table.source in BUILT_IN_SOURCES else list(table.sources)
    places += [table.path] if table.path is not None else []
    try:
        paths = [path for path in map(as_location, places) if isinstance(path, Path)]
    except ConfigurationError as error:
        return str(error)
    missing = [str(path) for path in paths if not path.exists()]
    return f"there is no {', '.join(missing)}." if missing else table


def method_problems(
    document: Document,
    name: str,
    table: CompareTable | RobustnessTable | SweepTable,
    parameters: Mapping[str, Mapping[str, Any]],
    grids: Mapping[str, Mapping[str, Any]],
) -> Iterable[str]:
    """Yield what is wrong with the methods, [parameters.METHOD] and [grid.METHOD]."""
    if isinstance(table, SweepTable):
        yield from _sweep_problems(document, table, parameters, grids)
        return
    known = list(METHODS)
    for asked in table.methods or ():
        if asked not in METHODS:
            yield (
                f"{document.where(name, 'methods')}: [{name}] methods has {asked!r}, which is no "
                f"method.{nearest(asked, known)} Allowed are {', '.join(known)}."
            )
    for what, tables in (("parameters", parameters), ("grid", grids)):
        for asked, values in tables.items():
            if asked not in METHODS:
                yield (
                    f"{document.where(what, asked)}: [{what}.{asked}] is for no method."
                    f"{nearest(asked, known)} Allowed are {', '.join(known)}."
                )
            elif what == "parameters":
                yield from _refused(document, (what, asked), asked, values, values)
            else:
                yield from _grid_problems(document, asked, values)


def _grid_problems(document: Document, name: str, values: Mapping[str, Any]) -> Iterable[str]:
    """What is wrong with [grid.NAME]."""
    odd = [key for key, value in values.items() if not isinstance(value, list) or not value]
    for key in odd:
        yield (
            f"{document.where('grid', name, key)}: [grid.{name}] {key} = {shown(values[key])}; "
            "allowed is a list of values to try."
        )
    if not odd:
        yield from _refused(document, ("grid", name), name, grid_points(values)[0], values)


def _sweep_problems(
    document: Document,
    table: SweepTable,
    parameters: Mapping[str, Mapping[str, Any]],
    grids: Mapping[str, Mapping[str, Any]],
) -> Iterable[str]:
    for what, tables in (("parameters", parameters), ("grid", grids)):
        if tables:
            yield (
                f"{document.where(what)}: [{what}] is not for a sweep, whose parameters are in "
                "[sweep]. Leave it out."
            )
    for key in ("alpha", "graph_weight"):
        values = getattr(table, key)
        if len(set(values)) < len(values):
            yield f"{document.where('sweep', key)}: [sweep] {key} has a value twice: {values}."


def _refused(
    document: Document,
    path: tuple[str, str],
    name: str,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Iterable[str]:
    """What the method itself says against the names of its parameters."""
    method = METHODS[name]
    probe = {"view": 0, **values} if method.label_aware_view_choice else dict(values)
    try:
        estimator = make_estimator(method, 2, 0, {**method.defaults, **probe})
    except ConfigurationError as error:
        key = next((key for key in given if repr(key) in str(error)), "")
        place = document.where(*path, key) if key else document.where(*path)
        hint = nearest(key, _parameter_names(name)) if key else ""
        yield f"{place}: [{'.'.join(path)}] {error}{hint}"
    else:
        assert estimator is not None


def _parameter_names(name: str) -> list[str]:
    estimator = make_estimator(
        METHODS[name], 2, 0, {"view": 0} if METHODS[name].label_aware_view_choice else {}
    )
    return sorted(estimator.get_params())
