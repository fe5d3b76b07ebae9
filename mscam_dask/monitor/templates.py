"""Jinja templates of the package, by their path in it; those of HTML escape what came from data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from mscam_dask.monitor import messages
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_FILTERS = (
    *("count", "number", "percent", "duration", "eta", "sentence", "moment"),
    *("p_value_text", "shortened", "printable", "format_graph"),
)


def template(path: str) -> Template:
    """Return a template such as "monitor/report/assets/run.html.j2", which is compiled once."""
    return _environment(is_html=path.endswith(".html.j2")).get_template(path)


@cache
def _environment(*, is_html: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mscam_dask", ""),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not is_html,
    )
    environment.filters.update({name: getattr(messages, name) for name in _FILTERS})
    environment.filters["form"] = lambda value, form, none="-": (
        none if value is None else form % value
    )
    dump = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = dump
    environment.globals.update(
        level=RULES.level,
        plural=_plural,
        zip=zip,
        excluded=messages.format_excluded,
        view_settings=messages.format_view_settings,
        refinement=messages.format_refinement,
    )
    return environment


def _plural(value: int, noun: str) -> str:
    """Count in groups of three digits with its noun."""
    return messages.plural(value, noun).replace(str(value), messages.count(value), 1)
