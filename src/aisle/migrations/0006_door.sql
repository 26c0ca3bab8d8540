-- Ticket codes, the keys that sign them, who stands at which door, and every scan. Owned by the event-ticketing service.

alter table ticketing.tickets
    -- which code of this seat is good: a refund or a re-issue adds one, and every older code is void
    add column if not exists code_version integer not null default 1 check (code_version > 0),
    -- when it was paid, while it is sold
    add column if not exists sold_at timestamptz,
    -- when the first scan let somebody in
    add column if not exists admitted_at timestamptz;

-- The last line of refund against scan: who gives a seat back must either find nobody inside, or say so and clear it.
alter table ticketing.tickets
    add constraint tickets_admitted_while_sold check (admitted_at is null or state = 2);

-- Codes that were good once. Doors without a network carry this list, and a refused guest is told why.
create table ticketing.voided_codes (
    event_id bigint not null,
    place integer not null,
    seat integer not null,
    code_version integer not null,
    reason text not null check (reason in ('refunded', 'reissued')),
    booking uuid not null,
    price bigint not null,
    voided_at timestamptz not null default now(),
    primary key (event_id, place, seat, code_version)
);

-- A seat goes back on sale only together with its code. AFTER with a WHEN costs the sale nothing: a BEFORE trigger would
-- lock every ticket row once more, and its statements never meet the condition.
create function ticketing.void_code() returns trigger language plpgsql as $$
begin
    if new.code_version <= old.code_version then
        raise exception 'ticket %-%-% leaves its owner with a code that still opens the door',
            old.event_id, old.place, old.seat using errcode = 'check_violation';
    end if;
    insert into ticketing.voided_codes (event_id, place, seat, code_version, reason, booking, price)
    values (old.event_id, old.place, old.seat, old.code_version,
            case when new.booking = old.booking then 'reissued' else 'refunded' end,
            old.booking, old.price);
    return null;
end $$;

create trigger void_code after update on ticketing.tickets for each row
    when (old.state = 2 and (new.booking is distinct from old.booking or new.code_version <> old.code_version))
    execute function ticketing.void_code();

-- Public halves for everybody, private halves sealed with AISLE_SECRET_KEY where there is one (decision 0007).
create table ticketing.ticket_keys (
    id text primary key check (id ~ '^[0-9a-f]{8}$'),
    public bytea not null check (octet_length(public) = 32),
    private bytea not null,
    -- which secret opens `private`; empty: it lies there as it is
    sealed_with text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    -- nothing it signed counts any more
    revoked_at timestamptz
);

create schema door;

create table door.staff (
    event_id bigint not null references ticketing.events,
    account uuid not null,
    granted_at timestamptz not null,
    primary key (event_id, account)
);

-- Every scan, whatever came of it. `id` is made by the device: a scan that is sent again is the same scan.
create table door.scans (
    event_id bigint not null references ticketing.events,
    id text not null check (id ~ '^[A-Za-z0-9_-]{8,64}$'),
    request_hash bytea not null,
    staff uuid not null,
    gate text not null check (length(gate) <= 64),
    -- what the code said; null where nothing it said could be believed
    place integer,
    seat integer,
    code_version integer,
    outcome text not null check (
        outcome in ('accepted', 'already_in', 'tampered', 'unknown_key', 'other_event', 'voided', 'refunded')
    ),
    -- made without a network and sent later: `scanned_at` is the device's clock, never later than `received_at`
    offline boolean not null,
    scanned_at timestamptz not null,
    received_at timestamptz not null,
    primary key (event_id, id),
    check (outcome not in ('accepted', 'already_in') or (place is not null and seat is not null))
);
-- One first scan a ticket, whoever else believes to be first.
create unique index scans_first on door.scans (event_id, place, seat, code_version) where outcome = 'accepted';
create index scans_in_order on door.scans (event_id, scanned_at, id);
