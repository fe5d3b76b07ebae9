"""The browser that other tests look at pages with: it sees text, errors and requests."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.browser import Browser
from tests.messages import raises

_PAGE = """<!doctype html><meta charset="utf-8"><title>t</title><p>seen</p>
<p style="display:none">hidden</p><div id="host"></div>
<script>document.getElementById("host").attachShadow({mode: "open"}).innerHTML = "<b>deep</b>";</script>
"""


def test_what_can_be_read_and_what_is_wrong_are_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(_PAGE, encoding="utf-8")
    browser.open(page.as_uri())
    assert browser.text == "seen deep"
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.screenshot("page").read_bytes().startswith(b"\x89PNG")
    with page.open("a", encoding="utf-8") as stream:
        stream.write("<img src='absent.png'><script>throw Error('on purpose')</script>")
    browser.open(page.as_uri())
    complaints: list[str] = []

    def heard(what: str) -> bool:
        complaints.extend(browser.complaints())
        return any(what in complaint for complaint in complaints)

    for what in ("on purpose", "absent.png"):
        browser.wait_for(f"a complaint about {what}", partial(heard, what))
    browser.wait_for(
        "the request", lambda: any(url.endswith("absent.png") for url in browser.requests())
    )
    with raises(AssertionError, "never true", 0.2):
        browser.wait_for("never true", lambda: False, at_most_s=0.2)
