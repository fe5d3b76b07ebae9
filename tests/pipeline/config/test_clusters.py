"""Cluster types in [execution]: their keys, where these come from, and the classes behind them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest

from mscam_dask.cli.run import execution_overrides
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.read_config import load_class, read_config
from mscam_dask.pipeline.settings import AdaptTable, ExecutionTable
from mscam_dask.pipeline.toml_document import Override
from tests.messages import raises

pytest.importorskip("dask_jobqueue")

HEAD = '[data]\nsource = "digits"\n[cluster]\nn_clusters = 10\n[execution]\n'


def read(
    tmp_path: Path, text: str, *overrides: Override, dask_defaults: bool = False
) -> ExecutionTable:
    file = tmp_path / "p.toml"
    file.write_text(HEAD + text)
    return read_config(file, overrides, dask_defaults=dask_defaults).execution


def test_the_manifest_is_beside_the_file_or_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_kubernetes")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    options = '[execution.cluster_options]\ncustom_cluster_spec = "c.yaml"\nnamespace = "c.yaml"\n'
    given = read(tmp_path, f'cluster = "kubernetes"\n{options}').cluster_options
    assert given == {"custom_cluster_spec": str(tmp_path / "c.yaml"), "namespace": "c.yaml"}
    on_the_line = execution_overrides({"cluster_options": ("custom_cluster_spec=c.yaml",)})
    given = read(tmp_path, 'cluster = "kubernetes"\n', *on_the_line).cluster_options
    assert given == {"custom_cluster_spec": str(elsewhere / "c.yaml")}


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("oar", "dask_jobqueue", "jobqueue"), ("ssh", "asyncssh", "ssh")],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with raises(ConfigurationError, "line 6", f"'{name}'", f"pip install 'mscam-dask[{extra}]'"):
        read(tmp_path, f'cluster = "{name}"')


def test_the_handler_of_ctrl_c_survives_the_import_of_dask_jobqueue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in [name for name in sys.modules if name.startswith("dask_jobqueue")]:
        monkeypatch.delitem(sys.modules, module)
    before = signal.getsignal(signal.SIGINT)
    load_class("slurm")
    assert signal.getsignal(signal.SIGINT) is before


def test_defaults_of_dasks_configuration(tmp_path: Path) -> None:
    options = {"cores": 2, "memory": "4GiB"}
    configured = {"cluster": "slurm", "workers": 3, "cluster-options": options}
    with dask.config.set({"mscam": {**configured, "workers-timeout": "5m"}}):
        taken = read(tmp_path, "", dask_defaults=True)
        assert taken == ExecutionTable(cluster="slurm", workers=3, cluster_options=options)
        assert read(tmp_path, "workers = 5", dask_defaults=True).workers == 5
        here = read(tmp_path, "in_process = true", dask_defaults=True)
        assert here == ExecutionTable(in_process=True)
        assert read(tmp_path, "") == ExecutionTable()
    for key, value, allowed in (("cluster", "slrum", "slurm"), ("clutser", "slurm", "cluster")):
        with (
            dask.config.set({f"mscam.{key}": value}),
            raises(ConfigurationError, f"mscam.{key}", f"'{allowed}'"),
        ):
            read(tmp_path, "", dask_defaults=True)
    with dask.config.set({"jobqueue.slurm.cores": 4, "jobqueue.slurm.memory": "8GB"}):
        assert read(tmp_path, 'cluster = "slurm"').cluster == "slurm"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scheduler": "tcp://127.0.0.1:9"}, ExecutionTable(scheduler="tcp://127.0.0.1:9")),
        (
            {"cluster": "slurm", "cluster_options": ("cores=4", 'memory="8GB"'), "adapt": "1:8"},
            ExecutionTable(
                cluster="slurm",
                cluster_options={"cores": 4, "memory": "8GB"},
                adapt=AdaptTable(minimum=1, maximum=8),
            ),
        ),
        ({"in_process": True}, ExecutionTable(in_process=True)),
        (
            {"workers": 2},
            ExecutionTable(
                cluster="pbs", workers=2, cluster_options={"cores": 1, "memory": "1GB"}
            ),
        ),
    ],
)  # fmt: skip
def test_options_of_the_command_line_replace_the_cluster_of_a_file(
    tmp_path: Path, options: dict[str, Any], expected: ExecutionTable
) -> None:
    file = (
        'cluster = "pbs"\nadapt = {maximum = 4}\n'
        '[execution.cluster_options]\ncores = 1\nmemory = "1GB"\n'
    )
    assert read(tmp_path, file, *execution_overrides(options)) == expected


def test_options_replace_a_running_cluster(tmp_path: Path) -> None:
    file = "scheduler = 'tls://x:1'\ntls_ca = 'a'\ntls_cert = 'b'\nworkers_timeout = 9.0\n"
    each: list[dict[str, Any]] = [{"in_process": True, "threads": 1}, {"workers": 2}]
    for options in each:
        expected = ExecutionTable(workers_timeout=9.0, **options)
        assert read(tmp_path, file, *execution_overrides(options)) == expected


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        *(({"adapt": text}, f"--adapt {text}") for text in ("3", "a:b", "1:")),
        ({"cluster_options": ("queue",)}, "--cluster-option queue"),
        ({"cluster_options": ("queue=[1,",)}, "--cluster-option queue=[1,"),
    ],
)
def test_options_of_the_command_line_that_are_none(
    tmp_path: Path, options: dict[str, Any], typed: str
) -> None:
    with raises(ConfigurationError, typed):
        read(tmp_path, "", *execution_overrides({"cluster": "slurm", **options}))


def test_durations(tmp_path: Path) -> None:
    sizes = 'cluster = "slurm"\nthreads = 1\nmemory_limit = "1GiB"\n'
    for text in ("55 minutes", "4m", "90", "1.5 h", " .5 h", "1_000s"):
        assert read(tmp_path, f'{sizes}lifetime = "{text}"').lifetime == text
    for wrong in ("0s", "soon", "", "+4h", "1__0s"):
        with raises(ConfigurationError, "lifetime", f"'{wrong}'"):
            read(tmp_path, f'{sizes}lifetime = "{wrong}"')
