"""Progress in a real kernel, as a notebook that runs unattended: one output, kept in its file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import mscam_dask
from tests.messages import quotes

HOW = "pip install 'mscam-dask[notebook-test]'"
nbclient = pytest.importorskip("nbclient", reason=HOW)
nbformat = pytest.importorskip("nbformat", reason=HOW)
pytest.importorskip("ipykernel", reason=HOW)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

FIT = """
import numpy as np
from rich.console import Console
from mscam_dask import MSCAM
from mscam_dask.monitor.progress import progress_on

rng = np.random.default_rng(0)
labels = np.arange(60) % 3
views = {
    "<script>alert(1)</script>": np.eye(3)[labels] @ rng.normal(size=(3, 6)) + 0.1 * rng.normal(size=(60, 6)),
    "shape": np.eye(3)[labels] @ rng.normal(size=(3, 5)) + 0.1 * rng.normal(size=(60, 5)),
}
model = MSCAM(n_clusters="auto", callbacks=[progress_on(Console())]).fit(views)
"""
FAILS = """
views["shape"] = views["shape"][:50]
try:
    MSCAM(n_clusters=3, callbacks=[progress_on(Console())]).fit(views)
except ValueError as error:
    print(type(error).__name__)
"""
SHOWS_A_RUN = """
from mscam_dask.monitor.events import StepFinished, StepStarted
from tests.messages import quotes

with progress_on(Console()) as progress:
    progress(StepStarted(step="ingest"))
    progress(StepFinished(step="ingest", summary="60 samples", notes=("odd <b>name</b>",), seconds=0.1))
"""


def executed(*cells: str) -> list[list[Any]]:
    """The outputs of each cell after the notebook ran; an error in a cell fails the test."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(autouse=True)
def kernel_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel imports the package under test, and leaves nothing in the home directory."""
    here = str(Path(mscam_dask.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


def test_a_fit_is_one_output_that_ends_with_its_result() -> None:
    fit, failed, run = executed(FIT, FAILS, SHOWS_A_RUN)
    (output,) = fit
    assert output.output_type == "display_data"
    html = output.data["text/html"]
    texts = [set(re.findall(r"\d+", line)) for line in re.sub("<[^>]+>", "", html).splitlines()]
    assert any(line >= {"3", "2", "6"} for line in texts)  # 3 clusters of 2 to 6
    assert any("3" in line for line in texts[1:])  # as many components at the end
    assert "elapsed" not in html  # it is over
    assert "<script" not in html
    (printed,) = failed  # refused before there was anything to show
    assert printed.output_type == "stream"
    (output,) = run
    html = output.data["text/html"]
    text = re.sub("<[^>]+>", "", html)
    assert re.search(quotes("ingest", "60 samples", "0.1 s", "odd &lt;b&gt;name&lt;/b&gt;"), text)
