"""Pipeline settings: defaults, where a setting may come from, what a copy of them says, and what a run may talk to."""

from __future__ import annotations

from pathlib import Path

import dask.config
import distributed  # noqa: F401  # its defaults are there before a test sets others
import pytest

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.errors import ConfigurationError, SchedulerLostError, redacted
from mscam_dask.pipeline.read_config import read_config, settings_text
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.pipeline.tls import make_certificates
from mscam_dask.pipeline.toml_document import environment_overrides, parse_override
from tests.messages import raises

GOOD = '[data]\nsource = "digits"\n[cluster]\nn_clusters = 10\n'


def write(directory: Path, text: str) -> Path:
    file = directory / "pipeline.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("method", "kind"), [("mscam", MSCAM), ("mscan", MSCAN)])
def test_defaults_are_the_estimators_own(tmp_path: Path, method: str, kind: type) -> None:
    cluster = read_config(write(tmp_path, f"{GOOD}method = '{method}'\n")).cluster
    assert cluster.method == method
    estimator = cluster.estimator()
    assert type(estimator) is kind
    expected = {**kind().get_params(), "n_clusters": 10, "constants": Constants()}
    assert estimator.get_params() == expected
    assert set(expected) - set(cluster.parameters) == {
        *("view_type", "impute", "n_jobs", "client", "callbacks", "checkpoint_store"),
    }


def test_the_copy_of_the_settings_reads_back_the_same(tmp_path: Path) -> None:
    text = """
        [data]
        source = ["a.npy", "b.csv"]
        views = {a = "colour", b = "shape \\u00e9"}
        view_type = {"shape \\u00e9" = "kernel"}
        header = false
        [cluster]
        n_clusters = "auto"
        max_clusters = 12
        exclude_views = ["a", "b"]
        alpha = 2
        n_neighbors = 7
        constants = {auto_settings = false, score_tie = 1e-5}
        [execution]
        workers = 2
        memory_limit = "2 GiB"
        """
    settings = read_config(write(tmp_path, text))
    assert settings.cluster.n_clusters is None
    parameters = settings.cluster.parameters
    assert (parameters["n_clusters"], parameters["max_clusters"]) == ("auto", 12)
    assert parameters["exclude_views"] == ("a", "b")
    assert [repr(parameters[key]) for key in ("alpha", "n_neighbors")] == ["2.0", "7"]
    assert parameters["constants"]["auto_settings"] is False
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    assert read_config(write(copy, settings_text(settings))) == settings


def test_the_command_line_and_the_environment_win_over_the_file(tmp_path: Path) -> None:
    variables = {
        "MSCAM_CLUSTER__N_CLUSTERS": "4",
        "MSCAM_OUTPUT__ROOT": "/some where/runs",
        "MSCAM_DATA": "/not/ours",
        "MSCAM_LOCK": "x",
    }
    sets = [parse_override("evaluate.enabled=false")]
    settings = read_config(write(tmp_path, GOOD), [*environment_overrides(variables), *sets])
    assert settings.cluster.n_clusters == 4
    assert settings.output.root == "/some where/runs"
    assert settings.evaluate.enabled is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MSCAM_CLUSTER__", "MSCAM_TABLE__KEY=value"),
        ("MSCAM__N_CLUSTERS", "MSCAM_TABLE__KEY=value"),
        ("MSCAM_CLUSTER__N_CLUTSERS", "'n_clusters'"),
        ("MSCAM_CLUSTR__N_CLUSTERS", "'cluster'"),
        ("MSCAM_CLUSTER_N_CLUSTERS", "MSCAM_CLUSTER__N_CLUSTERS"),
    ],
)
def test_a_variable_that_means_nothing_is_named(tmp_path: Path, name: str, value: str) -> None:
    with raises(ConfigurationError, name, value):
        read_config(write(tmp_path, GOOD), environment_overrides({name: "4"}))


def test_paths_become_absolute_from_where_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (tmp_path / "truth.txt").touch()
    text = (
        "[data]\nsource = ['a.npy', '/abs/b.npy']\nlabels = 'truth.txt'\n"
        "[cluster]\nn_clusters = 2\n[output]\ndirectory = 'out'\n"
    )
    settings = read_config(write(tmp_path, text))
    assert settings.data.sources == (str(tmp_path / "a.npy"), "/abs/b.npy")
    assert settings.data.labels == str(tmp_path / "truth.txt")
    assert settings.output.directory == str(tmp_path / "out")
    typed = [parse_override("data.source=c.npy"), parse_override("data.labels=y")]
    settings = read_config(write(tmp_path, text), typed)
    assert settings.data.sources == (str(here / "c.npy"),)
    assert settings.data.labels == "y"  # no such file: the name of a variable


@pytest.mark.parametrize("name", ["quickstart", "handwritten"])
def test_the_pipelines_that_come_with_the_package_are_valid_and_short(name: str) -> None:
    file = Path(__file__).parents[3] / "pipelines" / f"{name}.toml"
    settings = read_config(file)
    assert (settings.name, settings.cluster.n_clusters) == (name, 10)
    assert len(file.read_text().splitlines()) < 40


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
    with raises(SchedulerLostError, file):
        check_execution(execution, insecure=False)
    file.write_text('{"address": "tcp://192.0.2.1:8786"}')
    assert "'tcp://192.0.2.1:8786'" in refusal(execution)
    file.write_text("{}")
    assert str(file) in refusal(execution)
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    check_execution(execution, insecure=False)


def test_encryption_needs_certificates_that_exist(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    ca, cert = str(made.certificate("ca")), str(made.certificate("client"))
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
