"""Templates to text; whatever comes from kernels, tasks and models is escaped."""

from __future__ import annotations

from functools import cache

import jinja2


def render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("cupilot.report", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
