-- Grows with every change of a price: the store takes the newest, in whatever order the messages arrive.
alter table ticketing.sections add column price_revision integer not null default 0;
alter table ticketing.pools add column price_revision integer not null default 0;
