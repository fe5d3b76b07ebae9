"""UCI Multiple Features, in the form in which it is published."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.data.datasets.published import fetch_mfeat, load_mfeat
from mscam_dask.errors import DataError
from tests.messages import quotes

Tables = dict[str, NDArray[np.float64]]

MFEAT_WIDTHS = {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}
OPENML_IDS = {"fac": 12, "fou": 14, "kar": 16, "mor": 18, "pix": 20, "zer": 22}


@pytest.fixture(scope="module")
def tables() -> Tables:
    """Tables of the published shapes; like the published ones, some are whole numbers."""
    rng = np.random.default_rng(0)
    made = {name: np.round(rng.gamma(2.0, 40.0, (2000, d)), 6) for name, d in MFEAT_WIDTHS.items()}
    made["fac"], made["pix"] = np.round(made["fac"]), np.round(made["pix"] / 40)
    return made


@pytest.fixture(scope="module")
def uci_files(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six files in the archive's form: right-justified, separated by runs of spaces."""
    folder = tmp_path_factory.mktemp("mfeat")
    for name, values in tables.items():
        form = "%4d" if name in ("fac", "pix") else "%13.6f"
        np.savetxt(folder / f"mfeat-{name}", values, fmt=form, delimiter=" ")
    return folder


@pytest.fixture
def openml(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """scikit-learn's client of OpenML, with the made tables."""
    by_id = {OPENML_IDS[name]: values for name, values in tables.items()}
    client = Mock(side_effect=lambda *, data_id, **_: SimpleNamespace(data=by_id[data_id]))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", client)
    return client


def assert_is(data: Any, tables: Tables) -> None:
    assert data.view_names == tuple(MFEAT_WIDTHS)
    assert data.labels.tolist() == [digit for digit in range(10) for _ in range(200)]
    assert data.label_names == tuple("0123456789")
    for view in data.views:
        np.testing.assert_array_equal(view.read(0, 2000), tables[view.name])


def test_the_six_files_are_read_as_published(uci_files: Path, tables: Tables) -> None:
    assert_is(load_mfeat(uci_files), tables)


def test_files_may_end_in_txt_and_missing_ones_are_listed(uci_files: Path, tmp_path: Path) -> None:
    (tmp_path / "mfeat-fac.txt").symlink_to(uci_files / "mfeat-fac")
    for name in ("fou", "kar", "pix"):
        (tmp_path / f"mfeat-{name}").symlink_to(uci_files / f"mfeat-{name}")
    with pytest.raises(DataError):
        load_mfeat(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["1 2 3 4 5 6\n" * 1999, "1 2 3 4 5\n" * 2000, "<html>not found</html>\n"],
    ids=["short", "narrow", "web page"],
)
def test_files_that_are_not_the_published_ones_are_named(
    uci_files: Path, tmp_path: Path, content: str
) -> None:
    for name in MFEAT_WIDTHS:
        (tmp_path / f"mfeat-{name}").symlink_to(uci_files / f"mfeat-{name}")
    (tmp_path / "mfeat-mor").unlink()
    (tmp_path / "mfeat-mor").write_text(content)
    with pytest.raises(DataError, match=quotes(tmp_path / "mfeat-mor")):
        load_mfeat(tmp_path)


def test_fetched_into_the_cache(openml: Mock, tables: Tables, tmp_path: Path) -> None:
    assert_is(fetch_mfeat(tmp_path), tables)
    assert [call.kwargs["data_id"] for call in openml.mock_calls] == [*OPENML_IDS.values()]
    assert {call.kwargs["data_home"] for call in openml.mock_calls} == {str(tmp_path)}


@pytest.mark.parametrize(
    "error", [urllib.error.URLError("Name or service not known"), ValueError("OpenML error")]
)
def test_without_a_network_the_message_lists_what_to_download(
    openml: Mock, tmp_path: Path, error: Exception
) -> None:
    openml.side_effect = error
    with pytest.raises(DataError) as caught:
        fetch_mfeat(tmp_path)
    for name in MFEAT_WIDTHS:
        assert f"mfeat-{name}" in str(caught.value)
    assert "archive.ics.uci.edu" in str(caught.value)
    assert "load_mfeat" in str(caught.value)
