"""`mscam-dask ingest`, `describe`, `report` and `doctor`."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mscam_dask.data.store.dataset import open_store
from mscam_dask.pipeline.doctor import CHECKS
from mscam_dask.pipeline.run_directory import RunDirectory, hold_lock
from tests import processes
from tests.cli.conftest import Call, numbers
from tests.messages import quotes
from tests.pipeline.runs import rewritten
from tests.processes import mscam


def test_ingest_makes_a_store_and_shows_it(here: Path, call: Call) -> None:
    result = call("ingest", "tiny.npz", "-o", "data.zarr")
    data = open_store("data.zarr")
    assert data.view_names == ("view_0", "view_1")
    for part in ("view_0", "view_1", data.digest(), "data.zarr"):
        assert part in result.stdout
    assert ["3"] in numbers(result.stdout)  # classes
    assert "--overwrite" in call("ingest", "tiny.npz", "-o", "data.zarr", code=3).stderr
    call("ingest", "tiny.npz", "-o", "data.zarr", "--overwrite")


def test_ingest_options(here: Path, call: Call) -> None:
    with np.load("tiny.npz") as archive:
        square = archive["view_0"] @ archive["view_0"].T
        np.savetxt("first.tsv", archive["view_0"].T, delimiter="\t")
        np.save("square.npy", square)
        np.savetxt("truth.txt", archive["labels"], fmt="%d")
    call(
        *("ingest", "square.npy", "-o", "a.zarr", "--view-type", "square=kernel"),
        *("--labels", "truth.txt", "--chunk-size", "7"),
    )
    (view,) = open_store("a.zarr").views
    assert view.view_type == "kernel"
    assert getattr(view, "chunk_size", None) == 7
    assert open_store("a.zarr").labels is not None
    call(
        *("ingest", "first.tsv", "-o", "b.zarr", "--samples-in", "columns"),
        *("--no-header", "--delimiter", r"\t"),
    )
    assert open_store("b.zarr").views[0].shape == (60, 5)
    by_view = ("--samples-in", "first=columns", "--no-header", "--delimiter", r"\t")
    call("ingest", "square.npy", "first.tsv", "-o", "d.zarr", *by_view)
    assert [view.shape for view in open_store("d.zarr").views] == [(60, 60), (60, 5)]
    call("ingest", "tiny.npz", "-o", "c.zarr", "--view", "view_1")
    assert open_store("c.zarr").view_names == ("view_1",)


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["absent.npz", "-o", "x.zarr"], 3, "absent.npz"),
        (
            ["tiny.npz", "-o", "x.zarr", "--view-type", "kernel", "--view-type", "a=kernel"],
            2,
            "VIEW=VALUE",
        ),
        (["tiny.npz", "-o", "x.zarr", "--view", "view_9"], 3, "view_9"),
        (["tiny.npz", "-o", "x.zarr", "--max-bytes", "much"], 2, "'much'"),
        (["tiny.npz", "-o", "x.zarr", "--samples-in", "tin=columns"], 2, "['tin']"),
        (["tiny.npz"], 2, "--output"),
    ],
)
def test_ingest_errors(here: Path, call: Call, arguments: list[str], code: int, part: str) -> None:
    result = call("ingest", *arguments, code=code)
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("x.zarr").exists()


def test_describe_shows_a_store_with_its_findings(here: Path, call: Call) -> None:
    with np.load("tiny.npz") as archive:
        first = archive["view_0"].copy()
        first[3:5] = 0
        names = np.array(["a [bold]", "b"])
        views = {"view_0": first, "view_1": archive["view_1"]}
        np.savez("odd.npz", **views, labels=archive["labels"], view_names=names)
    call("ingest", "odd.npz", "-o", "odd.zarr")
    result = call("describe", "odd.zarr")
    assert re.search(quotes("a [bold]", "features"), result.stdout)
    assert ["60"] in numbers(result.stdout)  # samples
    assert ["20", "20", "3"] in numbers(result.stdout)  # smallest and largest class, classes
    assert re.search(r"\b2\b.*\b60\b.*\b3, 4\b", result.stdout)  # samples of zeros, their rows
    assert "\x1b" not in result.stdout


def test_a_terminal_that_is_not_utf_8_shows_escapes(here: Path) -> None:
    command = mscam("ingest", "tiny.npz", "-o", "ü.zarr")
    done = processes.run(*command, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xfc.zarr" in done.stdout


def test_describe_finds_a_damaged_store_or_nothing(here: Path, call: Call) -> None:
    call("ingest", "tiny.npz", "-o", "data.zarr")
    chunk = next(p for p in Path("data.zarr/views/0/values/c").rglob("*") if p.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    Path("empty").mkdir()
    for place, part in (
        ("data.zarr", str(chunk)),
        ("absent", "absent"),
        ("empty", "mscam-dask ingest"),
    ):
        assert part in call("describe", place, code=3).stderr


def test_describe_shows_a_run_that_ended_well_or_not_or_was_cut_off(run: Path, call: Call) -> None:
    run.rename("the run")
    text = re.sub(r"\s+", " ", call("describe", "the run").stdout)
    for part in (
        *("finished", "tiny", "mscam", "ACC 1.0000", "view_1", f"numpy {np.__version__}"),
        *("report.html", "pipeline.toml", "events.jsonl", "labels.csv", "result.zarr", "data.zarr"),
    ):
        assert part in text
    fit = RunDirectory(Path("the run")).read_record().fit
    shares = [f" {share:.1%}" for share in fit.view_contributions.values()]
    assert all(share in text for share in shares)
    setting = msgspec.structs.replace(fit.setting, exclude_views=("view_1",))
    fit = msgspec.structs.replace(fit, setting=setting)
    rewritten(RunDirectory(Path("the run")), state="running", exit_code=None, fit=fit)
    with hold_lock(Path("the run")):
        under_way = call("describe", "the run").stdout
    assert " running\n" in under_way
    assert [share in under_way for share in (*shares, "excluded")] == [True, False, True]
    assert "mscam-dask resume" not in under_way
    cut_off = re.sub(r"\s+", " ", call("describe", "the run").stdout)
    assert re.search(quotes("running", "mscam-dask resume 'the run'"), cut_off)
    call("run", "tiny.toml", "--in-process", "-o", "bad", "--set", "cluster.n_clusters=61", code=2)
    bad = call("describe", "bad").stdout
    assert re.search(r"\bfailed\b.*\b2\n", bad)
    assert re.search(quotes("ConfigurationError", "n_clusters", 61), bad)


def test_doctor_finds_this_computer_fit(here: Path, call: Call) -> None:
    result = call("doctor")
    for title in CHECKS:
        assert title in result.stdout
    assert " 127.0.0.1" in result.stdout
    assert numbers(result.stdout)[-1] == [str(len(CHECKS))]


def test_doctor_names_what_is_missing_and_the_remedy(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.setattr("tempfile.tempdir", str(here / "absent"))
    result = call("doctor", code=1)
    levels = dict(map(reversed, re.findall(r"^(ok|warn|fail) +(\w+)", result.stdout, re.MULTILINE)))
    assert (levels["Extras"], levels["Temporary"]) == ("warn", "fail")
    assert re.search(quotes("h5py", "pip install 'mscam-dask[mat", "TMPDIR"), result.stdout)


def test_doctor_finds_a_run_valid_or_says_what_has_changed(run: Path, call: Call) -> None:
    call("doctor", "absent", code=3)

    def levels(expected_code: int) -> list[str]:
        result = call("doctor", run, code=expected_code)
        return re.findall(r"^(ok|warn|fail) +\w+", result.stdout, re.MULTILINE)

    assert levels(0) == ["ok"] * 4  # record, results, invariants, data
    record = RunDirectory(run).read_record()
    names = (*record.fit.cluster_names[:-1], 9)
    rewritten(RunDirectory(run), fit=msgspec.structs.replace(record.fit, cluster_names=names))
    assert levels(1)[2] == "fail"
    rewritten(RunDirectory(run), fit=record.fit)
    shutil.rmtree(run / "data.zarr")
    assert levels(0) == ["ok", "ok", "ok", "warn"]
    labels = run / "labels.csv"
    labels.write_text(labels.read_text().replace("0,0", "0,1", 1))
    assert levels(1)[1] == "fail"
    rewritten(RunDirectory(run), state="failed")
    assert levels(1)[0] == "fail"


def test_tls_makes_certificates_and_shows_how_they_are_used(here: Path, call: Call) -> None:
    result = call("tls", "certificates", "--days", "30")
    for part in ("dask scheduler --protocol tls", "dask worker tls://", "--tls-key"):
        assert part in result.stdout
    names = {file.name for file in (here / "certificates").iterdir()}
    assert {"ca.pem", "scheduler.pem", "worker-key.pem", "client.pem"} <= names
    assert "PRIVATE" not in result.stdout + result.stderr
    assert "--renew" in call("tls", "certificates", code=2).stderr
    assert "mscam-dask tls DIR" not in call("tls", "certificates", "--renew", "--days", "20").stdout
    late = call("tls", "certificates", "--renew", "--days", "365")  # of an authority for 300
    said = " ".join(late.stdout.split())
    assert re.search(quotes("ca.pem", 365, "mscam-dask tls DIR"), said)


def test_a_report_is_made_again_and_opened(
    here: Path, run: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "report.html").unlink()
    assert "runs/one/report.html" in call("report", run).stdout
    there_is_a_browser = (here / "page.html").as_uri().__eq__
    monkeypatch.setattr("webbrowser.open", there_is_a_browser)
    call("report", run, "-o", "page.html", "--open")
    assert (run / "report.html").as_uri() in call("report", run, "--open", code=75).stderr
    call("report", "absent", code=3)


def columns_in(page: Path) -> list[str]:
    payload = page.read_text(encoding="utf-8").split('id="payload">')[1].split("</script>")[0]
    return [column["name"] for column in json.loads(payload)["columns"]]


def test_plots_are_colored_by_columns_of_a_table(here: Path, call: Call) -> None:
    (here / "clinical.csv").write_text("row,site,age\n0,Ghent,61.5\n3,Oslo,48\n", encoding="utf-8")
    setting = ("--set", "report.columns=clinical.csv", "--set", "report.enabled=true")
    call("run", "tiny.toml", "--in-process", "-o", "out", *setting)
    assert columns_in(here / "out/report.html")[-2:] == ["site", "age"]
    (here / "other.csv").write_text("row,dose\n1,0.5\n", encoding="utf-8")
    call("report", "out", "--columns", "other.csv")
    assert columns_in(here / "out/report.html")[-1] == "dose"
    (here / "clinical.csv").unlink()
    call("report", "out")  # with a note
    page = (here / "out/report.html").read_text(encoding="utf-8")
    assert "clinical.csv" in page[page.index('id="result"') : page.index('id="graph"')]
    assert "clinical.csv" in call("report", "out", "--columns", "clinical.csv", code=3).stderr
