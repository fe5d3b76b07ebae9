"""Coverage-guided fuzzing of each reader and of pipeline files: ``python -m tests.fuzz h5ad --seconds 600``.

Atheris (``pip install atheris``) makes inputs that reach new branches of the readers. Each reads a file in a child
process with little memory; an exception that is no `MscamError`, a signal and a read of 25 seconds are failures, and are
kept in ``--output``. A table tells the number of inputs and of failures; the exit code is 1 if there are any. `tests/faults/test_fuzz_corpus.py` reads the
inputs of `tests/golden/fuzz.tar.xz` again; ``--keep`` writes it from the corpora in ``--output``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse

from tests.benchmarks.tables import write_head, write_row
from tests.data.readers.matlab_files import cells, save_compressed, save_version_5, save_version_73
from tests.omics import anndata_of, mudata_of, writable_text

KEPT = Path(__file__).parent / "golden" / "fuzz.tar.xz"
_PIPELINE = Path(__file__).parents[1] / "pipelines" / "nightly.toml"

_rng = np.random.default_rng(0)
A = _rng.normal(size=(20, 3)).round(3)
B = sparse.csc_array(_rng.integers(0, 3, (20, 4)).astype(float))
Y = np.arange(20) % 3

_ADDRESS_BYTES = 2 * 2**30
_KEPT_BYTES = 12_000
"""Largest sum of sizes that is kept of one format, after compression."""


def _h5ad(path: Path) -> None:
    made = anndata_of(B.tocsr(), [f"obs{i}" for i in range(20)])
    made.obs["label"] = pd.Categorical.from_codes(Y, ["x", "y", "z"])
    made.obs["age"] = pd.Series(Y, made.obs_names, dtype="Int64").where(np.arange(20) % 5 > 0)
    made.obsm["X_pca"] = A
    made.obsm["table"] = pd.DataFrame({"u": A[:, 0]}, index=made.obs_names)
    with writable_text():
        made.write_h5ad(path)


def _h5mu(path: Path) -> None:
    ids = [f"obs{i}" for i in range(20)]
    made = mudata_of(rna=anndata_of(B.tocsr(), ids), protein=anndata_of(A, ids, prefix="p"))
    made.obs["label"] = Y
    with writable_text():
        made.write_h5mu(path)


def _nc(path: Path) -> None:
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"sample": 20, "f": 3, "g": 4}
        file.create_variable("a", ("sample", "f"), data=A)
        file.create_variable("b", ("sample", "g"), data=B.toarray())
        file.create_variable("labels", ("sample",), data=Y)


def _zarr(path: Path) -> None:
    dataset = xr.Dataset({"a": (("sample", "f"), A), "b": (("sample", "g"), B.toarray())})
    dataset.to_zarr(path, consolidated=False)


def _frame() -> pd.DataFrame:
    frame = pd.DataFrame(A, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical.from_codes(Y, ["x", "y", "z"])
    return frame.assign(label=Y, id=[f"s{i}" for i in range(20)])


_TABLE = "id,a,b,label\n" + "".join(f"s{i},{a[0]},{a[1]},{i % 3}\n" for i, a in enumerate(A))


def _toml_types(path: Path) -> None:
    path.write_text(
        "[data]\nsource=1979-05-27T07:32:00Z\n[[cluster]]\na.b.'c'=[1,{x=0x1f}]\nn=-inf\n"
        "[output]\nroot='''\\u0041'''\nbig=99999999999999999999999\n"
    )


FORMATS: dict[str, tuple[str, *tuple[Callable[[Path], object], ...]]] = {
    "npz": (
        "x.npz",
        lambda path: np.savez(path, view_0=A, view_1=B.toarray(), labels=Y),
        lambda path: sparse.save_npz(path, B, compressed=True),
    ),
    "npy": ("x.npy", lambda path: np.save(path, A)),
    "mat": (
        "x.mat",
        lambda path: save_version_5(path, color=A, sp=B, Y=Y),
        lambda path: save_compressed(path, X=cells(A, B.toarray()), gt=Y),
    ),
    "mat73": ("x.mat", lambda path: save_version_73(path, color=A, gt=Y[:, None], sp=B)),
    "h5ad": ("x.h5ad", _h5ad),
    "h5mu": ("x.h5mu", _h5mu),
    "nc": ("x.nc", _nc),
    "zarr": ("x.zarr", _zarr),
    "parquet": ("x.parquet", lambda path: _frame().to_parquet(path)),
    "feather": ("x.feather", lambda path: _frame().to_feather(path)),
    "csv": (
        "x.csv",
        lambda path: path.write_text(_TABLE),
        lambda path: np.savetxt(path, A, fmt="%.5f"),
    ),
    "csv_gz": ("x.csv.gz", lambda path: path.write_bytes(gzip.compress(_TABLE.encode(), mtime=0))),
    "toml": ("x.toml", lambda path: shutil.copyfile(_PIPELINE, path), _toml_types),
}
"""Name of the file or directory of each format, and functions that write valid ones."""

_HDF5 = ("mat73", "h5ad", "h5mu", "nc")


# -- inputs: bytes that say a file ----------------------------------------------------------------


def valid_files(name: str, folder: Path) -> list[tuple[Path, list[Path]]]:
    """Write the valid examples of a format, each with its files."""
    made = []
    file, *examples = FORMATS[name]
    for index, write in enumerate(examples):
        path = folder / str(index) / file
        path.parent.mkdir()
        write(path)
        made.append((path, sorted(part for part in (path, *path.rglob("*")) if part.is_file())))
    return made


def seeds(name: str, valid: Sequence[tuple[Path, list[Path]]]) -> list[bytes]:
    """Inputs that say the valid files; for HDF5 also some that say edits."""
    inputs = [
        bytes([number]) + part.read_bytes()
        for _, parts in valid
        for number, part in enumerate(parts)
    ]
    if name in _HDF5:
        draw = random.Random(0)
        inputs += [bytes([255]) + draw.randbytes(count) for count in (6, 12, 24, 48, 96) * 4]
    return inputs


def place(name: str, data: bytes, path: Path, valid: Sequence[tuple[Path, list[Path]]]) -> None:
    """Write the file or directory that an input says.

    The first byte is the number of the file that the other bytes replace; from 200 on, they say edits of
    the objects of a valid HDF5 file.
    """
    number, content = (data[0], data[1:]) if data else (0, b"")
    example, parts = valid[0]
    if name in _HDF5 and number >= 200:
        shutil.copyfile(example, path)
        with h5py.File(path, "r+") as file:
            _edit(file, content)
    elif example.is_dir():
        shutil.copytree(example, path)
        (path / parts[number % len(parts)].relative_to(example)).write_bytes(content)
    else:
        path.write_bytes(content)


_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**63 - 1, -(2**63), 1e308, np.nan, np.inf, "", "x", "X", "\0", "é" * 300),
    *("csr_matrix", "csc_matrix", "categorical", "dataframe", "nullable-integer", "array"),
    *("_index", "double", "cell", "char", "struct", "function_handle"),
    *(b"\xff\xfe", np.float16(2), np.uint8(3)),
    *(np.array([], dtype="f8"), np.array([20, 4]), np.array([-1, 4]), np.array([2**62, 4])),
    *(np.array([[1, 2], [3, 4]]), np.array([1 + 2j]), np.zeros((2, 2, 2)), np.array([True, False])),
    *(np.array([b"a", b"\xff"]), np.void(b"abc"), np.zeros(2, dtype=[("r", "f8"), ("i", "f8")])),
)
_TYPES = ("f8", "f4", "f2", "i1", "u1", "i8", "u8", "c16", "?", "S3", "V4", ">f8", ">i4")


def _edit(file: Any, content: bytes) -> None:
    """Change objects of an HDF5 file: six bytes say one change."""
    for start in range(0, len(content), 6):
        which, kind, first, second, third, fourth = content[start : start + 6].ljust(6, b"\0")
        names: list[str] = []
        file.visit(names.append)
        names.sort()
        if not names:
            return
        name = names[which % len(names)]
        node = file[name]
        value = _VALUES[first % len(_VALUES)]
        try:
            _change(file, node, name, kind % 10, value, (second, third, fourth))
        except (TypeError, ValueError, OSError, KeyError, RuntimeError, ArithmeticError):
            continue  # HDF5 has no such object


def _change(
    file: Any, node: Any, name: str, kind: int, value: Any, more: tuple[int, int, int]
) -> None:
    attributes = sorted(node.attrs)
    key = attributes[more[0] % len(attributes)] if attributes else "encoding-type"
    if kind == 0:
        node.attrs[key] = value
    elif kind == 1:
        del node.attrs[key]
    elif kind == 2:
        del file[name]
    elif kind == 3:
        del file[name]
        file[name] = value
    elif kind == 4:
        del file[name]
        file.create_group(name)
    elif kind == 5 and hasattr(node, "dtype"):  # another element type and shape
        shape = [node.shape, (), (0,), (20,), (20, 3), (3, 20), (1, 1, 4), (2**40, 3), (20, 2**40)]
        chosen = shape[more[0] % len(shape)]
        chunks = (4,) * len(chosen) if chosen and 0 not in chosen else None
        element = _TYPES[more[1] % len(_TYPES)]
        del file[name]
        file.create_dataset(name, chosen, element, chunks=chunks, fillvalue=None)
    elif kind == 6 and hasattr(node, "dtype"):  # one element
        flat = np.array(node[()]) if node.size < 1000 else np.zeros(0)
        place_of = np.unravel_index(more[0] % flat.size, flat.shape)
        flat[place_of] = value
        node[...] = flat
    elif kind == 7:  # a link: to itself, to its parent, to nothing, out of the file
        targets = (name, node.parent.name, "/nowhere", "/")
        del file[name]
        file[name] = (
            h5py.SoftLink(targets[more[0] % 4])
            if more[1] % 2
            else h5py.ExternalLink("y.h5", targets[more[0] % 4])
        )
    elif kind == 8:  # a hard link of the parent to another name: a circle
        node[f"again{more[0] % 3}"] = node.parent
    else:
        file.move(name, f"{node.parent.name}/{str(value)[:8].replace('/', '_') or 'y'}")


def read(name: str, path: Path) -> None:
    """Read a file as `mscam_dask.data.ingest.ingest` does, without writing the store."""
    from mscam_dask.data.readers.combine import gather
    from mscam_dask.data.views.validation import check_not_empty, validate_view
    from mscam_dask.errors import MscamError
    from mscam_dask.pipeline.read_config import read_config

    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        try:
            if name == "toml":
                read_config(path)
                return
            data, *_ = gather(str(path), None, None, stack)
            for view in data.views:
                check_not_empty(view)
                validate_view(view)
                view.read(0, view.shape[0])
        except MscamError:
            return


# -- fuzzing --------------------------------------------------------------------------------------

_TRACED = [
    *("mscam_dask.data", "mscam_dask.pipeline.read_config", "mscam_dask.pipeline.toml_document"),
    *("tomllib", "h5netcdf"),
    *("numpy.lib._format_impl", "numpy.lib._npyio_impl", "zarr.core.metadata", "zarr.core.group"),
]


def _fuzz_in_child(name: str, seconds: int, output: Path) -> None:
    """Fuzz until the time is over or the process dies; libFuzzer ends the process."""
    import atheris

    # The tests' own imports come first: only what reads is traced.
    for module in [known for known in sys.modules if known.startswith(tuple(_TRACED))]:
        del sys.modules[module]
    with atheris.instrument_imports(include=_TRACED):
        import mscam_dask.data.readers.combine
        import mscam_dask.data.views.validation
        import mscam_dask.pipeline.read_config  # noqa: F401
    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (address_space + _ADDRESS_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shared: NDArray[np.int64] = np.memmap(output / f"{name}.count", dtype=np.int64, shape=(1,))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = Path(folder)
        (root / "valid").mkdir()
        valid = valid_files(name, root / "valid")
        path = root / FORMATS[name][0]
        seen: set[str] = set()

        def one(data: bytes) -> None:
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            place(name, data, path, valid)
            shared[0] += 1
            try:
                read(name, path)
            except Exception as error:  # noqa: BLE001 - it is a finding
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{type(error).__name__} {Path(last.filename).name} {last.name}"
                if where not in seen:
                    seen.add(where)
                    target = output / "failures" / f"{name} {where}"
                    target.with_suffix(".input").write_bytes(data)
                    target.with_suffix(".txt").write_text(traceback.format_exc())

        corpus = output / "corpus" / name
        atheris.Setup(
            [
                *("fuzz", str(corpus), f"-max_total_time={seconds}", "-timeout=25"),
                *("-rss_limit_mb=3000", "-max_len=20000", "-len_control=0", "-print_final_stats=0"),
                f"-artifact_prefix={output / 'failures' / name} ",
            ],
            one,
        )
        atheris.Fuzz()


def fuzz(name: str, seconds: float, output: Path) -> tuple[int, float, int, int]:
    """Fuzz one format; return the number of inputs, CPU seconds, inputs kept and failures."""
    corpus = output / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    (output / "failures").mkdir(exist_ok=True)
    (output / f"{name}.count").write_bytes(bytes(8))
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(seeds(name, valid_files(name, Path(folder)))):
            (corpus / f"seed{number}").write_bytes(data)
    end = time.monotonic() + seconds
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    while (left := int(end - time.monotonic())) > 0:  # a signal ends the process: another goes on
        with (output / f"{name}.log").open("ab") as log:
            subprocess.run(
                [
                    *(sys.executable, "-m", "tests.fuzz", name, "--child", "--seconds", str(left)),
                    *("--output", str(output)),
                ],
                stdout=log,
                stderr=log,
                check=False,
            )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (count,) = np.frombuffer((output / f"{name}.count").read_bytes(), dtype=np.int64)
    failures = {
        path.stem
        for path in (output / "failures").glob(f"{name} *")
        if "slow-unit" not in path.name
    }
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(count), cpu, sum(1 for _ in corpus.iterdir()), len(failures)


def keep(output: Path) -> None:
    """Write the archive of the smallest inputs of each corpus, and of all failures."""
    with tarfile.open(KEPT, "w:xz", preset=9) as archive:
        for name in FORMATS:
            corpus = sorted(
                (output / "corpus" / name).glob("*"), key=lambda path: path.stat().st_size
            )
            room = _KEPT_BYTES
            failures = [
                path
                for path in sorted((output / "failures").glob(f"{name} *"))
                if path.suffix != ".txt" and "slow-unit" not in path.name
            ]
            for number, path in enumerate([*failures, *corpus]):
                content = path.read_bytes()
                room -= len(gzip.compress(content))
                if room < 0:
                    break
                member = tarfile.TarInfo(f"{name}/{number:03d}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fuzz the formats that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=list(FORMATS), metavar="|".join(FORMATS))
    parser.add_argument("--seconds", type=int, default=600, help="for each format")
    parser.add_argument("--output", type=Path, default=Path("fuzz"), help="corpora and failures")
    parser.add_argument("--keep", action="store_true", help="write the kept corpus and end")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    output = options.output.resolve()
    if options.keep:
        keep(output)
        return
    if options.child:
        _fuzz_in_child(options.formats[0], options.seconds, output)
        return
    n_failures = 0
    write_head("format", "seconds", "CPU s", "inputs", "kept", "failures")
    for name in options.formats:
        try:
            inputs, cpu, kept, failures = fuzz(name, options.seconds, output)
        except pytest.skip.Exception as missing:
            write_row(name, 0, 0, 0, 0, missing)
            continue
        write_row(name, options.seconds, round(cpu), inputs, kept, failures)
        n_failures += failures
        if not inputs:
            raise SystemExit(f"{name}: no input was read; see {output / name}.log")
    if n_failures:
        raise SystemExit(f"{n_failures} failures; the inputs are in {output / 'failures'}")


if __name__ == "__main__":
    main()
