"""Generated files of every dialect, layout and spelling of ids: their values, or a typed error.

Each seed writes two files of known tables. The reader may refuse what its doubts say, and nothing else.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.readers.base import Source
from tests.data.known_tables import outcome

FEW, MANY, BATCH = 100, 2250, 50

MISSING = ("", "NA", "nan", "NULL", "#N/A")

SUFFIXES = {
    ",": (".csv", ".csv", ".txt"),
    "\t": (".tsv", ".txt", ".csv"),
    ";": (".csv", ".csv", ".txt"),
    "|": (".csv", ".txt"),
    " ": (".txt", ".dat", ""),
}

# Names of columns of ids as hospitals, registries and programs write them; the last of them no list has.
ID_HEADERS = (
    *("id", "sample", "Sample ID", "patient_id", "eid", "SEQN", "IID", "RID", "Subject", "MRN"),
    *("patient", "barcode", "PATIENTID", "sample_no", "case", "record", "nhc", "hadm_id"),
    *("Proband", "Lfd. Nr.", "study nr", "受试者", "Fallnummer", "x", "zeile", "dni", "kennung"),
)

# How the second file writes the ids of the first, which are texts, or whole numbers.
OF_TEXTS: dict[str, Callable[[str], str]] = {
    "same": str,
    "case": str.swapcase,
    "trailing blank": lambda item: f"{item} ",
    "suffix": lambda item: f"{item}-01A",
    "disjoint": lambda item: f"Z{item[::-1]}",
}
OF_NUMBERS: dict[str, Callable[[str], str]] = {
    "same": str,
    "zero-padded": lambda item: item.zfill(8),
    "1000.0": lambda item: f"{item}.0",
    "disjoint": lambda item: str(int(item) + 50_000_000),
}


@dataclass(frozen=True)
class Dialect:
    """How a file writes a table."""

    delimiter: str
    decimal: str
    quoting: Any
    header: str
    comments: int
    packed: bool
    bom: bool
    line_end: str
    ends: bool
    missing: str
    on_columns: bool
    numbers_rows: bool


def drawn_dialect(rng: np.random.Generator, *, ids: str) -> Dialect:
    delimiter = str(rng.choice([",", ",", "\t", "\t", ";", "|", " "]))
    header = str(
        rng.choice(["names", "names", "no header", "header one short", "leading empty cell"])
    )
    quoting = int(
        rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC, csv.QUOTE_ALL])
    )
    on_columns = bool(rng.random() < 0.15) and ids != "no ids"
    if ids == "no ids" and header not in ("names", "no header"):
        header = "names"
    if on_columns and header == "no header":
        header = "names"
    missing = str(rng.choice(MISSING))
    has_empty_cells = delimiter != " " or quoting != csv.QUOTE_MINIMAL
    if not has_empty_cells:
        missing = missing or "NA"
        header = "header one short" if header == "leading empty cell" else header
    comma = delimiter != "," and rng.random() < (0.6 if delimiter == ";" else 0.15)
    return Dialect(
        delimiter=delimiter,
        decimal="," if comma else ".",
        quoting=quoting,
        header=header,
        comments=0 if rng.random() < 0.8 else 2,
        packed=bool(rng.random() < 0.1),
        bom=bool(rng.random() < 0.1),
        line_end="\r\n" if rng.random() < 0.15 else "\n",
        ends=bool(rng.random() < 0.85),
        missing=missing,
        on_columns=on_columns,
        numbers_rows=header == "names"
        and has_empty_cells
        and not on_columns
        and ids != "no ids"
        and rng.random() < 0.2,
    )


def drawn_ids(rng: np.random.Generator, kind: str, n: int) -> list[str]:
    numbers = rng.choice(90_000, n, replace=False) + 10_000
    if kind == "text ids":
        form = str(rng.choice(["P{}", "TCGA.06.{}", "ab-{}", "S{}_T"]))
        return [form.format(number) for number in numbers]
    if kind == "zero-padded ids":
        return [f"{number:08d}" for number in numbers]
    return [str(number) for number in numbers]


def drawn_table(rng: np.random.Generator, ids: list[str] | None, n: int, prefix: str) -> Any:
    """Measurements, counts among them, and cells that are missing in no, some or all rows."""
    width = int(rng.integers(2, 6))
    values = (rng.standard_normal((n, width)) * 10.0 ** rng.integers(-3, 4, width)).round(6)
    counts = rng.random(width) < 0.2
    values[:, counts] = rng.integers(0, 9, (n, int(counts.sum())))
    how = str(rng.choice(["none", "none", "some", "every row"]))
    if how != "none":
        rows = np.arange(n) if how == "every row" else rng.choice(n, 3, replace=False)
        values[rows, (rows + rng.integers(width)) % width] = np.nan
    names = [f"{prefix}{column}" for column in range(width)]
    return pd.DataFrame(values, index=ids, columns=names)


def text_of(table: pd.DataFrame, dialect: Dialect, id_header: str, labels: list[str] | None) -> str:
    """Text of a file as pandas writes it; `table` is as it stands in it."""
    has_ids = not isinstance(table.index, pd.RangeIndex)
    counts = [name for name, values in table.items() if (values.dropna() % 1 == 0).all()]
    frame = table.astype(dict.fromkeys(counts, "Int64"))  # without a decimal point
    if labels is not None:
        frame["class"] = labels
    heading = {"leading empty cell": "", "header one short": False}.get(dialect.header, id_header)
    if dialect.numbers_rows:  # of a frame that was shuffled
        order = np.random.default_rng(len(frame)).permutation(len(frame))
        frame, heading = frame.reset_index(names=id_header).set_axis(order), ""
    text: str = frame.to_csv(
        sep=dialect.delimiter,
        decimal=dialect.decimal,
        quoting=dialect.quoting,
        header=dialect.header != "no header",
        index=has_ids,
        index_label=heading,
        na_rep=dialect.missing,
        lineterminator="\n",
    )
    mark = dialect.delimiter
    comments = [f"# made by a program{mark} version 2\n", f"#{mark}2024-01-01\n"]
    text = "".join(comments[: dialect.comments]) + text
    return (text if dialect.ends else text[:-1]).replace("\n", dialect.line_end)


def written(
    rng: np.random.Generator,
    folder: Path,
    name: str,
    table: pd.DataFrame,
    dialect: Dialect,
    *,
    id_header: str,
    labels: list[str] | None = None,
    known: pd.DataFrame | None = None,
) -> tuple[Source, pd.DataFrame]:
    """A file and what it holds."""
    text = text_of(table.T if dialect.on_columns else table, dialect, id_header, labels)
    encoded = text.encode("utf-8-sig" if dialect.bom else "utf-8")
    suffix = str(rng.choice(SUFFIXES[dialect.delimiter]))
    packed = dialect.packed and suffix in (".csv", ".tsv", ".txt")
    file = folder / f"{name}{suffix}{'.gz' if packed else ''}"
    file.write_bytes(gzip.compress(encoded) if packed else encoded)
    known = table if known is None else known
    if dialect.header == "no header" and not dialect.on_columns:
        known = known.set_axis(pd.RangeIndex(known.shape[1]), axis=1)
    options: dict[str, Any] = {}
    if dialect.on_columns:
        options["samples_in"] = "columns"
    if dialect.decimal == "," and dialect.delimiter != ";":
        options["decimal"] = ","
    return Source(file, **options), known


def doubts_about_numbers(one: Dialect, two: Dialect) -> set[str]:
    nameless = {file.header in ("header one short", "leading empty cell") for file in (one, two)}
    if one.on_columns or two.on_columns:
        return {"whole numbers as names of columns"}
    if "no header" in (one.header, two.header) or len(nameless) == 2:
        return {"whole numbers under a name in one file only"}
    return set()


def drawn_case(
    seed: int, folder: Path
) -> tuple[list[tuple[Source, pd.DataFrame]], set[str], dict[str, Any], Any]:
    """Two files, why they may or must be refused, options of `ingest`, and the known labels."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 15))
    kind = str(rng.choice(["text ids", "text ids", "whole numbers", "zero-padded ids", "no ids"]))
    ids = None if kind == "no ids" else drawn_ids(rng, kind, n)
    first, second = drawn_table(rng, ids, n, "a"), drawn_table(rng, ids, n, "b")
    spelling = "same"
    written_ids = ids
    if ids is not None:
        spellings = OF_NUMBERS if kind == "whole numbers" else OF_TEXTS
        spelling = str(rng.choice(["same"] * 4 + [*spellings]))
        if kind == "zero-padded ids" and spelling == "case":
            spelling = "same"
        written_ids = [spellings[spelling](item) for item in ids]
    order = rng.permutation(n) if ids is not None and rng.random() < 0.7 else np.arange(n)
    one, two = drawn_dialect(rng, ids=kind), drawn_dialect(rng, ids=kind)
    numbers = kind in ("whole numbers", "zero-padded ids")
    if numbers and rng.random() < 0.7:
        one, two = replace(one, on_columns=False), replace(two, on_columns=False, header=one.header)
    if spelling == "trailing blank" and two.quoting == csv.QUOTE_MINIMAL and two.delimiter == " ":
        spelling, written_ids = "same", ids
    labels = None
    if one.header in ("names", "leading empty cell") and not one.on_columns and rng.random() < 0.2:
        labels = [str(label) for label in rng.choice(["u", "v", "w"], n)]
    id_header = str(rng.choice(ID_HEADERS)).replace(" ", "_" if one.delimiter == " " else " ")
    known = second if ids is None else second.iloc[order]
    stands = known if written_ids is None else known.set_axis([written_ids[row] for row in order])
    files = [
        written(rng, folder, "a", first, one, id_header=id_header, labels=labels),
        written(rng, folder, "b", stands, two, id_header=id_header, known=known),
    ]
    doubts = set()
    if spelling != "same":
        doubts.add("a trailing blank" if spelling == "trailing blank" else "must be refused")
    if numbers:
        doubts |= doubts_about_numbers(one, two)
    options: dict[str, Any] = {"impute": "mean"}
    if spelling not in ("same", "trailing blank") and rng.random() < 0.5:
        options["join"] = "outer"
    known_labels = None if labels is None or ids is None else dict(zip(ids, labels, strict=True))
    return files, doubts, options, known_labels


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(start, marks=() if start < FEW else pytest.mark.thorough)
        for start in range(0, MANY, BATCH)
    ],
)
def test_files_hold_what_they_say_or_are_refused(tmp_path: Path, start: int) -> None:
    wrong: list[str] = []
    for seed in range(start, start + BATCH):
        folder = tmp_path / str(seed)
        folder.mkdir()
        files, doubts, options, labels = drawn_case(seed, folder)
        sources, tables = zip(*files, strict=True)
        known = dict(zip("ab", tables, strict=True))
        found = outcome(sources, known, folder / "s.zarr", labels=labels, **options)
        is_refused = found.startswith("refused") and bool(doubts)
        if not is_refused and (found != "right" or "must be refused" in doubts):
            wrong.append(f"seed {seed} {sorted(doubts)}: {found}")
    assert not wrong, "\n".join(wrong)
