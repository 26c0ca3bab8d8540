"""Buyers and sellers as they meet the product: over HTTP, with a bearer token, waiting for what they were promised."""

import itertools
import secrets
import time
from types import TracebackType
from typing import Any, Self

import httpx

from tests.running import PATIENCE_SECONDS

GOOD_PASSWORD = "correct horse battery"

_keys = itertools.count()


def new_key() -> str:
    """An Idempotency-Key nobody has used."""
    return f"key-{next(_keys)}-{secrets.token_hex(8)}"


def a_hall(*sections: tuple[str, int, int, int], **changes: Any) -> dict[str, Any]:
    """An event of sections (name, price, rows, seats a row), one subsection each."""
    return {
        "name": "Night Train",
        "venue": "Old Harbour",
        "starts_at": "2027-12-31T20:00:00+08:00",
        "currency": "TWD",
        "sections": [
            {"name": name, "price": price, "subsections": [{"rows": rows, "seats_per_row": seats}]}
            for name, price, rows, seats in sections
        ],
        **changes,
    }


class Person:
    def __init__(self, address: str) -> None:
        self.id = ""
        self.token = ""
        self._client = httpx.Client(base_url=f"{address}/api/v1", timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def register(self, role: str) -> None:
        proof = {"email": f"{role}.{secrets.token_hex(6)}@example.com", "password": GOOD_PASSWORD}
        self.id = expect(201, self.post("/users", {**proof, "role": role}))["id"]
        self.token = expect(201, self.post("/tokens", {**proof, "name": "test"}))["token"]

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self._client.get(path, headers=self._headers(), params=parameters)

    def post(self, path: str, body: Any = None, *, key: str = "") -> httpx.Response:
        return self._client.post(path, json=body, headers=self._headers(key))

    def send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        return self._client.request(method, path, headers={**self._headers(), **(headers or {})}, **more)

    # What a seller does.

    def creates(self, description: dict[str, Any]) -> int:
        """The id of a new event, once its tickets and its seats were compared."""
        event = int(expect(201, self.post("/events", description))["id"])
        self._wait(lambda: expect(200, self.get(f"/seller/events/{event}"))["state"] == "ready", f"{event} is ready")
        return event

    def opens(self, description: dict[str, Any]) -> int:
        event = self.creates(description)
        expect(200, self.post(f"/events/{event}/open"))
        return event

    # What a buyer does.

    def books(self, event: int, quantity: int | None = None, **order: Any) -> str:
        """The id of a booking that was accepted."""
        body = {"event_id": event, **({"quantity": quantity} if quantity else {"mode": "manual"}), **order}
        booking = expect(202, self.post("/bookings", body, key=new_key()))
        assert booking["state"] == "PROCESSING"
        return str(booking["id"])

    def booking(self, id: str) -> dict[str, Any]:
        return expect(200, self.get(f"/bookings/{id}"))

    def waits_for(self, id: str, *states: str) -> dict[str, Any]:
        """The booking, once it is in one of the states."""
        self._wait(lambda: self.booking(id)["state"] in states, f"booking {id} is {states}")
        return self.booking(id)

    def pays(self, booking: str, method: str = "card_ok") -> dict[str, Any]:
        """The payment of a booking that waits for it."""
        return expect(201, self.post(f"/bookings/{booking}/payments", {"method": method}, key=new_key()))

    def waits_until_free(self, event: int, seats: int) -> None:
        """Until the hall shows so many free seats."""
        self._wait(lambda: self.free(event) == seats, f"{seats} seats of {event} are free")

    def free(self, event: int) -> int:
        return sum(section["available"] for section in expect(200, self.get(f"/events/{event}/sections")))

    def _headers(self, key: str = "") -> dict[str, str]:
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return {**headers, **({"idempotency-key": key} if key else {})}

    def _wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            time.sleep(0.02)


def expect(status: int, answer: httpx.Response) -> Any:
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    return answer.json()


def refused(status: int, code: str, answer: httpx.Response) -> None:
    """The answer is this refusal, as problem+json."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["code"] == code, answer.text
