"""Views of files with other numbers of rows than samples: the error names what reads them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.ingest import Source, ingest
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from tests.data.ingested import COLOUR, LABELS, SHAPE, N, stored
from tests.messages import quotes
from tests.synthetic import values_of

READ_TURNED = "Source(path, samples_in='columns')"
OPTION = "--samples-in columns"
SPLITS = np.arange(8).reshape(2, 4)  # no view: another number of rows, and of columns


def save(path: Path, arrays: Mapping[str, Any]) -> Path:
    np.savez(path, allow_pickle=False, **arrays)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.npz"


def refusal(file: Path, samples_in: Any = "rows", **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        ingest(Source(file, samples_in=samples_in), file.with_suffix(".zarr"), **options)
    return str(caught.value)


def options_in(message: str) -> list[str]:
    """Words of the options that a message says to give."""
    (options,) = re.findall(r"\((--samples-in .*?=columns)\)", message)
    return shlex.split(options)


SIDEWAYS = {"colour": COLOUR.T, "shape": SHAPE.T}
UPRIGHT = {"colour": COLOUR, "shape": SHAPE}


@pytest.mark.parametrize(
    ("arrays", "samples_in", "quoted"),
    [
        (SIDEWAYS, "rows", [7, READ_TURNED, OPTION]),
        (UPRIGHT, "columns", ["samples_in='columns'", OPTION]),
        ({**UPRIGHT, "y": LABELS}, "columns", [7, "samples_in='columns'", OPTION]),
        ({"colour": COLOUR.T, "links": np.eye(N), "y": LABELS}, "rows", [7, READ_TURNED]),
        ({"colour": COLOUR.T, "links": np.eye(N)}, "rows", [7, READ_TURNED]),
        ({**UPRIGHT, "splits": SPLITS}, "rows", ["--view colour --view shape"]),
        ({**SIDEWAYS, "splits": SPLITS.T, "y": LABELS}, "rows", [READ_TURNED, "--view shape"]),
        ({**UPRIGHT, "splits": SPLITS, "y": LABELS}, "columns", [OPTION, "--view shape"]),
        ({**UPRIGHT, "y": LABELS[:-1]}, "rows", [6, 7]),
        ({"colour": COLOUR, "shape": SHAPE.T, "y": LABELS}, "rows", ["'colour': 7, 'shape': 2"]),
    ],
)
def test_files_of_other_numbers_of_rows_say_how_to_read_them(
    file: Path, arrays: dict[str, Any], samples_in: str, quoted: list[object]
) -> None:
    message = refusal(save(file, arrays), samples_in)
    assert re.match(quotes(*quoted), message)
    assert (READ_TURNED in message) == (READ_TURNED in quoted)


def test_views_to_take_are_those_with_a_row_for_each_label(file: Path) -> None:
    save(file, {"colour": COLOUR, "a shape": SHAPE, "splits": SPLITS, "y": LABELS})
    (flags,) = re.findall(r"views=\['colour', 'a shape'\] \((.*?)\)", refusal(file))
    output = file.with_suffix(".zarr")
    done = CliRunner().invoke(main, ["ingest", str(file), "-o", str(output), *shlex.split(flags)])
    assert done.exit_code == 0, done.output
    assert open_store(output).view_names == ("colour", "a shape")


def test_sources_that_were_read_in_different_ways(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", {"colour": COLOUR})
    save(tmp_path / "b.npz", {"shape": SHAPE[:4].T})
    sources = [Source(tmp_path / "a.npz"), Source(tmp_path / "b.npz", samples_in="columns")]
    with pytest.raises(DataError) as caught:
        ingest(sources, tmp_path / "s.zarr")
    assert "samples_in" not in str(caught.value)


@pytest.mark.parametrize(("samples_in", "labels"), [("rows", {}), ("columns", {"y": LABELS})])
def test_files_of_which_some_have_samples_on_columns(
    tmp_path: Path, samples_in: Any, labels: dict[str, Any]
) -> None:
    upright = save(tmp_path / "a.npz", {"colour": COLOUR, "links": np.eye(N), **labels})
    turned = save(tmp_path / "b b.npz", {"shape": SHAPE.T})
    with pytest.raises(DataError) as caught:
        ingest([Source(file, samples_in=samples_in) for file in (upright, turned)], tmp_path / "s")
    message = str(caught.value)
    assert re.match(quotes(7, turned, upright), message)
    command = ["ingest", str(upright), str(turned), *options_in(message), "-o", str(tmp_path / "t")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(values_of(open_store(tmp_path / "t"))["shape"], SHAPE)
    sources = [Source(upright), Source(turned, samples_in="columns")]
    np.testing.assert_array_equal(stored(ingest(sources, tmp_path / "s"))["shape"], SHAPE)


def test_labels_tell_which_of_two_files_is_the_turned_one(tmp_path: Path) -> None:
    turned = save(tmp_path / "a.npz", {"colour": COLOUR[:, :2].T})
    shape = save(tmp_path / "b.npz", {"shape": SHAPE})
    for labels, n_samples, to_turn in ((None, 2, shape), (LABELS, 7, turned)):
        with pytest.raises(DataError, match=quotes(n_samples)) as caught:
            ingest([turned, shape], tmp_path / "s.zarr", labels=labels)
        assert options_in(str(caught.value)) == ["--samples-in", f"{to_turn.stem}=columns"]


def test_a_file_whose_features_are_the_samples_of_the_others(tmp_path: Path) -> None:
    """Each with columns f0, f1, ... too, so that samples of one have the names of features of the others."""
    ids = [f"s{i}" for i in range(N)]
    frames = {name: pd.DataFrame(COLOUR, ids, ["f0", "f1", "f2"]) for name in "abc"}
    frames["a"] = frames["a"].T
    files = [tmp_path / f"{name}.csv" for name in frames]
    for file, frame in zip(files, frames.values(), strict=True):
        frame.to_csv(file)
    for join in (None, "inner", "outer"):
        message = "so its samples are in columns.*--samples-in a=columns"
        with pytest.raises(DataError, match=rf"'\S*a.csv' have.*'\S*b.csv' .*{message}"):
            ingest(files, tmp_path / "s", join=join)
    with pytest.raises(DataError):
        ingest([Source(file, samples_in="columns") for file in files], tmp_path / "s")
    turned: list[Path | Source] = [Source(files[0], samples_in="columns"), *files[1:]]
    assert ingest(turned, tmp_path / "s").n_samples == N


def test_features_and_samples_may_have_the_same_numbers(tmp_path: Path) -> None:
    for name in "ab":
        pd.DataFrame(np.eye(N)).to_csv(tmp_path / f"{name}.csv")
    assert ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "s").n_samples == N
