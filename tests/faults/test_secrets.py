"""No credential is in a message, a record or an event."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
from pathlib import Path

import dask.config
import numpy as np
import psutil
import pytest
from distributed import Security

from mscam_dask.errors import ConfigurationError, MscamError, redacted
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from tests.messages import raises

pytestmark = pytest.mark.faults

CANARY = "c4n4ry-D0-not-sh0w"

SECRETS = [
    f"s3://user:{CANARY}@host/bucket",
    f"https://{CANARY}@host/x.npz",
    f"https://host/x.npz?token={CANARY}&a=1",
    f"https://host/x.npz?X-Amz-Signature={CANARY}",
    f"tls://a:{CANARY}@host:8786",
    f"Server=x;AccountKey=1;password = {CANARY}",
    f"{{'secret_access_key': '{CANARY}'}}",
    f'{{"aws_session_token": "{CANARY}"}}',
    f"Authorization: Bearer {CANARY}",
    f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
]


@pytest.mark.parametrize("text", SECRETS)
def test_every_error_of_the_package_leaves_credentials_out(text: str) -> None:
    said = str(MscamError(f"before {text} after"))
    assert CANARY not in said
    assert said.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        "View 'tokens': 3 of 60 samples are all zero (rows 1, 2, 3).",
        "scheduler = 'tls://127.0.0.1:8786' needs a certificate file for tls_key",
        "tls_key = '/home/a/key.pem': there is no such file.",
        "https://host/path@2x.npz and a@b.c",
        "Basic information about n_clusters=3",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["://" * 200_000, "token" * 200_000, "secret=" * 100_000, "-----BEGIN " * 50_000]
)
def test_redaction_takes_time_in_proportion(text: str) -> None:
    assert len(redacted(text)) <= 2 * len(text)


@pytest.mark.parametrize("text", SECRETS[::3])
def test_a_pipeline_file_with_a_credential_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(f"[data]\nsource = {json.dumps(text)}\n[cluster]\nn_clusters = 3\n")
    with raises(ConfigurationError, f"{file}, line 2", "data.source") as caught:
        read_config(file)
    assert CANARY not in str(caught.value)


def everything_in(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())


def write_small(directory: Path, execution: str = "in_process = true") -> Path:
    rng = np.random.default_rng(0)
    view = rng.normal(size=(30, 3)) + 9 * np.repeat([[0], [1]], 15, axis=0)
    np.savez(directory / "d.npz", allow_pickle=False, a=view)
    (directory / "p.toml").write_text(
        "[data]\nsource = 'd.npz'\n[cluster]\nn_clusters = 2\nconstants.auto_settings = false\n"
        f"max_iter = 2\n[execution]\n{execution}\n"
    )
    return directory / "p.toml"


@pytest.fixture
def secret_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "MY_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD"):
        monkeypatch.setenv(name, CANARY)


# A step that fails with an error of a library, run by the command line.
FAIL = """
import builtins, sys
from mscam_dask import MSCAM, errors
from mscam_dask.cli import main
def fail(*_, **__):
    kind = getattr(builtins, sys.argv[1], None) or getattr(errors, sys.argv[1])
    raise kind("denied: https://u:" + sys.argv[2] + "@host or " + sys.argv[2])
MSCAM.fit = fail
main(["run", *sys.argv[3:]])
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("secret_environment")
@pytest.mark.parametrize("options", [[], ["--debug"]])
@pytest.mark.parametrize("kind", ["PermissionError", "DataError"])
def test_an_error_of_a_library_is_shown_and_recorded_without_it(
    kind: str, options: list[str], tmp_path: Path
) -> None:
    file = write_small(tmp_path)
    command = [sys.executable, "-c", FAIL, kind, CANARY, str(file), "-o", str(tmp_path / "out")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "denied: https://***@host" in done.stderr
    kept = everything_in(tmp_path / "out")
    assert b"denied: https://" in kept
    assert CANARY.encode() not in kept + done.stderr.encode() + done.stdout.encode()


@pytest.mark.usefixtures("secret_environment")
@pytest.mark.thorough
def test_processes_of_a_run_carry_no_secret_in_command_lines_logs_or_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command_lines: dict[int, bytes] = {}
    keys: set[str] = set()  # of the cluster, which keeps them in memory

    def look(_: object) -> None:
        for item in [] if keys else gc.get_objects():
            if issubclass(type(item), Security):  # not of what a weak reference refers to
                keys.update(filter(None, [item.get_tls_config_for_role("scheduler").get("key")]))
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                command_lines[process.pid] = "\0".join(process.cmdline()).encode()

    file = write_small(tmp_path, "workers = 2")
    with dask.config.set({"gateway.auth.kwargs": {"password": CANARY}}):
        run_pipeline(read_config(file), tmp_path / "out", observers=[look])
    printed = "".join(capfd.readouterr()).encode()
    kept = everything_in(tmp_path) + printed + b"".join(command_lines.values())
    assert sum(b"spawn" in line for line in command_lines.values()) >= 2  # workers
    assert keys
    lines = [line for key in keys for line in key.splitlines() if len(line) > 40]
    for secret in (CANARY, *lines):
        assert secret.encode() not in kept
