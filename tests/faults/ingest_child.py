"""Read each file that standard input names in a process of its own, with little memory and time.

A request has the directory of a finished run, and a value of the canary. The file goes through every way in: ingestion,
`fit` and `describe`, and `load_run`, `resume`, `report` and `describe` of the run whose result it replaces. One
line of JSON is the answer: {"doors": {way: ["typed" | "done" | "error", message]}, "memory_bytes": growth of resident
memory at its peak} or {"signal": number}. Importing happens once, before the processes are forked.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5netcdf  # noqa: F401 - imported before the processes are forked
import numpy as np
import scipy.io  # noqa: F401
import xarray  # noqa: F401
import zarr  # noqa: F401

from mscam_dask import MSCAM, Constants
from mscam_dask.cli.commands import describe_path
from mscam_dask.data.ingest import ingest
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import MscamError
from mscam_dask.pipeline.load_run import load_run
from mscam_dask.pipeline.report import write_report
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run_directory import RunDirectory

ADDRESS_BYTES = 768 * 2**20  # threads reserve more than they use
CPU_SECONDS = 20
SECONDS = 200  # for a process that only waits


def through_doors(path: Path, directory: Path, canary: float) -> dict[str, tuple[str, str]]:
    """The outcome of every way in."""
    result = directory / "result.zarr"
    shutil.rmtree(result)
    run = RunDirectory(directory)
    model = MSCAM(2, constants=Constants.paper(), max_iter=1)

    def ingested() -> None:
        ingest(path, path.with_name("out.zarr"))
        for view in open_store(path.with_name("out.zarr")).views:
            assert not (np.abs(view.read(0, view.shape[0]) - canary) < 1e-6).any(), "stolen"

    ways: dict[str, Callable[[], object]] = {
        "ingest": ingested,
        "fit": lambda: model.fit(str(path)),
        "describe": lambda: describe_path(str(path)),
        "move": lambda: path.rename(result),
        "describe a run": lambda: describe_path(str(directory)),
        "load_run": lambda: load_run(directory),
        "report": lambda: write_report(run),
        "resume": lambda: resume_run(directory),
    }
    doors = {}
    for name, way in ways.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                way()
            doors[name] = ("done", "")
        except MscamError as error:
            doors[name] = ("typed", str(error))
        except BaseException:  # noqa: BLE001 - it is reported
            doors[name] = ("error", traceback.format_exc())
    return doors


def _pages() -> tuple[int, int]:
    """Bytes of the address space and of resident memory of this process."""
    total, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(total) * resource.getpagesize(), int(resident) * resource.getpagesize()


def answer(**request: Any) -> str:
    """The outcomes in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        address_space, resident = _pages()
        resource.setrlimit(resource.RLIMIT_AS, (address_space + ADDRESS_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(SECONDS)
        doors = through_doors(Path(request["path"]), Path(request["run"]), request["canary"])
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with os.fdopen(writing, "w") as stream:
            stream.write(json.dumps({"doors": doors, "memory_bytes": peak - resident}))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    return text or json.dumps({"signal": os.WTERMSIG(status)})


def main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        sys.stdout.write(answer(**json.loads(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
