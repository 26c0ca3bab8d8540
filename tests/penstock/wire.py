"""A client of a few lines that sends exactly the bytes a test wants, where real clients are too polite."""

import socket
import struct
from typing import Any, Self

from penstock.wire.read import read_response
from penstock.wire.schema import response_header_is_flexible
from penstock.wire.write import request_bytes


class RawClient:
    def __init__(self, port: int, timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, api_key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        self.socket.sendall(request_bytes(api_key, version, 7, "raw", message))
        frame = self.read_frame()
        assert frame is not None, "the broker closed the connection"
        [correlation_id] = struct.unpack_from(">i", frame)
        assert correlation_id == 7
        return read_response(api_key, version, frame, 5 if response_header_is_flexible(api_key, version) else 4)

    def read_frame(self) -> bytes | None:
        """The next response without its size, or None when the broker has closed the connection."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            data += chunk
        return data
