"""What the package gives away by name, and the root of its errors."""

from __future__ import annotations

import pytest

import mscam_dask
from mscam_dask.errors import ConfigurationError, DataError, MscamError


def test_errors_have_one_root_and_are_value_errors_too() -> None:
    for error in (ConfigurationError, DataError):
        assert issubclass(error, MscamError)
        assert issubclass(error, ValueError)


def test_public_names() -> None:
    assert set(mscam_dask.__all__) <= set(dir(mscam_dask))
    for name in mscam_dask.__all__:
        assert getattr(mscam_dask, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mscam_dask.no_such_name
