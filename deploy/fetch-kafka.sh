#!/bin/sh
# The jars of Apache Kafka 4 into .cache/kafka, for `make scale` and the tests that run on the original. Needs Java and
# Maven. Somebody without Maven unpacks a Kafka release and gives its `libs` directory: aisle scale --kafka-jars DIR.
set -eu
cd "$(dirname "$0")/.."
[ ! -d .cache/kafka ] || exit 0
if ! command -v java >/dev/null 2>&1; then
    echo "Apache Kafka needs Java 17 or newer, which is not installed" >&2
    exit 1
fi
if ! command -v mvn >/dev/null 2>&1; then
    echo "Maven is not installed: unpack a Kafka release and give its libs directory with --kafka-jars" >&2
    exit 1
fi
mkdir -p .cache
rm -rf .cache/kafka.new
mvn -q -B -f compat/kafka/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$PWD/.cache/kafka.new" >/dev/null
mv .cache/kafka.new .cache/kafka
