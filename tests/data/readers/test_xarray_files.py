"""NetCDF and Zarr through xarray; pickled Zarr codecs are refused before they run."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.registry import read_source
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from tests.data.readers.test_named_arrays import Bomb
from tests.messages import quotes

COLOUR = np.arange(15.0).reshape(5, 3)
GAPS = np.abs(np.arange(5.0)[:, None] - np.arange(5.0))


def dataset() -> xr.Dataset:
    return xr.Dataset(
        {
            "colour": (("channel", "sample"), COLOUR.T),
            "gaps": (("sample", "other"), GAPS, {"view_type": "distance"}),
            "labels": ("sample", np.array([0, 1, 1, 2, 0])),
            "grade": ("sample", np.array([5, 6, 7, 8, 9])),
        },
        coords={"sample": [10, 20, 30, 40, 50]},
    )


def save_netcdf(path: Path, data: xr.Dataset) -> Path:
    pytest.importorskip("h5netcdf")
    data.to_netcdf(path.with_suffix(".nc"), engine="h5netcdf")
    return path.with_suffix(".nc")


def save_netcdf_3(path: Path, data: xr.Dataset) -> Path:
    data.to_netcdf(path.with_suffix(".nc"), engine="scipy")
    return path.with_suffix(".nc")


def save_zarr_2(path: Path, data: xr.Dataset) -> Path:
    data.to_zarr(path, zarr_format=2, consolidated=True)
    return path


def save_zarr_3(path: Path, data: xr.Dataset) -> Path:
    data.to_zarr(path, zarr_format=3, consolidated=False)
    return path


@pytest.fixture(
    params=[save_netcdf, save_netcdf_3, save_zarr_2, save_zarr_3], ids=lambda f: f.__name__
)
def save(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def read(path: Path, stack: ExitStack, **selection: Any) -> SourceContents:
    return read_source(Source(path), Selection(**selection), stack)


def test_views_metrics_ids_and_labels(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    path = save(tmp_path / "a", dataset().drop_vars("grade"))
    loaded = read(path, stack)
    assert {view.name: view.view_type for view in loaded.views} == {
        "colour": "features",
        "gaps": "distance",
    }
    by_name = {view.name: view for view in loaded.views}
    np.testing.assert_array_equal(by_name["colour"].read(0, 5), COLOUR)
    np.testing.assert_array_equal(by_name["gaps"].read(1, 4), GAPS[1:4])
    assert loaded.sample_ids == ("10", "20", "30", "40", "50")
    assert loaded.labels is not None
    assert loaded.labels.tolist() == [0, 1, 1, 2, 0]


def test_ingested_and_selected(save: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a", dataset().drop_vars("labels"))
    report = ingest(path, tmp_path / "s.zarr", labels="grade", views={"gaps": "d"})
    data = open_store(report.output)
    assert data.view_names == ("d",)
    assert data.views[0].view_type == "distance"
    assert data.labels is not None
    assert data.labels.tolist() == [5, 6, 7, 8, 9]
    assert data.sample_ids == ("10", "20", "30", "40", "50")


def test_chosen_labels_stand_beside_those_by_convention(save: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a", dataset())
    report = ingest(path, tmp_path / "s.zarr", labels="grade")
    data = open_store(report.output)
    assert set(data.view_names) == {"colour", "gaps"}
    assert data.labels is not None
    assert data.labels.tolist() == [5, 6, 7, 8, 9]
    assert any(re.match(quotes("'labels'", "'grade'"), note) for note in report.notes)


def test_samples_on_columns_is_refused_where_dimensions_say_otherwise(
    save: Any, stack: ExitStack, tmp_path: Path
) -> None:
    both = dataset().drop_vars("grade")
    path = save(tmp_path / "a", both)
    with pytest.raises(DataError, match=quotes("--samples-in columns", "'sample'", "'gaps'")):
        read_source(Source(path, samples_in="columns"), Selection(), stack)
    path = save(tmp_path / "b", both.drop_vars("gaps"))
    (view,) = read_source(Source(path, samples_in="columns"), Selection(), stack).views
    np.testing.assert_array_equal(view.read(0, 5), COLOUR)


def test_samples_on_columns_is_refused_of_our_stores(stack: ExitStack, tmp_path: Path) -> None:
    data = xr.Dataset({"colour": (("sample", "part"), COLOUR)})
    path = ingest(save_zarr_3(tmp_path / "a", data), tmp_path / "s.zarr").output
    with pytest.raises(DataError, match=quotes("--samples-in columns", path)):
        read_source(Source(path, samples_in="columns"), Selection(), stack)


def test_other_vectors_are_refused(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=quotes("'grade'", ("sample",))):
        read(save(tmp_path / "a", dataset()), stack)


def test_views_that_are_not_asked_for_are_passed_over(
    save: Any, stack: ExitStack, tmp_path: Path
) -> None:
    path = save(tmp_path / "a", dataset().drop_vars("grade"))
    some = read(path, stack, views=("gaps",))
    assert ([view.name for view in some.views], some.skipped) == (["gaps"], ("colour",))
    none = read(path, stack, views=("smell",))
    assert none.views == ()
    assert set(none.skipped) == {"colour", "gaps"}
    assert none.labels is not None
    assert none.labels.tolist() == [0, 1, 1, 2, 0]


def test_unknown_metrics_are_refused(save: Any, stack: ExitStack, tmp_path: Path) -> None:
    data = dataset().drop_vars(["grade", "labels"])
    data["gaps"].attrs["view_type"] = "cosine"
    with pytest.raises(DataError, match=quotes("'cosine'", "'gaps'", "'kernel'")):
        read(save(tmp_path / "b", data), stack)


def test_dates_are_refused(stack: ExitStack, tmp_path: Path) -> None:
    days = np.array([["2020-01-01"], ["2020-01-02"]], dtype="M8[ns]")
    data = xr.Dataset({"day": (("sample", "one"), days)})
    with pytest.raises(DataError, match=quotes("'day'", "datetime64[ns]")):
        read(save_zarr_3(tmp_path / "a", data), stack)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_one_zarr_array_is_one_view(stack: ExitStack, tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "colour.zarr"
    array = zarr.create_array(
        path, shape=(5, 3), chunks=(2, 2), dtype="f8", zarr_format=zarr_format
    )
    array[:] = COLOUR
    (view,) = read(path, stack).views
    assert view.name == "colour"
    np.testing.assert_array_equal(view.read(1, 5), COLOUR[1:])


def pickled_zarr_2(path: Path, trace: Path, dtype: str) -> Path:
    """A v2 store whose only chunk is a pickle that leaves a trace."""
    array = path / "colour"
    array.mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (array / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["sample", "feature"]}')
    metadata = {
        "zarr_format": 2,
        "shape": [1, 1],
        "chunks": [1, 1],
        "dtype": dtype,
        "fill_value": 0 if dtype == "<f8" else None,
        "order": "C",
        "compressor": None,
        "filters": [{"id": "pickle", "protocol": 4}],
    }
    (array / ".zarray").write_text(json.dumps(metadata))
    (array / "0.0").write_bytes(pickle.dumps([Bomb(trace), "O", [1, 1]]))
    return path


@pytest.mark.parametrize("dtype", ["|O", "<f8"])
def test_pickled_zarr_chunks_are_refused_and_not_loaded(
    stack: ExitStack, tmp_path: Path, dtype: str
) -> None:
    trace = tmp_path / "executed"
    path = pickled_zarr_2(tmp_path / "a.zarr", trace, dtype)
    for store in (path, path / "colour"):
        with pytest.raises(DataError, match=quotes(store, "pickle")):
            read(store, stack)
    assert not trace.exists()


def test_damaged_foreign_stores_are_named(stack: ExitStack, tmp_path: Path) -> None:
    path = save_zarr_3(tmp_path / "a.zarr", dataset().drop_vars("grade"))
    (path / "colour" / "zarr.json").write_text("{")
    with pytest.raises(DataError, match=quotes(path)):
        read(path, stack)
    netcdf = tmp_path / "b.nc"
    netcdf.write_bytes(b"CDF\x01 not really")
    with pytest.raises(DataError, match=quotes(netcdf)):
        read(netcdf, stack)


@pytest.mark.parametrize(("node", "depth"), [(".", 100_000), ("colour", 100_000), ("colour", 900)])
def test_metadata_that_nest_too_deeply_are_named(
    stack: ExitStack, tmp_path: Path, node: str, depth: int
) -> None:
    path = save_zarr_3(tmp_path / "a.zarr", dataset().drop_vars("grade"))
    (path / node / "zarr.json").write_text('{"codecs": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(DataError, match=quotes(path)):
        read(path, stack)
