"""Pages of a scheduler and its workers behind the token of the environment."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.cookiejar import CookieJar
from typing import Any

import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.dashboard.access import VARIABLE
from mscam_dask.pipeline.cluster import observers_of, open_cluster, page_of
from mscam_dask.pipeline.settings import ExecutionTable
from tests.browser import Browser

TOKEN = "correct horse; battery & staple"
ENCODED = "correct%20horse%3B%20battery%20%26%20staple"


@pytest.fixture(scope="module")
def roots() -> Iterator[dict[str, str]]:
    """Addresses of the pages of a scheduler and of a worker that a run starts with a token."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv(VARIABLE, TOKEN)
        cluster = stack.enter_context(open_cluster(ExecutionTable(workers=1)))
        observers_of(cluster, "digits")
        page_of(cluster.client)
        info = cluster.client.scheduler_info(n_workers=-1)
        (worker,) = info["workers"].values()
        yield {
            "scheduler": f"http://127.0.0.1:{info['services']['dashboard']}",
            "worker": f"http://127.0.0.1:{worker['services']['dashboard']}",
        }


def status(url: str, **headers: str) -> int:
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_dashboard_with_a_token_refuses_requests_without_it(roots: dict[str, str]) -> None:
    for path in ("/mscam", "/status", "/metrics", "/json/counts.json", "/mscam/ws", "/none"):
        assert status(roots["scheduler"] + path) == 401, path
    for path in ("/metrics", "/main"):
        assert status(roots["worker"] + path) == 401, path
    for wrong in ("wrong", TOKEN[:-1], f"{TOKEN}!"):
        assert status(f"{roots['scheduler']}/mscam?token={urllib.parse.quote(wrong)}") == 401
        for name, value in (("Authorization", "Bearer "), ("Cookie", "mscam_dashboard=")):
            assert status(f"{roots['scheduler']}/metrics", **{name: value + wrong}) == 401
    request = urllib.request.Request(f"{roots['scheduler']}/mscam", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert caught.value.code == 401
    assert VARIABLE in caught.value.read().decode()
    for root in roots.values():
        assert status(f"{root}/health") == 200


def test_a_program_and_a_browser_that_have_the_token_get_the_pages(roots: dict[str, str]) -> None:
    for root in roots.values():
        assert status(f"{root}/metrics", Authorization=f"Bearer {TOKEN}") == 200
    jar = CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with opener.open(f"{roots['scheduler']}/mscam?run=a&token={ENCODED}", timeout=10) as answer:
        assert answer.url == f"{roots['scheduler']}/mscam?run=a"
    (cookie,) = jar
    assert cookie.value not in (None, TOKEN)
    assert cookie.has_nonstandard_attr("HttpOnly")
    with opener.open(f"{roots['scheduler']}/status", timeout=10) as answer:
        assert answer.status == 200


def test_a_sign_in_leads_to_no_other_host(roots: dict[str, str]) -> None:
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            return None

    opener = urllib.request.build_opener(Stay)
    for path in ("//example.org/x", "/%2f/example.org", "/\\example.org"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"{roots['scheduler']}{path}?token={ENCODED}", timeout=10)
        assert caught.value.code == 302
        target = caught.value.headers["Location"]
        assert target.startswith("/")
        assert not target.startswith(("//", "/\\"))


def test_a_short_token_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "fifteen letters")
    with pytest.raises(ConfigurationError), open_cluster(ExecutionTable(workers=1)):
        pass


@pytest.mark.slow
def test_the_page_updates_in_a_browser_that_gave_the_token(
    roots: dict[str, str], browser: Browser
) -> None:
    browser.open(f"{roots['scheduler']}/mscam?token={ENCODED}")
    browser.wait_for("the page of no run", lambda: "No run yet" in browser.text)
    assert browser.driver.current_url == f"{roots['scheduler']}/mscam"
    assert TOKEN not in browser.driver.page_source
    assert browser.complaints() == []
