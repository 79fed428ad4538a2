#!/usr/bin/env bash
# Builds the drop-in libraries that softib exec gives to programs.
# Usage: scripts/dropin.sh [FOLDER]     default: bin/lib, and a copy where go build -tags dropin embeds it
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-bin/lib}
cc=${CC:-gcc}
command -v "$cc" >/dev/null || { echo "no C compiler '$cc'; next: make build, which installs gcc, or CC=... for another one" >&2; exit 1; }

mkdir -p "$out"
# Written beside and renamed: programs that run have the former one mapped.
# shellcheck disable=SC2086 # CFLAGS is a list
"$cc" -shared -fPIC -std=gnu11 -O2 -Wall -Wextra -Werror -fvisibility=hidden -ffile-prefix-map="$PWD"=. ${CFLAGS:-} \
	-Wl,-soname,libibumad.so.3 -Wl,--version-script=capi/umad/clib/libibumad.map -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
	-o "$out/.libibumad.so.3.new" capi/umad/clib/*.c
mv "$out/.libibumad.so.3.new" "$out/libibumad.so.3"

if [[ $# -eq 0 ]]; then
	mkdir -p capi/umad/built
	cp -f "$out/libibumad.so.3" capi/umad/built/libibumad.so.3
fi
