"""Pipeline settings: defaults, where a setting may come from, and what a copy of them says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.read_config import read_config, settings_text
from mscam_dask.pipeline.toml_document import environment_overrides, parse_override
from tests.messages import raises

GOOD = '[data]\nsource = "digits"\n[cluster]\nn_clusters = 10\n'


def write(directory: Path, text: str) -> Path:
    file = directory / "pipeline.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("method", "kind"), [("mscam", MSCAM), ("mscan", MSCAN)])
def test_defaults_are_the_estimators_own(tmp_path: Path, method: str, kind: type) -> None:
    cluster = read_config(write(tmp_path, f"{GOOD}method = '{method}'\n")).cluster
    assert cluster.method == method
    estimator = cluster.estimator()
    assert type(estimator) is kind
    expected = {**kind().get_params(), "n_clusters": 10, "constants": Constants()}
    assert estimator.get_params() == expected
    assert set(expected) - set(cluster.parameters) == {
        *("view_type", "impute", "n_jobs", "client", "callbacks", "checkpoint_store"),
    }


def test_the_copy_of_the_settings_reads_back_the_same(tmp_path: Path) -> None:
    text = """
        [data]
        source = ["a.npy", "b.csv"]
        views = {a = "colour", b = "shape \\u00e9"}
        view_type = {"shape \\u00e9" = "kernel"}
        header = false
        [cluster]
        n_clusters = "auto"
        max_clusters = 12
        exclude_views = ["a", "b"]
        alpha = 2
        n_neighbors = 7
        constants = {auto_settings = false, score_tie = 1e-5}
        [execution]
        workers = 2
        memory_limit = "2 GiB"
        """
    settings = read_config(write(tmp_path, text))
    assert settings.cluster.n_clusters is None
    parameters = settings.cluster.parameters
    assert (parameters["n_clusters"], parameters["max_clusters"]) == ("auto", 12)
    assert parameters["exclude_views"] == ("a", "b")
    assert [repr(parameters[key]) for key in ("alpha", "n_neighbors")] == ["2.0", "7"]
    assert parameters["constants"]["auto_settings"] is False
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    assert read_config(write(copy, settings_text(settings))) == settings


def test_the_command_line_and_the_environment_win_over_the_file(tmp_path: Path) -> None:
    variables = {
        "MSCAM_CLUSTER__N_CLUSTERS": "4",
        "MSCAM_OUTPUT__ROOT": "/some where/runs",
        "MSCAM_DATA": "/not/ours",
        "MSCAM_LOCK": "x",
    }
    sets = [parse_override("evaluate.enabled=false")]
    settings = read_config(write(tmp_path, GOOD), [*environment_overrides(variables), *sets])
    assert settings.cluster.n_clusters == 4
    assert settings.output.root == "/some where/runs"
    assert settings.evaluate.enabled is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MSCAM_CLUSTER__", "MSCAM_TABLE__KEY=value"),
        ("MSCAM__N_CLUSTERS", "MSCAM_TABLE__KEY=value"),
        ("MSCAM_CLUSTER__N_CLUTSERS", "'n_clusters'"),
        ("MSCAM_CLUSTR__N_CLUSTERS", "'cluster'"),
    ],
)
def test_a_variable_that_means_nothing_is_named(tmp_path: Path, name: str, value: str) -> None:
    with raises(ConfigurationError, name, value):
        read_config(write(tmp_path, GOOD), environment_overrides({name: "4"}))


def test_paths_become_absolute_from_where_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (tmp_path / "truth.txt").touch()
    text = (
        "[data]\nsource = ['a.npy', '/abs/b.npy']\nlabels = 'truth.txt'\n"
        "[cluster]\nn_clusters = 2\n[output]\ndirectory = 'out'\n"
    )
    settings = read_config(write(tmp_path, text))
    assert settings.data.sources == (str(tmp_path / "a.npy"), "/abs/b.npy")
    assert settings.data.labels == str(tmp_path / "truth.txt")
    assert settings.output.directory == str(tmp_path / "out")
    typed = [parse_override("data.source=c.npy"), parse_override("data.labels=y")]
    settings = read_config(write(tmp_path, text), typed)
    assert settings.data.sources == (str(here / "c.npy"),)
    assert settings.data.labels == "y"  # no such file: the name of a variable


@pytest.mark.parametrize("name", ["quickstart", "handwritten"])
def test_the_pipelines_that_come_with_the_package_are_valid_and_short(name: str) -> None:
    file = Path(__file__).parents[3] / "pipelines" / f"{name}.toml"
    settings = read_config(file)
    assert (settings.name, settings.cluster.n_clusters) == (name, 10)
    assert len(file.read_text().splitlines()) < 40


def test_a_key_of_thousands_of_parts_is_refused() -> None:
    with raises(ConfigurationError, "TABLE.KEY=VALUE"):
        parse_override("a." * 5000 + "b=1")
