-- What was answered under an Idempotency-Key: written in the transaction of the change, so that neither exists without the
-- other. Bookings keep their keys themselves.
create table public.answers (
    account uuid not null,
    key text not null check (length(key) between 8 and 64),
    -- of the route and the body: the same key with another request is a mistake of the caller
    digest bytea not null check (octet_length(digest) = 16),
    answer bytea,
    asked_at timestamptz not null,
    primary key (account, key)
);
create index answers_old on public.answers (asked_at);
