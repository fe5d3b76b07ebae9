"""The page of settings is the one that the settings classes give."""

from __future__ import annotations

from tests.deploy.files import ROOT, imported


def test_the_page_is_the_generated_one() -> None:
    written = (ROOT / "docs/pipeline-settings.md").read_text(encoding="utf-8")
    script = imported(ROOT / "docs/settings_page.py")
    assert written == script.page(), "run: python docs/settings_page.py"
