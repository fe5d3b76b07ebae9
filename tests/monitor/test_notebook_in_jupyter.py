"""Progress in a real kernel, as a notebook that runs unattended: one output, kept in its file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import mscam_dask

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


@pytest.fixture(autouse=True)
def kernel_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel imports the package under test, and leaves nothing in the home directory."""
    here = str(Path(mscam_dask.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


def test_a_fit_is_one_output_that_ends_with_its_result() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIT)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    html = output.data["text/html"]
    texts = [set(re.findall(r"\d+", line)) for line in re.sub("<[^>]+>", "", html).splitlines()]
    assert any(line >= {"3", "1", "6"} for line in texts)  # 3 clusters of 1 to 6
    assert any("3" in line for line in texts[1:])  # as many components at the end
    assert "elapsed" not in html  # it is over
    assert "<script" not in html
