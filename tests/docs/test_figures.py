"""The scripts that draw the figures of the documentation still run, and what they drew is of today."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from scipy.sparse import eye_array

from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.toml_document import Override
from tests.browser import Browser
from tests.deploy.files import imported

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"


def script(name: str) -> ModuleType:
    return imported(FIGURES / f"{name}.py")


def described(name: str) -> Any:
    """The table that a committed picture was drawn from."""
    root = ET.parse(FIGURES / f"{name}.svg").getroot()
    (text,) = root.iter("{http://purl.org/dc/elements/1.1/}description")
    return json.loads(text.text or "")


def test_the_picture_of_speed_up_is_that_of_the_table() -> None:
    scale_out = script("scale_out")
    names, rows = scale_out.table()
    assert [row[0] for row in rows] == [2.0**power for power in range(9)]
    *lines, _ = scale_out.picture(names, rows).axes[0].lines
    for column, line in enumerate(lines, start=1):
        assert list(line.get_ydata()) == [row[column] for row in rows]
    assert described("scale_out") == rows


def test_the_picture_of_growth_is_that_of_the_table() -> None:
    growth = script("growth")
    runs = growth.table()
    assert set(runs) == {"MSCAM", "SMVSC"}
    assert [row["n"] for row in runs["MSCAM"]] == [row["n"] for row in runs["SMVSC"]]
    for ax, column in zip(growth.picture(runs).axes, ("cpu", "peak"), strict=True):
        for line, rows in zip(ax.lines[:2], runs.values(), strict=True):
            assert list(line.get_ydata()) == [row[column] for row in rows]
    assert described("growth") == runs


def test_a_panel_of_the_overview_shows_the_blocks_of_its_graph() -> None:
    pytest.importorskip("PIL", reason="pip install pillow")
    overview = script("overview")
    shown = np.asarray(overview.panel(eye_array(450, format="csr"), np.arange(450), overview.INK))
    assert shown.shape == (overview.SIZE, overview.SIZE, 3)
    on_the_diagonal = np.eye(overview.SIZE, dtype=bool)
    assert (shown[~on_the_diagonal] == overview.PAPER).all()
    assert (shown[on_the_diagonal] != overview.PAPER).any(axis=1).all()


def test_every_picture_of_a_plot_is_on_its_page() -> None:
    page = (FIGURES.parent / "plots.md").read_text(encoding="utf-8")
    names = {path.name for path in FIGURES.glob("plot-*.png")}
    assert names
    assert all(f"(figures/{name})" in page for name in names)
    source = (FIGURES / "plots.py").read_text(encoding="utf-8")
    assert all(f'"{name.removeprefix("plot-").removesuffix(".png")}"' in source for name in names)


@pytest.mark.thorough
def test_the_reports_of_the_gallery_are_as_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = script("gallery").run(FIGURES.parent / "gallery.md")
    shown = re.findall(
        r"figures/(gallery-[\w-]+\.png)", (FIGURES.parent / "gallery.md").read_text()
    )
    assert shown == [f"gallery-{name}.png" for name in runs]
    assert {file.name for file in FIGURES.glob("gallery-*.png")} == set(shown)
    badges = {
        name: re.findall(r'class="badge[^>]*>([^<·]+)', run.report.read_text())
        for name, run in runs.items()
    }
    assert {name: badge[0].strip() for name, badge in badges.items()} == {
        "digits": "separated clusters",
        "continuum": "no cluster structure",
        "noise": "no cluster structure",
        "patients": "separated clusters",
        "noise-view": "separated clusters",
    }
    assert runs["noise"].read_record().fit.n_clusters == 1
    assert "noise (excluded)" in runs["noise-view"].report.read_text()
    assert "Presence of the samples" in runs["patients"].report.read_text()


PIPELINE = Path(__file__).resolve().parents[2] / "pipelines" / "quickstart.toml"


@pytest.mark.slow
def test_pictures_of_a_report(browser: Browser, tmp_path: Path) -> None:
    here = Override(("execution", "in_process"), True, "the test")
    directory = run_pipeline(read_config(PIPELINE, [here]), tmp_path / "run").directory
    browser.open(directory.report.as_uri())
    browser.resize(1180, 760)
    assert browser.screenshot("report-top").stat().st_size > 10_000
    browser.resize(1180, 640)
    browser.run(
        "document.documentElement.style.scrollBehavior = 'auto';"
        "document.querySelector('nav').style.display = 'none';"
        "document.querySelector('#graph .figures').scrollIntoView()"
    )
    assert browser.screenshot("report-graph").stat().st_size > 10_000
    assert browser.complaints() == []
