#!/usr/bin/env bash
# Prints the path of a Go that is new enough, or nothing. Called on every
# make, so it stays cheap: it never downloads and never installs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/versions.sh
source "$here/versions.sh"

for candidate in "${GO:-}" "$(command -v go || true)" /usr/local/go/bin/go \
	"/usr/lib/go-$GO_MINIMUM/bin/go" "$(fetched_go)"; do
	if new_enough "$candidate"; then
		echo "$candidate"
		exit 0
	fi
done
