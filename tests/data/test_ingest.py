"""ingest: files in, one store out, with the views, ids and labels that the files hold."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy.io import savemat

from mscam_dask.data.ingest import IngestReport, Source, ViewRecord, ingest
from mscam_dask.data.matching import OrderedRows
from mscam_dask.data.sources import ArrayRows, row_ranges
from mscam_dask.data.store import open_store, verify_store
from mscam_dask.data.views import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.stores import names_of
from tests.synthetic import values_of

N = 7
COLOUR = np.arange(3.0 * N).reshape(N, 3) / 7
SHAPE = np.arange(2.0 * N).reshape(N, 2) ** 2
LABELS = np.array([0, 0, 1, 1, 2, 2, 2])


def save_npz(path: Path, **more: Any) -> Path:
    arrays: dict[str, Any] = {"view_0": COLOUR, "view_1": SHAPE.astype(np.float32), **more}
    np.savez(path, allow_pickle=True, **arrays)
    return path


def stored(report: IngestReport) -> dict[str, NDArray[np.float64]]:
    return values_of(verify_store(report.output))


def test_report_says_what_is_in_the_store(tmp_path: Path) -> None:
    source = save_npz(
        tmp_path / "a.npz",
        labels=LABELS,
        view_names=np.array(["colour", "shape"]),
        kind=np.array(["features", "features"]),
        sample_ids=np.array(list("abcdefg")),
    )
    report = ingest(source, tmp_path / "a.zarr", chunk_rows=3)
    assert report.output == tmp_path / "a.zarr"
    assert report.n_samples == N
    assert report.views == (
        ViewRecord("colour", "features", (N, 3), "float64"),
        ViewRecord("shape", "features", (N, 2), "float32"),
    )
    assert report.n_classes == 3
    assert report.has_sample_ids
    assert report.notes == ()
    assert report.stored_bytes == sum(
        file.stat().st_size for file in report.output.rglob("*") if file.is_file()
    )
    expected = as_multi_view({"colour": COLOUR, "shape": SHAPE})
    assert report.digest == expected.digest()
    data = open_store(report.output)
    assert data.sample_ids == tuple("abcdefg")
    assert data.labels is not None
    np.testing.assert_array_equal(data.labels, LABELS)


@pytest.mark.parametrize(
    "name",
    ["bdgp", "flowers17", "handwritten"],
)
def test_benchmark_archives_come_back_exactly(
    data_file: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    source = data_file(f"{name}.npz")
    report = ingest(source, tmp_path / "s.zarr")
    data = open_store(report.output)
    with np.load(source, allow_pickle=False) as archive:
        assert data.view_names == tuple(archive["view_names"].tolist())
        assert [view.metric for view in data.views] == archive["kind"].tolist()
        assert data.labels is not None
        np.testing.assert_array_equal(data.labels, archive["labels"])
        for index, view in enumerate(data.views):
            original = archive[f"view_{index}"]
            assert view.dtype == original.dtype
            np.testing.assert_array_equal(view.read(0, data.n_samples), original)


# ----------------------------------------------------------------------------- views, metric


def test_views_select_reorder_and_rename(tmp_path: Path) -> None:
    source = save_npz(tmp_path / "a.npz", view_names=np.array(["colour", "shape"]))
    ordered = ingest(source, tmp_path / "a.zarr", views=["shape", "colour"])
    assert list(stored(ordered)) == ["shape", "colour"]
    renamed = ingest(source, tmp_path / "b.zarr", views={"shape": "outline"})
    assert list(stored(renamed)) == ["outline"]
    np.testing.assert_array_equal(stored(renamed)["outline"], SHAPE)
    with pytest.raises(
        DataError, match=r"No view is called \['smell'\]\. .*a\.npz has \['shape', 'colour'\]"
    ):
        ingest(source, tmp_path / "c.zarr", views=["shape", "smell"])


def write_numbered(path: Path, views: dict[str, NDArray[np.float64]]) -> Path:
    arrays: dict[str, Any] = {f"view_{index}": view for index, view in enumerate(views.values())}
    np.savez(path.with_suffix(".npz"), view_names=np.array(list(views)), **arrays)
    return path.with_suffix(".npz")


def write_named(path: Path, views: dict[str, NDArray[np.float64]]) -> Path:
    arrays: dict[str, Any] = views
    np.savez(path.with_suffix(".npz"), **arrays)
    return path.with_suffix(".npz")


def write_mat(path: Path, views: dict[str, NDArray[np.float64]]) -> Path:
    savemat(path.with_suffix(".mat"), views)
    return path.with_suffix(".mat")


def write_xarray(path: Path, views: dict[str, NDArray[np.float64]]) -> Path:
    tables = {name: (("sample", f"of_{name}"), view) for name, view in views.items()}
    xr.Dataset(tables).to_zarr(path, consolidated=False)
    return path


def write_own_store(path: Path, views: dict[str, NDArray[np.float64]]) -> Path:
    ingest(write_named(path, views), path)
    return path


def test_a_view_named_twice_is_refused(tmp_path: Path) -> None:
    source = save_npz(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"\['view_0', 'view_0'\] names a view twice"):
        ingest(source, tmp_path / "s.zarr", views=["view_0", "view_0"])


@pytest.mark.parametrize(
    "write", [write_numbered, write_named, write_mat, write_xarray, write_own_store]
)
def test_views_are_chosen_across_sources(
    tmp_path: Path, write: Callable[[Path, dict[str, NDArray[np.float64]]], Path]
) -> None:
    both = write(tmp_path / "both", {"colour": COLOUR, "shape": SHAPE})
    other = write(tmp_path / "other", {"texture": 2 * SHAPE})
    clash = write(tmp_path / "clash", {"shape": 3 * SHAPE})
    report = ingest([other, both], tmp_path / "a.zarr", views=["shape"])
    np.testing.assert_array_equal(stored(report)["shape"], SHAPE)
    with pytest.raises(DataError) as wrong:
        ingest([both, other], tmp_path / "b.zarr", views=["shap"])
    for name in ("shap", "colour", "shape", "texture", "both", "other"):
        assert name in str(wrong.value)
    with pytest.raises(
        DataError, match=r"Several views are called 'shape', in .*both.* and .*clash"
    ):
        ingest([both, clash], tmp_path / "b.zarr", views=["shape"])
    assert not (tmp_path / "b.zarr").exists()


def test_metric_of_the_source_stands_unless_told(tmp_path: Path) -> None:
    source = tmp_path / "a.npz"
    np.savez(source, view_0=1 - np.eye(4), view_1=np.eye(4), kind=np.array(["distance", "kernel"]))

    def metrics(output: str, metric: Any = None) -> list[str]:
        return [view.metric for view in ingest(source, tmp_path / output, metric=metric).views]

    assert metrics("a.zarr") == ["distance", "kernel"]
    assert metrics("b.zarr", {"view_1": "features"}) == ["distance", "features"]
    with pytest.raises(ConfigurationError, match=r"metric='cosine' for view 'view_0'"):
        metrics("c.zarr", "cosine")
    assert not (tmp_path / "c.zarr").exists()


def test_names_of_columns_follow_their_view(tmp_path: Path) -> None:
    frames = {
        "colour": pd.DataFrame(COLOUR, columns=list("rgb")),
        "shape": pd.DataFrame(SHAPE, columns=["height", "width"]),
        "bare": pd.DataFrame(SHAPE),
        "lab": xr.DataArray(COLOUR, dims=("sample", "part"), coords={"part": list("Lab")}),
    }
    ingest(as_multi_view(frames), tmp_path / "a.zarr")
    assert names_of(open_store(tmp_path / "a.zarr")) == {
        "colour": tuple("rgb"),
        "shape": ("height", "width"),
        "bare": ("0", "1"),
        "lab": tuple("Lab"),
    }
    swapped = {"shape": "colour", "colour": "shape"}
    ingest(tmp_path / "a.zarr", tmp_path / "b.zarr", views=swapped)
    again = names_of(open_store(tmp_path / "b.zarr"))
    assert again == {"shape": tuple("rgb"), "colour": ("height", "width")}
    text = tmp_path / "t.csv"
    text.write_text("id,p,class,q\na,1,0,2\nb,3,1,5\n")
    ingest(text, tmp_path / "c.zarr", views={"t": "table"})
    assert names_of(open_store(tmp_path / "c.zarr")) == {"table": ("p", "q")}
    dataset = xr.Dataset({"lab": frames["lab"], "bare": (("sample", "any"), SHAPE)})
    dataset.to_zarr(tmp_path / "foreign.zarr", zarr_format=2, consolidated=False)
    ingest(tmp_path / "foreign.zarr", tmp_path / "d.zarr")
    assert names_of(open_store(tmp_path / "d.zarr")) == {"lab": tuple("Lab"), "bare": None}


@pytest.mark.parametrize(
    ("values", "metric", "says"),
    [
        (COLOUR, "distance", r"'t' has metric='distance' and shape \(7, 3\)"),
        (COLOUR, "kernel", r"'t' has metric='kernel' and shape \(7, 3\)"),
        (np.eye(N) - 1, "distance", "'t' has negative values"),
        (np.triu(np.ones((N, N)), 1), "distance", "'t' is not symmetric"),
        (-np.eye(N), "kernel", "'t' has -1 on the diagonal"),
    ],
)
def test_what_is_no_matrix_of_all_pairs_is_not_stored(
    tmp_path: Path, values: NDArray[np.float64], metric: str, says: str
) -> None:
    np.save(tmp_path / "t.npy", values)
    with pytest.raises(DataError, match=says):
        ingest(tmp_path / "t.npy", tmp_path / "s.zarr", metric=metric)
    assert not (tmp_path / "s.zarr").exists()


def test_several_files_are_several_views_named_by_file(tmp_path: Path) -> None:
    np.save(tmp_path / "colour.npy", COLOUR)
    np.savetxt(tmp_path / "shape.txt", SHAPE)
    report = ingest([tmp_path / "colour.npy", str(tmp_path / "shape.txt")], tmp_path / "s.zarr")
    views = stored(report)
    assert list(views) == ["colour", "shape"]
    np.testing.assert_array_equal(views["colour"], COLOUR)
    np.testing.assert_array_equal(views["shape"], SHAPE)


def test_source_names_and_turns_a_view(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", COLOUR.T)
    source = Source(tmp_path / "a.npy", name="colour", samples_on="columns")
    np.testing.assert_array_equal(stored(ingest(source, tmp_path / "s.zarr"))["colour"], COLOUR)
    with pytest.raises(ConfigurationError, match=r"samples_on='both'"):
        Source("x", samples_on="both")  # type: ignore[arg-type]


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "x.npy", COLOUR)
    np.save(tmp_path / "b" / "x.npy", SHAPE)
    with pytest.raises(DataError, match=r"called 'x', in \S+/x\.npy and \S+/b/x\.npy; .*rename"):
        ingest([tmp_path / "x.npy", tmp_path / "b" / "x.npy"], tmp_path / "s.zarr")


def test_different_numbers_of_samples_are_listed(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", COLOUR)
    np.save(tmp_path / "b.npy", SHAPE[:-1])
    with pytest.raises(DataError, match=r"'a': 7, 'b': 6"):
        ingest([tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


def test_data_in_memory_and_stores_are_sources(tmp_path: Path) -> None:
    data = as_multi_view({"colour": COLOUR, "d": 1 - np.eye(N)}, metric={"d": "distance"})
    data = replace(data, labels=LABELS, label_names=("x", "y", "z"), sample_ids=tuple("abcdefg"))
    first = ingest(data, tmp_path / "a.zarr")
    second = ingest(first.output, tmp_path / "b.zarr", views=["d"])
    copied = open_store(second.output)
    assert copied.view_names == ("d",)
    assert copied.views[0].metric == "distance"
    assert copied.label_names == ("x", "y", "z")
    assert copied.sample_ids == tuple("abcdefg")
    assert first.digest == data.digest()


def test_output_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    ingest(save_npz(tmp_path / "a.npz"), tmp_path / "s.zarr")
    with pytest.raises(DataError, match="exists; choose another output"):
        ingest(tmp_path / "nowhere.npz", tmp_path / "s.zarr")
    ingest(tmp_path / "a.npz", tmp_path / "s.zarr", views=["view_1"], overwrite=True)
    assert open_store(tmp_path / "s.zarr").view_names == ("view_1",)


def test_nan_is_refused_with_view_and_rows(tmp_path: Path) -> None:
    bad = SHAPE.copy()
    bad[5, 0] = np.nan
    with pytest.raises(DataError, match=r"'view_1' has 1 NaN .*first rows: \[5\]"):
        ingest(save_npz(tmp_path / "a.npz", view_1=bad), tmp_path / "s.zarr")
    assert [item.name for item in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    "sources", [{"a": COLOUR}, [COLOUR, SHAPE], COLOUR, pd.DataFrame(COLOUR), None]
)
def test_what_is_no_source_is_refused(tmp_path: Path, sources: Any) -> None:
    with pytest.raises(DataError, match=r"sources of type .*as_multi_view makes one of arrays"):
        ingest(sources, tmp_path / "s.zarr")
    with pytest.raises(ConfigurationError, match="None names no place"):
        ingest(tmp_path / "a.npz", None)  # type: ignore[arg-type]


def test_no_source_and_missing_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No source was given"):
        ingest([], tmp_path / "s.zarr")
    with pytest.raises(DataError, match=r"There is no .*a\.npz"):
        ingest(tmp_path / "a.npz", tmp_path / "s.zarr")


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.mat", "a.csv", "a.nc", "a.zarr"])
def test_a_source_that_may_not_be_read_is_data_that_cannot_be_used(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / name
    if source.suffix == ".zarr":
        source.mkdir()
        (source / "zarr.json").touch()
    else:
        source.touch()

    def closed(path: Path, *args: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for opening in ("pathlib.Path.open", "pathlib.Path.read_bytes", "builtins.open"):
        monkeypatch.setattr(opening, closed)
    with pytest.raises(DataError, match=rf"{name}.* may not be read \(Permission denied\).*chmod"):
        ingest(source, tmp_path / "s.zarr")


@pytest.mark.parametrize("name", ["a.pkl", "a.xlsx", "a.csv.gz", "a.h5ad", "folder"])
def test_unknown_formats_list_the_known_ones(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\x80\x04")
    with pytest.raises(DataError, match=r"no format that can be read; allowed are .*NumPy archive"):
        ingest(path, tmp_path / "s.zarr")
    if name == "folder":
        ingest(save_npz(tmp_path / "a.npz"), path / "data.zarr")
        with pytest.raises(DataError, match=r"The data of this run are .*/folder/data\.zarr"):
            ingest(path, tmp_path / "s.zarr")


# ----------------------------------------------------------------------------- labels


def labels_of(report: IngestReport) -> list[int] | None:
    labels = open_store(report.output).labels
    return None if labels is None else labels.tolist()


def test_labels_by_key_by_file_and_by_value(tmp_path: Path) -> None:
    source = save_npz(tmp_path / "a.npz", labels=LABELS, fine=LABELS + 10)
    names = tmp_path / "classes.txt"
    names.write_text("species\n" + "\n".join("abcabca") + "\n")
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("label\n" + "".join(f"{label}\n" for label in LABELS))
    array = tmp_path / "y.npy"
    np.save(array, LABELS[::-1])
    cases: list[tuple[Any, list[int]]] = [
        (None, LABELS.tolist()),
        ("fine", (LABELS + 10).tolist()),
        (LABELS * 2, (LABELS * 2).tolist()),
        ([3, 3, 3, 1, 1, 1, 1], [3, 3, 3, 1, 1, 1, 1]),
        (list("xxyyzzz"), LABELS.tolist()),
        (numbers, LABELS.tolist()),
        (str(numbers), LABELS.tolist()),
        (array, LABELS[::-1].tolist()),
    ]
    for index, (given, expected) in enumerate(cases):
        assert labels_of(ingest(source, tmp_path / f"{index}.zarr", labels=given)) == expected
    with pytest.raises(DataError, match="Got 8 labels for 7 samples"):
        ingest(source, tmp_path / "s.zarr", labels=names)  # its heading looks like a label
    with pytest.raises(DataError, match=r"labels='nowhere' is neither a variable .*nor a file"):
        ingest(source, tmp_path / "s.zarr", labels="nowhere")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.csv", "id,label\n{}"),
        ("l.csv", ",kind\n{}"),
        ("l.tsv", "sample\tclass\n{}"),
        ("l.csv", "name,label\n{}\nother,9"),
    ],
)
def test_label_file_with_ids_is_matched(tmp_path: Path, name: str, text: str) -> None:
    ids = [f"s{i}" for i in range(N)]
    pd.DataFrame(COLOUR, index=ids).to_csv(tmp_path / "colour.csv")
    mark = "\t" if name.endswith("tsv") else ","
    lines = [f"{item}{mark}{label}" for item, label in zip(ids, LABELS, strict=True)]
    file = tmp_path / name
    file.write_text(text.format("\n".join(lines[::-1])))
    report = ingest(tmp_path / "colour.csv", tmp_path / "s.zarr", labels=file)
    assert labels_of(report) == LABELS.tolist()
    (note,) = [note for note in report.notes if str(file) in note]
    assert "labels matched by sample id" in note
    assert ("1 of other samples left out" in note) == ("other" in text)
    file.write_text("\n".join(map(str, LABELS)))
    report = ingest(tmp_path / "colour.csv", tmp_path / "s.zarr", labels=file, overwrite=True)
    assert labels_of(report) == LABELS.tolist()
    assert f"{file}: no sample ids; its first label is taken for 's0'." in report.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label,more\ns0,1,2\n", "more than one field in line 1.*such as id,label"),
        ("0,1\n1,1\n", "more than one field in line 1"),
        ("id,label\ns0,1\ns1,1,2\n", "row 1 has 3 fields where the first line has 2"),
        ("id,label\ns0,1\ns0,2\n", r"1 sample id.*'s0', in rows \[0, 1\]"),
        ("id,label\ns0,1\nt1,2\n", r"no label for 6 of 7 samples.*'s1'.*begin with \['s0', 't1'\]"),
        ("id,label\ns0,1\ns1,\n", "1 label.* missing"),
    ],
    ids=["three", "no heading", "uneven", "twice", "not there", "missing"],
)
def test_label_files_that_cannot_be_matched(tmp_path: Path, text: str, message: str) -> None:
    pd.DataFrame(COLOUR, index=[f"s{i}" for i in range(N)]).to_csv(tmp_path / "colour.csv")
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        ingest(tmp_path / "colour.csv", tmp_path / "s.zarr", labels=file)


def test_label_file_with_ids_needs_data_with_ids(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("id,label\na,1\n")
    with pytest.raises(DataError, match="labels by sample id, and the data have no ids"):
        ingest(save_npz(tmp_path / "a.npz"), tmp_path / "s.zarr", labels=file)


def test_sources_must_agree_on_labels(tmp_path: Path) -> None:
    first = save_npz(tmp_path / "a.npz", labels=LABELS, view_names=np.array(["a", "b"]))
    same = save_npz(tmp_path / "b.npz", labels=LABELS, view_names=np.array(["c", "d"]))
    other = save_npz(tmp_path / "c.npz", labels=LABELS[::-1], view_names=np.array(["e", "f"]))
    assert labels_of(ingest([first, same], tmp_path / "1.zarr")) == LABELS.tolist()
    with pytest.raises(DataError, match=r"a\.npz and .*c\.npz have different labels"):
        ingest([first, other], tmp_path / "2.zarr")
    assert labels_of(ingest([first, other], tmp_path / "3.zarr", labels=LABELS)) == LABELS.tolist()


def test_features_on_rows_are_noticed_by_the_labels(tmp_path: Path) -> None:
    source = tmp_path / "a.npz"
    np.savez(source, view_0=COLOUR.T, view_1=np.ones((3, N)), labels=LABELS)
    with pytest.raises(DataError, match=r"7 labels and every view .*samples_on='columns'"):
        ingest(source, tmp_path / "s.zarr")
    report = ingest(Source(source, samples_on="columns"), tmp_path / "s.zarr")
    np.testing.assert_array_equal(stored(report)["view_0"], COLOUR)
    assert labels_of(report) == LABELS.tolist()


# ----------------------------------------------------------------------------- ids


def test_rows_of_tables_in_another_order_are_matched_by_id(tmp_path: Path) -> None:
    first, second = tmp_path / "colour.csv", tmp_path / "shape.csv"
    first.write_text("id,red,green\na,1,10\nb,2,20\nc,3,30\n")
    second.write_text("id,width,label\nc,300,z\na,100,x\nb,200,y\n")
    report = ingest([first, second], tmp_path / "s.zarr", labels="label")
    data = open_store(report.output)
    assert data.sample_ids == ("a", "b", "c")
    np.testing.assert_array_equal(stored(report)["colour"], [[1, 10], [2, 20], [3, 30]])
    np.testing.assert_array_equal(stored(report)["shape"], [[100], [200], [300]])
    assert data.labels is not None
    assert data.label_names is not None
    assert [data.label_names[label] for label in data.labels] == ["x", "y", "z"]
    assert any("matched by sample id" in note and "3 of 3" in note for note in report.notes)


def test_samples_on_columns_are_matched_by_the_header(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(N)]
    order = np.random.default_rng(0).permutation(N)
    pd.DataFrame(COLOUR, index=names).T.to_csv(tmp_path / "colour.csv")
    pd.DataFrame(SHAPE, index=names).iloc[order].T.to_csv(tmp_path / "shape.csv")
    sources = [
        Source(tmp_path / f"{name}.csv", samples_on="columns") for name in ("colour", "shape")
    ]
    report = ingest(sources, tmp_path / "s.zarr")
    assert open_store(report.output).sample_ids == tuple(names)
    for name, values in stored(report).items():
        np.testing.assert_array_equal(values, {"colour": COLOUR, "shape": SHAPE}[name])


@pytest.mark.parametrize("said", ["by the file", "when it is ingested"])
def test_a_matrix_of_all_pairs_is_matched_by_id_both_ways(tmp_path: Path, said: str) -> None:
    order = np.random.default_rng(0).permutation(N)
    ids = np.array(list("abcdefg"))
    gaps = np.abs(np.subtract.outer(COLOUR[:, 0], COLOUR[:, 0]))
    first = save_npz(tmp_path / "a.npz", sample_ids=ids)
    kind = {"kind": np.array(["distance"])} if said == "by the file" else {}
    mixed = gaps[np.ix_(order, order)]
    np.savez(
        tmp_path / "b.npz", allow_pickle=True, view_0=mixed, sample_ids=ids[order],
        view_names=np.array(["gaps"]), **kind,
    )  # fmt: skip
    report = ingest(
        [first, tmp_path / "b.npz"],
        tmp_path / "s.zarr",
        metric=None if kind else {"gaps": "distance"},
    )
    assert report.views[2].metric == "distance"
    np.testing.assert_array_equal(stored(report)["gaps"], gaps)


def test_rows_are_matched_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_ranges, "__kwdefaults__", {"block_bytes": 2 * 8 * 3})  # two rows
    order = np.random.default_rng(1).permutation(N)
    view = OrderedRows(ArrayRows(COLOUR, "c"), order, "c")
    for start in range(N + 1):
        for stop in range(start, N + 1):
            np.testing.assert_array_equal(view.read(start, stop), COLOUR[order[start:stop]])


def test_ids_of_several_files_must_agree(tmp_path: Path) -> None:
    ids = np.array(list("abcdefg"))
    first = save_npz(tmp_path / "a.npz", sample_ids=ids)
    np.save(tmp_path / "plain.npy", SHAPE)
    report = ingest([first, tmp_path / "plain.npy"], tmp_path / "1.zarr")
    assert open_store(report.output).sample_ids == tuple(ids)
    swapped = ids[[0, 2, 1, 3, 4, 5, 6]]
    second = save_npz(tmp_path / "b.npz", sample_ids=swapped, view_names=np.array(["c", "d"]))
    report = ingest([first, second], tmp_path / "2.zarr")
    assert open_store(report.output).sample_ids == tuple(ids)
    assert any("b.npz: rows matched by sample id with " in note for note in report.notes)
    values = stored(report)
    for plain, matched in (("view_0", "c"), ("view_1", "d")):  # the same tables, other ids
        np.testing.assert_array_equal(values[matched][[0, 2, 1, 3, 4, 5, 6]], values[plain])
    other = save_npz(
        tmp_path / "d.npz", sample_ids=np.array(list("abcdefx")), view_names=np.array(["e", "f"])
    )
    with pytest.raises(
        DataError, match=r"a\.npz.*d\.npz.*different samples: 1 id.*\['g'\].*\['x'\]"
    ):
        ingest([first, other], tmp_path / "4.zarr")
    third = save_npz(tmp_path / "c.npz", sample_ids=np.array(list("abcdefa")))
    with pytest.raises(DataError, match=r"more than once in .*c\.npz.*'a', in rows \[0, 6\]"):
        ingest(third, tmp_path / "3.zarr")
