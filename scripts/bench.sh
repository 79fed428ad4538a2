#!/usr/bin/env bash
# Measures softib against its peers in one run and prints the ratios: traffic
# beside TCP, UCX and memcpy, management beside OpenSM. With "traffic", "management" or
# "management/PART", only that; with a regexp, runs the Go benchmarks that match it instead; with "once", runs every Go
# benchmark once and small, to see that it runs (make test does; proof/bench has a test for all the rest).
# Usage: scripts/bench.sh [REGEXP | traffic | "management[/PART] [-long]" | once]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=$(scripts/go-path.sh)
[[ -n "$go" ]] || { echo "no Go 1.26 or newer found; next: make bench, which installs it" >&2; exit 1; }
export GOTOOLCHAIN=local

# The peers are other processes, so this machine should have nothing else to do.
measure=("$go" run ./proof/bench -softib bin/softib -go "$go")
case "${1:-}" in
"")
	exec "${measure[@]}"
	;;
traffic* | management*)
	# make bench BENCH='management -long' comes as one word.
	read -ra words <<<"$*"
	exec "${measure[@]}" -only "${words[@]}"
	;;
esac

mapfile -t folders < <(
	grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -r -n 1 dirname | sort -u
)
[[ ${#folders[@]} -gt 0 ]] || { echo "no Benchmark in this tree" >&2; exit 1; }
if [[ $1 == once ]]; then
	exec "$go" test -vet=off -timeout 3m -short -run='^$' -bench=. -benchtime=1x "${folders[@]}"
fi
# One package at a time: two at once would measure each other.
"$go" test -p 1 -run='^$' -bench="$1" -benchmem "${folders[@]}"
