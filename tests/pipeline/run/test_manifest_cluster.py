"""Manifests of DaskClusters, as a run applies them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mscam_dask.errors import ConfigurationError
from tests.deploy.files import DEPLOY, documents
from tests.messages import quotes

pytest.importorskip("dask_kubernetes")
from mscam_dask.pipeline.run.manifest_cluster import manifest_of

MANIFEST = DEPLOY / "k8s/cluster.yaml"


def test_a_cluster_has_its_own_name_wherever_the_manifest_names_it() -> None:
    theirs = next(item for item in documents(MANIFEST) if item["kind"] == "DaskCluster")
    first, second = (manifest_of(MANIFEST, n_workers=3) for _ in range(2))
    name = first["metadata"]["name"]
    assert name.startswith("mscam-")
    assert name != second["metadata"]["name"]
    selector = first["spec"]["scheduler"]["service"]["selector"]
    assert selector["dask.org/cluster-name"] == name
    assert first["spec"]["worker"]["replicas"] == 3
    first["metadata"]["name"] = selector["dask.org/cluster-name"] = "mscam"
    first["spec"]["worker"]["replicas"] = 2
    assert first == theirs


def test_an_image_is_that_of_every_container() -> None:
    text = yaml.safe_dump(manifest_of(MANIFEST, n_workers=0, image="example.com/mscam@sha256:0"))
    assert "image: mscam-dask" not in text
    assert text.count("image: example.com/mscam@sha256:0") == 2
    assert "replicas: 1" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("kind: [", "cannot be read"),
        ("kind: DaskJob\n", "0 documents"),
        ("kind: DaskCluster\n---\nkind: DaskCluster\n", "2 documents"),
        ("kind: DaskCluster\n", "metadata"),
        ("kind: DaskCluster\nmetadata: {name: mscam}\nspec: {scheduler: 3}\n", "not complete"),
    ],
)
def test_a_file_without_a_cluster_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "cluster.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=quotes(file, says)):
        manifest_of(file, n_workers=1)
