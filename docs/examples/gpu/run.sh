#!/usr/bin/env bash
# Runs a program with NCCL on hosts of a fabric of its own, a rank each, which all take the machine's first GPU.
# Usage: run.sh RANKS PROGRAM [ARG...]
set -euo pipefail

(($# >= 2)) || { echo "usage: $0 RANKS PROGRAM [ARG...]" >&2; exit 2; }
SOFTIB=${SOFTIB:-softib} FABRIC=gpu-$$ ranks=$1
shift
"$SOFTIB" up -d --name "$FABRIC" --http off --state none "star:$ranks" >/dev/null
pids=()
finish() {
	local status=$?
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	"$SOFTIB" down --name "$FABRIC" >/dev/null
	exit "$status"
}
trap finish EXIT

export WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29500}
for ((rank = 0; rank < ranks; rank++)); do
	RANK=$rank "$SOFTIB" exec --name "$FABRIC" "h$((rank + 1))" -- "$@" &
	pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
"$SOFTIB" status --name "$FABRIC" | grep ^carried # what went by the fabric
