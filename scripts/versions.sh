# The versions that set-up aims for, and the questions about them that more
# than one script asks. Sourced, never run.
# shellcheck shell=bash

# The oldest Go that builds softib (go.mod says the same), and the release
# that set-up fetches where none is new enough.
GO_MINIMUM=1.26
GO_RELEASE=1.26.8

# new_enough GO: does this Go exist, and is it at least GO_MINIMUM? The
# toolchain switch is off: a Go that would have to fetch another one first is
# not new enough by itself.
new_enough() {
	[[ -n "$1" && -x "$1" ]] || return 1
	local have
	have=$(cd / && GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
	have=${have#go}
	[[ "$(printf '%s\n%s\n' "$GO_MINIMUM" "${have%%[!0-9.]*}" | sort -V | head -n 1)" == "$GO_MINIMUM" ]]
}

# go_platform: this machine as Go names it, such as linux-amd64.
go_platform() {
	case $(uname -m) in
	x86_64) echo linux-amd64 ;;
	aarch64) echo linux-arm64 ;;
	riscv64) echo linux-riscv64 ;;
	ppc64le) echo linux-ppc64le ;;
	s390x) echo linux-s390x ;;
	i?86) echo linux-386 ;;
	*) echo "linux-$(uname -m)" ;;
	esac
}

# fetched_go: where a Go that set-up fetched as a module lies.
fetched_go() {
	local cache=${GOMODCACHE:-${GOPATH:-${HOME:-}/go}/pkg/mod}
	echo "$cache/golang.org/toolchain@v0.0.1-go$GO_RELEASE.$(go_platform)/bin/go"
}
