"""Kinds of frames and views that users have: right values, or a typed error that names them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask import MSCAM
from mscam_dask.data.ingest import ingest
from mscam_dask.data.store.read import open_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError
from tests.data.known_tables import ORDER, TEXTS, A, B, csv_of, difference, table
from tests.messages import quotes
from tests.synthetic import distances_between


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("place", ["rows", "rows and columns", "columns"])
@pytest.mark.parametrize("door", ["frames", "files"])
def test_square_tables_are_matched_on_both_sides(
    tmp_path: Path, first: bool, place: str, door: str
) -> None:
    pairs = pd.DataFrame(distances_between(A.to_numpy()), index=TEXTS, columns=TEXTS)
    moved = pairs.iloc[ORDER if "rows" in place else slice(None), ORDER if "columns" in place else slice(None)]  # fmt: skip
    views = {"d": moved, "b": B} if first else {"b": B, "d": moved}
    kinds = {"d": "distance"}
    if door == "frames":
        data = as_multi_view(views, view_type=kinds)
    else:
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


def absent(frame: pd.DataFrame, rows: range) -> pd.DataFrame:
    return frame.iloc[rows].reindex(frame.index)


def of_components() -> dict[str, tuple[dict[str, Any], str]]:
    big, small = table(60, 5), table(60, 4, prefix="b")
    third = table(60, 3, prefix="c")
    low, high = range(30), range(30, 60)
    return {
        "two views": ({"rna": absent(big, low), "prot": absent(small, high)}, "rna"),
        "two of three": (
            {"rna": absent(big, low), "prot": absent(small, high), "met": absent(third, high)},
            "rna",
        ),
        "the last of three": (
            {"rna": absent(big, low), "prot": absent(small, low), "met": absent(third, high)},
            "met",
        ),
    }


@pytest.mark.parametrize("kind", of_components())
@pytest.mark.parametrize("door", ["arrays", "frames", "npz", "files", "MuData"])
def test_views_that_share_no_sample_are_refused(tmp_path: Path, kind: str, door: str) -> None:
    views, named = of_components()[kind]
    present = {name: view.dropna() for name, view in views.items()}
    data: Any = views
    options: dict[str, Any] = {}
    if door == "arrays":
        data = {name: view.to_numpy() for name, view in views.items()}
    elif door == "npz":
        data = tmp_path / "a.npz"
        np.savez(
            data, allow_pickle=False, **{name: view.to_numpy() for name, view in views.items()}
        )
    elif door == "files":
        for name, view in present.items():
            (tmp_path / f"{name}.csv").write_text(csv_of(view))
        data, options = [tmp_path / f"{name}.csv" for name in present], {"join": "outer"}
    elif door == "MuData":
        anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = mudata.MuData({name: anndata.AnnData(view) for name, view in present.items()})
    if door in ("npz", "files"):
        data = partial(stored, data, tmp_path / "s.zarr", **options)
    with pytest.raises(DataError, match=quotes(named)) as caught:
        fit(data)
    assert re.search(r"\b(0|no)\b", str(caught.value))
    assert re.search(rf"\b({'|'.join({*views} - {named})})\b", str(caught.value))


def stored(sources: Any, output: Path, **options: Any) -> Path:
    ingest(sources, output, **options)
    return output


def fit(data: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MSCAM(2).fit(data() if callable(data) else data)


def test_a_chain_of_views_is_enough() -> None:
    big, small, third = table(60, 5), table(60, 4, prefix="b"), table(60, 3, prefix="c")
    views = [absent(big, range(35)), absent(small, range(20, 60)), absent(third, range(40, 60))]
    data = as_multi_view([view.to_numpy() for view in views])
    assert data.n_samples == 60
    assert difference(data, data.views[0].name, views[0].reset_index(drop=True).set_axis(pd.RangeIndex(5), axis=1)) is None  # fmt: skip


def odd_columns() -> dict[str, Callable[[], Any]]:
    def polars(make: Callable[[Any], Any]) -> Any:
        pl = pytest.importorskip("polars")
        return pl.from_pandas(A).with_columns(make(pl).alias("odd"))

    def arrow(make: Callable[[Any], Any]) -> Any:
        pa = pytest.importorskip("pyarrow")
        return pa.table({**{name: A[name] for name in A}, "odd": make(pa)})

    return {
        "polars List": lambda: polars(lambda pl: pl.Series([[1.0, 2.0]] * 12)),
        "polars Array": lambda: polars(lambda pl: pl.Series([[1.0]] * 12, dtype=pl.Array(pl.Float64, 1))),
        "polars Struct": lambda: polars(lambda pl: pl.Series([{"x": 1}] * 12)),
        "polars Object": lambda: polars(lambda pl: pl.Series([object()] * 12, dtype=pl.Object)),
        "polars Datetime": lambda: polars(lambda pl: pl.Series([0] * 12).cast(pl.Datetime)),
        "polars Binary": lambda: polars(lambda pl: pl.Series([b"x"] * 12)),
        "Arrow list": lambda: arrow(lambda pa: pa.array([[1.0]] * 12)),
        "Arrow fixed list": lambda: arrow(lambda pa: pa.array([[1.0]] * 12, pa.list_(pa.float64(), 1))),
        "Arrow struct": lambda: arrow(lambda pa: pa.array([{"x": 1}] * 12)),
        "Arrow map": lambda: arrow(lambda pa: pa.array([[("a", 1)]] * 12, pa.map_(pa.string(), pa.int64()))),
        "Arrow dictionary": lambda: arrow(lambda pa: pa.array(["u"] * 12).dictionary_encode()),
        "pandas object": lambda: A.assign(odd=[[1.0]] * 12),
        "pandas complex": lambda: A.assign(odd=1j),
        "pandas interval": lambda: A.assign(odd=pd.interval_range(0, 12)),
    }  # fmt: skip


@pytest.mark.parametrize("kind", odd_columns())
def test_columns_of_no_numbers_are_named(kind: str) -> None:
    frame = odd_columns()[kind]()
    with pytest.raises(DataError, match=quotes("view_0", "odd")):
        as_multi_view([frame, B.to_numpy()])


def test_numbers_of_128_bits_are_read_or_named() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a0": A["a0"], "odd": pl.Series(range(12), dtype=pl.Int128)})
    try:
        data = as_multi_view([frame, B.to_numpy()])
    except DataError as error:
        assert re.match(quotes("view_0", "odd"), str(error))  # noqa: PT017 - either is right
    else:
        np.testing.assert_array_equal(data.views[0].read(0, 12)[:, 1], np.arange(12))


@pytest.mark.parametrize("reset", [0, 1])
def test_a_frame_that_lost_its_index_is_not_matched_by_the_numbers_of_the_other(reset: int) -> None:
    """Rows in one order; one frame was reset, so that its index is that of another order."""
    frames = [frame.reset_index(drop=True).iloc[ORDER] for frame in (A, B)]
    frames[reset] = frames[reset].reset_index(drop=True)
    try:
        data = as_multi_view(frames)
    except DataError as error:
        assert re.match(quotes("view_0", "view_1"), str(error))  # noqa: PT017 - either is right
    else:
        for view, frame in zip(data.views, frames, strict=True):
            np.testing.assert_array_equal(view.read(0, 12), frame)
