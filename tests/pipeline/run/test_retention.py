"""Old runs go, and never one that somebody needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.run_record import FitRecord, RunRecord
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.list_runs import remove_old_runs
from mscam_dask.pipeline.run.lock import RunLock
from mscam_dask.pipeline.run.previous_runs import last_comparable
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.stored_run import siblings_of
from tests.messages import quotes

Write = Callable[[str], Path]

DATA = {"store": "d", "digest": "0", "n_samples": 9, "views": (), "n_classes": None}


@pytest.fixture
def keep_two(pipeline: Write, tmp_path: Path) -> Settings:
    return read_config(
        pipeline(
            f"[incremental]\nenabled = true\n[output]\nkeep = 2\nroot = '{tmp_path / 'runs'}'\n"
        )
    )


def run_of(
    settings: Settings, number: int, *, reached: bool = True, **more: object
) -> RunDirectory:
    directory = RunDirectory(Path(str(settings.output.root)) / f"tiny-{number}")
    fit = {
        "status": "x",
        "message": "x",
        "has_requested_components": reached,
        "score": 0.1,
        "n_clusters": 3,
        "setting": {"scale": "unit", "alpha": 1.0, "n_neighbors": 3},
        "candidate_settings": (),
        "selected_setting": -1,
        "cluster_names": (0, 1, 2),
        "n_connected_components": 3,
        "cluster_sizes": (3, 3, 3),
        "view_contributions": {},
        "n_outer_iterations": 1,
        "best_iteration": 0,
        "warnings": (),
    }
    known = {field.name for field in msgspec.structs.fields(FitRecord)}
    record = {
        "state": "finished",
        "pipeline": "tiny",
        "method": "mscam",
        "seed": 0,
        "started": f"2026-01-0{number}",
        "ended": f"2026-01-0{number}",
        "number": number,
        "versions": {},
        "blas": (),
        "exit_code": 0,
        "settings": msgspec.to_builtins(settings),
        "data": {**DATA, "has_sample_ids": False},
        "fit": {key: value for key, value in fit.items() if key in known},
    }
    directory.path.mkdir(parents=True)
    directory.write_record(msgspec.convert({**record, **more}, RunRecord))
    directory.result.mkdir()
    return directory


def names(settings: Settings) -> list[str]:
    return sorted(path.name for path in Path(str(settings.output.root)).iterdir())


def test_the_last_ones_stay(keep_two: Settings) -> None:
    runs = [run_of(keep_two, number) for number in range(1, 6)]
    run_of(keep_two, 6, pipeline="other")
    assert remove_old_runs(keep_two, runs[-1]) == ("tiny-3", "tiny-2", "tiny-1")
    assert names(keep_two) == ["tiny-4", "tiny-5", "tiny-6"]
    assert remove_old_runs(keep_two, runs[-1]) == ()


def test_what_the_next_run_starts_from_stays(keep_two: Settings) -> None:
    runs = [run_of(keep_two, number, reached=number == 2) for number in range(1, 6)]
    assert remove_old_runs(keep_two, runs[-1]) == ("tiny-3", "tiny-1")
    assert names(keep_two) == ["tiny-2", "tiny-4", "tiny-5"]


def test_a_date_in_the_future_changes_no_order_and_is_warned_of(keep_two: Settings) -> None:
    runs = [
        run_of(keep_two, number, ended="2131-01-01" if number == 2 else "2026-01-09")
        for number in range(1, 5)
    ]
    new = RunDirectory(runs[0].path.with_name("tiny-5"))
    siblings = siblings_of(keep_two, new)
    assert [run.name for run in siblings.finished] == ["tiny-4", "tiny-3", "tiny-2", "tiny-1"]
    first = last_comparable(siblings.finished, keep_two)
    assert first is not None
    assert first.name == "tiny-4"
    (warning,) = siblings.notes
    assert "tiny-2" in warning
    assert siblings.next_number == 5
    assert remove_old_runs(keep_two, run_of(keep_two, 5)) == ("tiny-3", "tiny-2", "tiny-1")
    assert names(keep_two) == ["tiny-4", "tiny-5"]


def test_what_somebody_needs_stays(keep_two: Settings) -> None:
    runs = [run_of(keep_two, number) for number in range(1, 7)]
    run_of(keep_two, 7, state="interrupted", started_from="tiny-1")
    (runs[1].path / "notes.txt").touch()
    (runs[0].path.parent / "tiny-8").symlink_to(runs[5].path)
    (runs[0].path.parent / ".tiny-0123456789ab.0123abcd.old").mkdir()
    with RunLock(runs[2].path):
        assert remove_old_runs(keep_two, runs[5]) == ("tiny-4",)
    assert "tiny-2" in names(keep_two)
    assert remove_old_runs(keep_two, runs[5]) == ("tiny-3",)
    assert names(keep_two) == [f"tiny-{number}" for number in (1, 2, 5, 6, 7, 8)]


@pytest.mark.parametrize(
    "name",
    [
        ".tiny-archive.old",
        ".tiny-0123456789ab.archive1.old",
        ".tiny-of-others-0123456789ab.0123abcd.old",
        ".tiny-0123456789ab.0123abcd.old",  # its name, but with a file of somebody's
    ],
)
def test_what_no_run_was_renamed_to_stays(keep_two: Settings, name: str) -> None:
    runs = [run_of(keep_two, number) for number in range(1, 4)]
    thesis = runs[0].path.parent / name / "thesis.txt"
    thesis.parent.mkdir()
    thesis.touch()
    assert remove_old_runs(keep_two, runs[-1]) == ("tiny-1",)
    assert thesis.exists()


def test_without_keep_nothing_goes(keep_two: Settings, pipeline: Write) -> None:
    settings = read_config(pipeline(f"[output]\nroot = '{keep_two.output.root}'\n"))
    runs = [run_of(keep_two, number) for number in range(1, 5)]
    assert remove_old_runs(settings, runs[-1]) == ()
    with pytest.raises(ConfigurationError, match=quotes("tiny.toml", "[output] keep", "directory")):
        read_config(pipeline("[output]\nkeep = 2\ndirectory = 'x'\n"))
