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

from tests.faults.hostile_files import HOSTILE
from tests.faults.hostile_hdf5 import CANARY, write_canary

pytestmark = [pytest.mark.faults, pytest.mark.timeout(500), pytest.mark.thorough]

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
    command = [sys.executable, "-m", "tests.faults.ingest_child"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        sending, receiving = child.stdin, child.stdout

        def answer(**request: Any) -> dict[str, Any]:
            sending.write(json.dumps(request) + "\n")
            sending.flush()
            found: dict[str, Any] = json.loads(receiving.readline())
            return found

        yield answer


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_file_is_refused_by_every_way_in(name: str, tmp_path: Path, ask: Ask) -> None:
    canary, path = tmp_path / "canary.h5", tmp_path / "files" / name
    write_canary(canary)
    path.parent.mkdir()
    HOSTILE[name](path, canary)
    with tarfile.open(ROOT / "tests" / "golden" / "run.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = ask(path=str(path), run=str(tmp_path / "run"), canary=float(CANARY[0, 0]))
    assert "doors" in found, found
    kinds = {door: kind for door, (kind, _) in found["doors"].items()}
    assert set(kinds.values()) <= {"done", "typed"}, found
    outcome, message = found["doors"]["ingest"]
    assert outcome == ("done" if name in HARMLESS else "typed")
    if name not in HARMLESS | {"escapes.csv"}:
        assert path.name in message or "View '" in message
    assert {kinds[door] for door in ("load_run", "report", "resume")} == {"typed"}
    assert found["memory_bytes"] < MEMORY_BYTES
