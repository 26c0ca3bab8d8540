#!/bin/sh
# The secrets of deploy/compose.yaml, each in a file of its own, made once: what exists stays.
# The folder is closed to others; the files are open because containers read them as users of their own.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets

make() {
    [ -s "secrets/$1" ] || { printf '%s\n' "$2" >"secrets/$1" && chmod 444 "secrets/$1"; }
}
random() {
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

make postgres_password "$(random)"
make store_password "$(random)"
make grafana_password "$(random)"
make secret_key "$(random)"
make database_url "postgresql://aisle:$(cat secrets/postgres_password)@postgres:5432/aisle"
make store_url "redis://:$(cat secrets/store_password)@kvrocks:6666/0"
echo "deploy/secrets: $(ls secrets | tr '\n' ' ')"
