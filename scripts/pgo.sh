#!/usr/bin/env bash
# Profiles what the data path does, for the compiler: go build finds the profile of libsoftib.so beside its source and
# lays the hot ways out by it. Run it when the data path has changed much, and measure before and after.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go() { GOTOOLCHAIN=local "$(scripts/go-path.sh)" "$@"; }
tmp=$(mktemp -d /tmp/softib-pgo.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

echo "profiling package endpoint's benchmarks, some 15 s"
go test -trimpath ./driver/endpoint -run '^$' -bench . -benchtime 5s -cpuprofile "$tmp/cpu" -o "$tmp/test"
go tool pprof -proto "$tmp/test" "$tmp/cpu" >capi/verbs/lib/default.pgo
ls -l capi/verbs/lib/default.pgo
