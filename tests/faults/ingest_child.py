"""Read each file that standard input names in a process of its own, with little memory and time.

One line of JSON is the answer: {"outcome": "typed" | "done" | "error", "message": ..., "signal": ...,
"memory_bytes": growth of resident memory at its peak, "cpu_seconds": ..., "stolen": whether a value of
the canary is in the store}. A request with the directory of a finished run, in place of an output, goes through every other
way in: `fit` and `describe` of the file, and `load_run`, `resume`, `report` and `describe` of the run whose
result the file replaces; "doors" are the outcomes. Importing happens once, before the processes are forked.
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
from functools import partial
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


def outcome(path: Path, output: Path, canary: float) -> dict[str, Any]:
    try:
        ingest(path, output)
        data = open_store(output)
        blocks = [view.read(0, view.shape[0]) for view in data.views]
    except MscamError as error:
        return {"outcome": "typed", "type": type(error).__name__, "message": str(error)}
    except BaseException:  # noqa: BLE001 - it is reported
        return {"outcome": "error", "message": traceback.format_exc()}
    stolen = any(bool((np.abs(block - canary) < 1e-6).any()) for block in blocks)
    return {"outcome": "done", "message": "", "stolen": stolen}


def through_doors(path: Path, directory: Path) -> dict[str, Any]:
    """The outcome of every other way in."""
    result = directory / "result.zarr"
    shutil.rmtree(result)
    run = RunDirectory(directory)
    model = MSCAM(2, constants=Constants.paper(), max_iter=1)
    ways: dict[str, Callable[[], object]] = {
        "fit": lambda: model.fit(str(path)),
        "describe": lambda: describe_path(str(path)),
        "move": lambda: path.rename(result),
        "describe a run": lambda: describe_path(str(directory)),
        "load_run": lambda: load_run(directory),
        "report": lambda: write_report(run),
        "resume": lambda: resume_run(directory),
    }
    doors: dict[str, str] = {}
    for name, way in ways.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                way()
            doors[name] = "done"
        except MscamError:
            doors[name] = "typed"
        except BaseException:  # noqa: BLE001 - it is reported
            doors[name] = traceback.format_exc()
    return {"outcome": "done", "message": "", "doors": doors}


def _pages() -> tuple[int, int]:
    """Bytes of the address space and of resident memory of this process."""
    total, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(total) * resource.getpagesize(), int(resident) * resource.getpagesize()


def run(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The outcome in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        address_space, resident = _pages()
        resource.setrlimit(resource.RLIMIT_AS, (address_space + ADDRESS_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(SECONDS)
        found = work()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found["memory_bytes"] = 1024 * usage.ru_maxrss - resident
        found["cpu_seconds"] = usage.ru_utime + usage.ru_stime
        with os.fdopen(writing, "w") as answer:
            answer.write(json.dumps(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) or not text:
        return {"outcome": "signal", "message": f"signal {os.WTERMSIG(status)}"}
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        request = json.loads(line)
        path = Path(request["path"])
        if "run" in request:
            answer = run(partial(through_doors, path, Path(request["run"])))
        else:
            output = Path(request["output"])
            answer = run(partial(outcome, path, output, request["canary"]))
            shutil.rmtree(output, ignore_errors=True)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
