"""Image, compose file, Grafana, bill of materials and the files of a release: schemas, lint, and what the texts promise."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mscam_dask
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY, ROOT, documents, installed_program
from tests.processes import run, script_environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
(COMPOSE,) = documents(DEPLOY / "compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]


def linted(program: str, *arguments: str | Path) -> str:
    """What a program that came with a Python package says of a file; skips where it is missing."""
    if not Path(installed_program(program)).is_file():
        pytest.skip(f"{program} is not installed (pip install 'mscam-dask[deploy-test]')")
    result = run(installed_program(program), *arguments)
    return "" if result.returncode == 0 else result.stdout + result.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("deploy/compose.yaml", "compose-spec"),
        ("CITATION.cff", "citation-file-format"),
        (".github/workflows/release.yml", "github-workflows"),
    ],
)
def test_schemas(file: str, schema: str) -> None:
    assert linted("check-jsonschema", "--builtin-schema", f"vendor.{schema}", ROOT / file) == ""


@pytest.mark.thorough
def test_the_dockerfile_passes_hadolint() -> None:
    assert linted("hadolint", "--no-color", DEPLOY / "Dockerfile") == ""


def test_services_are_closed_and_have_limits() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 4
    assert all(str(port).startswith("127.0.0.1:") for port in published)
    assert COMPOSE["networks"]["cluster"] == {"internal": True}
    assert SERVICES["worker"]["networks"] == ["cluster"]
    for name in ("scheduler", "worker", "run", "prometheus", "grafana"):
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert SERVICES[name]["read_only"] is True
    for name in ("worker", "prometheus", "grafana"):
        assert set(SERVICES[name]["deploy"]["resources"]["limits"]) == {"cpus", "memory"}


def test_every_container_speaks_tls_with_its_own_key_and_never_the_authoritys(
    tmp_path: Path,
) -> None:
    made = make_certificates(tmp_path)
    for service, role in {"scheduler": "scheduler", "worker": "worker", "run": "client"}.items():
        environment = SERVICES[service]["environment"]
        assert environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        files = {
            volume["target"]: volume["source"]
            for volume in SERVICES[service]["volumes"]
            if volume["target"].startswith("/tls")
        }
        ours = [made.certificate("ca"), made.certificate(role), made.key(role)]
        assert files == {f"/tls/{file.name}": f"./tls/certs/{file.name}" for file in ours}
        assert {value for value in environment.values() if value.startswith("/tls/")} == set(files)


def test_what_workers_spill_goes_to_a_disk_that_their_user_may_write() -> None:
    """A tmpfs is memory and counts against the container's limit: spilling there frees nothing."""
    worker = SERVICES["worker"]
    option = "--local-directory="
    (folder,) = (word[len(option) :] for word in worker["command"] if word.startswith(option))
    mounted = {volume["target"]: volume["type"] for volume in worker["volumes"]}
    assert mounted[folder] == "volume"
    assert not any(entry.split(":")[0] == folder for entry in worker["tmpfs"])
    assert f"install --directory --mode 1777 {folder}" in DOCKERFILE, "MSCAM_UID is any number"


def test_files_that_are_mounted_or_copied_exist() -> None:
    mounted = {
        volume["source"]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume["type"] == "bind" and not re.search(r"\$|^./tls/certs/", volume["source"])
    }
    assert [path for path in mounted if not (DEPLOY / path).exists()] == []
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name in (name for line in copied for name in line.split()):
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed


def test_the_image_is_of_digests_and_ends_as_nobody_special() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    images += [one["image"] for one in SERVICES.values() if "build" not in one]
    assert len(images) == 4
    assert all(re.search("@sha256:[0-9a-f]{64}$", image) for image in images)
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.M)[-1] == "10001:10001"
    assert not re.search(r"^#\s*syntax\s*=", DOCKERFILE, re.M), "a frontend from a registry"


def locked(name: str) -> dict[str, str]:
    """Versions of a lock; every one has a digest, and nothing says where it was made."""
    text = (DEPLOY / name).read_text().strip()
    assert re.search(r"://|index-url|find-links", text) is None
    entries = re.split(r"\n(?=\S)", text)
    assert all("--hash=sha256:" in entry for entry in entries)
    pairs = [re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", entry) for entry in entries]
    return {canonicalize_name(pair[1]): pair[2] for pair in pairs if pair}


def test_the_locks_hold_what_the_package_and_its_extras_need() -> None:
    wanted = list(PROJECT["project"]["dependencies"])
    for extra in ("mat", "netcdf", "dashboard", "cluster", "s3"):
        wanted += PROJECT["project"]["optional-dependencies"][extra]
    build = PROJECT["build-system"]["requires"]
    for file, texts in (("requirements.lock", wanted), ("requirements-build.lock", build)):
        versions = locked(file)
        for requirement in map(Requirement, texts):
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{requirement}: run deploy/lock"


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    root = DEPLOY / "grafana"
    (sources,) = documents(root / "provisioning/datasources/prometheus.yaml")
    (source,) = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (providers,) = documents(root / "provisioning/dashboards/mscam.yaml")
    path = providers["providers"][0]["options"]["path"]
    mounts = {volume["target"]: volume["source"] for volume in SERVICES["grafana"]["volumes"]}
    assert mounts[path] == "./grafana"
    panels = json.loads((root / "mscam.json").read_text())["panels"]
    uids = {panel["datasource"].get("uid", "$") for panel in panels if "datasource" in panel}
    assert {uid for uid in uids if uid[0] != "$"} <= {source["uid"], "-- Grafana --"}


@pytest.mark.thorough
def test_the_bill_of_materials_lists_the_distributions_of_the_lock(tmp_path: Path) -> None:
    if not Path(installed_program("cyclonedx-py")).is_file():
        pytest.skip("cyclonedx-py is not installed (pip install cyclonedx-bom)")
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    result = run(DEPLOY / "sbom", tmp_path / "sbom.json", env=script_environment(PATH=folders))
    assert result.returncode == 0, result.stderr
    made = json.loads((tmp_path / "sbom.json").read_text())
    assert made["metadata"]["component"]["name"] == "mscam-dask"
    listed = {canonicalize_name(item["name"]): item["version"] for item in made["components"]}
    assert listed == locked("requirements.lock")
    lock = (DEPLOY / "requirements.lock").read_text()
    for item in made["components"]:
        hashes = {one["content"] for ref in item["externalReferences"] for one in ref["hashes"]}
        assert hashes
        assert all(f"sha256:{one}" in lock for one in hashes)


def read_yaml(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text(encoding="utf-8")))


def requirement(text: str) -> tuple[str, str]:
    """Name of a requirement in conda's spelling, and its version bounds."""
    found = re.fullmatch(r"([\w-]+)(?:\[\w+\])? ?(\S*)", text)
    assert found is not None, text
    return ("dask-core" if found[1] == "dask" else found[1]), found[2]


def test_versions_agree() -> None:
    cited = read_yaml("CITATION.cff")["version"]
    packed = read_yaml("deploy/conda/recipe.yaml")["context"]["version"]
    assert {cited, packed, mscam_dask.__version__} == {PROJECT["project"]["version"]}


def test_the_recipe_has_the_dependencies_and_the_command() -> None:
    recipe = read_yaml("deploy/conda/recipe.yaml")
    run = dict(map(requirement, recipe["requirements"]["run"]))
    assert run.pop("python") == PROJECT["project"]["requires-python"]
    assert run == dict(map(requirement, PROJECT["project"]["dependencies"]))
    (command,) = recipe["build"]["python"]["entry_points"]
    assert dict([command.split(" = ")]) == PROJECT["project"]["scripts"]


def test_the_release_tests_every_python_of_the_classifiers() -> None:
    tested = read_yaml(".github/workflows/release.yml")["jobs"]["check"]["strategy"]["matrix"]
    classified = [
        found[1]
        for text in PROJECT["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text))
    ]
    assert tested["python"] == classified


def test_the_quickstart_of_the_package_is_that_of_the_pipelines() -> None:
    packaged = ROOT / "mscam_dask/cli/quickstart.toml"
    assert packaged.read_bytes() == (ROOT / "pipelines/quickstart.toml").read_bytes()
