-- Pools: places that are counted, not numbered. A place is a ticket row like a seat, so that one row has one owner and no
-- pool can sell more than it has. Pools number their places after the subsections of the event.
create table ticketing.pools (
    event_id bigint not null references ticketing.events,
    pool text not null check (pool ~ '^[A-Za-z0-9_]{1,32}$'),
    place integer not null check (place >= 0),
    partition integer not null check (partition between 0 and 9),
    price bigint not null check (price >= 0),
    capacity integer not null check (capacity between 1 and 1000000),
    places_per_buyer integer not null check (places_per_buyer between 1 and 1000),
    one_hold_per_buyer boolean not null default false,
    primary key (event_id, pool),
    unique (event_id, place)
);

-- A ticket's place is a subsection or a pool.
alter table ticketing.tickets drop constraint tickets_event_id_place_fkey;
alter table ticketing.tickets add foreign key (event_id) references ticketing.events;

-- Each pool has a limit of its own; '' counts the seats of the hall.
alter table booking.purchases add column pool text not null default '';
alter table booking.purchases drop constraint purchases_pkey;
alter table booking.purchases add primary key (event_id, buyer, pool);

-- Which tickets of a pool a booking was given: a message that comes twice finds the same ones. `numbered` tickets have
-- been given at least once; beyond them all are free, so that nobody has to search while a pool fills.
alter table ticketing.pools add column numbered integer not null default 0 check (numbered between 0 and capacity);
create table ticketing.pool_tickets (
    booking uuid not null,
    event_id bigint not null,
    place integer not null,
    seats integer[] not null,
    primary key (booking, event_id, place)
);
