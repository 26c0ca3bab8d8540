"""Server-rendered pages: one template environment, one content security policy.

Templates escape by default and take their words from `texts`; scripts and styles come from our own static files only.
"""

from collections.abc import Mapping
from types import MappingProxyType

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Response

from aisle.ui.static_files import address
from aisle.ui.texts import text
from aisle.ui.words import city, day, moment, money

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
NOTHING: Mapping[str, str] = MappingProxyType({})

_templates = Environment(
    loader=PackageLoader("aisle.ui"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_templates.globals.update(t=text, static=address)
_templates.filters.update(money=money, moment=moment, day=day, city=city)


def page(
    template: str, values: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] = NOTHING
) -> Response[str]:
    return Response(
        _templates.get_template(template).render(values),
        status_code=status,
        media_type="text/html",
        headers={"content-security-policy": PAGE_POLICY, **headers},
    )
