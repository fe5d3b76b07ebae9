"""Files that every reader's tests may write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.data.readers.matlab_files import save_version_5, save_version_73


@pytest.fixture(params=[save_version_5, save_version_73], ids=["v5", "v7.3"])
def save(request: pytest.FixtureRequest) -> Any:
    return request.param
