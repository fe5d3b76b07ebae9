"""`mscam-dask report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call


def test_a_report_is_made_again_and_opened(
    here: Path, run: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "report.html").unlink()
    result = call("report", run)
    assert result.exit_code == 0, result.output
    assert "runs/one/report.html" in result.stdout
    there_is_a_browser = (here / "page.html").as_uri().__eq__
    monkeypatch.setattr("webbrowser.open", there_is_a_browser)
    assert call("report", run, "-o", "page.html", "--open").exit_code == 0
    result = call("report", run, "--open")
    assert result.exit_code == 75
    assert (run / "report.html").as_uri() in result.stderr
    assert call("report", "absent").exit_code == 3


def columns_in(page: Path) -> list[str]:
    payload = page.read_text(encoding="utf-8").split('id="payload">')[1].split("</script>")[0]
    return [column["name"] for column in json.loads(payload)["columns"]]


def test_plots_are_colored_by_columns_of_a_table(here: Path, call: Call) -> None:
    (here / "clinical.csv").write_text("row,site,age\n0,Ghent,61.5\n3,Oslo,48\n", encoding="utf-8")
    setting = ("--set", "report.columns=clinical.csv", "--set", "report.enabled=true")
    assert call("run", "tiny.toml", "--in-process", "-o", "out", *setting).exit_code == 0
    assert columns_in(here / "out/report.html")[-2:] == ["site", "age"]
    (here / "other.csv").write_text("row,dose\n1,0.5\n", encoding="utf-8")
    assert call("report", "out", "--columns", "other.csv").exit_code == 0
    assert columns_in(here / "out/report.html")[-1] == "dose"
    (here / "clinical.csv").unlink()
    assert call("report", "out").exit_code == 0  # with a note
    page = (here / "out/report.html").read_text(encoding="utf-8")
    assert "clinical.csv" in page[page.index('id="result"') : page.index('id="graph"')]
    result = call("report", "out", "--columns", "clinical.csv")
    assert result.exit_code == 3
    assert "clinical.csv" in result.stderr
