"""Nothing that is read runs code or leaves the run directory, and no credential is in a message, a record or an event."""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import h5py
import numpy as np
import psutil
import pytest
import zarr
from click.testing import CliRunner
from distributed import Security
from scipy.io import savemat

from mscam_dask.cli import main
from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import read_result
from mscam_dask.errors import ConfigurationError, DataError, MscamError, redacted
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from tests.data.readers.matlab_files import save_version_73
from tests.messages import quotes, raises
from tests.pipeline.runs import HERE, THREE, write_tiny
from tests.processes import run
from tests.synthetic import save_npz, three_subspaces

pytestmark = pytest.mark.faults

# -- no code from data ------------------------------------------------------------------------


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def objects(trace: Path) -> Any:
    return np.array([[Canary(trace), Canary(trace)]] * 3, dtype=object)


def bare_pickle(file: Path, trace: Path) -> None:
    # np.load takes a file that is nothing but a pickle for one
    file.write_bytes(pickle.dumps(objects(trace)))


def member(key: str) -> Callable[[Path, Path], object]:
    """An archive with a table, of which one member is a pickle."""
    return lambda file, trace: np.savez(
        file, allow_pickle=True, **{"view_0": np.eye(3), key: objects(trace)}
    )


def zarr_2(path: Path, trace: Path) -> None:
    pickled = {"id": "pickle", "protocol": 4}
    zarr_2_array(path / "colour", (1, 1), dtype="|O", filters=[pickled])
    (path / "colour" / "0.0").write_bytes(pickle.dumps([Canary(trace), "O", [1, 1]]))


def zarr_2_texts(path: Path, trace: Path) -> None:
    """A table, and labels of which zarr knows the type, behind a pickle."""
    zarr_2_array(path / "table", (1, 1), dtype="<f8", fill_value=0)
    filters = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}]
    zarr_2_array(path / "labels", (1,), dtype="|O", filters=filters)
    (path / "labels" / "0").write_bytes(pickle.dumps([Canary(trace)]))


def zarr_2_array(values: Path, shape: tuple[int, ...], **more: Any) -> None:
    values.mkdir(parents=True)
    (values.parent / ".zgroup").write_text('{"zarr_format": 2}')
    names = ["sample", "feature"][: len(shape)]
    (values / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": names}))
    metadata = {"zarr_format": 2, "shape": shape, "chunks": shape, "order": "C"}
    metadata |= {"fill_value": None, "compressor": None, "filters": None, **more}
    (values / ".zarray").write_text(json.dumps(metadata))


def zarr_2_elsewhere(path: Path, trace: Path) -> None:
    """The same behind a symbolic link, where a search of the store does not look."""
    zarr_2(path, trace)
    hidden = (path / "colour").rename(path.with_name("hidden"))
    (path / "colour").symlink_to(hidden, target_is_directory=True)


def zarr_3(path: Path, trace: Path) -> None:
    """A codec of numcodecs in a v3 array of numbers."""
    array = zarr.create_array(path, name="colour", shape=(2, 2), chunks=(2, 2), dtype="f8")
    array[...] = 1.0
    file = path / "colour" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["codecs"] = [{"name": "numcodecs.pickle", "configuration": {"id": "pickle"}}]
    metadata["dimension_names"] = ["sample", "feature"]
    file.write_text(json.dumps(metadata))
    for chunk in (path / "colour" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(pickle.dumps(Canary(trace)))


def code(trace: Path) -> str:
    return f"__import__('pathlib').Path({str(trace)!r}).touch()"


def mat_5(file: Path, trace: Path) -> None:
    # a cell array of text: what MATLAB has for objects
    cells = np.full((2, 2), code(trace), dtype=object)
    savemat(file, {"colour": cells})


def mat_73(file: Path, trace: Path) -> None:
    with h5py.File(save_version_73(file), "r+") as handle:
        text = handle.create_dataset("colour", (2, 2), dtype=h5py.string_dtype())
        text[...] = pickle.dumps(Canary(trace), protocol=0)


BOOBY_TRAPS: dict[str, Callable[[Path, Path], object]] = {
    "pickle.npy": bare_pickle,
    "objects.npy": lambda file, trace: np.save(file, objects(trace), allow_pickle=True),
    "pickle.npz": bare_pickle,
    **{f"{key}.npz": member(key) for key in ("view_0", "labels", "view_names")},
    "two.zarr": zarr_2,
    "texts.zarr": zarr_2_texts,
    "linked.zarr": zarr_2_elsewhere,
    "three.zarr": zarr_3,
    "five.mat": mat_5,
    "seven.mat": mat_73,
    "text.csv": lambda file, trace: file.write_text(f"1,2\n3,{code(trace)}\n4,5\n"),
}


@pytest.mark.parametrize("name", BOOBY_TRAPS)
def test_reading_runs_no_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as in versions of numcodecs that load pickles
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    trace = tmp_path / "executed"
    source = tmp_path / name
    BOOBY_TRAPS[name](source, trace)
    output = tmp_path / "data.zarr"
    for place in filter(Path.exists, (source, source / "colour")):
        with pytest.raises(DataError):
            ingest(place, output)
    assert not trace.exists()
    assert not output.exists()


# -- nothing outside the run directory --------------------------------------------------------


def files_below(path: Path) -> set[Path]:
    return {item.relative_to(path) for item in path.rglob("*")}


def test_view_names_are_never_paths(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    names = ("../../outside", "/absolute", "..", "a/b", "con:", "x" * 300)
    views = {name: rng.normal(size=(40, 3)) + 9.0 * labels[:, None] for name in names}
    work = tmp_path / "deep" / "work"
    work.mkdir(parents=True)
    np.savez(
        work / "data.npz", allow_pickle=False, **{str(i): v for i, v in enumerate(views.values())}
    )
    renaming = {str(index): name for index, name in enumerate(views)}
    table = ", ".join(f"{json.dumps(old)} = {json.dumps(new)}" for old, new in renaming.items())
    clusters = THREE.replace("= 3", "= 2", 1)
    data = f"source = 'data.npz'\nviews = {{{table}}}"
    file = write_tiny(work, HERE, data=data, clusters=clusters)
    before = files_below(tmp_path)
    outcome = run_pipeline(read_config(file), work / "out")
    made = files_below(tmp_path) - before
    assert all(item.is_relative_to("deep/work/out") for item in made)
    assert not any(name in str(item) for item in made for name in ("outside", "absolute", "xxx"))
    assert {view.name for view in outcome.record.data.views} == set(views)
    assert set(read_result(outcome.directory.result).view_embeddings) == set(views)


@pytest.mark.parametrize("options", [["--in-process"], ["--dry-run"]])
@pytest.mark.parametrize("command", ["run", "compare"])
def test_names_of_data_sets_are_never_paths(
    command: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "deep" / "work"
    victim = tmp_path / "victim.zarr" / "precious"
    victim.mkdir(parents=True)
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    for name in (f"{'../' * 5}victim", str(tmp_path / "victim")):
        (work / "e.toml").write_text(
            f"[compare]\ndatasets = ['{name}']\nmethods = ['sc-bsv']\nruns = 1\n"
            f"[dataset.'{name}']\nsource = 'digits'\n"
        )
        before = files_below(tmp_path)
        done = CliRunner().invoke(main, [command, "e.toml", *options])
        assert (done.exit_code, files_below(tmp_path)) == (2, before)
        assert re.search(quotes("e.toml, line 2", repr(name)[:40], "[dataset.NAME]"), done.output)


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
    save_npz(tmp_path / "tiny.npz", three_subspaces())
    file = write_tiny(tmp_path, HERE)
    arguments: list[Any] = [kind, CANARY, file, "-o", tmp_path / "out", *options]
    done = run(sys.executable, "-c", FAIL, *arguments)
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

    save_npz(tmp_path / "tiny.npz", three_subspaces())
    file = write_tiny(tmp_path, "[execution]\nworkers = 2\n")
    with dask.config.set({"gateway.auth.kwargs": {"password": CANARY}}):
        run_pipeline(read_config(file), tmp_path / "out", observers=[look])
    printed = "".join(capfd.readouterr()).encode()
    kept = everything_in(tmp_path) + printed + b"".join(command_lines.values())
    assert sum(b"spawn" in line for line in command_lines.values()) >= 2  # workers
    assert keys
    lines = [line for key in keys for line in key.splitlines() if len(line) > 40]
    for secret in (CANARY, *lines):
        assert secret.encode() not in kept
