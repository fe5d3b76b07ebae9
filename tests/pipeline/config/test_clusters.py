"""[execution]: cluster types, their keys, and what a run may talk to."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import dask.config
import distributed  # noqa: F401  # its defaults are there before a test sets others
import pytest

from mscam_dask.cli.run import execution_overrides
from mscam_dask.errors import ConfigurationError, SchedulerLostError, redacted
from mscam_dask.pipeline.read_config import load_class, read_config, settings_text
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.settings import AdaptTable, ExecutionTable
from mscam_dask.pipeline.tls import make_certificates
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


def test_a_batch_scheduler_with_its_keys_is_read_back_from_a_run_directory(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        f'{HEAD}cluster = "slurm"\nthreads = 4\nmemory_limit = "8 GiB"\nlifetime = "55 minutes"\n'
        'lifetime_stagger = "4m"\nadapt = {minimum = 1, maximum = 8}\nstart_timeout = 60.0\n'
        '[execution.cluster_options]\nqueue = "long"\njob_extra_directives = ["--qos=night"]\n'
        "scheduler_options = {port = 8786}\n"
    )
    settings = read_config(file)
    assert settings.execution == ExecutionTable(
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
    file.write_text(settings_text(settings))
    assert read_config(file).execution == settings.execution


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
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, "", *execution_overrides({"cluster": "slurm", **options}))
    assert typed in str(caught.value)


def test_durations(tmp_path: Path) -> None:
    sizes = 'cluster = "slurm"\nthreads = 1\nmemory_limit = "1GiB"\n'
    for text in ("55 minutes", "4m", "90", "1.5 h", " .5 h", "1_000s"):
        assert read(tmp_path, f'{sizes}lifetime = "{text}"').lifetime == text
    for wrong in ("0s", "soon", "", "+4h", "1__0s"):
        with raises(ConfigurationError, "lifetime", f"'{wrong}'"):
            read(tmp_path, f'{sizes}lifetime = "{wrong}"')


HERE = ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"]
ELSEWHERE = [
    *("192.0.2.1", "0.0.0.0", "[2001:db8::1]", "cluster.example", "127.0.0.1.example"),
    "[::ffff:192.0.2.1]",
    *("127.1", "2130706433", "localhost."),  # spellings of loopback that libraries read differently
]
NO_ADDRESS = [
    *("127.0.0.1:8786", "tcp://127.0.0.1", "tcp://:8786", "tcp://127.0.0.1:port", "tcp://"),
    *("tcp://127.0.0.1:99999", "tcp://[::1:8786", "tcp://cluster.example:1@127.0.0.1:8786"),
    *("tcp://127.0.0.1@cluster.example:8786", "tcp://127.0.0.1:8786/x", "ws://127.0.0.1:8786"),
    *("inproc://10.0.0.1/1/1", "TCP://192.0.2.1:8786", "tcp://127.0.0.1:8786\n"),
    *("tcp://127.0.0.1\t.example:8786", "tcp://127.0.0.1:8786#@192.0.2.1:1"),
    "tcp://127.0.0.1\0.example:8786",
]


def refusal(execution: ExecutionTable, *, insecure: bool = False) -> str:
    with pytest.raises(ConfigurationError) as caught:
        check_execution(execution, insecure=insecure)
    return str(caught.value)


def test_another_computer_needs_encryption_unless_somebody_insists() -> None:
    for host in HERE:
        check_execution(ExecutionTable(scheduler=f"tcp://{host}:8786"), insecure=False)
    for host in ELSEWHERE:
        execution = ExecutionTable(scheduler=f"tcp://{host}:8786")
        said = refusal(execution)
        assert f"'tcp://{host}:8786'" in said
        assert "--insecure" in said
        check_execution(execution, insecure=True)


@pytest.mark.parametrize("insecure", [True, False])
def test_what_is_no_scheduler_address(insecure: bool) -> None:
    for address in NO_ADDRESS:
        said = refusal(ExecutionTable(scheduler=address), insecure=insecure)
        assert repr(redacted(address)) in said
        assert "tls://host:port" in said


@pytest.mark.parametrize(
    "execution",
    [
        ExecutionTable(cluster="ssh", cluster_options={"hosts": ["127.0.0.1", "n1.example"]}),
        ExecutionTable(cluster="slurm-runner"),
    ],
)
def test_a_cluster_of_several_computers_without_encryption_is_refused(
    execution: ExecutionTable,
) -> None:
    assert "--insecure" in refusal(execution)
    check_execution(execution, insecure=True)
    if execution.cluster == "ssh":
        hosts = {"hosts": ["127.0.0.1", "localhost"]}
        check_execution(ExecutionTable(cluster="ssh", cluster_options=hosts), insecure=False)


def test_a_scheduler_file_is_checked_like_an_address(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    execution = ExecutionTable(scheduler_file=str(file))
    with raises(SchedulerLostError, file) as caught:
        check_execution(execution, insecure=False)
    assert caught.value.exit_code == 75
    file.write_text('{"address": "tcp://192.0.2.1:8786"}')
    assert "'tcp://192.0.2.1:8786'" in refusal(execution)
    file.write_text("{}")
    assert str(file) in refusal(execution)
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    check_execution(execution, insecure=False)


def test_encryption_needs_certificates_that_exist(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    ca, cert = str(made.authority), str(made.certificate("client"))
    key = str(made.key("client"))
    address = "tls://cluster.example:8786"
    with dask.config.set({"distributed.comm.tls.ca-file": None}):
        said = refusal(ExecutionTable(scheduler=address), insecure=True)
    assert "--tls-ca FILE" in said
    assert "distributed.comm.tls.ca-file" in said
    missing = str(tmp_path / "x.pem")
    said = refusal(ExecutionTable(scheduler=address, tls_ca=ca, tls_cert=missing))
    assert f"tls_cert = '{missing}'" in said
    both = tmp_path / "both.pem"  # certificate and key in one file
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    for certificate, own_key in ((cert, key), (str(both), None)):
        execution = ExecutionTable(
            scheduler=address, tls_ca=ca, tls_cert=certificate, tls_key=own_key
        )
        check_execution(execution, insecure=False)
    setting = "distributed.comm.tls"
    with dask.config.set(
        {f"{setting}.ca-file": ca, f"{setting}.client.cert": cert, f"{setting}.client.key": key}
    ):
        check_execution(ExecutionTable(scheduler=address), insecure=False)
