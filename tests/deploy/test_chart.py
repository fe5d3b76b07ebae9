"""The Helm chart of deploy/chart, rendered by helm: with its defaults it is deploy/k8s."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY, run
from tests.deploy.test_kubernetes import all_manifests, check, pod_specs

CHART = DEPLOY / "chart"
Objects = Mapping[tuple[str, str], Any]


def rendered(*options: str) -> dict[tuple[str, str], Any]:
    """Objects of the chart by kind and name."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    result = run(helm, "template", "mscam", CHART, "--namespace", "mscam", *options)
    assert result.returncode == 0, result.stderr
    found = [item for item in yaml.safe_load_all(result.stdout) if item is not None]
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def job(objects: Objects) -> Any:
    return yaml.safe_load(objects["ConfigMap", "mscam-nightly"]["data"]["job.yaml"])


def test_the_defaults_are_the_manifests() -> None:
    chart = rendered("--set", "cluster.enabled=true,networkPolicy.privateObjectStorage=true")
    before = ("namespace.yaml", "operator.yaml")  # these are there before the chart
    ours = {
        (item["kind"], item["metadata"]["name"]): item
        for file, item in all_manifests()
        if file not in before
    }
    assert job(chart) == ours.pop(("DaskJob", "mscam-nightly"))
    programs = chart.pop(("ConfigMap", "mscam-nightly"))["data"]
    for name in ("create_daskjob.py", "wait_for_workers.py"):
        assert programs[name] == (DEPLOY / "k8s" / name).read_text()
    claim = chart["PersistentVolumeClaim", "mscam"]
    assert claim["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    budgets = {key for key in chart if key[0] == "PodDisruptionBudget"}
    assert {name for _, name in budgets} == {"mscam-scheduler", "mscam-worker"}
    assert {key: item for key, item in chart.items() if key not in budgets} == ours


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--set", "cluster.enabled=true,nightly.enabled=false"),
        ("--set", "networkPolicy.enabled=false,disruptionBudget.enabled=false"),
        ("--set", "storage.existingClaim=disk,imagePullSecrets[0].name=pull"),
        (
            *("--set-json", 'worker.tolerations=[{"key": "spot", "operator": "Exists"}]'),
            *("--set-json", 'worker.nodeSelector={"spot": "true"}'),
            *("--set", "scheduler.priorityClassName=high"),
        ),
    ],
)
def test_what_is_rendered_is_accepted(options: tuple[str, ...]) -> None:
    objects = rendered("--namespace", "elsewhere", *options)
    for item in objects.values():
        check(item)
        assert item["metadata"]["namespace"] == "elsewhere"
    if ("ConfigMap", "mscam-nightly") in objects:
        check(job(objects))


def test_values_reach_every_pod() -> None:
    image = "registry.example.com/mscam@sha256:0"
    objects = rendered(
        *("--set", f"image={image},storage.existingClaim=disk"),
        *("--set", "nightly.workers=5,nightly.schedule=0 4 * * *,worker.priorityClassName=low"),
        *("--set", "secrets.worker=w,secrets.scheduler=s,secrets.client=c"),
    )
    assert "mscam-dask:0.1.0" not in yaml.safe_dump_all(objects.values())
    assert objects["CronJob", "mscam-nightly"]["spec"]["schedule"] == "0 4 * * *"
    assert ("PersistentVolumeClaim", "mscam") not in objects
    assert job(objects)["spec"]["cluster"]["spec"]["worker"]["replicas"] == 5
    for secret, pod in zip("cws", pod_specs(job(objects)), strict=True):
        containers = (*pod["containers"], *pod.get("initContainers", ()))
        assert {item["image"] for item in containers} == {image}
        volumes = pod["volumes"]
        assert [item["secret"]["secretName"] for item in volumes if "secret" in item] == [secret]
        assert pod.get("priorityClassName") == ("low" if secret == "w" else None)
        claims = [item.get("persistentVolumeClaim") for item in volumes]
        assert ({"claimName": "disk"} in claims) == (secret != "s")


def test_kubectl_renders_the_kustomization() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    result = run(kubectl, "kustomize", DEPLOY / "k8s")
    assert result.returncode == 0, result.stderr
    made = {(item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(result.stdout)}
    assert {("CronJob", "mscam-nightly"), ("ConfigMap", "mscam-nightly")} <= made


VALIDATE = """
    const {Certificate} = require("@kubernetes-models/cert-manager/cert-manager.io/v1/Certificate");
    for (const item of JSON.parse(process.argv[1])) new Certificate(item).validate();
"""


def test_cert_manager_makes_the_certificates_that_pods_mount() -> None:
    objects = rendered("--set", "certManager.enabled=true,cluster.enabled=true")
    items = [item for (kind, _), item in objects.items() if kind == "Certificate"]
    mounted = {}
    for manifest in (job(objects), objects["DaskCluster", "mscam"]):
        for spec in pod_specs(manifest):
            (secret,) = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
            mounted[secret["secretName"]] = {item["key"] for item in secret["items"]}
    assert {item["spec"]["secretName"] for item in items} == set(mounted)
    assert len(items) == 3
    assert all(keys == {"ca.crt", "tls.crt", "tls.key"} for keys in mounted.values())
    for item in items:
        assert {"server auth", "client auth"} <= set(item["spec"]["usages"])
        before, duration = (
            int(item["spec"][name].removesuffix("h")) for name in ("renewBefore", "duration")
        )
        assert 0 < before < duration
    if "NODE_PATH" in os.environ:  # the schema of cert-manager, from its package from npm
        result = run("node", "-e", VALIDATE, json.dumps(items))
        assert result.returncode == 0, result.stderr
