"""Safe to run twice: what was done is not done again, what was cut off is gone on with."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import read_result
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.open_data import run_fingerprint
from mscam_dask.pipeline.run.previous_runs import link_tree
from mscam_dask.pipeline.run.resume import resolve_target, resume_run
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.types.events import IterationFinished
from tests.messages import quotes
from tests.pipeline.runs import HERE, QUIET, again, labels_of

pytestmark = pytest.mark.usefixtures("own_directory")

Write = Callable[[str], Path]


def times(directory: Path) -> dict[Path, int]:
    """When each file was written; the lock says who held the directory last."""
    files = (file for file in directory.rglob("*") if file.name != ".lock")
    return {file: file.stat().st_mtime_ns for file in files}


def test_the_same_twice_is_done_once(pipeline: Write, fits: list[Any], tmp_path: Path) -> None:
    first = again(pipeline(HERE))
    before = times(first.directory.path)
    second = again(pipeline(HERE))
    assert (first.resumed, second.resumed) == (True, False)
    assert second.record == first.record
    assert len(fits) == 1
    assert times(first.directory.path) == before
    assert first.directory.path.parent == tmp_path / "runs"
    assert first.directory.path.name == f"tiny-{run_fingerprint(read_config(pipeline(HERE)))[:12]}"


def test_where_and_by_what_a_run_is_computed_is_no_part_of_it(
    pipeline: Write, tmp_path: Path, tiny: Path
) -> None:
    here = run_fingerprint(read_config(pipeline(HERE)))
    assert (
        run_fingerprint(read_config(pipeline("[execution]\nworkers = 2\n[output]\nroot = 'x'\n")))
        == here
    )
    limited = pipeline(HERE)
    limited.write_text(limited.read_text().replace("[cluster]", "max_bytes = '1 GB'\n[cluster]"))
    assert run_fingerprint(read_config(limited)) == here
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / tiny.name
    moved.write_bytes(tiny.read_bytes())
    file = pipeline(HERE)
    file.write_text(file.read_text().replace(f"'{tiny.name}'", f"'elsewhere/{tiny.name}'"))
    assert run_fingerprint(read_config(file)) == here
    assert run_fingerprint(read_config(pipeline(f"alpha = 2.0\n{HERE}"))) != here
    with np.load(tiny) as arrays:
        np.savez(tiny, allow_pickle=False, **{name: arrays[name][::-1] for name in arrays})
    assert run_fingerprint(read_config(pipeline(HERE))) != here


@pytest.mark.thorough
def test_only_what_depends_on_a_change_is_done_again(
    pipeline: Write, fits: list[Any], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = again(pipeline(HERE))
    off = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert off.directory.path != first.directory.path
    assert (off.record.metrics, len(fits)) == (None, 1)
    assert first.record.metrics is not None
    np.testing.assert_array_equal(labels_of(off), labels_of(first))

    with np.load(tiny) as arrays:  # other labels, same views
        held = {name: arrays[name] for name in arrays}
    np.savez(tiny, allow_pickle=False, **{**held, "labels": np.roll(held["labels"], 1)})
    relabelled = again(pipeline(HERE))
    assert len(fits) == 1
    assert relabelled.record.metrics is not None
    assert relabelled.record.metrics != first.record.metrics
    assert relabelled.directory.result.is_dir()

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("ingested again")

    monkeypatch.setattr("mscam_dask.pipeline.run.open_data.ingest", refuse)
    again(pipeline(f"alpha = 2.0\n{HERE}"))
    assert len(fits) == 2


def test_what_is_taken_over_outlives_the_run_it_came_from(pipeline: Write) -> None:
    first = again(pipeline(HERE))
    second = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    expected = labels_of(first)
    for file in sorted(first.directory.path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    third = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert not third.resumed
    np.testing.assert_array_equal(labels_of(second), expected)


def test_a_store_is_taken_over_by_links(tmp_path: Path, tiny: Path) -> None:
    store = ingest([tiny], tmp_path / "a.zarr").output
    assert isinstance(store, Path)
    link_tree(store, tmp_path / "b.zarr")
    names = sorted(str(file.relative_to(store)) for file in store.rglob("*") if file.is_file())
    assert all((store / name).samefile(tmp_path / "b.zarr" / name) for name in names)


def test_a_damaged_result_is_not_taken_over(pipeline: Write, fits: list[Any]) -> None:
    first = again(pipeline(HERE))
    chunk = next(
        file for file in (first.directory.result / "labels").rglob("c/*") if file.is_file()
    )
    chunk.write_bytes(chunk.read_bytes()[:-2])
    again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert len(fits) == 2


def _missing(directory: RunDirectory) -> None:
    directory.labels.unlink()
    shutil.rmtree(directory.result)


def _cut_short(directory: RunDirectory) -> None:
    chunk = next(file for file in directory.result.glob("labels/c/*") if file.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-2])


def _with_the_data(directory: RunDirectory) -> None:
    _missing(directory)
    shutil.rmtree(directory.data)


@pytest.mark.parametrize(
    ("command", "harm", "names"),
    [
        ("run", _missing, ["labels.csv", "result.zarr"]),
        ("run", _cut_short, ["result.zarr/labels/c"]),
        ("resume", _with_the_data, ["labels.csv", "result.zarr"]),
    ],
)
@pytest.mark.thorough
def test_results_that_are_gone_or_damaged_are_made_again(
    pipeline: Write,
    fits: list[Any],
    tmp_path: Path,
    command: str,
    harm: Callable[[RunDirectory], None],
    names: list[str],
) -> None:
    first = again(pipeline(QUIET), output=tmp_path / "out")
    expected = labels_of(first)
    harm(first.directory)
    place = resolve_target(read_config(pipeline(QUIET)), tmp_path / "out")
    assert place.action == "resume"
    outcome = (
        again(pipeline(QUIET), output=tmp_path / "out")
        if command == "run"
        else resume_run(tmp_path / "out")
    )
    assert outcome.resumed
    assert len(fits) == 2
    assert (outcome.record.state, outcome.record.fit) == ("finished", first.record.fit)
    (entry,) = outcome.record.resumed
    assert entry.state == "finished"
    assert re.search(quotes(*names), entry.warnings[0])
    np.testing.assert_array_equal(labels_of(outcome), expected)
    np.testing.assert_array_equal(read_result(outcome.directory.result).labels, expected)
    assert not again(pipeline(QUIET), output=tmp_path / "out").resumed


def test_a_run_that_was_cut_off_is_gone_on_with(pipeline: Write) -> None:
    def cut_off(event: object) -> None:
        if isinstance(event, IterationFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(pipeline(HERE), observers=(cut_off,))
    outcome = again(pipeline(HERE))
    assert outcome.record.state == "finished"
    assert len(outcome.record.resumed) == 1
    assert outcome.record.resumed[0].after_iteration == 1
    assert not again(pipeline(HERE)).resumed


def test_a_named_directory_holds_one_run(pipeline: Write, tmp_path: Path) -> None:
    assert again(pipeline(HERE), output=tmp_path / "x").resumed
    assert not again(pipeline(HERE), output=tmp_path / "x").resumed
    with pytest.raises(ConfigurationError, match=quotes(tmp_path / "x", "--overwrite")):
        again(pipeline(f"alpha = 2.0\n{HERE}"), output=tmp_path / "x")
    place = resolve_target(read_config(pipeline("[output]\ndirectory = 'y'\n")))
    assert (place.directory, place.action) == (tmp_path / "y", "run")


@pytest.mark.thorough
def test_keep_removes_the_oldest_and_what_was_computed_stays_known(
    pipeline: Write, fits: list[Any]
) -> None:
    directories = [
        again(pipeline(f"alpha = {alpha}\n{QUIET}[output]\nkeep = 2\n")).directory.path
        for alpha in (1.0, 2.0, 3.0)
    ]
    assert [path.is_dir() for path in directories] == [False, True, True]
    assert not again(pipeline(f"alpha = 3.0\n{QUIET}")).resumed
    assert again(pipeline(f"alpha = 1.0\n{QUIET}")).resumed
    assert len(fits) == 4


def test_a_source_that_is_missing_is_a_data_error(pipeline: Write, tiny: Path) -> None:
    tiny.unlink()
    with pytest.raises(DataError, match=quotes(tiny)):
        again(pipeline(HERE))
