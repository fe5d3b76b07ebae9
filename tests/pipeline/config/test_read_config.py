"""Pipeline settings: every mistake is named with its place and what would be right."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.settings import ClusterKeys, settings_text
from mscam_dask.pipeline.config.toml_document import parse_override

GOOD = """\
[data]
source = "digits"

[cluster]
n_clusters = 10
"""


def write(directory: Path, text: str) -> Path:
    file = directory / "pipeline.toml"
    file.write_text(text)
    return file


def problem(directory: Path, text: str, *sets: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_config(write(directory, text), [parse_override(item) for item in sets])
    return str(caught.value)


@pytest.mark.parametrize(
    ("extra", "line", "parts"),
    [
        ("[outputs]\ndirectory = 'x'", 7, ["[outputs]", "'output'", "[execution]"]),
        ("stray = 1\n", 7, ["[cluster]", "'stray'", "n_clusters"]),
        ("n_cluster = 3\n", 7, ["[cluster]", "'n_cluster'", "'n_clusters'"]),
        ("ALPHA = 3.0\n", 7, ["'ALPHA'", "'alpha'"]),
        ("view_type = 'kernel'\n", 7, ["[cluster]", "'view_type'", "[data]"]),
        ("client = 'x'\n", 7, ["[cluster]", "'client'", "[execution]"]),
        ("workers = 4\n", 7, ["[cluster]", "'workers'", "[execution]"]),
        ("alpha = 'one'\n", 7, ["[cluster] alpha", "'one'"]),
        ("alpha = true\n", 7, ["[cluster] alpha", "true"]),
        ("alpha = -1.0\n", 7, ["[cluster] alpha", "-1.0", "1e-06", "1e+06"]),
        ("alpha = nan\n", 7, ["[cluster] alpha", "nan", "1e-06", "1e+06"]),
        ("n_neighbors = 2.5\n", 7, ["[cluster] n_neighbors", "2.5"]),
        ("n_neighbors = 0\n", 7, ["[cluster] n_neighbors", "0", ">= 1"]),
        ("scale = 'standrd'\n", 7, ["[cluster] scale", "'standrd'", "minmax", "'standard'"]),
        ("random_state = -1\n", 7, ["[cluster] random_state", "-1", ">= 0"]),
        ("method = 'mscamm'\n", 7, ["[cluster] method", "'mscamm'", "'mscam'", "mscan"]),
        ("method = ['mscam']\n", 7, ["[cluster] method", "['mscam']", "mscan"]),
        ("identity_weight = 1.0\n", 7, ["[cluster]", "'identity_weight'", "[cluster.constants]"]),
        ("tol = 1e-3\n", 7, ["[cluster]", "'tol'", "score_tie", "[cluster.constants]"]),
        ("constants = 3\n", 7, ["[cluster] constants = 3", "table"]),
        ("constants.tol = 3\n", 7, ["[cluster.constants]", "'tol'", "score_tie"]),
        ("constants.patience = 1.5\n", 7, ["[cluster.constants] patience", "1.5"]),
        (
            "[cluster.constants]\nmetric_ridge = -1",
            8,
            ["[cluster.constants] metric_ridge = -1", "0"],
        ),
        (
            "[cluster.constants]\nadmm = {penalty = 0}",
            8,
            ["[cluster.constants.admm] penalty = 0", "> 0"],
        ),
        ("[execution]\nworkers = 0", 8, ["[execution] workers", "0", ">= 1"]),
        ("[execution]\nworkers = '2'", 8, ["[execution] workers", "'2'"]),
        ("[execution]\nin_process = 1", 8, ["[execution] in_process", "true", "false"]),
        ("[execution]\nmemory_limit = 1.5", 8, ["[execution] memory_limit", "1.5"]),
        ("[execution]\nin_process = true\nworkers = 2", 9, ["[execution] workers", "in_process"]),
        (
            "[execution]\nscheduler = 'tls://a:1'\nworkers = 2",
            9,
            ["[execution] workers", "scheduler"],
        ),
        ("[execution]\nscheduler = 'tls://a:1'\nin_process = true", 9, ["scheduler", "in_process"]),
        ("[execution]\ntls_ca = 'x'", 8, ["[execution] tls_ca", "scheduler", "tls://"]),
        ("[evaluate]\nenabled = 'yes'", 8, ["[evaluate] enabled", "'yes'", "true", "false"]),
        ("[output]\ndirectory = ''", 8, ["[output] directory", "''"]),
        ("[output]\ndir = 'x'", 8, ["[output]", "'dir'", "directory"]),
        ("[output]\ndirectory = 1979-05-27", 8, ["[output] directory", "1979-05-27"]),
        ("[output.directory]\nx = 1", 7, ["[output] directory", "{'x': 1}"]),
    ],
)
def test_a_mistake_is_named_with_line_table_key_and_what_is_allowed(
    tmp_path: Path, extra: str, line: int, parts: list[str]
) -> None:
    message = problem(tmp_path, f"{GOOD}\n{extra}")
    assert message.count("\n") == 0, "one mistake, one line"
    for part in (*parts, f"pipeline.toml, line {line}:"):
        assert part in message


@pytest.mark.parametrize(
    ("keys", "n_lines"),
    [("alpha = -1.0\ntol = -3.0\nn_neighbors = 0", 3), ("alpha = 'x'\ntol = 'y'\nscale = 3", 3)],
)
def test_every_key_of_cluster_that_is_wrong_is_named_at_once(
    tmp_path: Path, keys: str, n_lines: int
) -> None:
    message = problem(tmp_path, f"[data]\nsource = 'a.npy'\n[cluster]\nn_clusters = 3\n{keys}")
    assert len(message.splitlines()) == n_lines
    for line in range(5, 5 + n_lines):
        assert f"pipeline.toml, line {line}: [cluster]" in message


def test_a_choice_is_listed_once(tmp_path: Path) -> None:
    message = problem(tmp_path, "[data]\nsource = 'a'\nview_type = 'l2'\n[cluster]\nn_clusters = 3")
    assert message.count("kernel") == 1


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("", ["line 1", "[data]", "source", '"digits"', '"mfeat"']),
        ("source = 3", ["line 2", "[data] source", "3"]),
        ("source = []", ["line 2", "[data] source", "[]"]),
        ("source = ['a', 3]", ["line 2", "[data] source", "['a', 3]"]),
        ("source = ['digits', 'a.npy']", ["line 2", "'digits'", "./digits"]),
        ("source = '~no-such-user/x'", ["line 2", "'~no-such-user/x'"]),
        (
            "source = 'digits'\npath = 'x'",
            ["line 3", "[data] path", "source", "'mfeat'", "'digits'"],
        ),
        (
            "source = 'a.npy'\nfamilies = ['pixels']",
            ["line 3", "[data] families", "source", "'digits'", "a.npy"],
        ),
        ("source = 'mfeat'\nsamples_in = 'columns'", ["line 3", "[data] samples_in", "'mfeat'"]),
        ("source = 'mfeat'\npath = 'a'\ncache = 'b'", ["line 4", "[data]", "path", "cache"]),
        (
            "source = 'a.npy'\nsamples_in = 'row'",
            ["[data] samples_in", "'row'", "'rows'", "columns"],
        ),
        ("source = 'a.npy'\nview_type = 'kernal'", ["[data] view_type", "'kernal'", "'kernel'"]),
        (
            "source = 'a.npy'\nview_type = {v = 'kernal'}",
            ["[data] view_type", "{'v': 'kernal'}", "features", "distance"],
        ),
        ("source = 'a.npy'\nview_type = 3", ["line 3", "[data] view_type", "3"]),
        ("source = 'a.npy'\nheader = 'no'", ["[data] header", "'no'", "true", "false"]),
        ("source = 'a.npy'\nmax_bytes = 0", ["line 3", "[data] max_bytes", "0"]),
        ("source = 'a.npy'\nmax_bytes = 'much'", ["line 3", "[data] max_bytes", "'much'"]),
        ("source = 'digits'\nmax_bytes = 1", ["line 3", "[data] max_bytes", "'digits'"]),
        ("source = 'a.npy'\nchunk_size = 0", ["[data] chunk_size", "0", ">= 1"]),
        ("source = 'a.npy'\nview = ['a']", ["[data]", "'view'", "'views'"]),
        ("source = 'a.npy'\nworkers = 3", ["[data]", "'workers'", "[execution]"]),
        ('source = "a\\u0000b"', ["line 2", "[data] source", r"'a\x00b'"]),
    ],
)
def test_mistakes_about_the_data(tmp_path: Path, data: str, parts: list[str]) -> None:
    message = problem(tmp_path, f"[data]\n{data}\n[cluster]\nn_clusters = 3\n")
    for part in (*parts, "pipeline.toml"):
        assert part in message


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    text = "[data]\nsorce = 'digits'\n[cluster]\nalpha = 'x'\n[execution]\nworkers = 0\n[what]\n"
    message = problem(tmp_path, text)
    for part in ("'sorce'", "'source'", "n_clusters", "[execution] workers", "[what]"):
        assert part in message


@pytest.mark.parametrize("text", ["", "data = 1\ncluster = 2\n"])
def test_a_pipeline_needs_data_and_cluster(tmp_path: Path, text: str) -> None:
    message = problem(tmp_path, text)
    assert "[data]" in message
    assert "[cluster]" in message


def test_a_mistake_on_the_command_line_is_named_as_it_was_typed(tmp_path: Path) -> None:
    message = problem(tmp_path, GOOD, "cluster.alpha=-1")
    assert message.startswith("--set cluster.alpha=-1: [cluster] alpha")
    message = problem(tmp_path, GOOD, "cluster.alhpa=1")
    assert message.startswith("--set cluster.alhpa=1: [cluster]")
    assert "'alpha'" in message


def test_defaults_are_the_estimators_own(tmp_path: Path) -> None:
    for method, kind in (("mscam", MSCAM), ("mscan", MSCAN)):
        settings = read_config(write(tmp_path, f"{GOOD}method = '{method}'\n"))
        assert settings.cluster.method == method
        estimator = settings.cluster.estimator()
        assert type(estimator) is kind
        expected = {**kind().get_params(), "n_clusters": 10, "constants": Constants()}
        assert estimator.get_params() == expected
        assert set(expected) - set(settings.cluster.parameters) == {
            *("view_type", "impute", "n_jobs", "client", "callbacks", "checkpoint_store"),
        }


def test_what_the_estimator_chooses_can_be_left_to_it_or_fixed(tmp_path: Path) -> None:
    settings = read_config(write(tmp_path, GOOD))
    assert settings.cluster.parameters["alpha"] is None
    assert settings.cluster.n_neighbors is None
    settings = read_config(
        write(tmp_path, GOOD + "constants.auto_settings = false\nn_neighbors = 7\n")
    )
    assert settings.cluster.parameters["constants"]["auto_settings"] is False
    assert settings.cluster.n_neighbors == 7
    again = read_config(write(tmp_path, settings_text(settings)))
    assert again.cluster == settings.cluster


def test_numbers_keep_their_kind(tmp_path: Path) -> None:
    settings = read_config(write(tmp_path, GOOD + "alpha = 2\nn_neighbors = 5\n"))
    assert repr(settings.cluster.parameters["alpha"]) == "2.0"
    assert repr(settings.cluster.parameters["n_neighbors"]) == "5"


def test_overrides_change_settings(tmp_path: Path) -> None:
    sets = [parse_override(t) for t in ("cluster.n_clusters=4", "evaluate.enabled=false")]
    settings = read_config(write(tmp_path, GOOD), sets)
    assert settings.cluster.n_clusters == 4
    assert not settings.evaluate.enabled


def test_the_number_of_clusters_may_be_left_to_the_fit(tmp_path: Path) -> None:
    text = GOOD.replace("10", '"auto"')
    settings = read_config(write(tmp_path, text + "max_clusters = 12\n"))
    assert settings.cluster.n_clusters is None
    assert settings.cluster.parameters["n_clusters"] == "auto"
    assert settings.cluster.parameters["max_clusters"] == 12
    assert settings_text(settings).count('n_clusters = "auto"') == 1


def test_views_may_be_left_out(tmp_path: Path) -> None:
    settings = read_config(write(tmp_path, GOOD + 'exclude_views = ["a", "b"]\n'))
    assert settings.cluster.parameters["exclude_views"] == ("a", "b")
    assert read_config(write(tmp_path, GOOD)).cluster.parameters["exclude_views"] is None
    for wrong in ('"a"', "3", "[1]"):
        said = problem(tmp_path, GOOD + f"exclude_views = {wrong}\n")
        assert "exclude_views" in said


@pytest.mark.parametrize(
    ("count", "more", "parts"),
    [
        ('"Auto"', "", ["n_clusters", "'Auto'", '"auto"']),
        ('"auto"', "max_clusters = 1\n", ["max_clusters", "1", ">= 2"]),
        ("4", "max_clusters = 9\n", ["line 6", "max_clusters", "n_clusters", '"auto"']),
        ("0", "", ["line 5", "[cluster] n_clusters", "0", ">= 1"]),
        ("2.5", "", ["line 5", "[cluster] n_clusters", "2.5"]),
    ],
    ids=str,
)
def test_numbers_of_clusters_that_make_no_sense(
    tmp_path: Path, count: str, more: str, parts: list[str]
) -> None:
    said = problem(tmp_path, GOOD.replace("10", count) + more)
    for part in parts:
        assert part in said


def test_paths_become_absolute_from_where_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (tmp_path / "truth.txt").touch()
    file = write(
        tmp_path,
        "[data]\nsource = ['a.npy', '/abs/b.npy']\nlabels = 'truth.txt'\n"
        "[cluster]\nn_clusters = 2\n[output]\ndirectory = 'out'\n",
    )
    settings = read_config(file)
    assert settings.data.sources == (str(tmp_path / "a.npy"), "/abs/b.npy")
    assert settings.data.labels == str(tmp_path / "truth.txt")
    assert settings.output.directory == str(tmp_path / "out")
    typed = read_config(
        file, [parse_override("data.source=c.npy"), parse_override("data.labels=y")]
    )
    assert typed.data.sources == (str(here / "c.npy"),)
    assert typed.data.labels == "y"  # no such file: the name of a variable


def test_the_copy_of_the_settings_reads_back_the_same(tmp_path: Path) -> None:
    text = (
        "[data]\nsource = ['a.npy', 'b.csv']\nviews = {a = 'colour', b = 'shape \\u00e9'}\n"
        "view_type = {'shape \\u00e9' = 'kernel'}\nheader = false\n"
        "[cluster]\nn_clusters = 2\nmethod = 'mscan'\nconstants.score_tie = 1e-5\n"
        "[execution]\nworkers = 2\nmemory_limit = '2 GiB'\n"
    ).replace("'shape \\u00e9'", '"shape \\u00e9"')
    settings = read_config(write(tmp_path, text))
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    assert read_config(write(copy, settings_text(settings))) == settings


@pytest.mark.parametrize("name", ["quickstart", "handwritten"])
def test_the_pipelines_that_come_with_the_package_are_valid_and_short(name: str) -> None:
    file = Path(__file__).parents[3] / "pipelines" / f"{name}.toml"
    settings = read_config(file)
    assert settings.cluster.n_clusters == 10
    assert settings.name == name
    assert len(file.read_text().splitlines()) < 40


def test_the_keys_of_cluster_are_parameters_of_the_estimators_with_their_defaults(
    tmp_path: Path,
) -> None:
    keys = {
        field.name: field.default
        for field in msgspec.structs.fields(ClusterKeys)
        if field.name not in ("method", "n_clusters", "constants")
    }
    parameters = read_config(write(tmp_path, GOOD)).cluster.parameters
    constants = dataclasses.asdict(Constants())
    assert parameters == {**keys, "n_clusters": 10, "constants": constants}
    assert keys.items() <= MSCAM().get_params().items()


def test_choices_are_named(tmp_path: Path) -> None:
    text = problem(tmp_path, f"{GOOD}scale = 'log'\n")
    assert "[cluster] scale = 'log'" in text
    assert '"standard", "unit", "minmax", "none"' in text
