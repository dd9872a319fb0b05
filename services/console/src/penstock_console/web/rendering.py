"""HTML from templates, with sizes, durations and times in the words of the command line."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup

from penstock.cli.output import duration_text, size_text, time_text
from penstock_console.pages.context import ROWS_PER_PAGE_MAX, page_of

_DASH = "-"  # for an unknown value
_LINE_CHARACTERS = 300  # of a record's field that is shown in one line


class Templates:
    """The templates of all pages."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("penstock_console", "web/templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._environment.filters |= {
            "size": _size,
            "duration": _duration,
            "number": _number,
            "rate": _rate,
            "measure": _measure,
            "ms": _ms,
            "time": _time,
            "instant": _instant,
            "one_line": lambda text: " ".join(text[:_LINE_CHARACTERS].split()),
            "path": lambda text: quote(str(text), safe=""),
        }
        self._environment.globals |= {
            "spark": spark,
            "with_query": with_query,
            "page_of": page_of,
            "rows_max": ROWS_PER_PAGE_MAX,  # of a table without pages
            "as_fields": msgspec.structs.asdict,
        }

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """The HTML of a template."""
        return self._environment.get_template(name).render(values)


def with_query(path: str, parameters: Mapping[str, Any], **changes: Any) -> str:
    """The path with the parameters, some of which are changed; empty ones are left out."""
    values = {name: str(value) for name, value in (dict(parameters) | changes).items() if value not in ("", None)}
    return f"{path}?{urlencode(values)}" if values else path


def spark(points: list[float], width: int = 120, height: int = 24) -> str:
    """The points of an SVG polyline for a small chart."""
    if len(points) < 2:
        return ""
    top = max(max(points), 1)
    step = width / (len(points) - 1)
    return " ".join(
        f"{index * step:.1f},{height - 1 - value / top * (height - 2):.1f}" for index, value in enumerate(points)
    )


def _size(value: float | None) -> str:
    return _DASH if value is None else size_text(int(value))


def _duration(value: float | None) -> str:
    return _DASH if value is None else duration_text(value)


def _number(value: float | None) -> str:
    if value is None:
        return _DASH
    return f"{value:,.1f}" if isinstance(value, float) and not value.is_integer() else f"{int(value):,}"


def _rate(value: float | None) -> str:
    """A rate per second with as many digits as matter."""
    if value is None:
        return _DASH
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:,.2f}"


def _measure(value: float | None) -> str:
    """A value of any size, with as many digits as matter."""
    if value is None or float(value).is_integer() or abs(value) >= 1_000:
        return _number(value)
    return f"{value:.4g}"


def _ms(value: float | None) -> str:
    return _DASH if value is None else f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


def _time(value: int | None) -> str:
    """A time in UTC to the second; its title is exact."""
    return _time_element(value, len("2026-11-27 08:00:00"))


def _instant(value: int | None) -> str:
    """A time in UTC to the millisecond."""
    return _time_element(value, len("2026-11-27 08:00:00.000"))


def _time_element(value: int | None, length: int) -> str:
    text = _DASH if value is None else time_text(value) or _DASH
    if not text[0].isdecimal():
        return text
    shown = text[:length].replace("T", " ")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(text, shown)
