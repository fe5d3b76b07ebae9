"""Experiment files: what is wrong is said before any work, with its place and what is allowed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from mscam_dask.benchmark.config import Command, experiment_command, read_experiment
from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.published_scores import ROBUSTNESS, TABLES
from mscam_dask.benchmark.settings import CompareTable, RobustnessTable, SweepTable
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.toml_document import parse_override, read_document
from tests.benchmark.conftest import Write

PIPELINES = Path(__file__).parents[2] / "pipelines"


def test_defaults(write: Write) -> None:
    settings = read_experiment(write("[compare]\ndatasets = ['tiny.npz']"))
    assert settings.kind == "comparison"
    assert isinstance(settings.table, CompareTable)
    assert settings.table.runs == 10
    assert settings.table.protocols == ("defaults",)
    assert list(settings.datasets) == ["tiny"]
    assert Path(str(settings.datasets["tiny"].source)).is_absolute()


def test_names_are_looked_for_in_the_directory_of_data(
    write: Write, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "kept").mkdir()
    (here / "tiny.npz").rename(here / "kept" / "tiny.npz")
    text = "[compare]\ndatasets = ['tiny']"
    with pytest.raises(ConfigurationError, match=re.escape("$MSCAM_DATA")):
        read_experiment(write(text))
    settings = read_experiment(write(f"{text}\ndirectory = 'kept'"))
    assert settings.datasets["tiny"].source == str(here / "kept" / "tiny.npz")
    monkeypatch.setenv("MSCAM_DATA", str(here / "kept"))
    assert read_experiment(write(text)).datasets == settings.datasets
    with pytest.raises(ConfigurationError, match=r"Did you mean 'tiny'\? There are digits, mfeat"):
        read_experiment(write("[compare]\ndatasets = ['tini']"))


def test_declared_data(write: Write) -> None:
    text = "[compare]\ndatasets = ['mine']\n[dataset.mine]\nsource = ['tiny.npz']\nn_clusters = 4"
    settings = read_experiment(write(text))
    assert settings.datasets["mine"].n_clusters == 4


BAD_NAMES = (
    *("../out", "/absolute", "a/b", "..", ".hidden", "", "back\\slash", "C:", "nul", "com1.x"),
    *("new\nline", "nul\0name", "ends.", "ends ", "x" * 201, "ü" * 101),
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_is_no_path(write: Write, name: str) -> None:
    quoted = json.dumps(name)
    text = f"[compare]\ndatasets = ['tiny.npz']\n[dataset.{quoted}]\nsource = 'digits'"
    with pytest.raises(ConfigurationError, match=r"experiment.toml.*allowed is one plain name"):
        read_experiment(write(text))


@pytest.mark.parametrize("name", ["MSRC-v1 (5 views)", "ziffern_ä", "v1.2", "x" * 200, "console"])
def test_a_name_need_not_be_a_word(write: Write, name: str) -> None:
    text = f'[compare]\ndatasets = ["{name}"]\n[dataset."{name}"]\nsource = "digits"'
    assert list(read_experiment(write(text)).datasets) == [name]


def test_data_found_by_a_path_are_called_by_its_end(write: Write, here: Path) -> None:
    for place in (here / "kept" / "more", here / "outside"):
        place.mkdir(parents=True)
        shutil.copy(here / "tiny.npz", place / "set.npz")
    directory = "\ndirectory = 'kept'"
    for asked in ("more/set", "../outside/set"):
        settings = read_experiment(write(f"[compare]\ndatasets = ['{asked}']{directory}"))
        assert list(settings.datasets) == ["set"]
    shutil.copy(here / "tiny.npz", here / "aux.npz")
    with pytest.raises(ConfigurationError, match=r"line 2.*device.*name for it in a table"):
        read_experiment(write("[compare]\ndatasets = ['aux.npz']"))


@pytest.mark.parametrize("other", ["Tiny", "TINY"])
def test_names_that_some_file_systems_take_for_one_are_refused(
    write: Write, here: Path, other: str
) -> None:
    shutil.copy(here / "tiny.npz", here / f"{other}.npz")
    found = f"[compare]\ndatasets = ['tiny.npz', '{other}.npz']"
    declared = (
        f"[compare]\ndatasets = ['tiny.npz', '{other}']\n[dataset.{other}]\nsource = 'digits'"
    )
    for text in (found, declared):
        said = rf"line 2.*'tiny' and '{other}'; their stores.*in a table \[dataset.NAME\]"
        with pytest.raises(ConfigurationError, match=said):
            read_experiment(write(text))


def test_directories_are_called_by_the_files_name(here: Path) -> None:
    file = here / "...toml"
    file.write_text("[compare]\ndatasets = ['tiny.npz']")
    with pytest.raises(ConfigurationError, match=r"name '\.\.' begins with.*rename the file"):
        read_experiment(file)


def test_paths_of_data_start_at_the_file_or_at_the_command_line(here: Path) -> None:
    place = here / "elsewhere"
    place.mkdir()
    shutil.copy(here / "tiny.npz", place / "near.npz")
    file = place / "e.toml"
    file.write_text("[compare]\ndatasets = ['m']\n[dataset.m]\nsource = 'near.npz'\n")
    assert read_experiment(file).datasets["m"].source == str(place / "near.npz")
    settings = read_experiment(file, [parse_override("dataset.m.source=tiny.npz")])
    assert settings.datasets["m"].source == str(here / "tiny.npz")


def test_kinds(write: Write) -> None:
    robustness = read_experiment(write("[robustness]\nruns = 2"))
    assert isinstance(robustness.table, RobustnessTable)
    assert robustness.table.methods == ("mlan", "mscan", "mscam")
    sweep = read_experiment(write("[sweep]\ndatasets = ['tiny.npz']"), command="sweep")
    assert isinstance(sweep.table, SweepTable)


@pytest.mark.parametrize(
    ("name", "command"),
    [("comparison", "compare"), ("robustness", "compare"), ("sensitivity", "sweep")],
)
def test_the_papers_pipelines_are_usable(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: Command
) -> None:
    for data in ("handwritten", "flowers17", "caltech101_nus31", "cifar10_nus_3100"):
        (here / f"{data}.npz").touch()
    monkeypatch.setenv("MSCAM_DATA", str(here))
    assert experiment_command(read_document(PIPELINES / f"{name}.toml").tables) == command
    settings = read_experiment(PIPELINES / f"{name}.toml", command=command)
    assert settings.kind == name
    if isinstance(settings.table, RobustnessTable):
        assert settings.table == RobustnessTable()


def test_the_paper_reports_on_methods_that_there_are() -> None:
    assert {method for _, method in TABLES} | set(ROBUSTNESS) <= set(METHODS)


def test_without_a_file(here: Path) -> None:
    settings = read_experiment(None, [parse_override('compare.datasets=["tiny.npz"]')])
    assert settings.name == "comparison"
    assert list(settings.datasets) == ["tiny"]
    with pytest.raises(ConfigurationError, match=r"compare\.runs=0"):
        read_experiment(
            None,
            [parse_override('compare.datasets=["tiny.npz"]'), parse_override("compare.runs=0")],
        )
    with pytest.raises(
        ConfigurationError, match=r"compare\.datasets is \['tiny.npz'\], not a table"
    ):
        read_experiment(
            None,
            [
                parse_override('compare.datasets=["tiny.npz"]'),
                parse_override("compare.datasets.x=1"),
            ],
        )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["there is no table [compare] or [robustness]"]),
        ("[compare]\n[robustness]", ["line 2", "keep one of them"]),
        ("[sweep]\ndatasets = ['tiny.npz']", ["line 1", "is for mscam-dask sweep"]),
        ("[comapre]", ["line 1", "Did you mean 'compare'?"]),
        ("[compare]", ["line 1", "needs datasets"]),
        ("[compare]\ndatasets = []", ["line 2", "a list that is not empty"]),
        ("[compare]\ndatasets = 'tiny.npz'", ["line 2", "allowed is a list"]),
        ("[compare]\ndatasets = ['absent']", ["line 2", "has 'absent'", "$MSCAM_DATA"]),
        ("[compare]\ndatasets = ['tiny.npz', './tiny.npz']", ["line 2", "twice"]),
        ("[compare]\ndatasets = ['x']\ndirectory = 'no'", ["there is no directory"]),
        (
            "[compare]\ndatasets = ['tiny.npz']\nmethods = ['mscam', 'mlam']",
            ["line 3", "'mlam', which is no method", "Did you mean 'mlan'?", *METHODS],
        ),
        ("[compare]\ndatasets = ['tiny.npz']\nrun = 3", ["line 3", "Did you mean 'runs'?"]),
        ("[compare]\ndatasets = ['tiny.npz']\nruns = 0", ["line 3", "runs = 0", ">= 1"]),
        ("[compare]\ndatasets = ['tiny.npz']\nprotocols = ['gird']", ["defaults, grid"]),
        ("[compare]\ndatasets = ['tiny.npz']\ntime_limit_s = 0", ["line 3", "> 0"]),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[parameters.mlan]\nn_neighbours = 3",
            ["line 4", "no parameter 'n_neighbours'", "allowed are", "Did you mean 'n_neighbors'?"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[parameters.mscam]\nn_jobs = 3",
            ["line 4", "no parameter 'n_jobs'", "alpha"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[grid.mscan]\nalpha = 3",
            ["line 4", "alpha = 3", "a list of values"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[grid.mscan]\nalhpa = [3]",
            ["line 4", "'alhpa'", "Did you mean 'alpha'?"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[grid.mscem]\nalpha = [3]",
            ["line 3", "is for no method", "Did you mean 'mscam'?"],
        ),
        ("[compare]\ndatasets = ['tiny.npz']\n[grid]\nalpha = [3]", ["line 4", "[grid.alpha]"]),
        ("dataset = 3\n[compare]\ndatasets = ['tiny.npz']", ["line 1", "tables [dataset.NAME]"]),
        (
            "[compare]\ndatasets = ['m']\n[dataset.m]\nsource = 'tiny.npz'\nn_cluster = 2",
            ["line 5", "[dataset.m] has no key 'n_cluster'", "Did you mean 'n_clusters'?"],
        ),
        (
            "[compare]\ndatasets = ['m']\n[dataset.m]\n",
            ["line 3", "[dataset.m] needs a source: 'digits'"],
        ),
        ("[compare]\ndatasets = ['m']\n[dataset.m]\nsource = 'no.npz'", ["there is no", "no.npz"]),
        ("[compare]\ndatasets = ['http://a/b.zarr']", ["line 2", "a URL that names no store"]),
        ("[compare]\ndatasets = ['file:///no.zarr']", ["line 2", "there is no /no.zarr"]),
        (
            "[compare]\ndatasets = ['~no-such-user/x']",
            ["line 2", "'~no-such-user/x' begins with ~no-such-user"],
        ),
        ("[dataset.m]\nsource = 'x'\n[robustness]", ["makes its own data", "[dataset.m]"]),
        ("[robustness]\ncorrupted = [0.1, 30]", ["line 2", "corrupted", "<= 1"]),
        ("[robustness]\nmethods = ['mlam']", ["Did you mean 'mlan'?"]),
    ],
)
def test_what_is_wrong_is_said(write: Write, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[compare]\ndatasets = ['tiny.npz']", ["mscam-dask compare", "mscam-dask sweep takes"]),
        ("[sweep]\ndatasets = ['tiny.npz']\nalpha = [1, 1.0]", ["line 3", "twice"]),
        ("[sweep]\ndatasets = ['tiny.npz']\nalpha = [-1]", ["line 3", "> 0"]),
        ("[sweep]\ndatasets = ['tiny.npz']\nmethod = 'mlan'", ["mscam, mscan"]),
        ("[sweep]\ndatasets = ['tiny.npz']\nscale = 'unti'", ["Did you mean 'unit'?"]),
        ("[sweep]\ndatasets = ['tiny.npz']\n[grid.mscam]\nalpha = [1]", ["not for a sweep"]),
    ],
)
def test_what_is_wrong_with_a_sweep(write: Write, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text), command="sweep")
    for part in parts:
        assert part in str(caught.value)


def test_every_problem_at_once(write: Write) -> None:
    text = "[compare]\ndatasets = ['no']\nmethods = ['mlam']\nruns = 'x'\n[output]\ndir = 'x'"
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    lines = str(caught.value).splitlines()
    assert any("runs = 'x'" in line for line in lines)
    assert any("has no key 'dir'" in line for line in lines)
