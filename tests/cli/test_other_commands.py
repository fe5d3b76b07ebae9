"""`mscam-dask ingest`, `describe` and `doctor`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import Result

from mscam_dask.data.store.read import open_store
from mscam_dask.monitor.run_record import decode_record, encode_record
from mscam_dask.pipeline.run import doctor
from mscam_dask.pipeline.run.doctor import CHECKS, Check
from mscam_dask.pipeline.run.lock import RunLock
from mscam_dask.pipeline.run.run_directory import RunDirectory
from tests.cli.screens import numbers
from tests.messages import quotes

Call = Callable[..., Result]


def test_ingest_makes_a_store_and_shows_it(here: Path, call: Call) -> None:
    result = call("ingest", "tiny.npz", "-o", "data.zarr")
    assert result.exit_code == 0
    data = open_store("data.zarr")
    assert data.view_names == ("view_0", "view_1")
    for part in ("view_0", "view_1", data.digest(), "data.zarr"):
        assert part in result.stdout
    assert ["3"] in numbers(result.stdout)  # classes
    refused = call("ingest", "tiny.npz", "-o", "data.zarr")
    assert refused.exit_code == 3
    assert "--overwrite" in refused.stderr
    assert call("ingest", "tiny.npz", "-o", "data.zarr", "--overwrite").exit_code == 0


def test_ingest_options(here: Path, call: Call) -> None:
    with np.load("tiny.npz") as archive:
        square = archive["view_0"] @ archive["view_0"].T
        np.savetxt("first.tsv", archive["view_0"].T, delimiter="\t")
        np.save("square.npy", square)
        np.savetxt("truth.txt", archive["labels"], fmt="%d")
    result = call(
        *("ingest", "square.npy", "-o", "a.zarr", "--view-type", "square=kernel"),
        *("--labels", "truth.txt", "--chunk-size", "7"),
    )
    assert result.exit_code == 0, result.output
    (view,) = open_store("a.zarr").views
    assert view.view_type == "kernel"
    assert getattr(view, "chunk_size", None) == 7
    assert open_store("a.zarr").labels is not None
    result = call(
        *("ingest", "first.tsv", "-o", "b.zarr", "--samples-in", "columns"),
        *("--no-header", "--delimiter", r"\t"),
    )
    assert result.exit_code == 0, result.output
    assert open_store("b.zarr").views[0].shape == (60, 5)
    by_view = ("--samples-in", "first=columns", "--no-header", "--delimiter", r"\t")
    assert call("ingest", "square.npy", "first.tsv", "-o", "d.zarr", *by_view).exit_code == 0
    assert [view.shape for view in open_store("d.zarr").views] == [(60, 60), (60, 5)]
    assert call("ingest", "tiny.npz", "-o", "c.zarr", "--view", "view_1").exit_code == 0
    assert open_store("c.zarr").view_names == ("view_1",)


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["absent.npz", "-o", "x.zarr"], 3, "absent.npz"),
        (["tiny.npz", "-o", "x.zarr", "--view-type", "view_0=kernl"], 2, "kernl"),
        (["tiny.npz", "-o", "x.zarr", "--view-type", "view_9=kernel"], 2, "view_9"),
        (
            ["tiny.npz", "-o", "x.zarr", "--view-type", "kernel", "--view-type", "a=kernel"],
            2,
            "VIEW=VALUE",
        ),
        (["tiny.npz", "-o", "x.zarr", "--view", "view_9"], 3, "view_9"),
        (["tiny.npz", "-o", "x.zarr", "--max-bytes", "1 kB"], 3, "--max-bytes"),
        (["tiny.npz", "-o", "x.zarr", "--max-bytes", "much"], 2, "'much'"),
        (["tiny.npz", "-o", "x.zarr", "--samples-in", "diagonal"], 2, "'diagonal'"),
        (["tiny.npz", "-o", "x.zarr", "--samples-in", "tin=columns"], 2, "['tin']"),
        (["tiny.npz"], 2, "--output"),
        (["-o", "x.zarr"], 2, "SRC"),
    ],
)
def test_ingest_errors(here: Path, call: Call, arguments: list[str], code: int, part: str) -> None:
    result = call("ingest", *arguments)
    assert result.exit_code == code
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("x.zarr").exists()


def test_describe_shows_a_store_with_its_findings(here: Path, call: Call) -> None:
    with np.load("tiny.npz") as archive:
        first = archive["view_0"].copy()
        first[3:5] = 0
        names = ["a [bold]", "b"]
        np.savez(
            "odd.npz",
            allow_pickle=False,
            view_0=first,
            view_1=archive["view_1"],
            labels=archive["labels"],
            view_names=np.array(names),
        )
    assert call("ingest", "odd.npz", "-o", "odd.zarr").exit_code == 0
    result = call("describe", "odd.zarr")
    assert result.exit_code == 0
    digest = getattr(open_store("odd.zarr").views[1], "recorded_digest", "")
    for part in (
        "a [bold]",
        "features",
        digest[:16],
    ):
        assert part in re.sub(r"\s+", " ", result.stdout)
    assert ["60"] in numbers(result.stdout)  # samples
    assert ["20", "20", "3"] in numbers(result.stdout)  # smallest and largest class, classes
    assert re.search(r"\b2\b.*\b60\b.*\b3, 4\b", result.stdout)  # samples of zeros, their rows
    assert "\x1b" not in result.stdout


def test_a_terminal_that_is_not_utf_8_shows_escapes(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mscam_dask.cli", "ingest", "tiny.npz", "-o", "ü.zarr"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xfc.zarr" in done.stdout


def test_describe_finds_a_damaged_store(here: Path, call: Call) -> None:
    call("ingest", "tiny.npz", "-o", "data.zarr")
    chunk = next(p for p in Path("data.zarr/views/0/values/c").rglob("*") if p.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    result = call("describe", "data.zarr")
    assert result.exit_code == 3
    assert str(chunk) in result.stderr


def test_describe_shows_a_run_that_ended_well_or_not(here: Path, call: Call) -> None:
    call("run", "tiny.toml", "--in-process", "-o", "good")
    result = call("describe", "good")
    assert result.exit_code == 0
    text = re.sub(r"\s+", " ", result.stdout)
    for part in (
        *("finished", "tiny", "mscam", "ACC 1.0000", "view_1", f"numpy {np.__version__}"),
        *("report.html", "pipeline.toml", "events.jsonl", "labels.csv", "result.zarr", "data.zarr"),
    ):
        assert part in text
    assert ["3", "3"] in numbers(result.stdout)  # components found and asked for
    call("run", "tiny.toml", "--in-process", "-o", "bad", "--set", "cluster.n_clusters=61")
    result = call("describe", "bad")
    assert result.exit_code == 0
    assert re.search(r"\bfailed\b.*\b2\n", result.stdout)
    assert re.search(quotes("ConfigurationError", "n_clusters", 61), result.stdout)


def test_describe_tells_a_run_that_was_cut_off_from_one_under_way(here: Path, call: Call) -> None:
    call("run", "tiny.toml", "--in-process", "-o", "cut off")
    file = Path("cut off/run.json")
    record = decode_record(file.read_bytes(), str(file))
    file.write_bytes(
        encode_record(msgspec.structs.replace(record, state="running", exit_code=None))
    )
    with RunLock(Path("cut off")):
        result = call("describe", "cut off")
    assert " running\n" in result.stdout
    assert "mscam-dask resume" not in result.stdout
    result = call("describe", "cut off")
    said = re.sub(r"\s+", " ", result.stdout)
    assert re.search(quotes("running", "mscam-dask resume 'cut off'"), said)


@pytest.mark.parametrize(("path", "part"), [("absent", "absent"), (".", "mscam-dask ingest")])
def test_describe_nothing(here: Path, call: Call, path: str, part: str) -> None:
    result = call("describe", path)
    assert result.exit_code == 3
    assert part in result.stderr


def replaced(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, check: Check | None
) -> None:
    checks = tuple(
        (title, (lambda: check) if title == name and check is not None else made)
        for title, made in CHECKS
        if title != "Dask cluster" or name == "Dask cluster"
    )
    monkeypatch.setattr(module, "CHECKS", checks)


def test_doctor_finds_this_computer_fit(here: Path, call: Call) -> None:
    result = call("doctor")
    assert result.exit_code == 0, result.output
    for title, _ in CHECKS:
        assert title in result.stdout
    assert " 127.0.0.1" in result.stdout
    assert numbers(result.stdout)[-1] == [str(len(CHECKS))]


@pytest.mark.parametrize(("level", "code"), [("warn", 0), ("fail", 1)])
def test_doctor_gives_the_remedy_and_the_exit_code(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch, level: str, code: int
) -> None:
    check = Check("Disk", level, "nearly full", "Make room.")  # type: ignore[arg-type]
    replaced(monkeypatch, import_module("mscam_dask.cli.results"), "Disk", check)
    result = call("doctor")
    assert result.exit_code == code
    assert re.search(rf"{level}\s+Disk\s+nearly full\n\s+Make room\.", result.stdout)
    assert numbers(result.stdout)[-1] == ["1", "8"]


@pytest.fixture
def finished(here: Path, call: Call) -> Path:
    """A finished run."""
    assert call("run", "tiny.toml", "--in-process", "-o", "out").exit_code == 0
    return here / "out"


def test_doctor_finds_a_run_valid(finished: Path, call: Call) -> None:
    result = call("doctor", "out")
    assert result.exit_code == 0, result.output
    assert re.findall(r"^(ok|warn|fail) +(\w+)", result.stdout, re.MULTILINE) == [
        ("ok", "Record"),
        ("ok", "Results"),
        ("ok", "Invariants"),
        ("ok", "Data"),
    ]
    assert numbers(result.stdout)[-1] == ["4"]


def test_doctor_finds_changed_files_of_a_run(finished: Path, call: Call) -> None:
    text = (finished / "labels.csv").read_text()
    (finished / "labels.csv").write_text(text.replace("0,0", "0,1", 1))
    result = call("doctor", "out")
    assert result.exit_code == 1
    assert re.search(r"^fail +Results +.*labels\.csv", result.stdout, re.MULTILINE)


def test_doctor_finds_a_result_that_breaks_its_promises(finished: Path, call: Call) -> None:
    directory = RunDirectory(finished)
    record = directory.read_record()
    assert record.fit is not None
    names = (*record.fit.cluster_names[:-1], 9)
    fit = msgspec.structs.replace(record.fit, cluster_names=names)
    directory.write_record(msgspec.structs.replace(record, fit=fit))
    result = call("doctor", "out")
    assert result.exit_code == 1
    assert re.search(r"^fail +Invariants +.*run\.json", result.stdout, re.MULTILINE)


def test_doctor_finds_that_the_data_of_a_run_have_changed(finished: Path, call: Call) -> None:
    shutil.rmtree(finished / "data.zarr")
    result = call("doctor", "out")
    assert result.exit_code == 0
    assert re.search(r"^warn +Data ", result.stdout, re.MULTILINE)
    assert "data.zarr" in re.sub(r"\s", "", result.stdout)


def test_doctor_of_a_run_that_has_not_finished(finished: Path, call: Call) -> None:
    directory = RunDirectory(finished)
    record = directory.read_record()
    directory.write_record(msgspec.structs.replace(record, state="failed"))
    result = call("doctor", "out")
    assert result.exit_code == 1
    assert re.search(r"^fail +Record +.*failed\n +.*resume", result.stdout, re.MULTILINE)


def test_doctor_needs_a_run(here: Path, call: Call) -> None:
    result = call("doctor", "nowhere")
    assert result.exit_code == 3
    assert "nowhere" in result.stderr


def test_doctor_names_what_is_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = dict(CHECKS)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "h5py" else name)
    extras = checks["Extras"]()
    assert (extras.level, extras.remedy) == ("warn", "pip install 'mscam-dask[mat]'")
    assert "h5py" in extras.found
    monkeypatch.setattr(doctor, "smallest_memory_bytes", lambda: 2**30)
    assert checks["Memory"]().level == "warn"
    monkeypatch.setattr(doctor, "_MIN_BYTES", 2**62)
    assert checks["Disk"]().level == "warn"

    def no_module(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(doctor, "import_module", no_module)
    assert checks["Packages"]().level == "fail"
    assert "zarr (no zarr)" in checks["Packages"]().found

    def full(**options: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert checks["Temporary files"]().level == "fail"
    assert "TMPDIR" in checks["Temporary files"]().remedy


def test_tls_makes_certificates_and_shows_how_they_are_used(here: Path, call: Call) -> None:
    result = call("tls", "certificates", "--host", "node-1", "--days", "30")
    assert result.exit_code == 0
    for part in ("dask scheduler --protocol tls", "dask worker tls://", "--tls-key"):
        assert part in result.stdout
    names = {file.name for file in (here / "certificates").iterdir()}
    assert {"ca.pem", "scheduler.pem", "worker-key.pem", "client.pem"} <= names
    assert "PRIVATE" not in result.stdout + result.stderr
    again = call("tls", "certificates")
    assert again.exit_code == 2
    assert "--renew" in again.stderr
    renewed = call("tls", "certificates", "--renew", "--days", "20")
    assert renewed.exit_code == 0
    assert "mscam-dask tls DIR" not in renewed.stdout
    late = call("tls", "certificates", "--renew", "--days", "365")  # of an authority for 300
    assert late.exit_code == 0
    said = " ".join(late.stdout.split())
    assert re.search(quotes("ca.pem", 365, "mscam-dask tls DIR"), said)
