"""The examples of CONTRIBUTING.md run, and the files and names that it sends readers to exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mscam_dask.data.readers import registry
from mscam_dask.linalg import scaling
from mscam_dask.types import parameters
from tests.docs.pages import run_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"


@pytest.mark.thorough
def test_the_extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sybil", reason="pip install 'mscam-dask[test]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # The examples register their extensions here.
    monkeypatch.setattr(registry, "FORMATS", registry.FORMATS)
    monkeypatch.setattr(scaling, "SCALINGS", dict(scaling.SCALINGS))
    monkeypatch.setattr(parameters, "Scale", parameters.Scale)
    assert run_page(PAGE) == 8
    for name in ("arff", "side_by_side"):
        sys.modules.pop(name)


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
