"""Zarr arrays and groups of them; stores of xarray and anndata are given as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError
from tests.data.ingested import read
from tests.messages import raises

COLOUR = np.arange(15.0).reshape(5, 3)
GAPS = np.abs(np.arange(5.0)[:, None] - np.arange(5.0))


def save_group(path: Path, zarr_format: Any, **arrays: Any) -> Path:
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    for name, array in arrays.items():
        group[name] = array
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_a_group(tmp_path: Path, zarr_format: Any) -> None:
    labels = np.array([0, 1, 1, 2, 0])
    path = save_group(tmp_path / "a.zarr", zarr_format, gaps=GAPS, colour=COLOUR, y=labels)
    values, loaded = read(path)
    assert [*values] == ["colour", "gaps"]
    np.testing.assert_array_equal(values["colour"], COLOUR)
    assert loaded.labels is not None
    assert loaded.labels.tolist() == labels.tolist()
    values, _ = read(Source(path, samples_in="columns"), views=("colour",))
    np.testing.assert_array_equal(values["colour"], COLOUR.T)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_one_zarr_array_is_one_view(tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "colour.zarr"
    array = zarr.create_array(
        path, shape=(5, 3), chunks=(2, 2), dtype="f8", zarr_format=zarr_format
    )
    array[:] = COLOUR
    np.testing.assert_array_equal(read(path)[0]["colour"], COLOUR)


@pytest.mark.parametrize("kind", ["zarr 2", "zarr 3", "netcdf"])
def test_files_of_xarray_are_given_as_datasets(tmp_path: Path, kind: str) -> None:
    """Whose ids, dimensions and scales it reads; samples may be on either dimension."""
    dataset = xr.Dataset(
        {
            "colour": (("channel", "sample"), COLOUR.T),
            "gaps": (("sample", "other"), GAPS, {"view_type": "distance"}),
            "labels": ("sample", np.array([0, 1, 1, 2, 0])),
        },
        coords={"sample": [10, 20, 30, 40, 50]},
    )
    file = tmp_path / f"a.{'nc' if kind == 'netcdf' else 'zarr'}"
    options: dict[str, Any] = {"engine": "scipy"}
    if kind == "netcdf":
        dataset.to_netcdf(file, **options)
    else:
        dataset.to_zarr(file, zarr_format=int(kind[-1]), consolidated=False)
        options = {"engine": "zarr", "consolidated": False}
    with raises(DataError, file.name, "xarray", "MSCAM.fit", "as_multi_view"):
        read(file)
    with xr.open_dataset(file, **options) as opened:
        report = ingest(as_multi_view(opened), tmp_path / "s.zarr")
    assert open_store(report.output).sample_ids == ("10", "20", "30", "40", "50")
    views = {view.name: view for view in report.views}
    assert views["gaps"].view_type == "distance"
    np.testing.assert_array_equal(views["colour"].read(0, 5), COLOUR)
    assert report.n_classes == 3
    with pytest.raises(DataError):  # a store of our own
        read(Source(report.output, samples_in="columns"))


def test_a_store_of_anndata_is_given_as_an_object(tmp_path: Path) -> None:
    path = save_group(tmp_path / "a.zarr", 3, X=COLOUR)
    zarr.open(path).attrs["encoding-type"] = "anndata"
    with raises(DataError, "a.zarr", "anndata", "MSCAM.fit"):
        read(path)
