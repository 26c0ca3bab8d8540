#!/bin/sh
# kcat's story, told to the broker whose address is the argument: -L, -P, -C, -Q and -G. What it prints must not depend on
# which broker that is, so ids, addresses and times are cut off.
set -eu
address=$1
ask() { kcat -b "$address" "$@"; }

lines() { seq 0 199 | sed 's/.*/key &:value &/'; }
for codec in none gzip snappy lz4 zstd; do
    lines | ask -P -t "kcat-$codec" -p 0 -K: -z "$codec" -H trace=one -H trace=two
    echo "$codec: $(ask -C -t "kcat-$codec" -p 0 -e -q -f '%o %k %s %h\n' | sha256sum | cut -c1-16)"
done

ask -L -t kcat-none | sed -n 's/.*\(topic .* partitions\).*/\1/p; s/.*\(partition [0-9]*\), leader [0-9]*, replicas: [0-9]*, isrs: [0-9]*.*/\1/p'
ask -L | grep -c 'topic "kcat-'

printf 'tombstone:' | ask -P -t kcat-null -p 0 -K: -Z
ask -C -t kcat-null -p 0 -e -q -f '%K %S\n'

for from in beginning 150 -2; do
    echo "from $from: $(ask -C -t kcat-none -p 0 -o "$from" -c 2 -q -f '%o ')"
done
echo "at the end: $(ask -C -t kcat-none -p 0 -o end -e -q | wc -l)"
for time in -1 -2 0 99999999999999; do ask -Q -t "kcat-none:0:$time"; done

# A group goes on where it stopped, and a second one reads all again.
share() { ask -G "$1" -q -c "$2" -X auto.offset.reset=earliest -f '%o %s\n' kcat-gzip 2>/dev/null; }
echo "group, first: $(share kcat-group 120 | tail -1)"
echo "group, then: $(share kcat-group 80 | head -1)"
echo "other group: $(share kcat-other 200 | sha256sum | cut -c1-16)"

head -c 2000000 /dev/zero | tr '\0' x >"${TMPDIR:-/tmp}/kcat-large.$$"
trap 'rm -f "${TMPDIR:-/tmp}/kcat-large.$$"' EXIT
ask -P -t kcat-none -p 0 -X message.max.bytes=3000000 "${TMPDIR:-/tmp}/kcat-large.$$" 2>&1 | sed -n 's/.*\(Broker: .*\)/\1/p' | cut -d: -f1-2
ask -Q -t kcat-none:0:-1
echo "end reached"
