"""SIGTERM to a serving process: it says so, finishes what is under way, and ends by itself with code 0."""

import signal
import socket

from tests.running import PATIENCE_SECONDS, serving, status_of, wait_until


def test_sigterm_finishes_the_request_under_way(config):
    with serving(config) as (process, address):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as under_way:
            under_way.sendall(b"GET /version HTTP/1.1\r\nhost: x\r\n")
            wait_until(lambda: status_of(f"{address}/readyz") == 200, "the half request has arrived", process)
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: status_of(f"{address}/livez") == 0, "no new connection is accepted", process)
            under_way.sendall(b"connection: close\r\n\r\n")
            answer = under_way.recv(65536)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert answer.startswith(b"HTTP/1.1 200 OK") or answer == b""
