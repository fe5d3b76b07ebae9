"""The pictures of the documentation, taken of the real thing; kept in $MSCAM_ARTIFACTS."""

from __future__ import annotations

from pathlib import Path

import pytest

from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.toml_document import Override
from tests.browser import Browser

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
