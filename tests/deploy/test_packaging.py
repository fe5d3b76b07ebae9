"""The files of a release agree with pyproject.toml and with their schemas."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import Any

import pytest
import yaml

import mscam_dask
from tests.deploy.files import ROOT, run

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


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
    assert {cited, packed, mscam_dask.__version__} == {PROJECT["version"]}


def test_the_recipe_has_the_dependencies_and_the_command() -> None:
    recipe = read_yaml("deploy/conda/recipe.yaml")
    run = dict(map(requirement, recipe["requirements"]["run"]))
    assert run.pop("python") == PROJECT["requires-python"]
    assert run == dict(map(requirement, PROJECT["dependencies"]))
    (command,) = recipe["build"]["python"]["entry_points"]
    assert dict([command.split(" = ")]) == PROJECT["scripts"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("CITATION.cff", "vendor.citation-file-format"),
        (".github/workflows/release.yml", "vendor.github-workflows"),
    ],
)
def test_schemas(file: str, schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install 'mscam-dask[deploy-test]'")
    program = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema)
    checked = run(*program, ROOT / file)
    assert checked.returncode == 0, checked.stdout


def test_the_release_tests_every_python_of_the_classifiers() -> None:
    tested = read_yaml(".github/workflows/release.yml")["jobs"]["check"]["strategy"]["matrix"]
    classified = [
        found[1]
        for text in PROJECT["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text))
    ]
    assert tested["python"] == classified


def test_the_quickstart_of_the_package_is_that_of_the_pipelines() -> None:
    packaged = ROOT / "mscam_dask/cli/quickstart.toml"
    assert packaged.read_bytes() == (ROOT / "pipelines/quickstart.toml").read_bytes()
