"""Small data, pipelines that cluster them in less than a second, and runs that are made once and copied."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from tests.pipeline.runs import HERE, QUIET, Write, again, stopped_run, write_tiny
from tests.synthetic import save_npz, three_subspaces


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """60 samples of 3 well separated clusters in two views, with labels."""
    file = tmp_path / "tiny.npz"
    save_npz(file, three_subspaces())
    return file


@pytest.fixture
def pipeline(tmp_path: Path, tiny: Path) -> Write:
    """Write a pipeline over the small data; more text follows after [cluster] n_clusters."""
    return functools.partial(write_tiny, tmp_path)


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where the small data are: runs go below it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The fits that were made, by what was handed down to them."""
    made: list[dict[str, Any]] = []
    fit = MSCAM.fit

    def counted(estimator: MSCAM, *arguments: Any, **options: Any) -> MSCAM:
        handed = {**estimator.get_params(deep=False), "init_labels": options["init_labels"]}
        made.append({} if options["init_labels"] is None else handed)
        return fit(estimator, *arguments, **options)

    monkeypatch.setattr(MSCAM, "fit", counted)
    return made


# ----------------------------------------------------------------------------- made once, copied


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run of the small data by its name, made when it is first asked for; tests change copies."""
    place = tmp_path_factory.mktemp("originals")
    save_npz(place / "tiny.npz", three_subspaces())
    write = functools.partial(write_tiny, place)
    root = f"[output]\nroot = '{place / 'runs'}'\n"
    make: dict[str, Callable[[Path], object]] = {
        "finished": lambda path: again(write(HERE), output=path),
        "stopped": lambda path: stopped_run(write(QUIET), path),
        "runs": lambda _: again(write(f"{QUIET}{root}")),
    }

    def path_of(name: str) -> Path:
        if not (place / name).exists():
            make[name](place / name)
        return place / name

    return path_of


@pytest.fixture
def finished(original: Callable[[str], Path], tmp_path: Path, tiny: Path) -> RunDirectory:
    """A finished run with its report, in the directory out."""
    return RunDirectory(shutil.copytree(original("finished"), tmp_path / "out"))


@pytest.fixture
def stopped(original: Callable[[str], Path], tmp_path: Path, tiny: Path) -> RunDirectory:
    """A run without a report that was interrupted after its first outer iteration, in out."""
    return RunDirectory(shutil.copytree(original("stopped"), tmp_path / "out"))


@pytest.fixture
def first(original: Callable[[str], Path], tmp_path: Path, tiny: Path) -> RunOutcome:
    """The run that the pipeline with QUIET has left in the directory runs."""
    (path,) = shutil.copytree(original("runs"), tmp_path / "runs").iterdir()
    return RunOutcome(RunDirectory(path), RunDirectory(path).read_record())
