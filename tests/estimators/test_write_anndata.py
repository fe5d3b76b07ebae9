"""Results written into AnnData and MuData: matched by id, readable from a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mscam_dask import MSCAM, write_anndata
from mscam_dask.errors import DataError, DataTypeError
from tests.omics import IDS, PROTEIN, RNA, anndata_of, mudata_of, writable_text


@pytest.fixture(scope="module")
def model() -> MSCAM:
    both = mudata_of(rna=anndata_of(RNA), protein=anndata_of(PROTEIN))
    return MSCAM(n_clusters=3, n_jobs=1).fit(both)


def test_results_of_all_samples(model: MSCAM, tmp_path: Path) -> None:
    import mudata

    both = mudata_of(rna=anndata_of(RNA), protein=anndata_of(PROTEIN))
    write_anndata(model, both)
    with writable_text():
        both.write(tmp_path / "both.h5mu")
        read = mudata.read_h5mu(tmp_path / "both.h5mu")
    np.testing.assert_array_equal(read.obs["mscam"].cat.codes, model.labels_)
    np.testing.assert_array_equal(read.obs["mscam_confidence"], model.confidence_)
    graph = read.obsp["mscam_connectivities"]
    assert (graph != model.consensus_graph_).nnz == 0
    np.testing.assert_array_equal(read.obsm["mscam_rna"], model.view_embeddings_["rna"])
    written = read.uns["mscam"]
    assert (written["n_clusters"], written["status"]) == (3, model.status_.name)
    shares = written["views"]["contribution"]
    assert dict(shares) == model.view_contributions_


def test_samples_are_matched_by_id(model: MSCAM) -> None:
    rows = np.array([44, 2, 31, 7])
    some = anndata_of(RNA[rows], np.array(IDS)[rows])
    write_anndata(model, some, key="c", confidence=False)
    assert some.obs["c"].astype(int).tolist() == model.labels_[rows].tolist()
    assert "c_confidence" not in some.obs
    expected = model.consensus_graph_.toarray()[np.ix_(rows, rows)]
    np.testing.assert_array_equal(some.obsp["c_connectivities"].toarray(), expected)
    np.testing.assert_array_equal(some.obsm["c_protein"], model.view_embeddings_["protein"][rows])


def test_clusters_keep_the_names_of_an_earlier_run() -> None:
    views = {"rna": anndata_of(RNA), "protein": anndata_of(PROTEIN)}
    model = MSCAM(n_clusters=3, n_jobs=1).fit(views)
    names = np.array([0, 2, 5])
    model.solution_ = dataclasses.replace(
        model.solution_,
        labels=names[model.labels_],
        assessment=model.solution_.assessment.renamed([0, 2, 5]),
    )
    write_anndata(model, views["rna"])
    assert views["rna"].obs["mscam"].astype(int).tolist() == model.labels_.tolist()


def test_other_samples_are_refused(model: MSCAM) -> None:
    with pytest.raises(DataError):
        write_anndata(model, anndata_of(RNA[:2], ["p01", "new"]))
    with pytest.raises(DataTypeError):
        write_anndata(model, {})
    without_ids = MSCAM(n_clusters=3, n_jobs=1).fit([RNA, PROTEIN])
    with pytest.raises(DataError):
        write_anndata(without_ids, anndata_of(RNA[:2], ["a", "b"]))
    whole = anndata_of(RNA)
    write_anndata(without_ids, whole)
    assert whole.obs["mscam"].astype(int).tolist() == without_ids.labels_.tolist()
