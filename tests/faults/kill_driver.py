"""Kill the driver of a run at a random moment, resume it, compare with an undisturbed run.

    python -m tests.faults.kill_driver --runs 50

prints how many runs ended with the same bits. Every driver is a
process of its own, forked from one that has everything imported, so that the moments are spread
over the run and not over the start of Python.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.results import history_dataset, read_result
from mscam_dask.errors import MscamError
from mscam_dask.monitor.run_record import decode_record
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import resume_run, run_pipeline
from tests.pipeline.runs import write_tiny
from tests.synthetic import save_npz


def write_pipeline(directory: Path, execution: str = "in_process = true\nthreads = 1") -> Path:
    """300 samples of 6 clusters, which ARPACK cuts (up to 250 would be dense), in several iterations."""
    rng = np.random.default_rng(5)
    data = subspace_mixture(300, 6, (10, 14, 20), rng=rng, separation=1.0, noise=0.6)
    save_npz(directory / "tiny.npz", data)
    clusters = "[cluster]\nn_clusters = 6\nmax_iter = 6\n"
    return write_tiny(directory, f"[execution]\n{execution}\n", clusters=clusters)


def outcome_of(root: Path) -> Any:
    """Everything that a run ended with, but times."""
    result = read_result(root / "result.zarr")
    graph = result.consensus_graph
    names = list(result.view_contributions)
    history = history_dataset(result.history, names).drop_vars("seconds")
    arrays: list[Any] = [result.labels, graph.data, graph.indices, graph.indptr]
    arrays += list(result.view_embeddings.values())
    arrays += [history[name].values for name in sorted(map(str, history.variables))]
    record = decode_record((root / "run.json").read_bytes(), "run.json")
    assert record.state == "finished", record.state
    return (
        (root / "labels.csv").read_bytes(),
        [(array.dtype.str, array.shape, array.tobytes()) for array in arrays],
        (result.status, result.score, result.n_neighbors, result.view_contributions),
        (record.fit, record.metrics, record.data.digest),
    )


def forked(task: Callable[[], object]) -> int:
    """Start a process that does one thing; its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        task()
        code = 0
    except MscamError as error:
        code = error.exit_code
    finally:
        os._exit(code)


def exit_code(process: int) -> int:
    """Wait for a process; minus the signal's number when one ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def go_on(pipeline: Path, root: Path) -> Callable[[], object]:
    """Repeat a killed run as its user would: resume it, or start it if it had not begun."""
    if (root / "run.json").exists():
        return lambda: resume_run(root)
    return lambda: run_pipeline(read_config(pipeline), root)


def trial(pipeline: Path, root: Path, duration_s: float, rng: np.random.Generator) -> int:
    """Kill one run once or twice and bring it to its end; the number of kills."""
    n_kills = 0
    for _ in range(int(rng.integers(1, 3))):
        process = forked(go_on(pipeline, root))
        time.sleep(float(rng.uniform(0.0, duration_s)))
        os.kill(process, signal.SIGKILL)
        n_kills += exit_code(process) == -signal.SIGKILL
    code = exit_code(forked(go_on(pipeline, root)))
    assert code == 0, f"resuming returned {code}"
    return n_kills


def main(arguments: list[str] | None = None) -> int:
    """Run the trials; 0 when every run ended like the undisturbed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="Dask workers; 0 for none")
    options = parser.parse_args(arguments)
    execution = f"workers = {options.workers}" if options.workers else None
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        pipeline = write_pipeline(here, *([execution] if execution else []))
        started = time.monotonic()
        code = exit_code(forked(go_on(pipeline, here / "undisturbed")))
        duration_s = time.monotonic() - started
        assert code == 0, f"the undisturbed run returned {code}"
        expected = outcome_of(here / "undisturbed")
        n_kills = identical = 0
        for number in range(options.runs):
            root = here / f"run-{number}"
            n_kills += trial(pipeline, root, duration_s, rng)
            same = outcome_of(root) == expected
            identical += same
            if not same:
                sys.stdout.write(f"run {number} (seed {options.seed}) differs\n")
    sys.stdout.write(
        f"{identical}/{options.runs} identical after {n_kills} kills of a run of {duration_s:.1f} s\n"
    )
    return 0 if identical == options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
