"""NetCDF and Zarr through xarray; pickled Zarr codecs are refused before they run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.errors import DataError
from tests.data.ingested import read
from tests.messages import raises

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


SAVE: dict[str, Callable[[xr.Dataset, Path], object]] = {
    "a.nc": lambda data, path: data.to_netcdf(path, engine="h5netcdf"),
    "netcdf_3.nc": lambda data, path: data.to_netcdf(path, engine="scipy"),
    "zarr_2": lambda data, path: data.to_zarr(path, zarr_format=2, consolidated=True),
    "zarr_3": lambda data, path: data.to_zarr(path, zarr_format=3, consolidated=False),
}


def saved(data: xr.Dataset, path: Path) -> Path:
    SAVE["zarr_3"](data, path)
    return path


@pytest.mark.parametrize("name", SAVE)
def test_views_metrics_ids_and_labels(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    SAVE[name](dataset().drop_vars("grade"), path)
    values, loaded = read(path)
    assert {view.name: view.view_type for view in loaded.views} == {
        "colour": "features",
        "gaps": "distance",
    }
    np.testing.assert_array_equal(values["colour"], COLOUR)
    np.testing.assert_array_equal(values["gaps"], GAPS)
    assert loaded.sample_ids == ("10", "20", "30", "40", "50")
    assert loaded.labels.tolist() == [0, 1, 1, 2, 0]
    values, some = read(path, views=("gaps",))
    assert ([*values], some.skipped) == (["gaps"], ("colour",))
    values, none = read(path, views=("smell",))
    assert values == {}
    assert none.labels is not None


def test_samples_on_columns_is_refused_where_dimensions_say_where_they_are(tmp_path: Path) -> None:
    path = saved(dataset(), tmp_path / "a")
    with pytest.raises(DataError):
        read(Source(path, samples_in="columns"))
    turned = saved(xr.Dataset({"a": (("gene", "sample"), np.eye(3)[:2])}), tmp_path / "t")
    values, _ = read(Source(turned, samples_in="columns"))  # as they do
    assert values["a"].shape == (3, 2)
    with pytest.raises(DataError):  # a store of our own
        read(Source(ingest(path, tmp_path / "s.zarr").output, samples_in="columns"))


def test_other_variables_are_left_out_or_refused(tmp_path: Path) -> None:
    values, loaded = read(saved(dataset(), tmp_path / "a"))
    assert "grade" not in values
    assert any("'grade'" in note for note in loaded.notes)
    for folder, second in (("named", "b"), ("missing", None)):
        grades = np.array(["a", second, "b", "a", "b"], dtype=object)
        named = saved(dataset().assign(grade=("sample", grades)), tmp_path / folder)
        with nullcontext() if second else pytest.raises(DataError):
            report = ingest(named, tmp_path / "s.zarr", labels="grade")
            assert report.n_classes == 2
    data = dataset().drop_vars(["grade", "labels"])
    data["gaps"].attrs["view_type"] = "cosine"
    with pytest.raises(DataError):
        read(saved(data, tmp_path / "b"))
    days = np.array([["2020-01-01"], ["2020-01-02"]], dtype="M8[ns]")
    with pytest.raises(DataError):
        read(saved(xr.Dataset({"day": (("sample", "one"), days)}), tmp_path / "c"))


@pytest.mark.parametrize("name", SAVE)
def test_labels_that_are_a_coordinate(name: str, tmp_path: Path) -> None:
    data = dataset().assign_coords(wave=("channel", [7, 5, 4]), place=("other", [*range(5)]))
    path = tmp_path / name
    SAVE[name](data.set_coords("labels"), path)
    for views in (None, ["colour"], ["gaps"]):
        values, loaded = read(path, views=views)
        assert sorted(values) == (views or ["colour", "gaps"])
        assert loaded.labels.tolist() == data["labels"].values.tolist()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_one_zarr_array_is_one_view(tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "colour.zarr"
    array = zarr.create_array(
        path, shape=(5, 3), chunks=(2, 2), dtype="f8", zarr_format=zarr_format
    )
    array[:] = COLOUR
    np.testing.assert_array_equal(read(path)[0]["colour"], COLOUR)


def test_a_store_of_anndata_is_refused_because_its_names_of_samples_are_not_read(
    tmp_path: Path,
) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", attributes={"encoding-type": "anndata"})
    group.create_array("X", data=COLOUR)
    with raises(DataError, "a.zarr", "anndata", "write_h5ad"):
        read(tmp_path / "a.zarr")


@pytest.mark.parametrize("name", SAVE)
def test_a_dimension_of_samples_that_some_variables_lack_is_refused(
    tmp_path: Path, name: str
) -> None:
    """A matrix of pairs of genes shares these with the measurements, but they are no samples."""
    path = tmp_path / name
    pairs = xr.Dataset({"a": (("cell", "gene"), COLOUR), "b": (("gene", "other"), np.eye(3))})
    SAVE[name](pairs, path)
    with raises(DataError, "('cell', 'gene')", "('gene', 'other')", "--view"):
        read(path)
    np.testing.assert_array_equal(read(path, views=("a",))[0]["a"], COLOUR)
    named = pairs.rename(cell="subject", other="cell").drop_vars("b")
    SAVE[name](named.assign(b=(("subject", "cell"), GAPS)), path.with_name(f"2{name}"))
    values, _ = read(path.with_name(f"2{name}"))  # by cells as features
    assert {*values} == {"a", "b"}


@pytest.mark.parametrize("name", ["a.nc", "zarr_3"])
def test_groups_are_named_as_left_out(tmp_path: Path, name: str) -> None:
    path, data = tmp_path / name, dataset()[["colour"]]
    SAVE[name](data, path)
    if name == "a.nc":
        data.to_netcdf(path, engine="h5netcdf", group="inner", mode="a")
    else:
        zarr.open_group(path).create_group("inner").create_array("X", data=COLOUR)
    values, loaded = read(path)
    assert [*values] == ["colour"]
    assert "'inner' (group)" in " ".join(loaded.notes)


def test_a_store_of_groups_alone_has_no_view(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "a.zarr", mode="w").create_group("inner")["X"] = COLOUR
    with raises(DataError, "a.zarr", "'inner' (group)"):
        read(tmp_path / "a.zarr")
