"""Result stores: what was written is what is read, or an error that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

from mscam_dask import MSCAM
from mscam_dask.data import results
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.results import FORMAT_VERSION, read_result, write_result
from mscam_dask.data.store.filesystem import LocalFilesystem
from mscam_dask.data.store.schema import write_checksums
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.result import Structure
from tests.messages import raises
from tests.synthetic import three_subspaces


@pytest.fixture(scope="module")
def model() -> MSCAM:
    data = three_subspaces()
    return MSCAM(n_clusters=3, n_jobs=1).fit(data)


def test_everything_reads_back_bit_for_bit(model: MSCAM, tmp_path: Path) -> None:
    path = write_result(model.solution_, tmp_path / "result.zarr")
    result = read_result(path)
    np.testing.assert_array_equal(result.labels, model.labels_)
    np.testing.assert_array_equal(
        result.consensus_graph.toarray(), model.consensus_graph_.toarray()
    )
    np.testing.assert_array_equal(result.learned_graph.toarray(), model.learned_graph_.toarray())
    assert list(result.view_embeddings) == list(result.view_coordinates) == ["view_0", "view_1"]
    for name, coordinates in model.solution_.view_coordinates.items():
        np.testing.assert_array_equal(result.view_coordinates[name], coordinates)
    written, read = model.solution_.assessment, result.assessment
    assert read is not None
    assert (read.structure, read.message) == (written.structure, written.message)
    assert read.cluster_names == (0, 1, 2)
    assert read.view_names == written.view_names
    assert written.borders is not None
    assert read.borders is not None
    for name in ("p_values", "counts", "sizes"):
        values = getattr(written.borders, name)
        np.testing.assert_array_equal(getattr(read.borders, name), values, strict=True)
    np.testing.assert_array_equal(read.cluster_tree, written.cluster_tree)
    np.testing.assert_array_equal(read.cluster_agreement, written.cluster_agreement)
    for name, embedding in model.view_embeddings_.items():
        np.testing.assert_array_equal(result.view_embeddings[name], embedding)
    assert result.view_contributions == model.view_contributions_
    assert (result.status, result.score) == (model.status_.name, model.cross_view_information_)
    assert result.n_connected_components == model.n_connected_components_ == 3
    xarray.testing.assert_identical(result.history, model.history_)


def test_its_name_is_on_the_disk_when_it_is_written(
    model: MSCAM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    path = tmp_path / "result.zarr"

    def noted(files: LocalFilesystem, place: Path) -> None:
        synced.append((place, path.exists()))

    monkeypatch.setattr(LocalFilesystem, "sync", noted)
    write_result(model.solution_, path)
    assert synced[-1] == (tmp_path, True)
    assert not any(exists for _, exists in synced[:-1])  # and its content before
    content = {Path(*place.relative_to(tmp_path).parts[1:]) for place, _ in synced[:-1]}
    assert content == {item.relative_to(path) for item in (path, *path.rglob("*"))}


def test_the_graph_is_the_group_that_anndata_writes(model: MSCAM, tmp_path: Path) -> None:
    group = zarr.open_group(write_result(model.solution_, tmp_path / "r"), mode="r")
    graph = group["consensus_graph"]
    assert isinstance(graph, zarr.Group)
    assert graph.attrs["encoding-type"] == "csr_matrix"
    assert graph.attrs["encoding-version"] == "0.1.0"
    assert graph.attrs["shape"] == [60, 60]
    assert {name for name, _ in graph.arrays()} == {"data", "indices", "indptr"}


def test_every_array_has_a_checksum_and_numbers_only(model: MSCAM, tmp_path: Path) -> None:
    group = zarr.open_group(write_result(model.solution_, tmp_path / "r"), mode="r")
    arrays = [member for _, member in group.members(None) if isinstance(member, zarr.Array)]
    assert len(arrays) > 10
    for array in arrays:
        assert array.dtype.kind in "if"
        codecs = [type(codec).__name__ for codec in array.metadata.codecs]  # type: ignore[union-attr]
        assert "Crc32cCodec" in codecs


@pytest.mark.parametrize("n_clusters", [1, 20])
def test_a_fit_without_iterations_has_a_result_too(n_clusters: int, tmp_path: Path) -> None:
    data = subspace_mixture(20, 2, (4,), rng=np.random.default_rng(1))
    model = MSCAM(n_clusters=n_clusters, n_jobs=1).fit(data)
    result = read_result(write_result(model.solution_, tmp_path / "r"))
    assert result.history.sizes["outer_iteration"] == 0
    assert result.view_embeddings == {}
    assert result.assessment is not None
    assert result.assessment.structure is Structure.TRIVIAL
    np.testing.assert_array_equal(result.assessment.cluster_tree, model.cluster_tree_)
    assert len(set(result.labels.tolist())) == n_clusters


def test_results_of_an_earlier_version_have_no_assessment(
    model: MSCAM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FORMAT_VERSION", 4)
    monkeypatch.setattr(results, "_assessment_texts", lambda _: {"structure": "STABLE"})
    path = write_result(model.solution_, tmp_path / "r")
    monkeypatch.undo()
    earlier = read_result(path)
    assert earlier.assessment is None
    np.testing.assert_array_equal(earlier.labels, model.labels_)


def test_nothing_is_written_over(model: MSCAM, tmp_path: Path) -> None:
    path = write_result(model.solution_, tmp_path / "r")
    with raises(DataError, path):
        write_result(model.solution_, path)
    assert [item.name for item in tmp_path.iterdir()] == ["r"]


@pytest.mark.thorough
def test_every_damaged_file_is_found_and_named(model: MSCAM, tmp_path: Path) -> None:
    path = write_result(model.solution_, tmp_path / "r")
    chunks = [item for item in path.rglob("*") if item.is_file() and item.name != "zarr.json"]
    assert len(chunks) > 10
    for chunk in chunks:
        content = chunk.read_bytes()
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        for damage in (bytes(flipped), content[:-1], b"", None):
            if damage is None:
                chunk.unlink()
            else:
                chunk.write_bytes(damage)
            with pytest.raises(StoreCorruptError) as caught:
                read_result(path)
            assert str(chunk) in str(caught.value)
        chunk.write_bytes(content)
    read_result(path)


def test_a_removed_array_is_found(model: MSCAM, tmp_path: Path) -> None:
    path = write_result(model.solution_, tmp_path / "r")
    for key in ("labels", "consensus_graph/indptr", "view_embeddings/1", "history/score"):
        moved = tmp_path / "moved"
        (path / key).rename(moved)
        with raises(StoreCorruptError, path / key / "zarr.json"):
            read_result(path)
        moved.rename(path / key)


def test_what_is_no_result(model: MSCAM, tmp_path: Path) -> None:
    with raises(DataError, tmp_path / "absent"):
        read_result(tmp_path / "absent")
    zarr.open_group(tmp_path / "other", mode="w", attributes={"format": "other"})
    with raises(DataError, tmp_path / "other", "result.zarr"):
        read_result(tmp_path / "other")
    path = write_result(model.solution_, tmp_path / "r")
    group = zarr.open_group(path, mode="r+")
    group.attrs["format_version"] = 97
    write_checksums(group, path)
    with raises(DataError, path, "97"):
        read_result(path)
    group.attrs.update({"format_version": FORMAT_VERSION, "history": None})
    write_checksums(group, path)
    with raises(StoreCorruptError, path / "zarr.json"):
        read_result(path)
