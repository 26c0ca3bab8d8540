"""A stand-in for Stripe's API, as much of it as our adapter uses: intents, charges, refunds, idempotency keys.

Written from Stripe's public reference. The method chooses what happens: `pm_ok`, `pm_declined`, `pm_3ds`, and
`pm_charge_timeout`, which charges and then drops the connection.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Books:
    def __init__(self) -> None:
        self.intents: dict[str, dict[str, Any]] = {}
        self.refunds: list[dict[str, Any]] = []
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}
        self.down = False


class _Dropped(Exception):
    pass


@contextmanager
def stripe_stand_in() -> Iterator[tuple[str, Books]]:
    books = Books()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            self._answer({name: values[0] for name, values in parse_qs(body).items()})

        def _answer(self, form: dict[str, str]) -> None:
            url = urlsplit(self.path)
            key = self.headers.get("idempotency-key", "")
            try:
                if books.down:
                    status, answer = 503, {"error": {"message": "down"}}
                elif key and key in books.answers:
                    status, answer = books.answers[key]
                else:
                    status, answer = act(books, self.command, url.path, form, parse_qs(url.query))
                    if key:
                        books.answers[key] = (status, answer)
            except _Dropped:
                self.close_connection = True
                return
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", books
    finally:
        server.shutdown()
        server.server_close()


def act(books: Books, method: str, path: str, form: dict[str, str], query: dict[str, list[str]]) -> tuple[int, Any]:
    parts = path.strip("/").split("/")[1:]
    if parts == ["payment_intents"] and method == "POST":
        return create(books, form)
    if parts == ["payment_intents"]:
        found = [{**i, "latest_charge": None} for i in books.intents.values()]
        return 200, {"object": "list", "data": found, "has_more": False, "url": "/v1/payment_intents"}
    if parts == ["charges"]:
        group = query["transfer_group"][0]
        found = [i for i in books.intents.values() if i["transfer_group"] == group]
        charges = [{"id": f"ch_{i['id']}", "object": "charge", "payment_intent": i["id"]} for i in found]
        return 200, {"object": "list", "data": charges, "has_more": False, "url": "/v1/charges"}
    if parts == ["refunds"]:
        refund = {"id": f"re_{len(books.refunds)}", "object": "refund", "status": "succeeded", **form}
        books.refunds.append(refund)
        return 200, refund
    intent = books.intents.get(parts[1])
    if intent is None:
        return 404, {"error": {"type": "invalid_request_error", "message": "no such payment_intent"}}
    if len(parts) == 3:
        wanted, becomes = ("requires_capture", "succeeded") if parts[2] == "capture" else (None, "canceled")
        if intent["status"] == "succeeded" or (wanted and intent["status"] != wanted):
            return 400, {"error": {"type": "invalid_request_error", "message": f"it is {intent['status']}"}}
        intent["status"] = becomes
        intent["amount_received"] = intent["amount"] if becomes == "succeeded" else 0
    return 200, intent


def create(books: Books, form: dict[str, str]) -> tuple[int, Any]:
    assert form["capture_method"] == "manual"
    intent = {
        "id": f"pi_{len(books.intents)}",
        "object": "payment_intent",
        "amount": int(form["amount"]),
        "amount_received": 0,
        "currency": form["currency"],
        "client_secret": "secret_of_the_intent",
        "transfer_group": form["transfer_group"],
        "metadata": {"payment": form["metadata[payment]"]},
        "status": "requires_action" if form["payment_method"] == "pm_3ds" else "requires_capture",
    }
    if form["payment_method"] == "pm_declined":
        error = {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}
        return 402, {"error": error}
    books.intents[intent["id"]] = intent
    if form["payment_method"] == "pm_charge_timeout":
        raise _Dropped
    return 200, intent
