-- One row that names this installation. Its id is also written into the hot store: a store that carries no id, or
-- another one, was flushed, replaced or belongs to somebody else, and must be verified before anything is sold from it.
create table public.installation (
    singleton boolean primary key default true check (singleton),
    id uuid not null default gen_random_uuid(),
    created_at timestamptz not null default now()
);

insert into public.installation default values;
