"""`mscam-dask report`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[..., Result]


def test_a_report_is_made_again_and_opened(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("run", "tiny.toml", "--in-process", "-o", "out").exit_code == 0
    Path("out/report.html").unlink()
    result = call("report", "out")
    assert result.exit_code == 0, result.output
    assert "out/report.html" in result.stdout
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    assert call("report", "out", "-o", "page.html", "--open").exit_code == 0
    assert opened == [(here / "page.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    result = call("report", "out", "--open")
    assert result.exit_code == 75
    assert (here / "out/report.html").as_uri() in result.stderr


def test_what_is_no_run(here: Path, call: Call) -> None:
    result = call("report", "absent")
    assert result.exit_code == 3
    assert str(here / "absent") in result.stderr
