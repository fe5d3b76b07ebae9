"""Cluster types in [execution]: which keys go together, and what is wrong with them, by line."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest

from mscam_dask.cli.run import execution_overrides
from mscam_dask.errors import ConfigurationError, SchedulerLostError
from mscam_dask.pipeline.config.cluster_types import (
    is_queue,
    load_class,
    options_of,
)
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.settings import (
    CLUSTER_TYPES,
    AdaptTable,
    ExecutionTable,
    settings_text,
)
from mscam_dask.pipeline.config.toml_document import Override
from mscam_dask.pipeline.run.security import check_execution
from tests.messages import quotes

pytest.importorskip("dask_jobqueue")

HEAD = (
    '[data]\nsource = "digits"\n[cluster]\nn_clusters = 10\n[execution]\n'  # [execution] is line 5
)


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
    text = (
        'cluster = "kubernetes"\n[execution.cluster_options]\ncustom_cluster_spec = "c.yaml"\n'
        'namespace = "c.yaml"\n'
    )
    given = read(tmp_path, text).cluster_options
    assert given == {"custom_cluster_spec": str(tmp_path / "c.yaml"), "namespace": "c.yaml"}
    on_the_line = execution_overrides({"cluster_options": ("custom_cluster_spec=c.yaml",)})
    given = read(tmp_path, 'cluster = "kubernetes"\n', *on_the_line).cluster_options
    assert given == {"custom_cluster_spec": str(elsewhere / "c.yaml")}


def test_a_batch_scheduler_with_its_keys(tmp_path: Path) -> None:
    execution = read(
        tmp_path,
        'cluster = "slurm"\nthreads = 4\nmemory_limit = "8 GiB"\nlifetime = "55 minutes"\n'
        'lifetime_stagger = "4m"\nadapt = {minimum = 1, maximum = 8}\nstart_timeout = 60.0\n'
        '[execution.cluster_options]\nqueue = "long"\njob_extra_directives = ["--qos=night"]\n'
        "scheduler_options = {port = 8786}\n",
    )
    assert execution == ExecutionTable(
        cluster="slurm",
        threads=4,
        memory_limit="8 GiB",
        lifetime="55 minutes",
        lifetime_stagger="4m",
        adapt=AdaptTable(minimum=1, maximum=8),
        start_timeout=60.0,
        cluster_options={
            "queue": "long",
            "job_extra_directives": ["--qos=night"],
            "scheduler_options": {"port": 8786},
        },
    )


def test_what_is_written_into_a_run_directory_is_read_back(tmp_path: Path) -> None:
    text = (
        'cluster = "slurm"\nadapt = {maximum = 8}\n'
        'cluster_options = {cores = 2, memory = "4GiB", job_extra_directives = ["-p x"]}\n'
    )
    (tmp_path / "p.toml").write_text(HEAD + text)
    settings = read_config(tmp_path / "p.toml")
    (tmp_path / "again.toml").write_text(settings_text(settings))
    assert read_config(tmp_path / "again.toml").execution == settings.execution


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('cluster = "slrum"', 6, ["'slrum'", "'slurm'", "module:Class"]),
        ('cluster = "ssh"', 6, ["'ssh'", "hosts"]),
        ('cluster = "scheduler"', 6, ["'scheduler'", "needs scheduler"]),
        ('cluster = "local"\nscheduler = "tcp://127.0.0.1:1"', 7, ["scheduler", "'local'"]),
        ('cluster = "local"\nin_process = true', 7, ["in_process", "'local'"]),
        ('cluster = "local"\nlifetime = "1h"', 7, ["lifetime", "'local'"]),
        ('workers = 2\nadapt = {maximum = 3}', 6, ["workers", "adapt"]),
        ("adapt = {minimum = 4, maximum = 3}", 6, ["4", "3"]),
        ("adapt = {minimum = -1, maximum = 3}", 6, ["[execution.adapt] minimum = -1", ">= 0"]),
        ("adapt = 3", 6, ["adapt = 3", "a table"]),
        ("adapt = {maximum = 3, most = 3}", 6, ["adapt", "'most'"]),
        ('scheduler = "tcp://127.0.0.1:1"\nadapt = {maximum = 3}', 7, ["adapt"]),
        ('in_process = true\nstart_timeout = 3.0', 7, ["start_timeout"]),
        ('cluster = "slurm"\nthreads = 1\nmemory_limit = "1GiB"\nlifetime = "1 parsec"', 9, ["parsec"]),
        (
            'cluster = "slurm"\nthreads = 1\nmemory_limit = "1GiB"\nlifetime_stagger = "1m"',
            9,
            ["lifetime_stagger", "needs lifetime"],
        ),
        (
            'cluster = "slurm"\n[execution.cluster_options]\ncores = 1\nmemory = "1GiB"\nqueu = "x"',
            10,
            ["'queu'", "'queue'"],
        ),
        (
            'cluster = "slurm"\nthreads = 1\n[execution.cluster_options]\ncores = 1\nmemory = "1GiB"',
            7,
            ["threads", "cores"],
        ),
        ('cluster = "local"\n[execution.cluster_options]\nhost = "0.0.0.0"', 8, ["host", "loopback"]),
        ('cluster = "local"\n[execution.cluster_options]\nn_workers = 3', 8, ["n_workers", "workers"]),
        (
            ('cluster = "ssh"\n[execution.cluster_options]\nhosts = ["a", "b"]\n'
            'connect_options = {password = "x"}'),
            9,
            ["connect_options", "credential"],
        ),
        ('cluster = "no_such_module_x:Cluster"', 6, ["no_such_module_x", "pip install"]),
        ('cluster = "distributed:NoCluster"', 6, ["NoCluster"]),
        ('cluster = "os:system"', 6, ["os:system", "Cluster"]),
        ('cluster = "collections:OrderedDict"', 6, ["collections:OrderedDict"]),
        ('workers = 2\ntls_ca = "x"', 7, ["tls_ca", "scheduler"]),
        ('cluster = "slurm-runner"\nworkers = 2', 7, ["workers", "srun"]),
        ('cluster = "kubernetes"', 6, ["custom_cluster_spec", "deploy/k8s/cluster.yaml"]),
        (
            ('cluster = "kubernetes"\n[execution.cluster_options]\ncustom_cluster_spec = "c.yaml"\n'
            'idle_timeout = 60'),
            9,
            ["idle_timeout", "kubernetes"],
        ),
    ],
)  # fmt: skip
def test_a_bad_setting_is_one_error_with_its_line(
    tmp_path: Path, text: str, line: int, says: list[str]
) -> None:
    if "ssh" in text:
        pytest.importorskip("asyncssh")
    with pytest.raises(ConfigurationError, match=quotes(f"line {line}", *says)) as caught:
        read(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("slurm", "dask_jobqueue", "mscam-dask[jobqueue]"),
        ("oar", "dask_jobqueue", "mscam-dask[jobqueue]"),
        ("gateway", "dask_gateway", "mscam-dask[gateway]"),
        ("kubernetes", "dask_kubernetes.operator", "mscam-dask[kubernetes]"),
        ("ssh", "asyncssh", "mscam-dask[ssh]"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ConfigurationError, match=quotes("line 6", f"'{name}'", f"pip install '{extra}'")
    ):
        read(tmp_path, f'cluster = "{name}"')


def test_every_class_of_a_batch_scheduler_takes_what_a_run_gives_it() -> None:
    queues = {name for name in CLUSTER_TYPES if is_queue(name)}
    assert queues == {"slurm", "pbs", "sge", "lsf", "htcondor", "oar"}
    for name in queues:
        options = options_of(name, load_class(name))
        assert options is not None
        taken = {
            "cores",
            "memory",
            "processes",
            "walltime",
            "worker_extra_args",
            "scheduler_options",
        }
        assert taken - {"walltime"} <= options
        assert ("walltime" in options) == (name != "htcondor")
        assert options & {"security", "protocol", "self", "job_cls"} == set()


def test_the_handler_of_ctrl_c_survives_the_import_of_dask_jobqueue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in [name for name in sys.modules if name.startswith("dask_jobqueue")]:
        monkeypatch.delitem(sys.modules, module)
    before = signal.getsignal(signal.SIGINT)
    load_class("slurm")
    assert signal.getsignal(signal.SIGINT) is before


def test_defaults_of_dasks_configuration(tmp_path: Path) -> None:
    configured = {
        "cluster": "slurm",
        "workers": 3,
        "cluster-options": {"cores": 2, "memory": "4GiB"},
        "workers-timeout": "5m",
    }
    with dask.config.set({"mscam": configured}):
        taken = read(tmp_path, "", dask_defaults=True)
        assert taken == ExecutionTable(
            cluster="slurm", workers=3, cluster_options={"cores": 2, "memory": "4GiB"}
        )
        assert read(tmp_path, "workers = 5", dask_defaults=True).workers == 5
        here = read(tmp_path, "in_process = true", dask_defaults=True)
        assert here == ExecutionTable(in_process=True)
        assert read(tmp_path, "") == ExecutionTable()
    with (
        dask.config.set({"mscam.cluster": "slrum"}),
        pytest.raises(ConfigurationError, match=quotes("mscam.cluster", "'slurm'")),
    ):
        read(tmp_path, "", dask_defaults=True)
    with (
        dask.config.set({"mscam.clutser": "slurm"}),
        pytest.raises(ConfigurationError, match=quotes("mscam.clutser", "'cluster'")),
    ):
        read(tmp_path, "", dask_defaults=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
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
        (
            {"scheduler": "tcp://127.0.0.1:9"},
            ExecutionTable(scheduler="tcp://127.0.0.1:9"),
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


@pytest.mark.parametrize("text", ["3", "1-3", "a:b", "1:"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match=quotes(f"--adapt {text}", "0:8")):
        list(execution_overrides({"adapt": text}))


@pytest.mark.parametrize("text", ["queue", "=3", "queue=[1,"])
def test_cluster_options_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match=quotes(f"--cluster-option {text}")):
        list(execution_overrides({"cluster_options": (text,)}))


@pytest.mark.parametrize("text", ["55 minutes", "4m", "90", "1.5 h"])
def test_durations(tmp_path: Path, text: str) -> None:
    sizes = 'cluster = "slurm"\nthreads = 1\nmemory_limit = "1GiB"\n'
    assert read(tmp_path, f'{sizes}lifetime = "{text}"').lifetime == text
    for wrong in ("0s", "soon", ""):
        with pytest.raises(ConfigurationError, match=quotes("lifetime", f"'{wrong}'")):
            read(tmp_path, f'{sizes}lifetime = "{wrong}"')


@pytest.mark.parametrize(
    "execution",
    [
        ExecutionTable(cluster="ssh", cluster_options={"hosts": ["127.0.0.1", "n1.example"]}),
        ExecutionTable(cluster="slurm-runner"),
        ExecutionTable(cluster="kubernetes"),
    ],
)
def test_a_cluster_of_several_computers_without_encryption_is_refused(
    execution: ExecutionTable,
) -> None:
    with pytest.raises(ConfigurationError, match=quotes(f"'{execution.cluster}'", "--insecure")):
        check_execution(execution, insecure=False)
    check_execution(execution, insecure=True)


def test_ssh_on_this_computer_needs_no_encryption() -> None:
    check_execution(
        ExecutionTable(cluster="ssh", cluster_options={"hosts": ["127.0.0.1", "localhost"]}),
        insecure=False,
    )


def test_a_scheduler_file_is_checked_like_an_address(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    execution = ExecutionTable(scheduler_file=str(file))
    with pytest.raises(SchedulerLostError, match=quotes(file)) as caught:
        check_execution(execution, insecure=False)
    assert caught.value.exit_code == 75
    file.write_text('{"address": "tcp://192.0.2.1:8786"}')
    with pytest.raises(ConfigurationError, match=quotes("'tcp://192.0.2.1:8786'", "--insecure")):
        check_execution(execution, insecure=False)
    file.write_text("{}")
    with pytest.raises(ConfigurationError, match=quotes(file, "KeyError")):
        check_execution(execution, insecure=False)
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    check_execution(execution, insecure=False)
