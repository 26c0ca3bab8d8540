-- Events, their halls and one row a seat. Owned by the ticketing service.
create schema ticketing;

create table ticketing.events (
    id bigint generated always as identity primary key,
    seller uuid not null,
    name text not null check (length(name) between 1 and 200),
    description text not null default '' check (length(description) <= 5000),
    venue text not null default '' check (length(venue) <= 200),
    starts_at timestamptz not null,
    time_zone text not null default 'UTC',
    currency char(3) not null,
    -- `shared`, or the event's own id: which topics carry its messages
    lane text not null,
    -- creating: rows or seats are still being written; ready: both verified equal; then the seller's switch
    state text not null default 'creating' check (state in ('creating', 'ready', 'on_sale', 'closed')),
    -- grows when the store is rebuilt; the store refuses callers that believe in another one
    epoch integer not null default 1 check (epoch > 0),
    seats integer not null check (seats >= 0),
    seats_per_booking integer not null check (seats_per_booking > 0),
    seats_per_buyer integer not null check (seats_per_buyer >= seats_per_booking),
    created_at timestamptz not null,
    updated_at timestamptz not null
);
create index events_browse on ticketing.events (starts_at, id) where state in ('on_sale', 'closed');
create index events_of_seller on ticketing.events (seller, id);

create table ticketing.sections (
    event_id bigint not null references ticketing.events,
    section text not null check (section ~ '^[A-Za-z0-9_]{1,32}$'),
    rank integer not null,
    -- the partition of the lane's topics that carries this section
    partition integer not null check (partition between 0 and 9),
    price bigint not null check (price >= 0),
    primary key (event_id, section)
);

create table ticketing.subsections (
    event_id bigint not null,
    section text not null,
    subsection integer not null check (subsection > 0),
    -- the subsection's number inside its event: the middle of a ticket's key
    place integer not null check (place >= 0),
    rank integer not null,
    rows integer not null check (rows > 0),
    seats_per_row integer not null check (seats_per_row between 1 and 500),
    blocked integer[] not null default '{}',
    accessible integer[] not null default '{}',
    primary key (event_id, section, subsection),
    unique (event_id, place),
    foreign key (event_id, section) references ticketing.sections,
    check (rows * seats_per_row <= 10000)
);

-- One row a seat, so one owner a seat: the last line against a double sale. Updates are HOT (no changed column is
-- indexed, pages have room), because every sold seat is two or three updates of its row.
create table ticketing.tickets (
    event_id bigint not null,
    place integer not null,
    seat integer not null check (seat >= 0),
    -- as in the store: 0 available, 1 reserved, 2 sold, 3 unavailable
    state smallint not null check (state between 0 and 3),
    price bigint not null check (price >= 0),
    booking uuid,
    primary key (event_id, place, seat),
    foreign key (event_id, place) references ticketing.subsections (event_id, place),
    check ((booking is null) = (state in (0, 3)))
) with (fillfactor = 60);
