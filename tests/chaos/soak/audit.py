"""Triggers that write down every move of bookings, payments and tickets, in the transaction that makes it.

They are the test's own: the product does not know them. What was rolled back is not in them.
"""

from collections.abc import Sequence

import asyncpg

from aisle.booking.booking import MOVES, State
from aisle.payment.payment import MOVES as PAYMENT_MOVES
from aisle.payment.payment import PaymentState

CREATE = """
create schema chaos;
create table chaos.moves (
    n bigint generated always as identity, what text, id text, old text, new text, owner text, old_owner text
);
create function chaos.note_booking() returns trigger language plpgsql as $$
begin
    insert into chaos.moves (what, id, old, new) values ('booking', new.id::text, old.state, new.state);
    return null;
end $$;
create function chaos.note_payment() returns trigger language plpgsql as $$
begin
    insert into chaos.moves (what, id, old, new) values ('payment', new.id::text, old.state, new.state);
    return null;
end $$;
create function chaos.note_ticket() returns trigger language plpgsql as $$
begin
    insert into chaos.moves (what, id, old, new, owner, old_owner)
    values ('ticket', new.event_id || ':' || new.place || ':' || new.seat, old.state::text, new.state::text,
            new.booking::text, old.booking::text);
    return null;
end $$;
create trigger chaos_booking after update of state on booking.bookings for each row
    when (old.state is distinct from new.state) execute function chaos.note_booking();
create trigger chaos_payment after update of state on payment.payments for each row
    when (old.state is distinct from new.state) execute function chaos.note_payment();
create trigger chaos_ticket after update on ticketing.tickets for each row
    when (old.state is distinct from new.state or old.booking is distinct from new.booking)
    execute function chaos.note_ticket();
create function chaos.refuse_refund() returns trigger language plpgsql as $$
begin
    insert into chaos.moves (what, id, old, new) values ('refund refused', new.payment::text, '', '');
    return null;
end $$;
"""

# A provider that does not give money back: the update finds no row, which the sandbox takes for silence.
REFUSE_REFUNDS = """
create or replace trigger chaos_refund before update on payment.sandbox_charges for each row
    when (new.refunded > old.refunded) execute function chaos.refuse_refund()
"""
GIVE_REFUNDS = "drop trigger if exists chaos_refund on payment.sandbox_charges"


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(CREATE)
    finally:
        await connection.close()


def forbidden_moves(rows: Sequence[asyncpg.Record]) -> list[str]:
    """Moves that are in no table, and seats that changed hands without having been free."""
    found = []
    for row in rows:
        what, old, new = row["what"], row["old"], row["new"]
        if what == "booking" and State(new) not in MOVES[State(old)]:
            found.append(f"I10: booking {row['id']} went from {old} to {new}")
        if what == "payment" and PaymentState(new) not in PAYMENT_MOVES[PaymentState(old)]:
            found.append(f"I10: payment {row['id']} went from {old} to {new}")
        if what == "ticket" and row["old_owner"] and row["owner"] and row["old_owner"] != row["owner"]:
            found.append(f"I1: ticket {row['id']} went from {row['old_owner']} to {row['owner']} without being free")
    return found
