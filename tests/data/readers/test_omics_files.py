"""AnnData and MuData files give the views of the objects that were written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import DataError
from tests.data.ingested import read, stored
from tests.omics import IDS, KINDS, PROTEIN, RNA, anndata_of, mudata_of, writable_text

h5py = pytest.importorskip("h5py")


def write(data: Any, path: Path, **options: Any) -> Path:
    with writable_text():
        data.write(path, **options)
    return path


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, np.asarray], ids=str)
def test_every_form_of_x_comes_back(tmp_path: Path, form: Any) -> None:
    path = write(anndata_of(form(RNA.astype("i2"))), tmp_path / "a.h5ad", compression="gzip")
    np.testing.assert_array_equal(read(path)[0]["a"], RNA)


def test_arrays_and_labels_of_several_files_by_name(tmp_path: Path) -> None:
    rna, order = anndata_of(RNA), np.random.default_rng(2).permutation(len(IDS))
    rna.obs["kind"] = pd.Categorical.from_codes(KINDS, pd.Index(["x", "y", "z"], dtype=object))
    frame = pd.DataFrame({"u": RNA[:, 0], "v": RNA[:, 1].astype(int)}, index=rna.obs_names)
    rna.obsm["frame"] = frame
    files = [
        write(rna, tmp_path / "rna.h5ad"),
        write(anndata_of(PROTEIN[order], np.array(IDS)[order]), tmp_path / "protein.h5ad"),
    ]
    names = {
        "rna/layers/squares": "counts",
        "protein/obsm/X_two": "two",
        "rna/obsm/frame": "f",
        "protein": "p",
    }
    report = ingest(files, tmp_path / "s.zarr", views=names, labels="kind")
    found = stored(report)
    assert list(found) == list(names.values())
    np.testing.assert_array_equal(found["counts"], RNA**2)
    np.testing.assert_array_equal(found["two"], PROTEIN[:, :2])
    np.testing.assert_array_equal(found["f"], RNA[:, :2])
    np.testing.assert_array_equal(found["p"], PROTEIN)
    store = open_store(report.output)
    assert store.label_names == ("x", "y", "z")
    np.testing.assert_array_equal(store.labels, KINDS)
    with pytest.raises(DataError):
        ingest(files, tmp_path / "t.zarr", views=["rna/layers/absent"])


def test_modalities_of_a_mudata_file(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(len(IDS))
    both = mudata_of(
        rna=anndata_of(RNA),
        protein=anndata_of(sparse.csr_matrix(PROTEIN[order]), np.array(IDS)[order]),
    )
    report = ingest(write(both, tmp_path / "both.h5mu"), tmp_path / "s.zarr")
    assert list(stored(report)) == ["rna", "protein"]
    np.testing.assert_array_equal(stored(report)["rna"], RNA)
    np.testing.assert_array_equal(stored(report)["protein"], PROTEIN)
    assert open_store(report.output).sample_ids == IDS


def test_features_of_several_kinds_in_one_view_are_named(tmp_path: Path) -> None:
    """As 10x Genomics writes genes and antibodies."""
    both = anndata_of(np.hstack([RNA, PROTEIN]))
    for kinds in (["gene"] * 11, ["gene"] * 6 + ["antibody"] * 5):
        both.var["feature_types"] = pd.Categorical(kinds)
        report = ingest(write(both, tmp_path / "a.h5ad"), tmp_path / "s.zarr", overwrite=True)
        is_told = any("'antibody'" in note and "feature_types" in note for note in report.notes)
        assert is_told == ("antibody" in kinds)


def test_columns_of_labels(tmp_path: Path) -> None:
    one = anndata_of(RNA)
    one.obs["label"] = KINDS
    one.obs["flag"] = pd.array(KINDS == 1, dtype="boolean")
    codes, names = np.where(KINDS == 2, -1, KINDS), pd.Index(["x", "y"], dtype=object)
    one.obs["gaps"] = pd.Categorical.from_codes(codes, names)
    path = write(one, tmp_path / "a.h5ad")
    np.testing.assert_array_equal(read(path)[1].labels, KINDS)  # by convention
    _, flags = read(path, labels="flag")
    np.testing.assert_array_equal(flags.labels, KINDS == 1)
    assert flags.labels_explicit
    with pytest.raises(DataError):
        ingest(path, tmp_path / "s.zarr", labels="gaps")


def put(node: Any, name: str, values: Any) -> None:
    del node[name]
    node[name] = values


def link_elsewhere(file: Any) -> None:
    del file["layers/squares"]
    file["layers/squares"] = h5py.ExternalLink("other.h5", "/secret")


@pytest.mark.parametrize(
    "damage",
    [
        link_elsewhere,
        lambda file: put(file, "X", np.ones((3, 6))),
        lambda file: put(file["layers/squares"], "indices", np.full(360, 99)),
        lambda file: put(file["obs/kind"], "codes", np.full(60, 7)),
        lambda file: file["obs"].attrs.pop("_index"),
        lambda file: file.pop("var"),
    ],
    ids=["external link", "rows", "indices", "codes", "no index", "no var"],
)
def test_damaged_files_are_refused(tmp_path: Path, damage: Any) -> None:
    one = anndata_of(RNA + 100)
    one.obs["kind"] = pd.Categorical.from_codes(KINDS, pd.Index(["x", "y", "z"], dtype=object))
    path = write(one, tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(DataError):
        read(path, views=("a", "a/layers/squares"), labels="kind")


def test_a_file_without_x_names_the_arrays_that_it_has(tmp_path: Path) -> None:
    one = anndata_of(RNA)
    one.X = None
    path = write(one, tmp_path / "a.h5ad")
    with pytest.raises(DataError):
        read(path)


def test_files_without_anndata_tell_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anndata", None)
    (tmp_path / "a.h5ad").touch()
    with pytest.raises(DataError, match=r"pip install 'mscam-dask\[omics\]'"):
        read(tmp_path / "a.h5ad")


def test_the_limit_counts_codes_and_values_of_categories(tmp_path: Path) -> None:
    data = anndata_of(RNA)
    doses = pd.Categorical(np.arange(float(len(IDS))))
    data.obs = data.obs.assign(**{f"dose{number}": doses for number in range(12)})
    path = write(data, tmp_path / "a.h5ad")
    read(Source(path, max_bytes=9000))
    with pytest.raises(DataError, match="'/obs' would take"):
        read(Source(path, max_bytes=6000))


@pytest.mark.parametrize("options", [{"max_bytes": 100}, {"samples_in": "columns"}])
def test_limits_and_orientation(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(anndata_of(sparse.csr_matrix(RNA)), tmp_path / "a.h5ad")
    with pytest.raises(DataError):
        read(Source(path, **options))
