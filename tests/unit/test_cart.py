"""The rules of a cart, without a store: what each of them returns, and what it refuses by name."""

from uuid import uuid4

import msgspec
import pytest

from aisle.booking import cart as rules
from aisle.booking.cart import Cart, Hold, HoldState, Taking, held_by_place, hold_id
from aisle.errors import Problem
from aisle.messages import Held, Part

NOW = 1_000_000
TERMS = {"event": 1, "hold_ms": 600, "hold_ms_max": 1_800, "seats_max": 4}


def hold(id: str, quantity: int = 1, state: HoldState = HoldState.HELD, **more) -> Hold:
    return Hold(id=id, asked="body", state=state, quantity=quantity, **more)


def cart(*holds: Hold, **more) -> Cart:
    return Cart(**{"event": 1, "deadline_ms": NOW + 600, "extendable_until_ms": NOW + 1_800, "holds": holds, **more})


def refused(code: str):
    return pytest.raises(Problem, check=lambda problem: problem.code == code)


def test_the_first_hold_sets_the_deadline_and_those_after_it_join():
    first = rules.begin(None, hold("a"), now_ms=NOW, **TERMS)
    assert (first.deadline_ms, first.extendable_until_ms) == (NOW + 600, NOW + 1_800)
    second = rules.begin(first, hold("b"), now_ms=NOW + 599, **TERMS)
    assert (second.deadline_ms, [h.id for h in second.holds]) == (NOW + 600, ["a", "b"])


def test_a_cart_that_is_over_is_replaced():
    fresh = rules.begin(cart(hold("old")), hold("new"), now_ms=NOW + 600, **TERMS)
    assert ([h.id for h in fresh.holds], fresh.deadline_ms) == (["new"], NOW + 1_200)


def test_the_same_request_changes_nothing_and_another_one_under_its_key_is_refused():
    standing = cart(hold("a"))
    assert rules.begin(standing, hold("a", state=HoldState.TAKING), now_ms=NOW, **TERMS) is standing
    with refused("key_reused"):
        rules.begin(standing, msgspec.structs.replace(hold("a"), asked="another"), now_ms=NOW, **TERMS)


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (cart(hold("a"), event=2), "other_event"),
        (cart(hold("a"), pool="GA"), "other_pool"),
        (cart(hold("a", 4)), "limit"),
        (cart(hold("a", 2), hold("t", 2, HoldState.TAKING)), "limit"),
        (cart(hold("a"), booking="x", booking_key="k"), "checkout_under_way"),
        (cart(hold("new", state=HoldState.LEAVING)), "expired"),
    ],
)
def test_what_cannot_come_into_a_cart(standing, code):
    with refused(code):
        rules.begin(standing, hold("new"), now_ms=NOW, **TERMS)


@pytest.mark.parametrize(
    "standing", [None, cart(hold("b")), cart(hold("a"), deadline_ms=NOW), cart(hold("a", state=HoldState.LEAVING))]
)
def test_seats_taken_for_a_cart_that_has_moved_on_do_not_come_into_it(standing):
    with refused("expired"):
        rules.finish(standing, hold("a"), now_ms=NOW)


def test_places_of_a_pool_have_one_price_in_a_cart():
    first = hold("a", takings=(Taking("GA", 0, (), 500, NOW, 1),))
    with refused("price_changed"):
        rules.finish(
            cart(first, hold("b", state=HoldState.TAKING), pool="GA"),
            hold("b", takings=(Taking("GA", 0, (), 600, NOW, 1),)),
            now_ms=NOW,
        )


def test_only_what_is_in_the_state_is_dropped_and_nothing_is_left_of_an_empty_cart():
    standing = cart(hold("a"), hold("b", state=HoldState.LEAVING))
    assert rules.drop(standing, frozenset({"a", "b"}), HoldState.LEAVING).holds == (hold("a"),)
    assert rules.drop(cart(hold("a")), frozenset({"a"}), HoldState.HELD) is None
    assert rules.drop(None, frozenset({"a"}), HoldState.HELD) is None


def test_a_checkout_takes_what_is_held_and_closes_the_cart():
    booking = uuid4()
    standing = cart(hold("a"), hold("t", state=HoldState.TAKING), hold("l", state=HoldState.LEAVING))
    closed = rules.check_out(standing, booking=booking, key="k", instead_of="", now_ms=NOW)
    assert (closed.holds, closed.booking, closed.booking_key) == ((hold("a"),), str(booking), "k")
    late = rules.check_out(closed, booking=uuid4(), key="k", instead_of="", now_ms=NOW + 10_000)
    assert late == closed, "the same key goes on with the same booking, also past the deadline"
    other = rules.check_out(closed, booking=uuid4(), key="other", instead_of="", now_ms=NOW)
    assert other == closed, "another one finds out"
    taken_over = rules.check_out(closed, booking=uuid4(), key="other", instead_of=closed.booking, now_ms=NOW)
    assert taken_over.booking_key == "other"
    assert rules.reopen(closed, closed.booking).booking == ""
    assert rules.reopen(closed, "another") == closed
    assert rules.close(closed, closed.booking) is None
    assert rules.close(standing, str(booking)) == standing


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (None, "cart_empty"),
        (cart(), "cart_empty"),
        (cart(hold("t", state=HoldState.TAKING)), "cart_empty"),
        (cart(hold("a"), deadline_ms=NOW), "expired"),
    ],
)
def test_what_cannot_be_checked_out(standing, code):
    with refused(code):
        rules.check_out(standing, booking=uuid4(), key="k", instead_of="", now_ms=NOW)


def test_holds_are_put_together_by_place_and_price_in_one_order():
    first = hold("h1", takings=(Taking("B", 1, (3, 2), 100, NOW), Taking("A", 2, (9,), 50, NOW)))
    second = hold("h2", takings=(Taking("B", 1, (5,), 120, NOW), Taking("B", 1, (4,), 100, NOW)))
    assert held_by_place(cart(first, second, hold("t", state=HoldState.TAKING))) == (
        Held("A", 2, ("h1",), (Part("A", 2, (9,), 50),)),
        Held("B", 1, ("h1", "h2"), (Part("B", 1, (2, 3, 4), 100), Part("B", 1, (5,), 120))),
    )


def test_the_id_of_a_hold_follows_from_its_buyer_and_key():
    buyer, other = uuid4(), uuid4()
    assert hold_id(buyer, "key") == hold_id(buyer, "key")
    assert len({hold_id(buyer, "key"), hold_id(buyer, "key2"), hold_id(other, "key")}) == 3
