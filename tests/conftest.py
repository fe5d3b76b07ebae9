"""What every test shares: numerical threads, hypothesis profiles, benchmark data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# Before the first import of NumPy, and inherited by worker processes: small matrices are faster
# on one thread, several processes share few cores, and one thread count makes results comparable
# bit for bit.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

_MIN_MEMORY_DISK = 2 * 2**30
"""Bytes that must be free on the memory disk; a run of all tests uses less than half of it."""


def _temporary_files_on_memory_disk() -> None:
    """Put temporary files of tests and their processes on /dev/shm, unless TMPDIR says where.

    A pipeline run syncs some 400 files and directories, which a disk takes longer for than the
    rest of the run takes.
    """
    disk = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(disk, os.W_OK | os.X_OK):
        return
    status = os.statvfs(disk)
    if status.f_bavail * status.f_frsize < _MIN_MEMORY_DISK or status.f_flag & os.ST_NOEXEC:
        return  # tests run scripts that they write
    os.environ["TMPDIR"] = str(disk)
    tempfile.tempdir = None


_temporary_files_on_memory_disk()

import pytest
from hypothesis import settings

from tests.benchmark_sets import BenchmarkData, path_of, read_set
from tests.browser import Browser, missing_browser, open_browser

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def benchmark_data() -> Callable[[str], BenchmarkData]:
    """A loader: ``benchmark_data("handwritten")`` reads handwritten.npz of $MSCAM_DATA.

    The test that calls it is skipped when the variable is not set or the file is not there.
    """

    def load(name: str) -> BenchmarkData:
        path = path_of(name)
        if path is None:
            pytest.skip(f"{name}.npz: MSCAM_DATA (the folder of benchmark sets) is not set")
        if not path.is_file():
            pytest.skip(f"{name}.npz is not in the folder that MSCAM_DATA names")
        return read_set(name)

    return load


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; tests are skipped, with the reason, where there is none."""
    reason = missing_browser()
    if reason is not None:
        pytest.skip(reason)
    kept = os.environ.get("MSCAM_ARTIFACTS")
    with open_browser(Path(kept) if kept else tmp_path_factory.mktemp("artifacts")) as opened:
        yield opened


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The Chromium as it was at its start, which leaves the page at the end of the test."""
    yield chromium
    chromium.reset()
