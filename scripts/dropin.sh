#!/usr/bin/env bash
# Builds what softib exec gives to programs: the drop-in libraries, and the program that lets them see a host.
# Usage: scripts/dropin.sh [FOLDER]     default: bin/lib, and a copy where go build -tags dropin embeds it
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-bin/lib}
cc=${CC:-gcc}
command -v "$cc" >/dev/null || {
	echo "no C compiler '$cc'; next: make build, which installs gcc, or CC=... for another one" >&2
	exit 1
}

mkdir -p "$out"

# shellcheck disable=SC2206 # CFLAGS is a list
common=(-std=gnu11 -O2 -Wall -Wextra -Werror -ffile-prefix-map="$PWD"=. ${CFLAGS:-})

# say what is being made: the adapter takes a minute the first time.
say() { echo "  building $1"; }

# put NAME COMMAND...: runs the command with -o and a path beside NAME, then renames: programs that run have the former
# one mapped.
put() {
	local name=$1
	shift
	say "$name"
	"$@" -o "$out/.$name.new"
	mv "$out/.$name.new" "$out/$name"
}

# library SONAME MAP ARGUMENT...: a drop-in library in C. The map says what it exports.
library() {
	local soname=$1 map=$2
	shift 2
	put "$soname" "$cc" -shared -fPIC -fvisibility=hidden "${common[@]}" \
		-Wl,-soname,"$soname" -Wl,--version-script="$map" -Wl,-z,defs -Wl,-z,relro -Wl,-z,now "$@"
	ln -sfn "$soname" "$out/${soname%.so.*}.so" # NCCL opens libibverbs.so
}

library libibumad.so.3 capi/umad/clib/libibumad.map capi/umad/clib/*.c

library libibverbs.so.1 capi/verbs/clib/libibverbs.map capi/verbs/clib/*.c -ldl -pthread

# The adapter, in Go: libibverbs loads it when a program opens a device. Go stops threads for its collector at calls,
# and not by SIGURG: that is a signal of the program's, whose handler and whose sleeping threads it would disturb.
adapter() {
	CGO_ENABLED=1 GOTOOLCHAIN=local "$(scripts/go-path.sh)" build -buildmode=c-shared -trimpath -buildvcs=false \
		-ldflags='-s -w -X runtime.godebugDefault=asyncpreemptoff=1' "$@" ./capi/verbs/lib
}
put libsoftib.so adapter
rm -f "$out/.libsoftib.so.h"

library librdmacm.so.1 capi/rdmacm/clib/librdmacm.map capi/rdmacm/clib/*.c "$out/libibverbs.so.1" -ldl -pthread

cp -f capi/dropin/valgrind.supp "$out/"

# Static: it starts sooner, and what is preloaded is none of its business. Not every system has a static C library.
put softib-enter "$cc" -static "${common[@]}" capi/dropin/enter/enter.c 2>/dev/null ||
	put softib-enter "$cc" "${common[@]}" capi/dropin/enter/enter.c

if [[ $# -eq 0 ]]; then
	built=capi/dropin/built
	rm -rf "$built"
	mkdir -p "$built"
	names=()
	for path in "$out"/*; do
		[[ $path == *.h || -L $path ]] || names+=("${path##*/}")
	done
	(cd "$out" && cp -f "${names[@]}" "$OLDPWD/$built/" && sha256sum "${names[@]}") |
		sha256sum | cut -c1-16 >"$built/SUM"
fi
