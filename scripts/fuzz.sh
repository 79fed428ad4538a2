#!/usr/bin/env bash
# Runs every Fuzz target of every package, one after another.
# Usage: scripts/fuzz.sh TIME-PER-TARGET [PACKAGE-FOLDER...]
#
# A target that fails does not stop the others. Its input lies in the
# package's testdata/fuzz, from where every later go test replays it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
each=${1:?usage: scripts/fuzz.sh TIME-PER-TARGET [PACKAGE-FOLDER...]}
shift
go=$(scripts/go-path.sh)
[[ -n "$go" ]] || { echo "no Go 1.26 or newer found; next: make test, which installs it" >&2; exit 1; }
export GOTOOLCHAIN=local

# "folder FuzzName" for every target.
mapfile -t targets < <(
	grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' "${@:-.}" |
		sed -E 's#^\./##; s#^(.*)/[^/]*_test\.go:func (Fuzz.*)$#\1 \2#' | sort -u
)
[[ ${#targets[@]} -gt 0 ]] || { echo "no Fuzz target under ${*:-this folder}" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz FOLDER NAME LABEL: one run; on a terminal its line of progress is
# rewritten in place.
fuzz() {
	"$go" test -run='^$' -fuzz="^$2\$" -fuzztime="$each" "./$1" 2>&1 |
		tee "$log" |
		while read -r line; do
			[[ ! -t 1 || "$line" != fuzz:* ]] || printf '\r\033[K%s  %s' "$3" "${line#fuzz: }"
		done
}

# Before Go 1.27 the end of the fuzz time can itself be reported as a failure
# (golang.org/issue/75804). A finding always leaves an input or a stack.
only_time_was_up() {
	grep -qE '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|_test\.go:' "$log"
}

failed=()
n=0
for target in "${targets[@]}"; do
	read -r folder name <<<"$target"
	n=$((n + 1))
	label="[$n/${#targets[@]}] $folder $name"
	started=$SECONDS
	status=0
	fuzz "$folder" "$name" "$label" || status=1
	if [[ $status -ne 0 ]] && only_time_was_up; then
		status=0
		fuzz "$folder" "$name" "$label (again)" || status=1
	fi
	[[ ! -t 1 ]] || printf '\r\033[K'
	execs=$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1 || true)
	if [[ $status -eq 0 ]]; then
		echo "$label: clean, ${execs:-execs: 0}, $((SECONDS - started)) s"
	else
		echo "$label: FAILED"
		cat "$log"
		failed+=("go test -run=$name ./$folder")
	fi
done

echo "fuzzed ${#targets[@]} targets for $each each, $SECONDS s in all, ${#failed[@]} failed"
if [[ ${#failed[@]} -gt 0 ]]; then
	printf 'replay: %s\n' "${failed[@]}"
	exit 1
fi
