#!/usr/bin/env bash
# Shows how far "go build -v" is, which names a package a line; whatever else it says is passed on as it is.
# Usage: go build -v ... 2>&1 | scripts/progress.sh
set -euo pipefail

count=0 last=$SECONDS
while IFS= read -r line || [[ -n $line ]]; do
	if [[ ! $line =~ ^[a-z][A-Za-z0-9._/~-]*$ ]]; then
		printf '%s\n' "$line" >&2
		continue
	fi
	count=$((count + 1))
	if ((SECONDS > last)); then
		last=$SECONDS
		echo "  packages compiled: $count, now $line"
	fi
done
echo "  packages compiled: $count"
