#!/usr/bin/env bash
# The whole check of a change: format, lint, tests, race detector. Stops at
# the first step that fails and prints how long each took.
# Usage: scripts/test.sh [lint]     lint: only the steps that run no test
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=$(scripts/go-path.sh)
[[ -n "$go" ]] || { echo "no Go 1.26 or newer found; next: make test, which installs it" >&2; exit 1; }
# The Go that was chosen is also the one that staticcheck and tests find.
PATH=$(dirname "$go"):$PATH
export PATH GOTOOLCHAIN=local

# step NAME COMMAND...: runs it and prints its time.
step() {
	local name=$1 started=$SECONDS
	shift
	echo "== $name"
	if ! "$@"; then
		echo "== $name: FAILED after $((SECONDS - started)) s"
		exit 1
	fi
	echo "== $name: ok, $((SECONDS - started)) s"
}

check_format() {
	local bad
	bad=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r ls -d 2>/dev/null |
		xargs -r gofmt -l)
	[[ -z "$bad" ]] || { printf 'not gofmt-ed (next: make fmt):\n%s\n' "$bad"; return 1; }
}

staticcheck() { go tool -modfile=scripts/tools.mod staticcheck ./...; }

# Most tests wait for programs that they started: with one a processor, those would
# be idle half the time. -vet=off: go vet has run. A package is given up when it hangs; the longest takes four minutes
# alone, and three times that on a busy machine.
all_tests() {
	local at_once=$((2 * $(nproc)))
	go test -vet=off -p "$at_once" -parallel "$at_once" -timeout 20m ./...
}

# Packages that start goroutines or are called from many. Under the race
# detector everything is several times slower, so long tests look at
# testing.Short and do less, and what they wait for is a processor. go vet has
# seen all but the files that only the detector's build has.
race() {
	local folder packages=() own
	mapfile -t own < <(grep -rlE --include='*.go' '^//go:build .*race' . | xargs -r -n 1 dirname | sort -u)
	if [[ ${#own[@]} -gt 0 ]]; then
		CGO_ENABLED=1 go vet -race "${own[@]}" || return 1
	fi
	for folder in driver verbs operate/manager capi cmd; do
		# A folder without Go files yet is not a pattern that go takes.
		[[ -z "$(find "$folder" -name '*.go' -print -quit 2>/dev/null)" ]] || packages+=("./$folder/...")
	done
	[[ ${#packages[@]} -eq 0 ]] || CGO_ENABLED=1 go test -vet=off -race -short -timeout 20m "${packages[@]}"
}

# What benchmarks print is for people; here they only have to run.
once() {
	local out
	out=$(scripts/bench.sh once 2>&1) || { grep -v -e '^Benchmark' -e '^ok ' <<<"$out"; return 1; }
}

# The command and the drop-in libraries are built once for all packages whose tests run them (internal/built).
SOFTIB_BUILT=$(mktemp -d -t softib-built.XXXXXX)
export SOFTIB_BUILT
trap 'rm -rf "$SOFTIB_BUILT"' EXIT

total=$SECONDS
step "gofmt" check_format
step "go vet" go vet ./...
step "staticcheck" staticcheck
if [[ "${1:-}" != lint ]]; then
	step "go test" all_tests
	step "every benchmark, once" once
	step "go test -race" race
fi
echo "== all passed in $((SECONDS - total)) s"
