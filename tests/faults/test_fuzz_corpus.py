"""Inputs that the fuzzer of `tests/fuzz.py` found to reach different branches end in a typed error, or are read."""

from __future__ import annotations

import shutil
import tarfile
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("h5py")
pytest.importorskip("h5netcdf")
pytest.importorskip("pyarrow")

from tests.fuzz import FORMATS, KEPT, place, read, valid_files

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def kept() -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    with tarfile.open(KEPT) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            found[member.name.split("/")[0]].append(stream.read())
    return found


# Those of MATLAB take seconds, and the others need anndata and mudata.
SLOWER = {"mat", "mat73", "h5ad", "h5mu"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] * (name in SLOWER)) for name in FORMATS],
)
def test_every_kept_input_is_read_or_refused(
    name: str, kept: dict[str, list[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "valid").mkdir()
    valid = valid_files(name, tmp_path / "valid")
    path = tmp_path / FORMATS[name][0]
    assert kept[name]
    for data in kept[name][
        :: 4 if name == "mat" else 1
    ]:  # SciPy tries each in a process of its own
        place(name, data, path, valid)
        read(name, path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
