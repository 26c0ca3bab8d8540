-- Who did what that matters for safety, one row a deed, each sealed with the row before it: a row that was changed, taken
-- out or put in between breaks the chain from there on (`aisle audit verify`). Ids only, nothing of a person: a trail
-- that cannot be rewritten must not need to be.
create schema audit;

create table audit.deeds (
    number bigint primary key check (number > 0),
    at timestamptz not null,
    what text not null check (what ~ '^[a-z_]{1,40}$'),
    -- the account that did it; null for the command line and for somebody we do not know
    actor uuid,
    subject text not null check (subject ~ '^[!-~ ]{0,100}$'),
    detail text not null check (length(detail) <= 20000),
    digest bytea not null check (octet_length(digest) = 32)
);

create index deeds_of_actor on audit.deeds (actor, number);

-- The end of the chain. Its lock lets one writer at a time add a row, from there to its commit.
create table audit.head (
    singleton boolean primary key default true check (singleton),
    number bigint not null,
    digest bytea not null
);
insert into audit.head (number, digest) select 0, sha256(convert_to(id::text, 'UTF8')) from public.installation;

-- Called last in a transaction, so that the lock is held no longer than its commit takes.
create function audit.note(what text, actor uuid, subject text, detail text) returns void language plpgsql as $$
declare
    last audit.head;
    moment timestamptz;
    sealed bytea;
begin
    select * into last from audit.head for update;
    moment := clock_timestamp();
    sealed := sha256(last.digest || convert_to(concat_ws(E'\n', last.number + 1,
        (extract(epoch from moment) * 1000000)::bigint, what, coalesce(actor::text, ''), subject, detail), 'UTF8'));
    insert into audit.deeds values (last.number + 1, moment, what, actor, subject, detail, sealed);
    update audit.head set number = last.number + 1, digest = sealed;
end $$;

create function audit.deeds_are_not_rewritten() returns trigger language plpgsql as $$
begin
    raise exception 'the audit trail is only ever added to';
end $$;
create trigger deeds_append_only before update or delete or truncate on audit.deeds
    for each statement execute function audit.deeds_are_not_rewritten();
