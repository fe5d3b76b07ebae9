"""The bill of materials of the image: what the lock has, no more and no less."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, run


@pytest.mark.thorough
def test_it_lists_the_distributions_of_the_lock(tmp_path: Path) -> None:
    if shutil.which("cyclonedx-py") is None:
        pytest.skip("cyclonedx-py is not installed (pip install cyclonedx-bom)")
    result = run(DEPLOY / "sbom", tmp_path / "sbom.json")
    assert result.returncode == 0, result.stderr
    made = json.loads((tmp_path / "sbom.json").read_text())
    assert made["bomFormat"] == "CycloneDX"
    assert made["metadata"]["component"]["name"] == "mscam-dask"
    listed = {item["name"]: item["version"] for item in made["components"]}
    lock = (DEPLOY / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.MULTILINE))
    assert len(locked) > 40
    assert listed == locked
    for item in made["components"]:
        hashes = {one["content"] for ref in item["externalReferences"] for one in ref["hashes"]}
        assert hashes
        assert all(f"sha256:{one}" in lock for one in hashes)
    again = tmp_path / "again.json"
    assert run(DEPLOY / "sbom", again).returncode == 0
    assert again.read_bytes() == (tmp_path / "sbom.json").read_bytes()
