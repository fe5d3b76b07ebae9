"""Checkpoints on an S3 server: a run whose computer is gone goes on elsewhere, to the same bits."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.settings import OutputTable, Settings
from mscam_dask.pipeline.toml_document import parse_override
from tests.data.conftest import keys
from tests.faults.kill_driver import outcome_of
from tests.messages import quotes
from tests.pipeline.runs import QUIET, THREE, Stopped, at, stop
from tests.synthetic import save_npz, three_subspaces

PLACE = ObjectPath("s3://bucket/checkpoints/one")


# ----------------------------------------------------------------------------- runs


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    save_npz(tmp_path / "tiny.npz", three_subspaces())
    file = tmp_path / "tiny.toml"
    output = "[output]\ncheckpoints = 's3://bucket/checkpoints'\n"
    file.write_text(f"[data]\nsource = 'tiny.npz'\n{THREE}{QUIET}{output}")
    return read_config(file)


@pytest.mark.thorough
def test_a_run_goes_on_in_another_directory(
    bucket: Any, settings: Settings, tmp_path: Path
) -> None:
    local = msgspec.structs.replace(settings, output=OutputTable())
    run_pipeline(local, tmp_path / "undisturbed")
    assert keys(bucket) == []
    with pytest.raises(Stopped):  # the computer is taken away
        run_pipeline(settings, tmp_path / "node 1", observers=[at(stop)])
    assert any(key.endswith("/current.json") for key in keys(bucket))
    outcome = run_pipeline(settings, tmp_path / "node 2")
    assert outcome_of(tmp_path / "node 2") == outcome_of(tmp_path / "undisturbed")
    (entry,) = outcome.record.resumed
    assert entry.after_iteration is not None
    assert "s3://bucket/checkpoints/tiny-" in entry.warnings[0]
    assert keys(bucket) == []


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_goes_on_from_a_directory_unless_it_is_to_start_again(
    settings: Settings, tmp_path: Path, *, overwrite: bool
) -> None:
    shared = f"output.checkpoints='{tmp_path / 'shared'}'"
    elsewhere = read_config(tmp_path / "tiny.toml", [parse_override(shared)])
    with pytest.raises(Stopped):
        run_pipeline(elsewhere, tmp_path / "node 1", observers=[at(stop)])
    outcome = run_pipeline(elsewhere, tmp_path / "node 2", overwrite=overwrite)
    assert [entry.after_iteration for entry in outcome.record.resumed] == [1] * (not overwrite)
    assert list((tmp_path / "shared").iterdir()) == []


# ----------------------------------------------------------------------------- no way there


@pytest.fixture
def strict(server: str, bucket: Any) -> Iterator[None]:
    """The server looks at credentials from now on."""

    def unchecked_requests(count: str) -> None:
        request = urllib.request.Request(
            f"{server}/moto-api/reset-auth",
            data=count.encode(),
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request).close()

    unchecked_requests("0")
    yield
    unchecked_requests("inf")


@pytest.mark.thorough
def test_wrong_credentials_are_said_and_not_shown(
    strict: None,
    settings: Settings,
    tmp_path: Path,
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONGWRONGWRONG1")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-not-to-be-shown")
    with pytest.raises(ConfigurationError) as refused:
        FileCheckpointStore(PLACE).load()
    assert re.match(quotes("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), str(refused.value))
    arguments = ["run", str(tmp_path / "tiny.toml"), "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert "AWS_SECRET_ACCESS_KEY" in result.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["error"]["type"] == "ConfigurationError"
    assert "ingest" not in record["seconds"]  # known before any work
    everything = [refused.value.args[0], result.output]
    everything += [file.read_text() for file in (tmp_path / "run").iterdir() if file.is_file()]
    for text in everything:
        assert "wrong-and-not-to-be-shown" not in text
    shared = f"output.checkpoints='{tmp_path / 'shared'}'"
    mended = CliRunner().invoke(main, [*arguments, "--set", shared])
    assert mended.exit_code == 0, mended.output
