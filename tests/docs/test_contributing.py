"""The examples of CONTRIBUTING.md run, and the files and names that it sends readers to exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import ROOT, script_environment

PAGE = ROOT / "CONTRIBUTING.md"


@pytest.mark.thorough
def test_the_extensions(tmp_path: Path) -> None:
    """The examples register their extensions in a process of their own."""
    pytest.importorskip("sybil", reason="pip install 'mscam-dask[test]'")
    program = "import sys, pathlib, tests.docs.pages as pages; print(pages.run_page(pathlib.Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, PAGE],
        cwd=tmp_path,
        env=script_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "8"


def test_files_and_names_in_them_exist() -> None:
    text = re.sub(r"```.*?```", "", PAGE.read_text("utf-8"), flags=re.DOTALL)
    names = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text))
    assert len(names) > 40
    places = {name: [*ROOT.glob(f"{name}*"), *ROOT.glob(f"mscam_dask/{name}*")] for name in names}
    assert not [name for name, found in places.items() if not found]
    pairs = re.findall(r"(?:`([\w.]+)`,? and )?`([\w.]+)`,? in `([\w/]+\.py)`", text)
    assert len(pairs) > 12
    missing = [
        (name, file)
        for *words, file in pairs
        for name in filter(None, words)
        if not re.search(rf"\b{name.split('.')[-1]}\b", places[file][0].read_text("utf-8"))
    ]
    assert not missing
