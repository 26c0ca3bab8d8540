"""A request whose JSON body cannot make us answer 500, whatever bytes it holds. Used for every route by app.py.

Litestar reports malformed JSON as a 400 by itself, but not text that is no UTF-8, nor nesting without end.
"""

from typing import Any

from litestar import Request
from litestar.exceptions import ClientException


class JsonRequest(Request[Any, Any, Any]):
    async def json(self) -> Any:
        try:
            return await super().json()
        except UnicodeDecodeError:
            raise ClientException("the body is not valid UTF-8") from None
        except RecursionError:
            raise ClientException("the body is nested too deeply") from None
