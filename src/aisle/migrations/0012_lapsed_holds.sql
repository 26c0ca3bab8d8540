-- Holds of carts that ran out before anybody checked them out: all that PostgreSQL ever learns of a hold that became no
-- booking. Told by the sweepers, any number of times; the key counts each once. All holds of a cart end at one moment.
create schema sales;

create table sales.lapsed_holds (
    event_id bigint not null,
    hold text not null,
    owner text not null,
    lapsed_at timestamptz not null,
    primary key (event_id, hold)
);
