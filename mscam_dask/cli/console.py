"""Consoles and small pieces of output that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.monitor.messages import by_view_words, neighbors_words, printable, without_words
from mscam_dask.pipeline.run.run_record import FitRecord, SettingEntry

__all__ = [
    "components_text",
    "fields",
    "progress_console",
    "relative",
    "results_console",
    "score_text",
    "setting_text",
    "share_text",
    "show",
    "sizes_text",
    "table",
]

_FILE_WIDTH = 120  # of tables written to a file or a pipe


def results_console() -> Console:
    """Return the console for results: standard output, nothing in it taken for markup."""
    console = Console(markup=False, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=_FILE_WIDTH)
    return console


def show(console: Console, *parts: RenderableType) -> None:
    """Print renderables, an empty line between them, without the blanks that fill table cells."""
    for index, part in enumerate(parts):
        with console.capture() as capture:
            console.print(part)
        lines = [line.rstrip() for line in capture.get().splitlines()]
        console.file.write("\n".join([""] * (index > 0) + lines) + "\n")
    console.file.flush()


def progress_console() -> Console:
    """Return the console for progress: standard error, so that results can be piped."""
    return Console(stderr=True, markup=False, highlight=False)


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
) -> Table:
    """Return a table; columns named in `numbers` are flush right.

    Where it is too wide, cells break between words and, only if these are too wide too, within.
    """
    result = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    said = [[printable(cell) for cell in row] for row in rows]
    widths = _widths([*zip(titles, *said, strict=True)], results_console().width)
    for title, width in zip(titles, widths, strict=True):
        result.add_column(
            title, justify="right" if title in numbers else "left", overflow="fold", width=width
        )
    for row in said:
        result.add_row(*map(Text, row))
    return result


def _widths(columns: Sequence[Sequence[str]], most: int) -> list[int | None]:
    """Width of each column, that of its longest word at least; None where that is too much."""
    widths = [max(map(cell_len, column)) for column in columns]
    least = [
        max(cell_len(word) for text in column for word in [*text.split(), ""]) for column in columns
    ]
    room = most - 2 * (len(columns) - 1)
    if sum(least) > room:
        return [None] * len(columns)
    while sum(widths) > room:
        spare = [width - word for width, word in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return [*widths]


def fields(pairs: Sequence[tuple[str, str]]) -> Table:
    """Return lines of a name and a value."""
    result = Table.grid(padding=(0, 2, 0, 0))
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in pairs:
        result.add_row(name, Text(printable(value)))
    return result


def relative(path: str | Location) -> str:
    """Return a path or URL as people would type it here."""
    if isinstance(path, ObjectPath):
        return str(path)
    target = Path(path).absolute()
    here = Path.cwd()
    return str(target.relative_to(here)) if target.is_relative_to(here) else str(target)


def share_text(contributions: dict[str, float]) -> str:
    """Return the views' shares in the score, largest first."""
    ordered = sorted(contributions.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in ordered)


def score_text(metrics: dict[str, float | None]) -> str:
    """Return the three scores people ask for."""
    names = {
        "ACC": "accuracy",
        "NMI": "normalized_mutual_information",
        "ARI": "adjusted_rand_index",
    }
    values = ((short, metrics.get(name)) for short, name in names.items())
    return "  ".join(f"{short} {value:.4f}" for short, value in values if value is not None)


def components_text(fit: FitRecord) -> str:
    """Return how many components there are, and how many were asked for or chosen."""
    noun = "component" if fit.n_connected_components == 1 else "components"
    counts = fit.n_clusters_curves
    asked = (
        "asked for"
        if counts is None
        else f"chosen from {counts['counts'][0]} to {counts['counts'][-1]}"
    )
    return f"{fit.n_connected_components} connected {noun}, {fit.n_clusters} {asked}"


def sizes_text(fit: FitRecord) -> str:
    """Return the samples of each cluster, with its number where numbers are left out."""
    sizes = fit.sizes
    if list(sizes) == list(range(len(sizes))):
        return ", ".join(map(str, sizes.values()))
    return ", ".join(f"{size} in cluster {name}" for name, size in sizes.items())


def setting_text(setting: SettingEntry) -> str:
    """Return the setting of a fit."""
    neighbors = neighbors_words(setting.n_neighbors, setting.initial_graph)
    without = printable(without_words(setting.exclude_views))
    if setting.alpha is None:
        views = by_view_words(
            (name, view.scale, view.alpha) for name, view in (setting.views or {}).items()
        )
        return f"scale and alpha by view{printable(views)}, {neighbors}{without}"
    return f"scale {setting.scale}, alpha {setting.alpha:g}, {neighbors}{without}"
