"""The API document as a page: every route, its parameters, body and answers, drawn from the OpenAPI document itself.

Litestar's own pages load their scripts from other people's servers, which our content security policy forbids.
"""

import json
from typing import Any

from litestar import Request, Response, get

from aisle.ui.pages import page

OPENAPI_JSON = "/api/v1/openapi.json"


@get("/docs/api", include_in_schema=False)
async def api_page(request: Request[Any, Any, Any]) -> Response[str]:
    schema = request.app.openapi_schema.to_schema()
    schemas = schema.get("components", {}).get("schemas", {})
    return page(
        "api.html",
        {
            "title": schema["info"]["title"],
            "version": schema["info"]["version"],
            "document": OPENAPI_JSON,
            "operations": [
                _operation(method, path, operation)
                for path, methods in sorted(schema["paths"].items())
                for method, operation in methods.items()
            ],
            "schemas": {name: _pretty(body) for name, body in sorted(schemas.items())},
        },
    )


@get(OPENAPI_JSON, include_in_schema=False, media_type="application/vnd.oai.openapi+json")
async def openapi_json(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return request.app.openapi_schema.to_schema()


def _operation(method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {})
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "parameters": [
            {
                "name": p["name"],
                "where": p["in"],
                "required": p.get("required", False),
                "schema": _pretty(p.get("schema", {})),
            }
            for p in operation.get("parameters", [])
        ],
        "body": _pretty({kind: content.get("schema", {}) for kind, content in body.items()}) if body else "",
        "answers": [(status, answer.get("description", "")) for status, answer in operation["responses"].items()],
    }


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
