"""Small files of each stored format, as this version writes them: ``python -m tests.golden.make``.

Run it when a format gets a new version, and commit the archives. `tests/golden/test_golden_files.py`
reads them with today's code.
"""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore
from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.run_directory import RunDirectory
from tests.synthetic import gaussian_views

FOLDER = Path(__file__).parent

IDS = tuple(f"s{number:02}" for number in range(12))

# What the archives say in place of the directory in which they were made.
_PLACE = "/golden"


def data() -> MultiViewData:
    """Twelve samples with ids, labels and two views of whole numbers."""
    views, labels = gaussian_views(0, n_samples=12, spread=4.0, dims=(2, 3))
    sources = tuple(
        ArrayRows(np.round(4 * view), name) for name, view in zip("ab", views, strict=True)
    )
    return MultiViewData(sources, IDS, labels, ("x", "y", "z"))


def checkpoint() -> Checkpoint:
    """Arrays of each kind, and a record with each kind of value."""
    arrays = {"numbers": np.arange(5.0) / 7, "labels": np.array([0, 1, 0], dtype=np.int64)}
    return Checkpoint(arrays, {"iteration": 3, "score": float("nan"), "names": ["a", "é"]})


def main() -> None:
    """Write the archives."""
    with tempfile.TemporaryDirectory() as made, contextlib.chdir(made):
        folder = Path(made)
        _pack("store", write_store(data(), folder / "data.zarr"))
        FileCheckpointStore(folder / "checkpoints").save(checkpoint())
        _pack("checkpoint", folder / "checkpoints")
        _pack("run", _run(folder))


def _run(folder: Path) -> Path:
    (folder / "golden.toml").write_text(
        "[data]\nsource = 'data.zarr'\n"
        "[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 2\n"
        "[execution]\nin_process = true\nthreads = 1\n[report]\nenabled = false\n"
    )
    directory = run_pipeline(read_config(folder / "golden.toml"), output=folder / "run").directory
    text = msgspec.json.encode(directory.read_record()).decode().replace(str(folder), _PLACE)
    record = msgspec.json.decode(text, type=type(directory.read_record()))
    record = msgspec.structs.replace(record, versions={**record.versions, "platform": "Linux"})
    RunDirectory(directory.path).write_record(record)
    for file in (directory.pipeline, directory.events):
        file.write_text(file.read_text().replace(str(folder), _PLACE))
    return directory.path


def _pack(name: str, path: Path) -> None:
    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz") as archive:
        for file in sorted(item for item in path.rglob("*") if item.is_file()):
            entry = tarfile.TarInfo(os.path.join(path.name, file.relative_to(path)))  # noqa: PTH118
            content = file.read_bytes()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
