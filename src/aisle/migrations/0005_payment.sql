-- Payments, the books, what providers told us, and the memory of the built-in test provider.
create schema payment;

create table payment.payments (
    id uuid primary key,
    -- the booking it pays for; late money may move it to the booking that seated its buyer again
    booking uuid not null,
    buyer uuid not null,
    event_id bigint not null,
    provider text not null,
    -- the provider's token for a card or an account, never a card number
    method text not null,
    amount bigint not null check (amount >= 0),
    currency char(3) not null,
    state text not null default 'STARTED' check (state in (
        'STARTED', 'ACTION', 'AUTHORISED', 'CAPTURED', 'DECLINED', 'ABANDONED', 'LATE', 'VOIDED', 'RETURNED', 'REVIEW'
    )),
    reference text not null default '',
    action text not null default '',
    reason text not null default '',
    -- the provider has the money and the ledger knows it, although no seats were delivered for it yet
    taken boolean not null default false,
    refunded bigint not null default 0 check (refunded between 0 and amount),
    -- late money: how often other seats were tried, and the seats of the try under way
    late_at timestamptz,
    tries integer not null default 0,
    seats_again jsonb,
    idempotency_key text not null,
    request_hash bytea not null,
    started_at timestamptz not null,
    look_at timestamptz not null,
    looks integer not null default 0,
    ended_at timestamptz,
    unique (buyer, idempotency_key)
) with (fillfactor = 70);
-- A booking has one payment under way or kept, whatever two processes believe.
create unique index payments_of_booking_one on payment.payments (booking)
    where state in ('STARTED', 'ACTION', 'AUTHORISED', 'CAPTURED');
create index payments_of_booking on payment.payments (booking);
create index payments_to_look_at on payment.payments (look_at)
    where state in ('STARTED', 'ACTION', 'AUTHORISED', 'ABANDONED', 'LATE');

-- Money that goes back. A row is the order to the provider, given until it has confirmed.
create table payment.refunds (
    id uuid primary key,
    payment uuid not null references payment.payments,
    booking uuid not null,
    amount bigint not null check (amount > 0),
    currency char(3) not null,
    why text not null,
    seats jsonb not null default '[]',
    state text not null default 'ASKED' check (state in ('ASKED', 'DONE')),
    idempotency_key text not null,
    asked_at timestamptz not null,
    look_at timestamptz not null,
    looks integer not null default 0,
    done_at timestamptz,
    unique (booking, idempotency_key)
);
create index refunds_of_payment on payment.refunds (payment);
create index refunds_to_ask on payment.refunds (look_at) where state = 'ASKED';

-- Double entry in one row: every amount leaves one account and enters another, so the books cannot but balance.
create table payment.ledger (
    id bigint generated always as identity primary key,
    payment uuid not null,
    -- the payment or refund that caused it: each is booked once
    cause uuid not null,
    what text not null check (what in ('sale', 'late', 'late_sale', 'late_return', 'refund', 'refunded')),
    from_account text not null,
    to_account text not null,
    amount bigint not null check (amount > 0),
    currency char(3) not null,
    booked_at timestamptz not null,
    unique (cause, what),
    check (from_account <> to_account)
);
create index ledger_of_payment on payment.ledger (payment);

create function payment.books_are_not_rewritten() returns trigger language plpgsql as $$
begin
    raise exception 'the ledger is only ever added to';
end $$;
create trigger ledger_append_only before update or delete or truncate on payment.ledger
    for each statement execute function payment.books_are_not_rewritten();

create view payment.balances as
    select account, currency, sum(amount)::bigint as balance from (
        select to_account as account, currency, amount from payment.ledger
        union all
        select from_account, currency, -amount from payment.ledger
    ) entries group by account, currency;

-- What providers sent, once each: the proof that a notice was heard.
create table payment.notices (
    provider text not null,
    id text not null,
    payment uuid not null,
    kind text not null,
    heard_at timestamptz not null,
    primary key (provider, id)
);

-- The books of the built-in test provider, kept apart from ours as a bank's would be: tests compare the two.
create table payment.sandbox_charges (
    payment uuid primary key,
    amount bigint not null,
    currency char(3) not null,
    card text not null,
    state text not null check (state in ('pending', 'action', 'authorised', 'captured', 'declined', 'voided')),
    settles_at timestamptz not null,
    refunded bigint not null default 0 check (refunded between 0 and amount)
) with (fillfactor = 70);
create table payment.sandbox_refunds (
    id uuid primary key,
    payment uuid not null,
    amount bigint not null check (amount > 0)
);

-- A ticket's code names its version; a refund and a new code raise it, and older codes are void.
alter table ticketing.tickets add column if not exists code_version integer not null default 1;
