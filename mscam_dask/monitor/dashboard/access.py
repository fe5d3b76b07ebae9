"""Access to the pages of a scheduler or worker by the token in its environment; loaded as a preload of Dask."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tornado.web import RequestHandler

from mscam_dask.errors import ConfigurationError

if TYPE_CHECKING:
    from distributed import Scheduler, Worker
    from tornado.httputil import HTTPServerRequest

VARIABLE = "MSCAM_DASHBOARD_TOKEN"
_MIN_LENGTH = 16
_COOKIE = "mscam_dashboard"
_OPEN_PATHS = ("/health",)  # answers "ok", and says nothing about runs


def dashboard_token() -> str | None:
    """Token of the environment, None where none is set; ConfigurationError if it is too short to be safe."""
    token = os.environ.get(VARIABLE)
    if token is not None and len(token) < _MIN_LENGTH:
        raise ConfigurationError(
            f"{VARIABLE} has {len(token)} characters; allowed are at least {_MIN_LENGTH}. Unset it, or make one: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


def dask_setup(server: Scheduler | Worker) -> None:
    """Require the token of the environment, if there is one; called by Dask for ``--preload``."""
    token = dashboard_token()
    if token is not None:
        require_token(server.http_application, token)


def require_token(application: Any, token: str) -> None:
    """Refuse requests to a RoutingApplication without the token, except for ``/health``.

    A browser gives ``?token=...`` once, and has a cookie afterwards. Programs send ``Authorization: Bearer ...``.
    """
    find_handler = application.find_handler

    def find_allowed(request: HTTPServerRequest, **kwargs: Any) -> Any:
        if request.path in _OPEN_PATHS or _has_token(request, token):
            return find_handler(request, **kwargs)
        given = request.query_arguments.get("token", [b""])[-1]
        handler = _SignIn if hmac.compare_digest(given, token.encode()) else _Refusal
        return application.get_handler_delegate(request, handler, {"token": token})

    application.find_handler = find_allowed


def _has_token(request: HTTPServerRequest, token: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode()):
        return True
    cookie = request.cookies.get(_COOKIE)
    return cookie is not None and hmac.compare_digest(
        cookie.value.encode(), _cookie_value(token).encode()
    )


def _cookie_value(token: str) -> str:
    """Return the value of the cookie: a hash, so that any character may be in a token."""
    return hashlib.sha256(f"{_COOKIE} {token}".encode()).hexdigest()


class _Handler(RequestHandler):
    def initialize(self, token: str) -> None:
        self.token = token


class _SignIn(_Handler):
    """Set the cookie, and go to the same page without the token in its address."""

    def get(self) -> None:
        parts = urlsplit(self.request.uri or "/")
        query = [(key, value) for key, value in parse_qsl(parts.query) if key != "token"]
        path = "/" + parts.path.lstrip("/\\")  # not the address of another host
        self.set_cookie(_COOKIE, _cookie_value(self.token), httponly=True, samesite="Strict")
        self.redirect(urlunsplit(("", "", path, urlencode(query), "")))


class _Refusal(_Handler):
    """Answer 401, to any method."""

    def prepare(self) -> None:
        self.set_status(401)
        self.set_header("WWW-Authenticate", "Bearer")
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(
            "This dashboard requires its token. Add ?token=... to the address, with the value that "
            f"{VARIABLE} has where the run was started.\n"
        )
