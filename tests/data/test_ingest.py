"""ingest: files in, one store out, with the views that the files hold."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from mscam_dask.data.ingest import ingest
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import COLOUR, LABELS, SHAPE, N, save_archive, save_group, save_npz, stored
from tests.messages import quotes


def test_report_says_what_is_in_the_store(tmp_path: Path) -> None:
    source = save_npz(
        tmp_path / "a.npz",
        labels=LABELS,
        view_names=np.array(["colour", "shape"]),
        kind=np.array(["features", "features"]),
        sample_ids=np.array(list("abcdefg")),
    )
    report = ingest(source, tmp_path / "a.zarr", chunk_size=3)
    assert report.output == tmp_path / "a.zarr"
    assert report.n_samples == N
    assert [(view.name, view.view_type, view.shape, view.dtype.name) for view in report.views] == [
        ("colour", "features", (N, 3), "float64"),
        ("shape", "features", (N, 2), "float32"),
    ]
    assert report.n_classes == 3
    assert report.has_sample_ids
    (note,) = report.notes
    assert "'labels'" in note
    assert report.stored_bytes == sum(
        file.stat().st_size for file in report.output.rglob("*") if file.is_file()
    )
    expected = as_multi_view({"colour": COLOUR, "shape": SHAPE})
    assert report.digest == expected.digest()
    data = open_store(report.output)
    assert data.sample_ids == tuple("abcdefg")
    np.testing.assert_array_equal(data.labels, LABELS)


def save_store(path: Path, **views: NDArray[np.float64]) -> Path:
    ingest(save_archive(path.with_suffix(".npz"), **views), path)
    return path


def test_views_with_the_same_values_are_told(tmp_path: Path) -> None:
    """Also of other types, and of a cell array beside its matrices."""
    views = {"x": COLOUR, "y": COLOUR.astype(np.float32).astype(float), "z": np.floor(SHAPE)}
    save_archive(tmp_path / "a.npz", **views, again=np.floor(SHAPE).astype(np.int32), far=SHAPE + 1)
    found = ingest(tmp_path / "a.npz", tmp_path / "s.zarr").notes
    assert [note for note in found if re.match(quotes("z", "again", "--view"), note)]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("save", "suffix"), [(save_archive, ".npz"), (save_group, ""), (save_store, "")]
)
def test_views_are_chosen_across_sources(tmp_path: Path, save: Any, suffix: str) -> None:
    both = save(tmp_path / f"both{suffix}", colour=COLOUR, shape=SHAPE)
    other = save(tmp_path / f"other{suffix}", texture=2 * SHAPE)
    clash = save(tmp_path / f"clash{suffix}", shape=3 * SHAPE)
    report = ingest([other, both], tmp_path / "a.zarr", views=["shape"])
    np.testing.assert_array_equal(stored(report)["shape"], SHAPE)
    with pytest.raises(DataError) as wrong:
        ingest([both, other], tmp_path / "b.zarr", views=["shap"])
    for name in ("shap", "colour", "shape", "texture", "both", "other"):
        assert name in str(wrong.value)
    with pytest.raises(DataError):
        ingest([both, clash], tmp_path / "b.zarr", views=["shape"])
    assert not (tmp_path / "b.zarr").exists()


def test_what_is_no_source_or_output_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame(COLOUR)
    for sources in ({"a": COLOUR}, [COLOUR, SHAPE], frame, None, [], tmp_path / "a.npz"):
        with pytest.raises(DataError):
            ingest(sources, tmp_path / "s.zarr")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        ingest(tmp_path / "a.npz", None)


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.zarr"])
def test_a_source_that_may_not_be_read_is_data_that_cannot_be_used(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / name
    if source.suffix == ".zarr":
        source.mkdir()
        (source / "zarr.json").touch()
    else:
        source.touch()

    def refuse(path: Path, *args: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for opening in ("pathlib.Path.open", "pathlib.Path.read_bytes", "builtins.open"):
        monkeypatch.setattr(opening, refuse)
    with pytest.raises(DataError, match="chmod"):
        ingest(source, tmp_path / "s.zarr")


@pytest.mark.parametrize("name", ["a.pkl", "a.json.gz", "a.h5", "folder"])
def test_unknown_formats_list_the_known_ones(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        ingest(save_npz(tmp_path / "a.npz"), path / "data.zarr")  # as a run does
    else:
        path.write_bytes(b"\x80\x04")
    quoted = [".npz", ".mat", ".csv", *([path / "data.zarr"] if name == "folder" else [])]
    with pytest.raises(DataError, match=quotes(*quoted)):
        ingest(path, tmp_path / "s.zarr")
