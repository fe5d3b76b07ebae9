"""Extensions of the command line are found by their entry points; that of experiments is in test_experiments.py."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from click.testing import Result

from mscam_dask.cli.options import installed_extensions

Call = Callable[..., Result]

_GROUP = "mscam_dask.experiments"


def test_an_entry_point_that_cannot_be_loaded_is_named(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("other", "mscam_dask.absent:EXTENSION", _GROUP)

    def declared(group: str) -> object:
        return [entry] if group == _GROUP else entry_points(group=group)

    monkeypatch.setattr("importlib.metadata.entry_points", declared)
    installed_extensions.cache_clear()
    try:
        result = call("--help")
    finally:
        installed_extensions.cache_clear()
    assert result.exit_code == 1
    assert f"mscam_dask.absent:EXTENSION of {_GROUP}" in result.stderr
    assert "mscam_dask.absent'" in result.stderr
