"""Consoles, tables and formats that the commands share."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.views.sources import RowSource
from mscam_dask.monitor.messages import format_setting, plural, printable, sentence
from mscam_dask.monitor.run_record import DataRecord, FitRecord

_FILE_WIDTH = 120  # of output to a file or a pipe
_MAX_VIEWS = 20  # rows of a table of views
_CELL_WIDTH = 80  # of a list in a table
_SHORT = 16  # hexadecimal digits of a digest


def results_console() -> Console:
    """Return the console for results: standard output, without markup."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return Console(markup=False, highlight=False, width=width)


def show(console: Console, *parts: RenderableType) -> None:
    """Print renderables with an empty line between them, without trailing blanks."""
    for index, part in enumerate(parts):
        with console.capture() as capture:
            console.print(part)
        lines = [line.rstrip() for line in capture.get().splitlines()]
        console.file.write("\n".join([""] * (index > 0) + lines) + "\n")
    console.file.flush()


def progress_console() -> Console:
    """Return the console for progress: standard error, so that results can be piped."""
    return Console(stderr=True, markup=False, highlight=False)


def origin_tables(origin: Sequence[Mapping[str, str]]) -> list[Table]:
    """Return the table of what the readers decided about the files of a store, without empty columns."""
    shown = origin[:_MAX_VIEWS]
    titles = dict.fromkeys(title for row in shown for title in row)
    said = [title for title in titles if any(row.get(title, "none") != "none" for row in shown)]
    rows = [
        [shorten(row.get(title, ""), _CELL_WIDTH, placeholder=" ...") for title in said]
        for row in shown
    ]
    return [table(said, rows, numbers=("missing cells",))] if rows else []


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
) -> Table:
    """Return a table whose cells break between words; the columns in `numbers` are right-aligned."""
    result = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = _widths([*zip(titles, *texts, strict=True)], results_console().width)
    for title, width in zip(titles, widths, strict=True):
        result.add_column(
            title, justify="right" if title in numbers else "left", overflow="fold", width=width
        )
    for row in texts:
        result.add_row(*map(Text, row))
    return result


def _widths(columns: Sequence[Sequence[str]], available: int) -> list[int | None]:
    """Width of each column, at least that of its longest word; None if these do not fit."""
    widths = [max(map(cell_len, column)) for column in columns]
    words = [
        max(cell_len(word) for text in column for word in [*text.split(), ""]) for column in columns
    ]
    room = available - 2 * (len(columns) - 1)
    if sum(words) > room:
        return [None] * len(columns)
    while sum(widths) > room:
        spare = [width - word for width, word in zip(widths, words, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return [*widths]


def key_values(pairs: Sequence[tuple[str, str]]) -> Table:
    """Return a table with a name and a value in each line."""
    result = Table.grid(padding=(0, 2, 0, 0))
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in pairs:
        result.add_row(name, Text(printable(value)))
    return result


def relative(path: str | Location) -> str:
    """Return a path relative to the working directory if it is below it; URLs are unchanged."""
    if isinstance(path, ObjectPath):
        return str(path)
    target = Path(path).absolute()
    here = Path.cwd()
    return str(target.relative_to(here)) if target.is_relative_to(here) else str(target)


def score_text(metrics: dict[str, float | None]) -> str:
    """Return ACC, NMI and ARI."""
    names = {
        "ACC": "accuracy",
        "NMI": "normalized_mutual_information",
        "ARI": "adjusted_rand_index",
    }
    values = ((short, metrics.get(name)) for short, name in names.items())
    return "  ".join(f"{short} {value:.4f}" for short, value in values if value is not None)


def fit_pairs(fit: FitRecord) -> list[tuple[str, str]]:
    """Return names and values of a fit, for `key_values`."""
    by_view = "; scale and alpha per view: see the table" if fit.setting.alpha is None else ""
    components = plural(fit.n_connected_components, "connected component")
    curves = fit.n_clusters_curves
    selected = "" if curves is None else f"selected from 1 to {curves['counts'][-1]}; "
    clusters = f"{fit.n_clusters} ({selected}graph has exactly {components})"
    pairs = [("Clusters", clusters), ("Status", sentence(fit.message))]
    if fit.assessment is not None:
        support = f"{fit.assessment.title}: {fit.assessment.message}"
        pairs.append(("Support", sentence(support)))
    if fit.batches is not None:
        pairs.append(("Batches", fit.batches.message))
    settings = format_setting(fit.setting) + by_view
    return [*pairs, ("Sizes", sizes_text(fit)), ("Settings", settings)]


def sizes_text(fit: FitRecord) -> str:
    """Return the number of samples in each cluster, with cluster numbers if these have gaps."""
    sizes = fit.sizes
    if list(sizes) == list(range(len(sizes))):
        return ", ".join(map(str, sizes.values()))
    return ", ".join(f"{size} in cluster {name}" for name, size in sizes.items())


def stored_views_table(views: Sequence[RowSource], *, digests: bool = False) -> Table:
    """Return a table of the views of a store."""
    titles = ["view", "samples", "features", "type", "stored as", "digest"][: 5 + digests]
    rows = []
    for view in views:
        of_data = [view.name, *map(str, view.shape), view.view_type, view.dtype.name]
        rows.append([*of_data, view.recorded_digest[:_SHORT]][: len(titles)])
    return table(titles, rows, numbers=("samples", "features"))


def views_table(data: DataRecord, fit: FitRecord | None, *, digests: bool = False) -> Table:
    """Return a table of the views with their settings and contributions."""
    titles = ["view", "features", "type"]
    if fit is not None:
        titles += ["scale", "alpha", "contribution"]
    if digests:
        titles.append("digest")
    rows = []
    for view in data.views[: None if digests else _MAX_VIEWS]:
        row = [view.name, str(view.shape[1]), view.view_type]
        if fit is not None:
            own = (fit.setting.views or {}).get(view.name, fit.setting)
            is_excluded = view.name in fit.setting.exclude_views
            alpha = "-" if own.alpha is None else f"{own.alpha:g}"
            share = "excluded" if is_excluded else f"{fit.view_contributions.get(view.name, 0):.1%}"
            row += [own.scale, alpha, share]
        if digests:
            row.append(view.digest[:_SHORT])
        rows.append(row)
    if len(rows) < len(data.views):
        more = f"... and {len(data.views) - len(rows)} more: mscam-dask describe lists all"
        rows.append([more, *[""] * (len(titles) - 1)])
    return table(titles, rows, numbers=("features", "alpha", "contribution"))
