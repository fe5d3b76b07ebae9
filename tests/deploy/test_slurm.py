"""A submission to SLURM, where `sbatch` runs the job script here instead of queueing it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from tests.deploy.files import DEPLOY, run, script_environment

pytest.importorskip("dask_jobqueue")

# Fake programs: a job is a process group, its number the process's; `jobs` keeps their scripts.
SBATCH = """#!/usr/bin/env bash
set -eu
script=${*: -1}
case $script in -*) script=/dev/stdin ;; esac
copy=$(mktemp "$FAKE_SLURM/jobs/script.XXXXXX")
cat "$script" >"$copy"
[ -z "${FAKE_QUEUE_IS_LONG:-}" ] || echo "sleep 300" >"$copy"
setsid env SLURM_JOB_ID=1 bash "$copy" >"$copy.out" 2>&1 </dev/null &
echo "$!" >>"$FAKE_SLURM/submitted"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/usr/bin/env bash
for job in "$@"; do
  echo "$job" >>"$FAKE_SLURM/cancelled"
  kill -TERM -- "-$job" 2>/dev/null || true
done
"""
SQUEUE = """#!/usr/bin/env bash
cat "$FAKE_SLURM/submitted"
"""
NIGHTLY = ("bash", str(DEPLOY / "slurm/nightly.sbatch"))
SCONTROL = """#!/usr/bin/env bash
echo "$*" >>"$FAKE_SLURM/controlled"
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with the fake programs first on the path; no job outlives the test."""
    if shutil.which("setsid") is None:
        pytest.skip("setsid is not installed (util-linux)")
    root = tmp_path / "slurm"
    (root / "jobs").mkdir(parents=True)
    for name, text in (
        ("sbatch", SBATCH),
        ("scancel", SCANCEL),
        ("squeue", SQUEUE),
        ("scontrol", SCONTROL),
    ):
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    (tmp_path / "slurm.dask.yaml").write_text(
        (DEPLOY / "slurm/slurm.dask.yaml").read_text().replace("interface: null", "interface: lo")
    )
    yield script_environment(
        FAKE_SLURM=str(root),
        PATH=f"{root}:{os.environ['PATH']}",
        DASK_CONFIG=str(tmp_path / "slurm.dask.yaml"),
        DASK_JOBQUEUE__SLURM__SHARED_TEMP_DIRECTORY=str(tmp_path),
        DASK_JOBQUEUE__SLURM__LOG_DIRECTORY=str(tmp_path),
        MSCAM_PYTHON=sys.executable,
        MSCAM_HOME=str(tmp_path),
        MSCAM_CORES="1",
        MSCAM_MEMORY="2GiB",
    )
    for job in lines_of(root / "submitted"):
        kill(int(job))


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@contextmanager
def batch_job(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The batch script with all that it starts, which ends with the block however that ends."""
    with subprocess.Popen(NIGHTLY, env=environment, start_new_session=True) as batch:
        try:
            yield batch
        finally:
            kill(batch.pid)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    store = write_store(digits_views(["pixels", "zernike"]), tmp_path / "digits.zarr")
    file = tmp_path / "nightly.toml"
    file.write_text(
        f'[data]\nsource = "{store}"\n[cluster]\nn_clusters = 10\nscale = "standard"\nalpha = 1.0\n'
        f'n_neighbors = 9\nmax_iter = 2\n[output]\ndirectory = "{tmp_path / "run"}"\n'
    )
    return file


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_on_worker_jobs_that_slurm_started(
    tmp_path: Path, slurm: dict[str, str], pipeline: Path
) -> None:
    result = run(
        *NIGHTLY, "--set", "cluster.max_iter=1", env={**slurm, "MSCAM_JOBS": "2"}, timeout=200
    )
    assert result.returncode in (0, 5), result.stdout + result.stderr
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["exit_code"] == result.returncode
    assert record["executor"] == "2 workers of a slurm cluster"
    root = Path(slurm["FAKE_SLURM"])
    jobs = [int(line) for line in (root / "submitted").read_text().split()]
    assert len(jobs) == 2
    assert set((root / "cancelled").read_text().split()) == {str(job) for job in jobs}
    script = next((root / "jobs").glob("script.??????")).read_text()
    assert "--dashboard-address 127.0.0.1:0" in script
    assert "#SBATCH --cpus-per-task=1" in script
    assert "#SBATCH --mem=2G" in script
    assert "export OPENBLAS_NUM_THREADS=1" in script
    assert "tls://" in script
    assert "--lifetime 27000s --lifetime-stagger 1200s" in script
    deadline = time.monotonic() + 20
    while any(alive(job) for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [job for job in jobs if alive(job)]


@pytest.mark.timeout(300)
@pytest.mark.thorough
def test_a_request_that_slurm_refuses_and_one_that_it_cannot_take_now(
    slurm: dict[str, str], pipeline: Path
) -> None:
    sbatch = Path(slurm["FAKE_SLURM"]) / "sbatch"
    for reason, code in (
        ("error: Batch job submission failed: Invalid account or partition", 4),
        ("error: Unable to contact slurm controller (connect failure)", 75),
    ):
        sbatch.write_text(f"#!/bin/sh\necho '{reason}' >&2\nexit 1\n")
        result = run(*NIGHTLY, env={**slurm, "SLURM_JOB_ID": "3"}, timeout=110)
        assert result.returncode == code, result.stdout + result.stderr
        assert reason in " ".join(result.stderr.split())
    sbatch.unlink()
    slurm = {**slurm, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "SLURM_JOB_ID": "3"}
    if shutil.which("sbatch", path=slurm["PATH"]) is None:
        assert run(*NIGHTLY, env=slurm, timeout=60).returncode == 2


@pytest.mark.parametrize(
    ("ending", "code", "requeued"), [("exit 0", 0, 0), ("exit 3", 3, 0), ("exit 75", 75, 1)]
)
def test_the_batch_script_ends_as_the_run_does_and_goes_back_into_the_queue_with_75(
    tmp_path: Path, slurm: dict[str, str], ending: str, code: int, requeued: int
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/usr/bin/env bash\n{ending}\n")
    fake.chmod(0o755)
    environment = {
        **slurm,
        "MSCAM_PYTHON": str(fake),
        "SLURM_JOB_ID": "7",
    }
    assert run("bash", DEPLOY / "slurm/nightly.sbatch", env=environment).returncode == code
    assert lines_of(Path(slurm["FAKE_SLURM"]) / "controlled") == ["requeue 7"] * requeued


@pytest.mark.parametrize(
    ("number", "controlled"),
    [(signal.SIGUSR1, ["requeue 8"]), (signal.SIGTERM, [])],
    ids=["time is over", "scancel"],
)
def test_a_signal_stops_the_run_and_only_the_end_of_its_time_requeues_it(
    tmp_path: Path, slurm: dict[str, str], number: signal.Signals, controlled: list[str]
) -> None:
    fake = tmp_path / "python"
    fake.write_text(
        "#!/usr/bin/env bash\n"
        f"trap 'touch {tmp_path}/stopped; exit 75' TERM\ntouch {tmp_path}/started\n"
        "while true; do sleep 0.05; done\n"
    )
    fake.chmod(0o755)
    environment = {
        **slurm,
        "MSCAM_PYTHON": str(fake),
        "SLURM_JOB_ID": "8",
    }
    with batch_job(environment) as batch:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert batch.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        batch.send_signal(number)
        assert batch.wait(30) == 75
    assert (tmp_path / "stopped").exists()
    assert lines_of(Path(slurm["FAKE_SLURM"]) / "controlled") == controlled


def test_the_signal_before_the_time_is_over_is_the_one_that_the_script_expects() -> None:
    for file, mark in (("nightly.sbatch", "#SBATCH"), ("mscam.scrontab", "#SCRON")):
        text = (DEPLOY / "slurm" / file).read_text()
        assert re.findall(rf"^{mark} --signal=(.*)$", text, re.M) == ["B:USR1@300"]


def listening(group: int) -> set[str]:
    """Addresses that processes of a process group listen on."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group:
                found |= {
                    item.laddr.ip
                    for item in process.net_connections(kind="inet")
                    if item.status == psutil.CONN_LISTEN
                }
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_job_that_is_lost_is_replaced(
    tmp_path: Path, slurm: dict[str, str], pipeline: Path
) -> None:
    root = Path(slurm["FAKE_SLURM"])
    command = [*NIGHTLY, "--set", "cluster.max_iter=30", "--workers-timeout", "120"]
    environment = {
        **slurm,
        "MSCAM_JOBS": "1",
        "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "2s",
    }
    log = tmp_path / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=out) as driver,
    ):
        deadline = time.monotonic() + 120
        while "iteration 1/" not in log.read_text():
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        kill(int(lines_of(root / "submitted")[0]))
        assert driver.wait(200) in (0, 5), log.read_text()
    assert len(lines_of(root / "submitted")) == 2


@pytest.mark.thorough
def test_the_end_of_the_time_before_a_worker_has_started_cancels_the_jobs_and_requeues(
    slurm: dict[str, str], pipeline: Path
) -> None:
    assert pipeline.is_file()
    environment = {**slurm, "FAKE_QUEUE_IS_LONG": "1", "MSCAM_JOBS": "2", "SLURM_JOB_ID": "9"}
    root = Path(slurm["FAKE_SLURM"])
    with batch_job(environment) as batch:
        deadline = time.monotonic() + 60
        while len(lines_of(root / "submitted")) < 2:
            assert batch.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)  # into the wait for a worker
        assert listening(batch.pid) == {"127.0.0.1"}  # scheduler and dashboard: its interface is lo
        batch.send_signal(signal.SIGUSR1)
        assert batch.wait(60) == 75
    assert sorted(lines_of(root / "cancelled")) == sorted(lines_of(root / "submitted"))
    assert lines_of(root / "controlled") == ["requeue 9"]


def test_the_schedules_shell_becomes_the_batch_script() -> None:
    """--signal=B: tells the first shell only."""
    text = (DEPLOY / "slurm/mscam.scrontab").read_text()
    (command,) = re.findall(r"^30 2 \* \* \* (.*)$", text, re.M)
    assert re.fullmatch(r"exec env MSCAM_HOME=\S+ bash \S+/nightly.sbatch", command)
