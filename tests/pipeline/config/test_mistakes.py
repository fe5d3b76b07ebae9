"""Pipeline files with mistakes, of TOML and of settings: named at once with the line, what was got and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.toml_document import MAX_BYTES, Override, parse_override, read_document
from tests.messages import quotes, raises

VALUES_OF_THE_WRONG_TYPE = """\
[data]
source = ["a", 3]  # [data] source | ['a', 3]
samples_in = "row"  # 'row' | "rows" | 'rows'
view_type = {v = "kernal"}  # {'v': 'kernal'} | "kernel"
header = "no"  # 'no' | true, false
chunk_size = 0  # chunk_size = 0 | >= 1
view = ["a"]  # [data] | 'view' | 'views'
workers = 3  # 'workers' | [execution]
[cluster]
n_clusters = "Auto"  # [cluster] n_clusters | 'Auto' | >= 1 | "auto"
ALPHA = 3.0  # 'ALPHA' | 'alpha'
view_type = "kernel"  # 'view_type' | [data]
client = "x"  # 'client' | [execution]
tol = 1e-3  # 'tol' | score_tie | [cluster.constants]
identity_weight = 1.0  # 'identity_weight' | [cluster.constants]
scale = "standrd"  # 'standrd' | "standard", "unit", "log", "minmax", "none" | 'standard'
method = ["mscam"]  # ['mscam'] | "mscan"
max_clusters = 1  # max_clusters = 1 | >= 2
exclude_views = [1]  # exclude_views = [1]
[cluster.constants]
patience = 1.5  # [cluster.constants] patience | 1.5
metric_ridge = -1  # [cluster.constants] | metric_ridge | -1 | 0
admm = {penalty = 0}  # [cluster.constants.admm] | penalty | > 0
[execution]
workers = "2"  # [execution] workers | '2'
adapt = {minimum = -1, maximum = 3}  # [execution.adapt] minimum = -1 | >= 0
[evaluate]
enabled = "yes"  # [evaluate] enabled | 'yes'
[output]
directory = 1979-05-27  # [output] directory | 1979-05-27
[outputs]  # [outputs] | 'output' | [execution]
[sweep]  # [sweep] | experiment
"""

VALUES_OUT_OF_RANGE = """\
[data]
source = "a.npy"
max_bytes = "+4GiB"  # [data] max_bytes | '+4GiB' | without a sign
[cluster]
n_clusters = 4
alpha = nan  # [cluster] alpha | nan | 1e-6 | 1e6
random_state = -1  # [cluster] random_state | -1 | >= 0
[execution]
cluster = "slurm"
threads = 1
memory_limit = "1 GiB"
lifetime = "1 parsec"  # lifetime | '1 parsec'
[execution.cluster_options]
env_extra = [{password = "x"}]  # env_extra | credential
"""

CONFLICTS = """\
[data]
source = ["digits", "a.npy"]  # 'digits' | ./digits
[cluster]
n_clusters = 4
max_clusters = 9  # max_clusters | n_clusters | "auto"
[execution]
in_process = true
workers = 2  # [execution] workers | in_process
[output]
keep = 2  # [output] keep | directory
directory = "x"
metrics = "s3://bucket/metrics"  # [output] metrics | 's3://bucket/metrics' | URL
checkpoints = "ftp://host/x"  # [output] checkpoints | ftp://host/x
"""

DATA_OF_THE_PACKAGE = """\
[data]
source = "mfeat"
path = "a"
cache = "b"  # path | cache
samples_in = "columns"  # samples_in | mfeat
[cluster]
n_clusters = 4
"""

DATA_OF_FILES = """\
[data]
source = "a.npy"
path = "b"  # path | mfeat | files
families = ["pixels"]  # families | digits | files
[cluster]
n_clusters = 4
"""

NO_NUMBER = """\
[data]
source = "a.npy"
[cluster]  # n_clusters
constants = 3  # [cluster] constants | 3 | table
"""

NO_TABLES = """\
data = 1  # data | 1 | table
cluster = 2  # cluster | 2 | table
"""

HEAD = '[data]\nsource = "digits"\n[cluster]\nn_clusters = 10\n[execution]\n'

JOBS = """\
cluster = "slurm"
workers = 2  # workers | adapt
adapt = {minimum = 4, maximum = 3}  # 4 | 3
threads = 1  # threads | cores
memory_limit = "1 GiB"
[execution.cluster_options]
cores = 1
queu = "x"  # queu | 'queue'
security = "x"  # security | 'slurm'
"""

THIS_COMPUTER = """\
cluster = "local"
lifetime = "1h"  # lifetime | 'local'
tls_ca = "x"  # tls_ca | scheduler
[execution.cluster_options]
host = "0.0.0.0"  # host | loopback
n_workers = 3  # n_workers | workers
"""

RUNNING_CLUSTER = """\
scheduler = "tcp://127.0.0.1:1"  # scheduler | 'local'
cluster = "local"
in_process = true  # in_process
"""

NO_CLUSTER = """\
in_process = true
start_timeout = 3.0  # start_timeout
"""

KUBERNETES = """\
cluster = "kubernetes"  # custom_cluster_spec | deploy/k8s/cluster.yaml
[execution.cluster_options]
idle_timeout = 60  # idle_timeout | 'kubernetes'
custom_cluster_spec = 3  # custom_cluster_spec | 3 | a file
"""

SSH = """\
cluster = "ssh"  # 'ssh' | hosts
workers = 2  # 'ssh' | workers
adapt = {maximum = 3}  # 'ssh' | adapt
"""

NO_CLUSTERS = {
    "slrum": "'slurm' | module:Class",
    "scheduler": "needs scheduler",
    "no_such_module_x:Cluster": "PYTHONPATH",
    "distributed:NoCluster": "NoCluster",
    "collections:OrderedDict": "Cluster",
}


def problem(directory: Path, text: str, *sets: str) -> str:
    file = directory / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_config(file, [parse_override(item) for item in sets])
    return str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(VALUES_OF_THE_WRONG_TYPE, id="types"),
        pytest.param(VALUES_OUT_OF_RANGE, id="ranges"),
        pytest.param(CONFLICTS, id="conflicts"),
        pytest.param(DATA_OF_THE_PACKAGE, id="data of the package"),
        pytest.param(DATA_OF_FILES, id="data of files"),
        pytest.param(NO_NUMBER, id="no number"),
        pytest.param(NO_TABLES, id="no tables"),
        pytest.param(HEAD + JOBS, id="jobs"),
        pytest.param(HEAD + THIS_COMPUTER, id="this computer"),
        pytest.param(HEAD + RUNNING_CLUSTER, id="running cluster"),
        pytest.param(HEAD + NO_CLUSTER, id="no cluster"),
        pytest.param(HEAD + KUBERNETES, id="kubernetes"),
        pytest.param(HEAD + SSH, id="ssh"),
        *(
            pytest.param(f'{HEAD}cluster = "{name}"  # {name} | {said}\n', id=name)
            for name, said in NO_CLUSTERS.items()
        ),
    ],
)
def test_every_mistake_of_a_file_is_named_with_its_line(tmp_path: Path, document: str) -> None:
    pytest.importorskip("dask_jobqueue")
    pytest.importorskip("dask_kubernetes")
    if document.endswith(SSH):
        pytest.importorskip("asyncssh")
    said = problem(tmp_path, document).splitlines()
    wrong = set()
    for number, line in enumerate(document.splitlines(), start=1):
        _, marked, values = line.partition("  # ")
        if marked:
            where = f"pipeline.toml, line {number}:"
            wrong.add(where)
            here = "\n".join(text for text in said if where in text)
            assert re.search(quotes(*values.split(" | ")), here), (line, here)
    assert {text[: text.index(":") + 1].rpartition("/")[2] for text in said} == wrong


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (None, ["[data]", "[cluster]"]),
        ("", ["line 1", "[data]", "source", "digits", "mfeat"]),
        ("source = []", ["line 2", "[data] source", "[]"]),
        ("source = '~no-such-user/x'", ["line 2", "'~no-such-user/x'"]),
        ('source = "a\\u0000b"', ["line 2", "[data] source", r"'a\x00b'"]),
    ],
)
def test_sources_that_are_none(tmp_path: Path, source: str | None, values: list[str]) -> None:
    text = "" if source is None else f"[data]\n{source}\n[cluster]\nn_clusters = 3\n"
    said = problem(tmp_path, text)
    assert re.search(quotes(*values), said), said


def test_a_mistake_on_the_command_line_is_named_as_it_was_typed(tmp_path: Path) -> None:
    said = problem(tmp_path, HEAD, "cluster.alpha=-1", "cluster.alhpa=1").splitlines()
    for typed, value in (("alpha=-1", "1e-6"), ("alhpa=1", "'alpha'")):
        (line,) = [text for text in said if text.startswith(f"--set cluster.{typed}: [cluster]")]
        assert value in line


def write(directory: Path, text: str | bytes) -> Path:
    file = directory / "pipeline.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_tables_and_the_lines_they_stand_on(tmp_path: Path) -> None:
    text = (
        '\ufeff# say\r\n[data]\r\nsource = "a.npy"\n'  # as other systems write them
        'text = """\n[cluster]\nn = 1\n"""\n\n[cluster]\n  n = 3\n'
    )
    document = read_document(write(tmp_path, text))
    assert document.tables["cluster"] == {"n": 3}
    assert document.where("data", "source").endswith("pipeline.toml, line 3")
    assert document.where("cluster").endswith("line 9")  # not the one inside the text
    assert document.where("cluster", "n").endswith("line 10")
    assert document.where("cluster", "absent").endswith("line 9")  # the table's
    assert document.where("output").endswith("pipeline.toml")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("[data\n", ["line 1, column 6", "']'"], id="open bracket"),
        pytest.param("a = 1\na = 2\n", ["line 2"], id="duplicate key"),
        pytest.param("[data]\n[data]\n", ["line 2", "'data'"], id="duplicate table"),
        pytest.param("a = {b = 1, b = 2}\n", ["line 1", "'b'"], id="duplicate inline key"),
        pytest.param("a = " + "[" * 2000, [], id="deep lists"),
        pytest.param("a = " + "{a=" * 1000, [], id="deep tables"),
        pytest.param("a" + ".a" * 1500 + " = 1", ["line 1", "1500", "64"], id="deep key"),
        pytest.param("a = [" + "1," * 3000 + "]", ["line 1", "6006", "4096"], id="long line"),
        pytest.param(b"a = '\xff'\n", ["UTF-8", "byte 5"], id="not text"),
    ],
)
def test_what_is_no_pipeline_file(tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
    with raises(ConfigurationError, "pipeline.toml", *parts):
        read_document(write(tmp_path, text))


def test_what_is_no_file_or_a_huge_one(tmp_path: Path) -> None:
    huge = tmp_path / "huge.toml"
    with huge.open("wb") as stream:
        stream.truncate(100 * 2**20)  # sparse: 100 MB of zeros
    absent = tmp_path / "absent.toml"
    for file, value in ((absent, Path.cwd()), (tmp_path, "*.toml"), (huge, "64 KiB")):
        with raises(ConfigurationError, file, value):
            read_document(file)


@pytest.mark.timeout(60)  # without the limits such files take minutes
@pytest.mark.parametrize(
    "line",
    [
        pytest.param("a{i}" + ".a" * 60 + " = 1", id="dotted keys"),
        pytest.param("[t" + ".t" * 60 + ".k{i}]", id="dotted tables"),
        pytest.param("[[a]]", id="arrays of tables"),
        pytest.param(" " * 4000, id="blank"),
    ],
)
def test_the_largest_file_is_read_soon(tmp_path: Path, line: str) -> None:
    lines = [line.replace("{i}", str(index)) for index in range(MAX_BYTES // (len(line) + 8))]
    read_document(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    "text",
    [
        *("", "n_clusters=3", "cluster.n_clusters", "=3", "cluster.=3", "cluster..n=3"),
        *("cluster.a=1,5", "cluster.a=", "cluster.a=1\n[data]", "cluster.a=1\nb=2"),
        *("cluster.a b=1", "a.b=[1", "a." * 5000 + "b=1"),
    ],
)
def test_overrides_that_are_none(text: str) -> None:
    with raises(ConfigurationError, f"--set {text}"):
        parse_override(text)


def test_overrides_win_over_the_file_and_over_earlier_ones(tmp_path: Path) -> None:
    file = write(tmp_path, "[cluster]\nn_clusters = 3\nalpha = 2.0\n")
    overrides = [
        Override(("cluster", "n_clusters"), 4, "--set cluster.n_clusters=4"),
        Override(("cluster", "n_clusters"), 5, "--set cluster.n_clusters=5"),
        Override(("execution", "workers"), 2, "--workers 2"),
        Override(("cluster", "alpha"), None, "nothing"),
    ]
    document = read_document(file).overridden(overrides)
    assert document.tables == {"cluster": {"n_clusters": 5}, "execution": {"workers": 2}}
    assert document.where("cluster", "n_clusters") == "--set cluster.n_clusters=5"
    into_a_number = "--set cluster.n_clusters.pix=1"
    with raises(ConfigurationError, into_a_number, 3):
        read_document(file).overridden([parse_override(into_a_number.partition(" ")[2])])
