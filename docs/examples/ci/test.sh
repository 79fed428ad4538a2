#!/usr/bin/env bash
# Tests of ./exchange on a fabric of software. What a failed run leaves for a person is in ./artifacts.
# Usage: test.sh        CAPTURE=1 also keeps every packet of the client
set -euo pipefail

SOFTIB=${SOFTIB:-softib} FABRIC=exchange-$$
server=h1 address=198.18.0.1 client=h5 # hosts of two leaves: packets cross leaf1, a spine and leaf2
mkdir -p artifacts

on() { local host=$1; shift; timeout 60 "$SOFTIB" exec --name "$FABRIC" "$host" -- "$@"; }
fault() { "$SOFTIB" fault "$@" --name "$FABRIC" >/dev/null; }

finish() {
	local status=$?
	if ((status != 0)); then
		"$SOFTIB" log -n 1000 --name "$FABRIC" >artifacts/manager.log 2>&1 || true
		"$SOFTIB" status --json --name "$FABRIC" >artifacts/status.json 2>&1 || true
		"$SOFTIB" doctor --json --interval 0 --name "$FABRIC" >artifacts/doctor.json 2>&1 || true
		echo "FAILED: see artifacts/" >&2
	fi
	"$SOFTIB" down --name "$FABRIC" >/dev/null 2>&1 || true
	exit "$status"
}
trap finish EXIT

"$SOFTIB" up -d --name "$FABRIC" --http off --state none fat-tree:radix=8,levels=2 >artifacts/up.txt
if [[ -n "${CAPTURE:-}" ]]; then
	"$SOFTIB" capture "$client" -w artifacts/client.pcapng --name "$FABRIC" 2>artifacts/capture.txt &
fi

# exchange NAME COUNT: a server and a client; both must be content.
exchange() {
	local name=$1 count=$2 pid
	: >"artifacts/$name.server.txt"
	on "$server" ./exchange "$address" >"artifacts/$name.server.txt" 2>&1 &
	pid=$!
	until grep -q listening "artifacts/$name.server.txt"; do
		kill -0 "$pid" 2>/dev/null || { cat "artifacts/$name.server.txt"; return 1; }
		sleep 0.02
	done
	on "$client" ./exchange "$address" "$count" 2>&1 | tee "artifacts/$name.client.txt"
	wait "$pid"
}

echo "== plain"
exchange plain 2000

echo "== one packet in 200 is lost"
fault link "$client" drop=0.005
exchange lossy 100
fault clear

echo "== the link of the way flaps"
exchange flapping 3000 &
job=$!
for _ in 1 2 3; do
	sleep 0.3
	fault link leaf2 spine1 down
	sleep 0.2
	fault link leaf2 spine1 up
done
wait "$job"

echo "all tests passed"
