"""Names and addresses of computers, as certificates have them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from mscam_dask.errors import ConfigurationError

__all__ = ["check_hosts"]

_LONGEST = 253
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?")


def check_hosts(hosts: Sequence[str]) -> None:
    """Refuse what cannot be the name (RFC 1123) or the address of a computer.

    Underscores, which many networks have, pass, and so does ``*.`` before a name.

    Raises
    ------
    ConfigurationError
        With the first that is none; a name with letters beyond ASCII is told its form within.
    """
    allowed = "allowed are names (letters, digits, '-' and '.') and addresses of computers"
    if not hosts:
        raise ConfigurationError(f"hosts = []; {allowed}.")
    for host in hosts:
        if _is_address(host) or (len(host) <= _LONGEST and _NAME.fullmatch(host)):
            continue
        ascii_form = _ascii_form(host)
        remedy = f" Give it as {ascii_form!r}." if ascii_form else ""
        raise ConfigurationError(f"{host!r} in hosts cannot be used; {allowed}.{remedy}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ascii_form(host: str) -> str:
    """An internationalised name as the name system has it; "" where it has none."""
    try:
        encoded = host.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    return encoded if encoded != host and _NAME.fullmatch(encoded) else ""
