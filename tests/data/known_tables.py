"""Tables whose content is known, and what a store made of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError


def table(
    n_samples: int = 12, n_features: int = 4, *, ids: Sequence[Any] | None = None, prefix: str = "a"
) -> pd.DataFrame:
    """Numbers with three decimals, rows P01, P02, ... or `ids`, columns a0, a1, ..."""
    rng = np.random.default_rng([ord(letter) for letter in prefix])
    index = [f"P{row:02d}" for row in range(1, n_samples + 1)] if ids is None else list(ids)
    values = rng.normal(5, 3, (len(index), n_features)).round(3)
    return pd.DataFrame(values, index=index, columns=[f"{prefix}{j}" for j in range(n_features)])


TEXTS = [f"P{row:02d}" for row in range(1, 13)]
NUMBERS = [1000234, 1000017, 1000999, 1000501, 1000402, 1000333, *range(1000100, 1000700, 100)]
ORDER = np.array([7, 2, 11, 0, 9, 5, 1, 10, 3, 8, 6, 4])
A, B = table(), table(n_features=3, prefix="b")
DISTANCES = pd.DataFrame(np.abs(A.to_numpy()[:, :1] - A.to_numpy()[:, 0]), A.index, A.index)


def csv_of(frame: pd.DataFrame, id_header: str = "id", **options: Any) -> str:
    """Return the text of a file as pandas writes it."""
    return str(frame.to_csv(index_label=id_header, **options))


def outcome(
    sources: Sequence[Path | Source],
    known: Mapping[str, pd.DataFrame],
    output: Path,
    *,
    labels: Mapping[str, str] | None = None,
    **options: Any,
) -> str:
    """Ingest files, and return "right", "refused: ..." after a typed error, or "wrong: ...".

    Parameters
    ----------
    known
        By view: NaN are missing cells, and rows of NaN absent samples; a default index stands for samples
        without ids, and columns 0, 1, ... for features without names.
    labels
        Ground truth by sample id.
    """
    if any(frame.isna().to_numpy().any() for frame in known.values()):
        options.setdefault("impute", "mean")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ingest(list(sources), output, overwrite=True, **options)
    except (DataError, ConfigurationError) as error:
        return f"refused: {error}"
    data = open_store(output)
    found = [view.name for view in data.views]
    if found != [*known]:
        return f"wrong: views {found}, not {[*known]}"
    differences = [difference(data, name, frame) for name, frame in known.items()]
    if labels is not None:
        differences.append(_difference_of_labels(data, labels))
    return next((f"wrong: {found}" for found in differences if found), "right")


def difference(data: MultiViewData, name: str, known: pd.DataFrame) -> str | None:
    """Return the first difference of a view from a table, whose missing cells are column means."""
    if data.n_samples != len(known):
        return f"{data.n_samples} samples, not {len(known)}"
    (view,) = (view for view in data.views if view.name == name)
    present = known.dropna(how="all")
    expected = present.where(present.notna(), present.mean(), axis=1)
    if view.shape != expected.shape:
        return f"{name} has shape {view.shape}, not {expected.shape}"
    features = getattr(view, "feature_names", None)
    if not isinstance(known.columns, pd.RangeIndex) and features != (*map(str, known.columns),):
        return f"features of {name} are {features}, not {[*known.columns]}"
    if not isinstance(known.index, pd.RangeIndex):
        expected.index = expected.index.map(str)
        ids = [item for item in data.sample_ids or () if item in expected.index]
        if sorted(ids) != sorted(expected.index):
            return f"sample ids are {data.sample_ids}, not {[*expected.index]}"
        expected = expected.loc[ids]
    values = view.read(0, view.shape[0])
    unlike = np.argwhere(~np.isclose(values, expected.to_numpy(float), rtol=1e-12, atol=0))
    if len(unlike) == 0:
        return None
    row, column = unlike[0]
    return f"{name}[{row}, {column}] is {values[row, column]}, not {expected.iloc[row, column]}"


def _difference_of_labels(data: MultiViewData, labels: Mapping[str, str]) -> str | None:
    if data.labels is None or data.sample_ids is None:
        return "no labels"
    names = data.label_names or [*map(str, range(int(data.labels.max()) + 1))]
    got = {item: names[code] for item, code in zip(data.sample_ids, data.labels, strict=True)}
    return None if got == dict(labels) else f"labels are {got}, not {labels}"


def read(folder: Path, files: Mapping[str, str | bytes], known: Any, **options: Any) -> str:
    """Write files, a table beside them as b.csv in another order, and ingest all; `Source`'s options too."""
    of_source = {name: options.pop(name) for name in ("samples_in", "id_column") if name in options}
    sources = []
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        sources.append(Source(folder / name, **(of_source if name != "b.csv" else {})))
    views = {name.split(".")[0]: frame for name, frame in zip(files, known, strict=True)}
    found = outcome(sources, views, folder / "s.zarr", **options)
    return found.replace(f"{folder}/", "")


def beside(text: str | bytes, name: str = "a.csv", frame: pd.DataFrame = A) -> tuple[Any, Any]:
    """A file, and b.csv with the same ids in another order; what they hold."""
    other = B.set_axis(frame.index).iloc[ORDER]
    return {name: text, "b.csv": csv_of(other)}, (frame, other)
