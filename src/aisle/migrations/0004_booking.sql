-- Bookings and what must leave this service. Owned by the booking service.
create schema booking;

create table booking.bookings (
    id uuid primary key,
    event_id bigint not null,
    lane text not null,
    -- where its messages travel: the partition of its section, and the epoch its seats were taken in
    partition smallint not null,
    epoch integer not null,
    buyer uuid not null,
    state text not null default 'PROCESSING' check (
        state in ('PROCESSING', 'PENDING_PAYMENT', 'PAYING', 'PAID', 'CANCELLED', 'FAILED', 'REFUNDED')
    ),
    -- what was asked, enough to ask again: a PROCESSING row is its own outbox entry (decision 0004)
    request jsonb not null,
    quantity integer not null check (quantity > 0),
    -- what was given: seats by subsection, with the price each had
    parts jsonb not null default '[]',
    total bigint not null default 0 check (total >= 0),
    reason text not null default '',
    idempotency_key text not null,
    request_hash bytea not null,
    placed_at timestamptz not null,
    deadline timestamptz,
    ended_at timestamptz,
    unique (buyer, idempotency_key),
    check (state <> 'PENDING_PAYMENT' or deadline is not null)
) with (fillfactor = 70);
create index bookings_processing on booking.bookings (placed_at) where state = 'PROCESSING';
create index bookings_deadline on booking.bookings (deadline) where state = 'PENDING_PAYMENT';
create index bookings_of_buyer on booking.bookings (buyer, id);

-- How many seats of an event a buyer has live: the purchase limit is this row's constraint.
create table booking.purchases (
    event_id bigint not null,
    buyer uuid not null,
    seats integer not null check (seats >= 0),
    seats_max integer not null,
    primary key (event_id, buyer),
    check (seats <= seats_max)
) with (fillfactor = 60);

-- Messages that a committed change owes to the log. Written in the same transaction, deleted when the log has confirmed.
create table booking.outbox (
    id bigint generated always as identity primary key,
    message bytea not null,
    written_at timestamptz not null
);
create table ticketing.outbox (like booking.outbox including all);
