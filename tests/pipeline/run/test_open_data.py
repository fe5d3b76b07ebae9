"""Data that change under a run: try again, and never a run named after other data than it read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import StoreCorruptError, TemporaryFailure
from mscam_dask.monitor.events import Event, StepStarted
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.open_data import open_data
from mscam_dask.pipeline.run.resume import run_or_resume
from mscam_dask.pipeline.run.run_directory import RunDirectory
from tests.messages import quotes

Write = Callable[[str], Path]

HERE = "[execution]\nin_process = true\nthreads = 1\n[report]\nenabled = false\n"


@pytest.fixture
def store(tiny: Path, tmp_path: Path) -> Path:
    return Path(str(ingest([tiny], tmp_path / "data.zarr").output))


@pytest.fixture
def nightly(pipeline: Write, tiny: Path, store: Path) -> Settings:
    """A pipeline over the store."""
    file = pipeline(HERE)
    file.write_text(file.read_text().replace(f"'{tiny.name}'", f"'{store.name}'"))
    return read_config(file)


def when(step: str, act: Callable[[], object]) -> Callable[[Event], None]:
    """Do something at the beginning of a step."""

    def observer(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == step:
            act()

    return observer


def grow(tiny: Path, store: Path) -> Callable[[], object]:
    more = tiny.with_name("more.npz")
    with np.load(tiny) as arrays:
        np.savez(more, allow_pickle=False, **{name: arrays[name][:9] for name in arrays})
    return lambda: append([more], store)


@pytest.mark.parametrize("step", ["ingest", "validate", "cluster"])
def test_a_store_that_grows_under_a_run_is_to_be_tried_again(
    step: str, nightly: Settings, tiny: Path, store: Path, tmp_path: Path
) -> None:
    with pytest.raises(TemporaryFailure, match=quotes(store)):
        run_or_resume(nightly, tmp_path / "run", observers=[when(step, grow(tiny, store))])
    record = RunDirectory(tmp_path / "run").read_record()
    assert (record.state, record.exit_code) == ("failed", 75)
    outcome = run_or_resume(nightly, tmp_path / "next")
    assert outcome.record.data is not None
    assert outcome.record.data.n_samples == 69
    assert outcome.record.exit_code == 0


def test_damage_is_no_change(nightly: Settings, store: Path, tmp_path: Path) -> None:
    (chunk,) = (store / "views/1/values/c").rglob("0/0")

    def damage() -> None:
        content = chunk.read_bytes()
        chunk.write_bytes(content[:-9] + bytes(9))

    with pytest.raises(StoreCorruptError, match=quotes(chunk)):
        run_or_resume(nightly, tmp_path / "run", observers=[when("cluster", damage)])
    assert RunDirectory(tmp_path / "run").read_record().exit_code == 3


def test_a_file_that_is_written_while_it_is_ingested(
    pipeline: Write, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(table: Any, output: Path) -> Any:
        opened = open_data(table, output)
        tiny.write_bytes(tiny.read_bytes())
        return opened

    monkeypatch.setattr("mscam_dask.pipeline.run.run.open_data", slowly)
    settings = read_config(pipeline(HERE))
    with pytest.raises(TemporaryFailure, match=quotes(tiny)):
        run_or_resume(settings, tmp_path / "run")
    monkeypatch.undo()
    assert run_or_resume(settings, tmp_path / "run").record.exit_code == 0


def test_rows_that_another_store_gave_are_not_taken(store: Path, tiny: Path) -> None:
    view = open_store(store).views[0]
    before = view.read(0, 5)
    grow(tiny, store)()
    with pytest.raises(StoreCorruptError, match=quotes("'view_0'", store)):
        view.read(0, 5)
    np.testing.assert_array_equal(open_store(store).views[0].read(0, 5), before)
