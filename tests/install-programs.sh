#!/bin/sh
# Programs that some tests drive for real, beside what pip installs: another store, a Kafka command line.
# As root on a Debian-like system they are installed here. Elsewhere the tests that need one say so and are skipped,
# except in CI (CI=true), where a missing program fails the run.
set -eu
cd "$(dirname "$0")/.."

# Apache Kafka's jars, for the tests that run on the original too.
deploy/fetch-kafka.sh >/dev/null 2>&1 || echo "Apache Kafka's jars could not be fetched"

# Quix Streams in an environment of its own; a test that cannot have it says why.
.venv/bin/python -m tests.quix >/dev/null 2>&1 || echo "Quix Streams could not be installed"

missing=""
need() {
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need redis-server redis-server
need kcat kcat
need chromium chromium
need promtool prometheus
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing="$missing postgresql-15"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing (tests that need them are skipped)"
    exit 0
fi

# Debian starts a server when its package is installed; ours are started by the tests, on ports of their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 - one word a package
apt-get install -y -qq --no-install-recommends $missing >/dev/null
