"""The fast path of text tables gives what the careful path gives, or leaves the file to it."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.readers import text as text_reader
from mscam_dask.data.readers.base import Selection, Source
from mscam_dask.data.readers.registry import read_source
from mscam_dask.data.readers.text import PlainTable, read_plain_table
from mscam_dask.errors import MscamError

FIELDS = (
    *("1", "-2.5", "3e5", "+4", ".5", "6.", "1e400", "-1e-400", "1e-320", "007", "0x10", "1_0"),
    *("1e", "--1", "1 2", " 7", "8 ", "\t9", "NA", "na", "nAn", "-nan", "null", "None", "n/a"),
    *(" NA", "", "  ", "inf", "-Inf", "Infinity", "true", "False", "\u0663", "1\u00a0", "1\0"),
    *("1.5f", "1d5", "9007199254740993", "18446744073709551616", "-9223372036854775809"),
    *("1" * 400, '"3"', '"3" ', ' "3"', '"3"x', '3"', '"3""', '""', '"1,2"', '"a', "#N/A"),
    *("<NA>", "-1.#IND", "1.7976931348623159e308", "0." + "123456789" * 5, "4.9e-324", "1j"),
)
IDS = (
    *("a", "p1", "NA", "nan", "", " b ", "é", '"q"', '"x,y"', '"l\nm"', 'a"b', '"a""b"', "7"),
    *("null", "1.0", "True", "#c", "\ufeffz"),
)


def made_up(rng: random.Random) -> bytes:
    """A small table, of which anything may be irregular."""
    n_columns, has_ids, wild = rng.randint(1, 4), rng.random() < 0.6, rng.random()
    end = rng.choice(("\n", "\r\n", "\r")) if rng.random() < 0.4 else "\n"
    lines = []
    if rng.random() < 0.7:
        forms = ("g{}", '"g{}"', '"g,{}"') if wild < 0.1 else ("g{}", '"g{}"')
        names = [rng.choice(forms).format(index) for index in range(n_columns)]
        lines.append(",".join((["id"] if has_ids else []) + names))
    for row in range(rng.randint(1, 5)):
        fields = [rng.choice(IDS) if wild < 0.5 else f"e {row}"] if has_ids else []
        for _ in range(n_columns):
            is_odd = rng.random() < (0.35 if wild < 0.6 else 0.05)
            fields.append(rng.choice(FIELDS) if is_odd else repr(rng.uniform(-9, 9)))
        if rng.random() < 0.04:
            fields.append("1")
        if rng.random() < 0.04:
            fields.pop()
        lines.append(",".join(fields))
        if rng.random() < 0.06:
            lines.append(rng.choice(("", " ", "\t", '""', ",")))
    content = end.join(lines) + (end if rng.random() < 0.8 else "")
    before = rng.choice(("\n", "\ufeff")) if rng.random() < 0.1 else ""
    encoded = (before + content).encode()
    return encoded.replace(b"5", b"\xff", 1) if rng.random() < 0.02 else encoded


def outcome(path: Path, **options: Any) -> tuple[Any, ...]:
    try:
        with ExitStack() as stack:
            read = read_source(Source(path, **options), Selection(), stack)
            (view,) = read.views
            values = view.read(0, view.shape[0]).copy()
    except MscamError as error:
        return type(error), str(error)
    values[np.isnan(values)] = np.nan
    labels = None if read.labels is None else read.labels.tolist()
    names = getattr(view, "feature_names", None)
    return values.tobytes(), values.shape, names, read.sample_ids, labels, read.notes


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_table_gives_the_same_numbers_ids_notes_and_errors(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_reader, "_LARGE_BYTES", 0)
    rng, path = random.Random(seed), tmp_path / "t.csv"
    fast: list[PlainTable | None] = []

    def spied(*arguments: Any) -> PlainTable | None:
        fast.append(plain(*arguments))
        return fast[-1]

    plain = text_reader._plain
    for _ in range(150):
        path.write_bytes(made_up(rng))
        options = {"samples_in": "columns"} if rng.random() < 0.2 else {}
        monkeypatch.setattr(text_reader, "_plain", spied)
        found = outcome(path, **options)
        monkeypatch.setattr(text_reader, "_plain", lambda *_: None)
        assert found == outcome(path, **options), path.read_bytes()
    assert sum(table is not None for table in fast) > 20


def test_large_tables_take_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(2000, 10))
    path = tmp_path / "t.csv"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(
            f"p{i}," + ",".join(map(repr, row)) + "\n" for i, row in enumerate(values.tolist())
        )
    monkeypatch.setattr(text_reader, "lines_of", lambda *_: iter([["p0", *["1.5"] * 10]] * 2))
    found = outcome(path)
    assert found[0] == values.tobytes()
    assert found[3] == tuple(f"p{i}" for i in range(2000))


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_what_is_plain_takes_the_fast_path(delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [["id", "x", "label", "y"], ["a", "1", "u", "2.5"], [" b", "", "v ", "-1e3"]]
    path.write_text("\n".join(delimiter.join(line) for line in lines), encoding="utf-8")
    table = read_plain_table(
        Source(path), delimiter=delimiter, n_columns=4, has_header=True, text_positions=[0, 2]
    )
    assert table is not None
    np.testing.assert_array_equal(table.values, [[1, 2.5], [np.nan, -1000]])
    assert table.texts == {0: ["a", "b"], 2: ["u", "v"]}


@pytest.mark.parametrize(
    "content",
    [
        "1,2\n3\n",
        "1,2\n3,4,5\n6\n",
        '1,2\n"3,4"\n',
        "1,a\n",
        "1,2\0\n",
        "1,True\n",
        "",
        "1,0x1\n",
        "1,2\n3,4,\n",
    ],
)
def test_what_is_not_is_left_to_the_careful_path(content: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content, encoding="utf-8")
    options: dict[str, Any] = {"n_columns": 2, "has_header": False, "text_positions": []}
    assert read_plain_table(Source(path), delimiter=",", **options) is None
