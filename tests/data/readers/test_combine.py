"""Files of which some have samples on columns, or other numbers of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import Source, ingest
from mscam_dask.errors import DataError
from tests.data.ingested import COLOUR, LABELS, SHAPE, N, stored
from tests.messages import raises


@pytest.mark.parametrize(
    ("arrays", "samples_in", "quoted"),
    [
        ({"colour": COLOUR, "shape": SHAPE.T}, "rows", ["shape", "samples_in='columns'"]),
        ({"colour": COLOUR, "shape": SHAPE.T}, "columns", ["colour", "samples_in='columns'"]),
        ({"colour": COLOUR, "y": LABELS[:-1]}, "rows", [6, 7, "labels"]),
    ],
)
def test_other_numbers_of_samples_are_refused(
    tmp_path: Path, arrays: dict[str, Any], samples_in: Any, quoted: list[object]
) -> None:
    np.savez(tmp_path / "a.npz", sample_ids=np.arange(N), **arrays)
    with raises(DataError, *quoted):
        ingest(Source(tmp_path / "a.npz", samples_in=samples_in), tmp_path / "s.zarr")


def test_one_of_two_files_has_samples_on_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", colour=COLOUR, links=np.eye(N))
    np.save(tmp_path / "shape.npy", SHAPE.T)
    with raises(DataError, 7, "--samples-in"):
        ingest([tmp_path / "a.npz", tmp_path / "shape.npy"], tmp_path / "s")
    turned = Source(tmp_path / "shape.npy", samples_in="columns")
    np.testing.assert_array_equal(
        stored(ingest([tmp_path / "a.npz", turned], tmp_path / "s"))["shape"], SHAPE
    )


@pytest.mark.parametrize("join", [None, "inner", "outer"])
def test_a_file_whose_features_are_the_samples_of_the_others(tmp_path: Path, join: Any) -> None:
    """Each with columns f0, f1, ... too, so that samples of one have the names of features of the others."""
    frame = pd.DataFrame(COLOUR, [f"s{i}" for i in range(N)], list("fgh"))
    frames = {"a": frame.T, "b": frame, "c": frame}
    files = [tmp_path / f"{name}.csv" for name in frames]
    for file, frame in zip(files, frames.values(), strict=True):
        frame.to_csv(file)
    with raises(DataError, "a.csv", "samples_in='columns'"):
        ingest(files, tmp_path / "s", join=join)
    turned: list[Path | Source] = [Source(files[0], samples_in="columns"), *files[1:]]
    assert ingest(turned, tmp_path / "s").n_samples == N
