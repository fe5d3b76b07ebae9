"""Distances and kernels in files that users have: whole, by one triangle, or contradicting the view type."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.errors import DataError
from tests.data.known_tables import DISTANCES, ORDER, B, csv_of
from tests.messages import quotes, raises

STRICTLY_BELOW = np.tril(np.ones((12, 12), dtype=bool), -1)
PAIRWISE = {
    "lower": DISTANCES.mask(STRICTLY_BELOW.T),
    "upper": DISTANCES.mask(STRICTLY_BELOW),
    "lower without a diagonal": DISTANCES.where(STRICTLY_BELOW),
    "upper without a diagonal": DISTANCES.where(STRICTLY_BELOW.T),
    "a blank diagonal": DISTANCES.mask(np.eye(12, dtype=bool)),
}


@pytest.mark.parametrize("kind", PAIRWISE)
@pytest.mark.parametrize("has_names", [True, False])
def test_distances_of_which_a_triangle_or_the_diagonal_is_blank(
    tmp_path: Path, kind: str, has_names: bool
) -> None:
    PAIRWISE[kind].to_csv(tmp_path / "d.csv", header=has_names, index=has_names)
    report = ingest(tmp_path / "d.csv", tmp_path / "s.zarr", view_type="distance")
    (view,) = report.views
    np.testing.assert_array_equal(view.read(0, 12), DISTANCES)
    assert any("cells filled" in n for n in report.notes) == (kind != "a blank diagonal")
    (tmp_path / "b.csv").write_text(csv_of(B.iloc[ORDER] if has_names else B))
    files, types = [tmp_path / "b.csv", tmp_path / "d.csv"], {"d": "distance"}
    view = ingest(files, tmp_path / "t.zarr", view_type=types).views[1]
    order = ORDER if has_names else np.arange(12)
    np.testing.assert_array_equal(view.read(0, 12), DISTANCES.to_numpy()[np.ix_(order, order)])


@pytest.mark.parametrize("kind", [*PAIRWISE, "rounded"])
def test_distances_that_are_read_as_features_are_named(tmp_path: Path, kind: str) -> None:
    rounded = DISTANCES + 1e-12 * STRICTLY_BELOW
    PAIRWISE.get(kind, rounded).to_csv(tmp_path / "d.csv")
    try:
        said = " ".join(ingest(tmp_path / "d.csv", tmp_path / "s.zarr").notes)
    except DataError as error:
        said = str(error)
    assert re.match(quotes("'d'", "square", "--view-type"), said)


def test_a_triangle_of_lines_of_growing_length_is_refused(tmp_path: Path) -> None:
    rows = [f"P{row}\t" + "\t".join(["0.5"] * (row + 1)) for row in range(6)]
    (tmp_path / "d.txt").write_text("\n".join(["id\ta\tb\tc\td\te\tf", *rows]))
    with raises(DataError, "d.txt", "triangle", "as.matrix"):
        ingest(tmp_path / "d.txt", tmp_path / "s.zarr")


@pytest.mark.parametrize(
    ("values", "view_type", "quoted"),
    [
        (DISTANCES, "kernel", ["'d'", "row 0", "triangle inequality", "'distance'"]),
        (DISTANCES + np.eye(12), "distance", ["'d'", "diagonal to 0", "'kernel'"]),
        (DISTANCES + np.diag(np.arange(12)), "distance", ["'d'", "11 on", "row 11", "'kernel'"]),
        (DISTANCES - 9 * np.eye(12), "kernel", ["'d'", "-9", "row 0", "'distance'"]),
        (np.exp(-DISTANCES) * np.tri(12), "kernel", ["'d'", "triangle", "matrix.T"]),
        (DISTANCES * (1 + np.tri(12)), "distance", ["'d'", "symmetric"]),
        (np.eye(12) - 1 + 0 * DISTANCES, "distance", ["'d'", "-1"]),
    ],
)
def test_matrices_that_contradict_the_view_type(
    tmp_path: Path, values: pd.DataFrame, view_type: str, quoted: list[str]
) -> None:
    values.to_csv(tmp_path / "d.csv")
    with raises(DataError, *quoted):
        ingest(tmp_path / "d.csv", tmp_path / "s.zarr", view_type=view_type)
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize(
    "values", [DISTANCES < 3, np.exp(-2 * DISTANCES)], ids=["graph", "affinity"]
)
def test_graphs_and_affinities_with_a_zero_diagonal_are_kernels(
    tmp_path: Path, values: pd.DataFrame
) -> None:
    frame = values * (1 - np.eye(12))
    frame.to_csv(tmp_path / "d.csv")
    (view,) = ingest(tmp_path / "d.csv", tmp_path / "s.zarr", view_type="kernel").views
    np.testing.assert_array_equal(view.read(0, 12), frame)
