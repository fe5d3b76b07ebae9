"""What every test shares: numerical threads, hypothesis profiles, benchmark data."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# Before the first import of NumPy, and inherited by worker processes: small matrices are faster
# on one thread, several processes share few cores, and one thread count makes results comparable
# bit for bit.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np
import pytest
from hypothesis import settings

from tests.browser import artifacts_folder, missing_browser, open_browser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tests.browser import Browser

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


class BenchmarkData(NamedTuple):
    """One benchmark set; arrays are read-only because tests share them.

    Attributes
    ----------
    views : tuple of arrays (n_samples, n_features_v)
        As stored, neither centred nor scaled; a distance view is (n_samples, n_samples).
    labels : array of shape (n_samples,), int64
        Ground truth, for scoring only.
    kinds : tuple of str
        "features" or "distance", one for each view.
    names : tuple of str
        One for each view.
    """

    views: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]
    kinds: tuple[str, ...]
    names: tuple[str, ...]


@functools.lru_cache(maxsize=4)
def _load(path: Path) -> BenchmarkData:
    with np.load(path, allow_pickle=False) as archive:
        names = tuple(str(name) for name in archive["view_names"])
        views = tuple(archive[f"view_{index}"] for index in range(len(names)))
        labels = archive["labels"].astype(np.int64)
        kinds = tuple(str(kind) for kind in archive["kind"])
    for array in (*views, labels):
        array.flags.writeable = False
    return BenchmarkData(views, labels, kinds, names)


@pytest.fixture(scope="session")
def benchmark_data() -> Callable[[str], BenchmarkData]:
    """A loader: ``benchmark_data("handwritten")`` reads handwritten.npz of $MSCAM_DATA.

    The test that calls it is skipped when the variable is not set or the file is not there.
    """

    def load(name: str) -> BenchmarkData:
        directory = os.environ.get("MSCAM_DATA")
        if not directory:
            pytest.skip(f"{name}.npz: MSCAM_DATA (the folder of benchmark sets) is not set")
        path = Path(directory) / f"{name}.npz"
        if not path.is_file():
            pytest.skip(f"{name}.npz is not in the folder that MSCAM_DATA names")
        return _load(path)

    return load


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A new headless Chromium; the test is skipped, with the reason, where there is none."""
    reason = missing_browser()
    if reason is not None:
        pytest.skip(reason)
    with open_browser(artifacts_folder(tmp_path)) as opened:
        yield opened
