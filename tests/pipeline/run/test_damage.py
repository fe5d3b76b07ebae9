"""Damage in the files of a run: noticed and named where the run is asked for, skipped elsewhere."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.store.write import write_store
from mscam_dask.errors import ConfigurationError, DataError, MscamError, StoreCorruptError
from mscam_dask.monitor.events import Event, StepFinished
from mscam_dask.monitor.run_record import RunRecord, decode_record, encode_record
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.resume import resume_run
from mscam_dask.pipeline.run.run import run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.sample_tables import decoded_id, encoded_id
from mscam_dask.types.events import IterationFinished
from tests.messages import quotes
from tests.pipeline.runs import HERE, QUIET, again, stopped_run
from tests.synthetic import save_npz, three_subspaces

pytestmark = pytest.mark.usefixtures("own_directory")

Write = Callable[[str], Path]


def not_utf8(content: bytes) -> bytes:
    place = content.index(b'"tiny"') + 2
    return content[:place] + b"\xff" + content[place + 1 :]


def cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def other_value(content: bytes) -> bytes:
    return content.replace(b'"n_clusters": 3', b'"n_clusters": 2')


def other_name(content: bytes) -> bytes:
    return content.replace(b'"max_iter"', b'"mbx_iter"')


@pytest.mark.parametrize(
    ("damage", "command"),
    [
        (not_utf8, "describe"),
        (cut_short, "resume"),
        (other_value, "report"),
        (other_name, "resume"),
    ],
)
def test_a_damaged_record_is_named_with_a_remedy(
    damage: Callable[[bytes], bytes], command: str, pipeline: Write, tmp_path: Path
) -> None:
    directory = run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out").directory
    directory.record.write_bytes(damage(directory.record.read_bytes()))
    result = CliRunner().invoke(main, [command, str(directory.path)])
    assert result.exit_code == StoreCorruptError.exit_code
    assert "--overwrite" in result.stderr
    assert str(directory.record.name) in result.stderr


def test_every_flipped_bit_of_a_record_is_noticed_or_harmless(
    pipeline: Write, tmp_path: Path
) -> None:
    content = run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out").directory.record
    before = content.read_bytes()
    record = decode_record(before, "here")
    rng = np.random.default_rng(0)
    n_noticed = 0
    for position in rng.choice(len(before), 400, replace=False):
        damaged = bytearray(before)
        damaged[position] ^= 1 << int(rng.integers(8))
        try:
            assert decode_record(bytes(damaged), "here") == record
        except DataError:
            n_noticed += 1
    assert n_noticed > 200


def test_a_record_of_unknown_parameters_is_refused(pipeline: Write, tmp_path: Path) -> None:
    directory = stopped_run(pipeline(QUIET), tmp_path / "out")
    content = json.loads(directory.record.read_bytes())
    content.pop("sha256")
    content["settings"]["cluster"]["parameters"]["n_klusters"] = 3
    directory.write_record(msgspec.convert(content, RunRecord))
    with pytest.raises(DataError, match=quotes("n_klusters", "--overwrite")):
        resume_run(directory.path)


def test_a_damaged_lock_file_still_locks(tmp_path: Path) -> None:
    with RunDirectory.lock(tmp_path / "out") as directory:
        (directory.path / ".lock").write_bytes(b'{"host": "\xff"}')
        with pytest.raises(MscamError, match=quotes(directory.path)) as caught:
            resume_run(directory.path)
    assert caught.value.exit_code == 75


@pytest.mark.parametrize("content", [b"\xff", b"[cluster\n", b"[cluster]\nn_clusters = 2\n"])
def test_a_pipeline_file_with_other_settings_is_refused_on_resume(
    content: bytes, pipeline: Write, tmp_path: Path
) -> None:
    directory = stopped_run(pipeline(QUIET), tmp_path / "out")
    kept = directory.pipeline.read_bytes()
    directory.pipeline.write_bytes(content)
    with pytest.raises(ConfigurationError, match=quotes(directory.pipeline)):
        resume_run(directory.path)
    directory.pipeline.unlink()
    assert resume_run(directory.path).record.state == "finished"
    assert directory.pipeline.read_bytes() == kept


def test_one_changed_setting_is_named(pipeline: Write, tmp_path: Path) -> None:
    directory = stopped_run(pipeline(QUIET), tmp_path / "out")
    text = directory.pipeline.read_text()
    directory.pipeline.write_text(text.replace("n_clusters = 3", "n_clusters = 2"))
    with pytest.raises(ConfigurationError, match=quotes("cluster.n_clusters", 2, 3)):
        resume_run(directory.path)
    directory.pipeline.write_text(text.replace("threads = 1", "threads = 2"))
    assert resume_run(directory.path).record.state == "finished"


def test_a_missing_report_is_written_again(
    pipeline: Write, fits: list[Any], tmp_path: Path
) -> None:
    first = again(pipeline(HERE), output=tmp_path / "out")
    before = first.directory.report.read_bytes()
    first.directory.report.unlink()
    steps: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, StepFinished):
            steps.append(event.step)

    outcome = resume_run(
        tmp_path / "out",
        observers=[note],
    )
    assert (outcome.resumed, steps, len(fits)) == (False, ["report"], 1)
    assert first.directory.report.read_bytes() == before


# --------------------------------------------------------------------------- text of others

HOSTILE = [
    *("=cmd()", "+1+1", "-1+1", "@SUM(A1)", "\tx", "\rx", "a\x1b[31mb", "a\nb", "'=x", "\x9bx"),
    *("|calc", "  =1+1", "\uff1d1+1", "\uff5cx", " -7"),
    *("\\x1b", "'a\\b", "=a\\b", "", "-7", "+3.5", "plain", "Zürich, 8"),
]


@pytest.mark.parametrize("sample", HOSTILE)
def test_sample_ids_are_harmless_and_read_back(sample: str) -> None:
    text = encoded_id(sample)
    assert decoded_id(text) == sample
    assert text.isprintable()
    first = unicodedata.normalize("NFKC", text).lstrip()[:1]
    assert first not in {*"=@|\t\r"}
    assert first not in {*"+-"} or (float(text) and text[0] == first)
    if sample in ("plain", "-7", "+3.5", "\\x1b", "Zürich, 8"):
        assert text == sample
    assert len({encoded_id(other) for other in HOSTILE}) == len(HOSTILE)


def test_ids_like_formulas_are_escaped_in_labels_and_compared_by_their_own_text(
    tmp_path: Path, fits: list[Any]
) -> None:
    data = three_subspaces()
    ids = tuple(f"=cmd({row})" for row in range(data.n_samples))
    write_store(dataclasses.replace(data, sample_ids=ids), tmp_path / "ids.zarr")
    file = tmp_path / "tiny.toml"
    text = (
        "[data]\nsource = 'ids.zarr'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n"
        f"max_iter = 3\n{HERE}[incremental]\nenabled = true\n"
    )
    file.write_text(text)
    first = again(file)
    content = first.directory.labels.read_bytes()
    assert b"\n=" not in content
    assert "=cmd(1)" in write_report(first.directory).read_text(encoding="utf-8")
    file.write_text(text.replace("max_iter = 3", "max_iter = 4"))
    drift = again(file).record.drift
    assert drift is not None
    assert (drift.n_common, drift.n_new) == (data.n_samples, 0)


# --------------------------------------------------------------------------- locks


def test_a_removed_lock_file_lets_no_second_driver_in(pipeline: Write, tmp_path: Path) -> None:
    refusals: list[int] = []

    def second(event: object) -> None:
        if isinstance(event, IterationFinished):
            (tmp_path / "out" / ".lock").unlink(missing_ok=True)
            with pytest.raises(MscamError) as caught:
                resume_run(tmp_path / "out")
            refusals.append(caught.value.exit_code)
            with pytest.raises(MscamError) as caught:
                run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out", overwrite=True)
            refusals.append(caught.value.exit_code)

    outcome = run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out", observers=(second,))
    assert outcome.record.state == "finished"
    assert set(refusals) == {75}


def test_a_replaced_lock_file_ends_a_run_where_directories_have_no_locks(
    pipeline: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mscam_dask.pipeline.run.lock._lock_directory", lambda *_args, **_options: None
    )

    def replace(event: object) -> None:
        if isinstance(event, IterationFinished):
            lock = tmp_path / "out" / ".lock"
            lock.unlink()
            lock.touch()

    with pytest.raises(MscamError, match=quotes(".lock")) as caught:
        run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out", observers=(replace,))
    assert caught.value.exit_code == 75
    assert not (tmp_path / "out" / "labels.csv").exists()


def test_a_directory_that_is_moved_ends_the_run(pipeline: Write, tmp_path: Path) -> None:
    def harm(event: object) -> None:
        if isinstance(event, IterationFinished) and (tmp_path / "out").exists():
            (tmp_path / "out").rename(tmp_path / "moved")

    with pytest.raises(MscamError, match=quotes(tmp_path / "out")) as caught:
        run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out", observers=(harm,))
    assert caught.value.exit_code == 75
    assert not (tmp_path / "out").exists()
    assert resume_run(tmp_path / "moved").record.state == "finished"


# --------------------------------------------------------------------------- links


@pytest.mark.thorough
def test_links_in_the_paths_of_runs_and_checkpoints_are_followed(
    pipeline: Write, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    settings = read_config(
        pipeline(f"{QUIET}[output]\ncheckpoints = '{tmp_path / 'scratch' / 'c'}'\n")
    )
    for overwrite in (False, True):
        outcome = run_pipeline(settings, tmp_path / "scratch" / "run", overwrite=overwrite)
        assert outcome.record.state == "finished"
        assert outcome.directory.path == tmp_path / "disk" / "run"
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    assert run_pipeline(settings, tmp_path / "link", overwrite=True).record.state == "finished"
    assert (tmp_path / "link").is_symlink()
    assert not resume_run(tmp_path / "link").resumed


def test_named_runs_below_a_link_find_each_other(
    pipeline: Write, fits: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    output = "[output]\nroot = 'scratch'\n"
    first = again(pipeline(f"{QUIET}{output}"))
    second = again(pipeline(f"{QUIET}{output}[evaluate]\nenabled = false\n"))
    assert len(fits) == 1
    assert first.directory.path != second.directory.path
    assert not again(pipeline(f"{QUIET}{output}")).resumed


def test_a_link_that_leads_nowhere_is_refused(pipeline: Write, tmp_path: Path) -> None:
    (tmp_path / "scratch").symlink_to(tmp_path / "unmounted")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    for name in ("scratch", "a"):
        with pytest.raises(ConfigurationError, match=quotes(tmp_path / name)):
            run_pipeline(read_config(pipeline(QUIET)), tmp_path / name)
    assert not (tmp_path / "unmounted").exists()


def test_a_record_reads_back_whatever_the_order_of_its_keys(
    pipeline: Write, tmp_path: Path
) -> None:
    save_npz(tmp_path / "tiny.npz", three_subspaces())
    record = run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out").record
    content = encode_record(record)
    turned = json.dumps(dict(reversed(json.loads(content).items()))).encode()
    assert decode_record(turned, "here") == decode_record(content, "here") == record
