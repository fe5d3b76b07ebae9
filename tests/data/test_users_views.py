"""Kinds of frames and views that users have: right values, or a typed error that names them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mscam_dask import MSCAM
from mscam_dask.data.ingest import ingest
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataWarning
from tests.data.known_tables import ORDER, TEXTS, A, B, csv_of
from tests.messages import quotes
from tests.synthetic import distances_between


@pytest.mark.parametrize(
    ("first", "place"), [(True, "rows"), (True, "rows and columns"), (False, "columns")]
)
def test_square_tables_are_matched_on_both_sides(tmp_path: Path, first: bool, place: str) -> None:
    pairs = pd.DataFrame(distances_between(A.to_numpy()), index=TEXTS, columns=TEXTS)
    moved = pairs.iloc[ORDER if "rows" in place else slice(None), ORDER if "columns" in place else slice(None)]  # fmt: skip
    views = {"d": moved, "b": B} if first else {"b": B, "d": moved}
    kinds = {"d": "distance"}
    for name, view in views.items():
        (tmp_path / f"{name}.csv").write_text(csv_of(view))
    files = [tmp_path / f"{name}.csv" for name in views]
    ingest(files, tmp_path / "s.zarr", view_type=kinds)
    data = open_store(tmp_path / "s.zarr")
    assert data.sample_ids is not None
    ids = [*data.sample_ids]
    values = {view.name: view.read(0, 12) for view in data.views}
    np.testing.assert_allclose(values["d"], pairs.loc[ids, ids])
    np.testing.assert_allclose(values["b"], B.loc[ids])


def test_columns_called_as_labels_are_named_before_a_fit() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    frame = pd.DataFrame(rng.normal(size=(60, 4)) + 9 * labels[:, None]).add_prefix("f")
    others = frame.to_numpy() + rng.normal(size=(60, 4))
    with pytest.warns(DataWarning, match=quotes("view_0", "['Cluster']")):
        MSCAM(3, n_jobs=1).fit([frame.assign(Cluster=labels), others])
    MSCAM(3, n_jobs=1).fit([frame.assign(Cluster=frame["f0"]), others])  # a measurement
