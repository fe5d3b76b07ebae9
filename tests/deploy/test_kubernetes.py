"""Every manifest against the schemas of Kubernetes and of the Dask operator, made strict; the Helm chart with its defaults is the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.tls import make_certificates
from mscam_dask.pipeline.toml_document import environment_overrides
from tests.deploy.files import DEPLOY, documents
from tests.processes import run

for package in ("dask_kubernetes", "kubernetes_validate"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

CHART = files("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator"
KUBERNETES = "1.29"  # the oldest that deploy/k8s/README.md names
K8S = DEPLOY / "k8s"
PAGE = (K8S / "README.md").read_text()
MANIFESTS = sorted(file for file in K8S.glob("*.yaml") if file.name != "kustomization.yaml")


def strict(schema: Any) -> Any:
    """A structural schema that, as the API server with strict validation, has no unknown fields."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(item) for key, item in schema.items()}
    is_closed = not schema.get("x-kubernetes-preserve-unknown-fields")
    if is_closed and isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        result.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return result


@cache
def custom_resources() -> dict[str, Any]:
    schemas = {}
    for file in (CHART / "crds").iterdir():
        crd = yaml.safe_load(file.read_text())
        (version,) = [one for one in crd["spec"]["versions"] if one["name"] == "v1"]
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"] |= {
            "apiVersion": {"const": f"{crd['spec']['group']}/v1"},
            "kind": {"const": crd["spec"]["names"]["kind"]},
            "metadata": {"type": "object", "required": ["name"]},
        }
        schema["additionalProperties"] = False
        schemas[crd["spec"]["names"]["kind"]] = schema
    return schemas


def pod_specs(manifest: Any) -> list[Any]:
    """Pod specifications inside a Dask resource."""
    spec = manifest.get("spec")
    if manifest["kind"] == "DaskCluster":
        return [spec["worker"]["spec"], spec["scheduler"]["spec"]]
    if manifest["kind"] == "DaskJob":
        return [spec["job"]["spec"], *pod_specs({"kind": "DaskCluster", **spec["cluster"]})]
    return []


def check(manifest: Any) -> None:
    """Raise where a manifest is not what the API server would take."""
    if manifest["apiVersion"].startswith("kubernetes.dask.org/"):
        import jsonschema  # takes seconds, which the collection of tests need not wait for

        schema = custom_resources()[manifest["kind"]]
        jsonschema.Draft202012Validator(schema).validate(manifest)
        for spec in pod_specs(manifest):
            check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    else:
        with warnings.catch_warnings():
            # it names a class that jsonschema has renamed
            warnings.simplefilter("ignore", DeprecationWarning)
            import kubernetes_validate

            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def all_manifests() -> list[tuple[str, Any]]:
    """Every object of deploy/k8s with the name of its file."""
    return [(file.name, manifest) for file in MANIFESTS for manifest in documents(file)]


def one(kind: str) -> Any:
    """The one object of a kind, but for what is there before."""
    before = ("operator.yaml", "namespace.yaml")
    (found,) = [
        item for file, item in all_manifests() if item["kind"] == kind and file not in before
    ]
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_every_manifest_is_accepted(file: Path) -> None:
    for manifest in documents(file):
        check(manifest)


def test_the_operators_values_exist_in_its_chart() -> None:
    chart = yaml.safe_load((CHART / "values.yaml").read_text())
    (ours,) = documents(DEPLOY / "helm-values.yaml")
    free = {"resources", "podSecurityContext", "namespaceSelector"}

    def unknown(values: Any, known: Any, path: str) -> list[str]:
        found = []
        for key, value in values.items():
            here = f"{path}.{key}"
            if key not in known:
                found.append(here)
            elif isinstance(value, dict) and isinstance(known[key], dict) and key not in free:
                found += unknown(value, known[key], here)
        return found

    assert unknown(ours, chart, "") == []


def test_the_kustomization_names_files_that_are_there_and_pods_start_them() -> None:
    (kustomization,) = documents(K8S / "kustomization.yaml")
    (generator,) = kustomization["configMapGenerator"]
    named = {*kustomization["resources"], *generator["files"]}
    assert [name for name in named if not (K8S / name).is_file()] == []
    pod = one("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    runner = one("DaskJob")["spec"]["job"]["spec"]
    commands = [*pod["containers"][0]["args"][1:], runner["initContainers"][0]["args"][1]]
    assert sorted(commands) == [f"/nightly/{name}" for name in sorted(generator["files"])]
    for spec in (pod, runner):
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "nightly"]
        assert volume["configMap"]["name"] == generator["name"]


def test_the_secrets_of_the_page_have_what_pods_mount_under_the_names_that_are_made(
    tmp_path: Path,
) -> None:
    loop = re.search(r"for role in ([\w ]+); do(.*?)done", PAGE, re.DOTALL)
    assert "create secret generic mscam-tls-$role " in loop[2]
    files = re.findall(r"--from-file=certs/(\S+)", loop[2])
    given = {
        f"mscam-tls-{role}": {file.replace("$role", role) for file in files}
        for role in loop[1].split()
    }
    mounted = {}
    for _, manifest in all_manifests():
        for spec in pod_specs(manifest):
            secret = spec["volumes"][0]["secret"]
            mounted[secret["secretName"]] = {item["key"] for item in secret["items"]}
    assert mounted == given
    made = make_certificates(tmp_path)
    used = set.union(*given.values())
    assert used == {file.name for file in tmp_path.iterdir()} - {made.key("ca").name}


def test_the_pipeline_and_the_environment_of_the_run_are_read(tmp_path: Path) -> None:
    (settings,) = documents(K8S / "pipeline.yaml")
    (container,) = one("DaskJob")["spec"]["job"]["spec"]["containers"]
    (name,) = settings["data"]
    assert f"/pipeline/{name}" in container["args"]
    (tmp_path / name).write_text(settings["data"][name])
    environment = {item["name"]: item.get("value", "mscam-nightly") for item in container["env"]}
    environment["MSCAM_EXECUTION__SCHEDULER"] = environment["DASK_SCHEDULER_ADDRESS"].replace(
        "$(MSCAM_CLUSTER)", environment["MSCAM_CLUSTER"]
    )
    read = read_config(tmp_path / name, environment_overrides(environment))
    assert read.execution.scheduler == "tls://mscam-nightly-scheduler:8786"
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == "mscam"]
    for place in (read.output.root, read.data.source):
        assert Path(str(place)).is_relative_to(mount["mountPath"])


def test_pods_have_limits_and_accounts_without_rights_and_speak_tls() -> None:
    accounts = {
        item["metadata"]["name"] for _, item in all_manifests() if item["kind"] == "ServiceAccount"
    }
    binding = one("RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == ["mscam-nightly"]
    nightly = one("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    of_dask = [spec for _, manifest in all_manifests() for spec in pod_specs(manifest)]
    for spec in (nightly, *of_dask):
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert "memory" in container["resources"]["limits"]
    for spec in of_dask:
        assert spec["serviceAccountName"] in accounts - {"mscam-nightly"}
        (container,) = spec["containers"]
        env = {entry["name"]: str(entry.get("value")) for entry in container["env"]}
        assert env["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        assert env["DASK_SCHEDULER_ADDRESS"].startswith("tls://")
        keys = {item["key"] for item in spec["volumes"][0]["secret"]["items"]}
        assert keys == {value[5:] for value in env.values() if value.startswith("/tls/")}


def test_the_operator_is_of_the_version_of_its_values_and_may_list_what_it_looks_for() -> None:
    (installed,) = re.findall(r"--version (\S+)", PAGE)
    values = (DEPLOY / "helm-values.yaml").read_text()
    assert re.findall(r"version (\d+\.\d+\.\d+)", values) == [installed]
    role, binding = documents(K8S / "operator.yaml")
    rights = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    watched = {("apiextensions.k8s.io", "customresourcedefinitions"), ("", "namespaces")}
    assert rights == {(*what, verb) for what in watched for verb in ("list", "watch")}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    release = re.findall(r"(\S+) dask/dask-kubernetes-operator", PAGE)
    assert [subject["name"]] == release, "helm names the account after the release"


Objects = Mapping[tuple[str, str], Any]


def rendered(*options: str) -> dict[tuple[str, str], Any]:
    """Objects of the chart by kind and name."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    command = (helm, "template", "mscam", DEPLOY / "chart", "--namespace", "mscam")
    result = run(*command, *options)
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
