"""Views of AnnData and MuData objects: arrays by name, modalities matched by id."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from mscam_dask import views_of
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import DataError, DataTypeError
from tests.omics import IDS, KINDS, PROTEIN, RNA, anndata_of, mudata_of
from tests.synthetic import values_of


def test_x_of_an_anndata_is_a_view_with_ids_and_names() -> None:
    data = as_multi_view(anndata_of(sparse.csr_matrix(RNA)))
    assert data.view_names == ("X",)
    assert data.sample_ids == IDS
    assert data.views[0].feature_names == ("g0", "g1", "g2", "g3", "g4", "g5")
    np.testing.assert_array_equal(values_of(data)["X"], RNA)


def test_arrays_are_chosen_and_renamed_by_name() -> None:
    one = anndata_of(RNA)
    one.obs["kind"] = KINDS
    data = views_of(one, {"layers/squares": "counts", "obsm/X_two": "two"}, labels="kind")
    assert data.view_names == ("counts", "two")
    np.testing.assert_array_equal(values_of(data)["counts"], RNA**2)
    np.testing.assert_array_equal(values_of(data)["two"], RNA[:, :2])
    np.testing.assert_array_equal(data.labels, KINDS)
    assert data.views[0].feature_names == tuple(one.var_names)
    both = mudata_of(rna=one, protein=anndata_of(PROTEIN))
    both.obsm["joint"] = PROTEIN[:, :3]
    names = ["protein", "rna/layers/squares", "obsm/joint"]
    found = values_of(views_of(both, names))
    assert list(found) == names
    np.testing.assert_array_equal(found["rna/layers/squares"], RNA**2)
    np.testing.assert_array_equal(found["obsm/joint"], PROTEIN[:, :3])
    with pytest.raises(DataError):
        views_of(both, ["rna/layers/absent"])
    with pytest.raises(DataError):
        views_of(one, labels="absent")


def test_modalities_are_matched_by_id() -> None:
    order = np.random.default_rng(1).permutation(len(IDS))
    moved = anndata_of(sparse.csr_matrix(PROTEIN[order]), np.array(IDS)[order])
    for views in (
        mudata_of(rna=anndata_of(RNA), protein=moved),
        {"rna": anndata_of(RNA), "protein": moved},
    ):
        data = as_multi_view(views)
        assert data.sample_ids == IDS
        np.testing.assert_array_equal(values_of(data)["rna"], RNA)
        np.testing.assert_array_equal(values_of(data)["protein"], PROTEIN)


def test_samples_that_a_modality_lacks_are_rows_of_nan() -> None:
    held = np.array([5, 3, 40, 8])
    some = anndata_of(sparse.csr_matrix(PROTEIN[held]), np.array(IDS)[held])
    data = as_multi_view(mudata_of(rna=anndata_of(RNA), protein=some))
    rna, protein = data.views
    present = np.sort(held)
    np.testing.assert_array_equal(protein.present.samples, present)
    np.testing.assert_array_equal(protein.read(0, len(held)), PROTEIN[present])
    np.testing.assert_array_equal(rna.read(0, len(RNA)), RNA)
    assert data.views[1].feature_names == tuple(some.var_names)


def test_what_cannot_be_views_is_refused() -> None:
    with pytest.raises(DataTypeError):
        views_of(RNA)
    bare = anndata_of(RNA)
    bare.X = None
    with pytest.raises(DataError):
        as_multi_view(bare)
    with pytest.raises(DataError):
        as_multi_view({"rna": bare})
    repeated = anndata_of(RNA[:3], ["a", "b", "a"])
    with pytest.raises(DataError):
        as_multi_view(repeated)
    both = mudata_of(rna=anndata_of(RNA), protein=anndata_of(PROTEIN))
    both._axis = 1
    with pytest.raises(DataError):
        as_multi_view(both)


def test_default_names_of_observations_are_no_ids() -> None:
    assert as_multi_view(anndata_of(RNA[:3], ["0", "1", "2"])).sample_ids is None
