"""Small data and experiments over them that take a second or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.synthetic import save_npz, three_subspaces

Write = Callable[[str], Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with tiny.npz (60 samples, 3 clusters) and other.npz (40 samples)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MSCAM_DATA", raising=False)
    save_npz(Path("tiny.npz"), three_subspaces())
    save_npz(Path("other.npz"), three_subspaces(40, seed=1))
    return tmp_path


@pytest.fixture
def write(here: Path) -> Write:
    """Write an experiment file, run in this process."""

    def written(text: str) -> Path:
        file = here / "experiment.toml"
        file.write_text(f"{text}\n[execution]\nin_process = true\n")
        return file

    return written
