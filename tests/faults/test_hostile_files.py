"""Files from elsewhere: each is refused with an error of the package, within its memory.

The child process has a limit of CPU seconds too: a file that takes more ends it with a signal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("h5py")
pytest.importorskip("h5netcdf")

from tests.faults.hostile_files import CANARY, HOSTILE, write_canary

pytestmark = [pytest.mark.faults, pytest.mark.timeout(60)]

ROOT = Path(__file__).parents[2]

Ask = Callable[..., dict[str, Any]]

# Read as they are: nothing in them leads elsewhere or is damaged (JSON's true is 1).
HARMLESS = {
    *("circle_of_groups.mat", "many_members.npz", "traversal.npz", "true_shape.zarr", "utf_16.csv"),
    "wide.csv",
}

MEMORY_BYTES = 200 * 2**20


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Read a file in a process that may end in any way."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.ingest_child"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        sending, receiving = child.stdin, child.stdout

        def answer(**request: Any) -> dict[str, Any]:
            sending.write(json.dumps(request) + "\n")
            sending.flush()
            found = json.loads(receiving.readline())
            assert isinstance(found, dict)
            return found

        yield answer


def make(name: str, folder: Path) -> Path:
    """Write a hostile file beside the file that it would like to read."""
    canary = folder / "canary.h5"
    write_canary(canary)
    path = folder / "files" / name
    path.parent.mkdir()
    HOSTILE[name](path, canary)
    return path


def test_there_are_many() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.thorough
def test_a_hostile_file_is_refused(name: str, tmp_path: Path, ask: Ask) -> None:
    path = make(name, tmp_path)
    output = path.parent / "out.zarr"
    found = ask(path=str(path), output=str(output), canary=float(CANARY[0, 0]))
    assert found["outcome"] == ("done" if name in HARMLESS else "typed"), found["message"]
    assert not found.get("stolen")
    if name not in HARMLESS:
        assert (
            path.name in found["message"] or "View '" in found["message"] or name == "escapes.csv"
        )
    assert found["memory_bytes"] < MEMORY_BYTES


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.thorough
def test_every_other_way_in_is_closed_too(name: str, tmp_path: Path, ask: Ask) -> None:
    path = make(name, tmp_path)
    with tarfile.open(ROOT / "tests" / "golden" / "run.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = ask(path=str(path), run=str(tmp_path / "run"))
    assert found["outcome"] == "done", found["message"]
    doors = found["doors"]
    assert set(doors.values()) <= {"done", "typed"}, doors
    expected = {"load_run": "typed", "report": "typed", "resume": "typed"}
    assert {door: doors[door] for door in expected} == expected
    assert found["memory_bytes"] < MEMORY_BYTES
