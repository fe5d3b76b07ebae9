"""Pipeline files as text: what is refused before any table means anything."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.toml_document import (
    MAX_BYTES,
    Override,
    parse_override,
    read_document,
    toml_text,
)
from tests.messages import quotes, raises


def write(directory: Path, text: str | bytes) -> Path:
    file = directory / "pipeline.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_tables_and_the_lines_they_stand_on(tmp_path: Path) -> None:
    text = (
        '\ufeff# say\r\n[data]\r\nsource = "a.npy"\n'  # as other systems write them
        'text = """\n[cluster]\nn = 1\n"""\n\n[cluster]\n  n = 3\n'
    )
    document = read_document(write(tmp_path, text))
    assert document.tables["cluster"] == {"n": 3}
    assert document.where("data", "source").endswith("pipeline.toml, line 3")
    assert document.where("cluster").endswith("line 9")  # not the one inside the text
    assert document.where("cluster", "n").endswith("line 10")
    assert document.where("cluster", "absent").endswith("line 9")  # the table's
    assert document.where("output").endswith("pipeline.toml")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("[data\n", ["line 1, column 6", "']'"], id="open bracket"),
        pytest.param("a = 1\na = 2\n", ["line 2"], id="duplicate key"),
        pytest.param("[data]\n[data]\n", ["line 2", "'data'"], id="duplicate table"),
        pytest.param("a = {b = 1, b = 2}\n", ["line 1", "'b'"], id="duplicate inline key"),
        pytest.param("a = " + "[" * 2000, [], id="deep lists"),
        pytest.param("a = " + "{a=" * 1000, [], id="deep tables"),
        pytest.param("a" + ".a" * 1500 + " = 1", ["line 1", "1500", "64"], id="deep key"),
        pytest.param("a = [" + "1," * 3000 + "]", ["line 1", "6006", "4096"], id="long line"),
        pytest.param(b"a = '\xff'\n", ["UTF-8", "byte 5"], id="not text"),
    ],
)
def test_what_is_no_pipeline_file(tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_document(write(tmp_path, text))
    assert re.search(quotes("pipeline.toml", *parts), str(caught.value))


def test_what_is_no_file_or_a_huge_one(tmp_path: Path) -> None:
    huge = tmp_path / "huge.toml"
    with huge.open("wb") as stream:
        stream.truncate(100 * 2**20)  # sparse: 100 MB of zeros
    absent = tmp_path / "absent.toml"
    for file, value in ((absent, Path.cwd()), (tmp_path, "*.toml"), (huge, "64 KiB")):
        with raises(ConfigurationError, file, value):
            read_document(file)


@pytest.mark.timeout(60)  # without the limits such files take minutes
@pytest.mark.parametrize(
    "line",
    [
        pytest.param("a{i}" + ".a" * 60 + " = 1", id="dotted keys"),
        pytest.param("[t" + ".t" * 60 + ".k{i}]", id="dotted tables"),
        pytest.param("[[a]]", id="arrays of tables"),
        pytest.param(" " * 4000, id="blank"),
    ],
)
def test_the_largest_file_is_read_soon(tmp_path: Path, line: str) -> None:
    lines = [line.replace("{i}", str(index)) for index in range(MAX_BYTES // (len(line) + 8))]
    read_document(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("cluster.n_clusters=7", ("cluster", "n_clusters"), 7),
        ("cluster.alpha = 0.5", ("cluster", "alpha"), 0.5),
        ("data.source=./ü.csv", ("data", "source"), "./ü.csv"),
        ('data.source=["a", "b"]', ("data", "source"), ["a", "b"]),
        ('data.view_type."view one"="kernel"', ("data", "view_type", "view one"), "kernel"),
        ('data.labels="a=b"', ("data", "labels"), "a=b"),
    ],
)
def test_overrides_are_toml_values_or_plain_words(text: str, key: Any, value: object) -> None:
    override = parse_override(text)
    assert (override.key, override.value) == (key, value)
    assert type(override.value) is type(value)
    assert override.origin == f"--set {text}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "n_clusters=3", "cluster.n_clusters", "=3", "cluster.=3", "cluster..n=3"),
        *("cluster.a=1,5", "cluster.a=", "cluster.a=1\n[data]", "cluster.a=1\nb=2"),
        *("cluster.a b=1", "a.b=[1"),
    ],
)
def test_overrides_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_override(text)
    assert f"--set {text}" in str(caught.value)


def test_overrides_win_over_the_file_and_over_earlier_ones(tmp_path: Path) -> None:
    file = write(tmp_path, "[cluster]\nn_clusters = 3\nalpha = 2.0\n")
    overrides = [
        Override(("cluster", "n_clusters"), 4, "--set cluster.n_clusters=4"),
        Override(("cluster", "n_clusters"), 5, "--set cluster.n_clusters=5"),
        Override(("execution", "workers"), 2, "--workers 2"),
        Override(("cluster", "alpha"), None, "nothing"),
    ]
    document = read_document(file).overridden(overrides)
    assert document.tables == {"cluster": {"n_clusters": 5}, "execution": {"workers": 2}}
    assert document.where("cluster", "n_clusters") == "--set cluster.n_clusters=5"
    into_a_number = "--set cluster.n_clusters.pix=1"
    with raises(ConfigurationError, into_a_number, 3):
        read_document(file).overridden([parse_override(into_a_number.partition(" ")[2])])


def test_written_toml_leaves_out_none_and_keeps_types() -> None:
    tables = {"a": {"b": None, "c": 1, "d": 1.0, "e": ["x", "\u00fc\n"]}}
    found = tomllib.loads(toml_text(tables))["a"]
    assert found == {"c": 1, "d": 1.0, "e": ["x", "\u00fc\n"]}
    assert [type(found[key]) for key in "cd"] == [int, float]
