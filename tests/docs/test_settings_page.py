"""The page of settings is the one that the settings classes give."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_the_generated_one() -> None:
    spec = importlib.util.spec_from_file_location("settings_page", DOCS / "settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = (DOCS / "pipeline-settings.md").read_text(encoding="utf-8")
    assert written == script.page(), "run: python docs/settings_page.py"
