-- Accounts, the tokens of their programs, and the keys that sign what a browser or a program carries.
-- Sessions are not here: they live in the hot store, and losing them only means logging in again.
create schema accounts;

create table accounts.accounts (
    id uuid primary key,
    -- Normalised by the application (`account.py`). The constraint, not a look beforehand, decides who was first.
    email text not null unique check (length(email) between 3 and 254 and email = lower(email collate "C")),
    role text not null check (role in ('buyer', 'seller', 'door', 'operator')),
    password_hash text not null check (password_hash like '$argon2id$%'),
    created_at timestamptz not null
);

-- A token is shown once, when it is made; only the SHA-256 of the secret part stays. Revoking deletes the row.
create table accounts.tokens (
    id uuid primary key,
    account_id uuid not null references accounts.accounts on delete cascade,
    name text not null check (length(name) between 1 and 100),
    digest bytea not null unique check (octet_length(digest) = 32),
    created_at timestamptz not null,
    expires_at timestamptz not null
);

create index tokens_of_account on accounts.tokens (account_id, created_at);

-- Used when AISLE_SECRET_KEY is empty. Rotation is a new row; a removed row ends everything it signed.
create table accounts.signing_keys (
    id text primary key check (id ~ '^[0-9a-f]{8}$'),
    secret bytea not null check (octet_length(secret) >= 32),
    created_at timestamptz not null default now()
);
