"""The package on systems without POSIX modules: every module imports, and estimators fit."""

from __future__ import annotations

import pytest

import mscam_dask
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from tests.processes import printed

# Third-party modules are imported before the modules of the system are taken away.
SCRIPT = """
import importlib, os, pkgutil, signal, sys
import click, dask, distributed, numpy as np, rich.progress, sklearn.cluster, xarray, zarr

MISSING = {"fcntl", "resource", "pwd", "grp", "termios"}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ImportError(name)

sys.meta_path.insert(0, Finder())
for name in MISSING:
    sys.modules.pop(name, None)
for name in ("fork", "sched_getaffinity", "getuid", "geteuid", "fchmod", "killpg"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGUSR1", "SIGHUP", "SIGKILL"):
    if hasattr(signal, name):
        delattr(signal, name)

import mscam_dask
for module in pkgutil.walk_packages(mscam_dask.__path__, "mscam_dask."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

from mscam_dask.data.store.filesystem import take_lock
from mscam_dask.errors import ConfigurationError
from pathlib import Path
try:
    take_lock(0, Path("run.lock"), remedy="")
except ConfigurationError as error:
    assert "run.lock" in str(error) and sys.platform in str(error), error
else:
    raise AssertionError("locked without fcntl")

classes = np.repeat(range(3), 20)
rng = np.random.default_rng(0)
views = [rng.normal(size=(60, 5)) + 8 * np.eye(5)[classes] for _ in range(2)]
print(mscam_dask.MSCAM(3, n_jobs=1).fit(views).n_connected_components_)
"""


@pytest.mark.thorough
def test_without_posix_modules() -> None:
    assert printed(SCRIPT).split() == ["3"]


def test_errors_have_one_root_and_are_value_errors_too() -> None:
    for error in (ConfigurationError, DataError):
        assert issubclass(error, MscamError)
        assert issubclass(error, ValueError)


def test_public_names() -> None:
    assert set(mscam_dask.__all__) <= set(dir(mscam_dask))
    for name in mscam_dask.__all__:
        assert getattr(mscam_dask, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mscam_dask.no_such_name
