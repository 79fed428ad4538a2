#!/usr/bin/env bash
# Measures softib against its peers in one run and prints the ratios; with a
# regexp, runs the Go benchmarks that match it instead.
# Usage: scripts/bench.sh [REGEXP]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=$(scripts/go-path.sh)
[[ -n "$go" ]] || { echo "no Go 1.26 or newer found; next: make bench, which installs it" >&2; exit 1; }
export GOTOOLCHAIN=local

if [[ -z "${1:-}" ]]; then
	# The peers are other processes, so this machine should have nothing else to do.
	exec "$go" run ./bench -softib bin/softib -go "$go"
fi

mapfile -t folders < <(
	grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -r -n 1 dirname | sort -u
)
[[ ${#folders[@]} -gt 0 ]] || { echo "no Benchmark in this tree" >&2; exit 1; }
# One package at a time: two at once would measure each other.
"$go" test -p 1 -run='^$' -bench="$1" -benchmem "${folders[@]}"
