"""Every page of deploy/ says how far what it describes was tested, and by which tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT

PAGES = sorted(DEPLOY.glob("*/README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_says_what_was_tested(page: Path) -> None:
    said = page.read_text().partition("**Tested**")[2]
    named = re.findall(r"test_\w+\.py", said)
    assert named
    for name in named:
        assert (ROOT / "tests/deploy" / name).is_file(), name


def test_every_directory_has_a_page() -> None:
    directories = {path.name for path in DEPLOY.iterdir() if path.is_dir()}
    assert directories == {page.parent.name for page in PAGES}
