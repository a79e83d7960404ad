"""Templates to text.  Whatever comes from kernels, tasks and models is escaped, and only our own scripts may run:
the page's policy names them by their digests and allows no request to anywhere."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

import jinja2
from markupsafe import Markup

from cupilot import __version__
from cupilot.numbers import PAGE
from cupilot.report.chart import drawing_code, theme
from cupilot.report.run_charts import made_by
from cupilot.strategies.algebra import move_text


def breakable(name: str) -> Markup:
    """A long name that may be broken after its underscores."""
    return Markup("_<wbr>").join(name.split("_"))


_FILTERS = (
    breakable,
    PAGE.duration,
    PAGE.ratio,
    PAGE.percent,
    PAGE.quantity,
    PAGE.grouped,
    made_by,
    move_text,
)


def render(template: str, scripts: Sequence[str], **values: object) -> str:
    """A page with the drawing code and some of our own scripts, in this order."""
    code = [drawing_code(), *(asset(f"{name}.js") for name in scripts)]
    page = _environment().get_template(template).render(
        values | {
            "scripts": [Markup(text) for text in code],
            "policy": policy(code),
            "style": Markup(asset("report.css")),
            "theme": theme(),
            "version": __version__,
        }
    )  # fmt: skip
    # a model's reply may hold halves of characters, which no file can
    return page.encode("utf-8", "replace").decode("utf-8")


def policy(code: Sequence[str]) -> str:
    """The page's Content-Security-Policy."""
    digests = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in code)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def as_data(value: object) -> Markup:
    """JSON for a data block of the page; nothing in it can end the block."""
    return embedded(json.dumps(value, separators=(",", ":"), allow_nan=False))


def embedded(text: str) -> Markup:
    """JSON text for a data block, see `as_data`."""
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def asset(name: str) -> str:
    return (files("cupilot.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cupilot.report", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in _FILTERS}
    environment.filters["embedded"] = embedded
    return environment
