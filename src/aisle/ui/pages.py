"""Server-rendered pages: one template environment, one content security policy, static files beside them.

Templates escape by default and hold every word people read; scripts and styles come from our own static folder only.
"""

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Response, Router
from litestar.static_files import create_static_files_router

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

_templates = Environment(loader=PackageLoader("aisle.ui"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def page(template: str, **values: object) -> Response[str]:
    html = _templates.get_template(template).render(**values)
    return Response(html, media_type="text/html", headers={"content-security-policy": PAGE_POLICY})


def static_routes() -> Router:
    folder = str(files("aisle.ui") / "static")
    return create_static_files_router("/static", directories=[folder], include_in_schema=False)
