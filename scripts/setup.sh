#!/usr/bin/env bash
# Installs what a make target needs and this machine lacks, and says so.
# Usage: scripts/setup.sh run|test|bench|rxe
#
# Safe to run again: what is present is left alone, and when nothing is
# missing it says nothing and is done in a fraction of a second. Debian's
# packages come through apt-get (through sudo when not root). Debian's own Go
# is usually too old, but any Go can fetch a newer one as a module, checked
# against the checksum database like every other module: so that is how
# softib gets its Go, into the module cache, beside whatever is installed.
# SOFTIB_NO_SETUP=1 turns this script off.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/versions.sh
source "$here/versions.sh"

say() { echo "setup: $*" >&2; }

# fail WHAT-WENT-WRONG WHAT-TO-DO-NEXT
fail() {
	say "$1"
	say "next: $2"
	exit 1
}

# apt_install PACKAGE...: asks no questions; apt's own words are shown only
# when it fails.
apt_install() {
	local as=()
	if ! command -v apt-get >/dev/null; then
		fail "this machine lacks $* and has no apt-get to install it with" \
			"install what your system calls these packages, then run make again"
	fi
	if [[ $(id -u) -ne 0 ]]; then
		if ! command -v sudo >/dev/null; then
			fail "this machine lacks $*; installing it takes root, and there is no sudo" \
				"as root: apt-get install $*, then run make again"
		fi
		as=(sudo)
	fi
	local log started=$SECONDS
	log=$(mktemp)
	say "installing Debian packages: $* (a minute or two)"
	# A stale or unreachable third-party source fails update, yet may not
	# matter to what is installed: install has the last word.
	"${as[@]}" apt-get update -q >"$log" 2>&1 || true
	if ! "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" \
		>>"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		rm -f "$log"
		fail "apt-get could not install $*" "mend what apt-get complains about above, then run make again"
	fi
	rm -f "$log"
	say "installed $* in $((SECONDS - started)) s"
}

# ensure_go: leaves a Go that go-path.sh finds.
ensure_go() {
	[[ -z "$("$here/go-path.sh")" ]] || return 0

	local have
	have=$(command -v go || true)
	if [[ -n "$have" ]]; then
		say "$have is $(cd / && GOTOOLCHAIN=local "$have" env GOVERSION), softib needs $GO_MINIMUM or newer"
	else
		apt_install golang-go ca-certificates
		have=$(command -v go) || fail "golang-go is installed but there is no go in PATH" \
			"put /usr/bin in PATH, then run make again"
		if [[ -n "$("$here/go-path.sh")" ]]; then
			return 0
		fi
	fi

	local module go started=$SECONDS
	module="golang.org/toolchain@v0.0.1-go$GO_RELEASE.$(go_platform)"
	go=$(fetched_go)
	say "fetching Go $GO_RELEASE as the module $module (about 70 MB)"
	if ! (cd / && GOMODCACHE=${go%/golang.org/*} GOTOOLCHAIN=local GO111MODULE=on GOFLAGS='' \
		"$have" mod download "$module" >&2); then
		local next="check the network and 'go env GOPROXY', or install Go $GO_MINIMUM or newer under /usr/local/go"
		fail "Go $GO_RELEASE could not be fetched" "$next, then run make again"
	fi
	# A module zip carries no execute bits.
	local root=${go%/bin/go}
	find "$root/bin" "$root/pkg/tool" -type f -exec chmod +x {} +
	new_enough "$go" || fail "the Go fetched to $root does not run" \
		"remove that folder and run make again, or install Go $GO_MINIMUM or newer under /usr/local/go"
	say "fetched Go $GO_RELEASE in $((SECONDS - started)) s, it lies in $root"
}

# ensure_packages SIGN=PACKAGE...: installs, in one go, the packages whose
# sign, a command or a file's full path, is not there.
ensure_packages() {
	local pair sign missing=()
	for pair in "$@"; do
		sign=${pair%%=*}
		[[ -f "$sign" ]] || command -v "$sign" >/dev/null || missing+=("${pair#*=}")
	done
	if [[ ${#missing[@]} -gt 0 ]]; then
		apt_install "${missing[@]}"
	fi
}

[[ -z "${SOFTIB_NO_SETUP:-}" ]] || exit 0
# The drop-in libraries are C, and have the interfaces of these headers.
build=(gcc=gcc /usr/include/stdlib.h=libc6-dev /usr/include/infiniband/verbs.h=libibverbs-dev
	/usr/include/rdma/rdma_cma.h=librdmacm-dev)
case "${1:-}" in
run)
	ensure_packages "${build[@]}"
	;;
test)
	# The race detector links through gcc; tshark judges our captures;
	# infiniband-diags, ibutils, opensm and programs compiled against libibumad run on our fabrics,
	# which are held against ibsim's. So do the programs on libibverbs and librdmacm, down to Open MPI.
	# Chromium walks the page, Prometheus scrapes the metrics, the documents ask the page with curl. qperf, iperf3 and
	# SimGrid are peers of the benchmarks, every one of which is run once. strace holds programs up where it hurts,
	# ip joins machines that are namespaces, etcd is what fabrics that span machines agree in. Networks of hosts carry
	# ping, socat, ssh, curl and a server of Python's.
	ensure_packages git=git "${build[@]}" tshark=tshark ibsim=ibsim-utils \
		/usr/sbin/ibstat=infiniband-diags ibdiagnet=ibutils /usr/sbin/opensm=opensm \
		/usr/include/infiniband/umad.h=libibumad-dev \
		ibv_rc_pingpong=ibverbs-utils ib_write_bw=perftest rping=rdmacm-utils bwrap=bubblewrap \
		/usr/lib/python3/dist-packages/pyverbs/__init__.py=python3-pyverbs \
		ucx_perftest=ucx-utils mpirun=openmpi-bin mpicc=libopenmpi-dev fi_pingpong=libfabric-bin \
		chromium=chromium prometheus=prometheus curl=curl qperf=qperf iperf3=iperf3 strace=strace etcd=etcd-server \
		nc.openbsd=netcat-openbsd valgrind=valgrind /usr/sbin/tgtd=tgt iscsi-test-cu=libiscsi-bin \
		redis-server=redis-server redis-cli=redis-tools \
		/usr/sbin/ip=iproute2 /usr/include/simgrid/engine.h=libsimgrid-dev \
		ping=iputils-ping socat=socat ssh=openssh-client /usr/sbin/sshd=openssh-server python3=python3
	;;
bench)
	# UCX and TCP are the peers of the benchmarks of traffic, which run perftest too; OpenSM on ibsim is the manager's,
	# SimGrid that of simulations by flows.
	ensure_packages ucx_perftest=ucx-utils qperf=qperf iperf3=iperf3 /usr/sbin/ip=iproute2 ib_write_bw=perftest \
		mpirun=openmpi-bin mpicc=libopenmpi-dev /usr/include/infiniband/verbs.h=libibverbs-dev \
		/usr/sbin/opensm=opensm /usr/bin/ibsim=ibsim-utils /usr/include/simgrid/engine.h=libsimgrid-dev \
		etcd=etcd-server
	;;
rxe)
	# The guest has Debian's kernel, and the programs and libraries of this machine.
	ensure_packages qemu-system-x86_64=qemu-system-x86 busybox=busybox-static cpio=cpio /usr/sbin/depmod=kmod \
		/usr/sbin/tc=iproute2 ib_write_bw=perftest ibv_rc_pingpong=ibverbs-utils \
		/etc/libibverbs.d/rxe.driver=ibverbs-providers
	;;
*) fail "unknown purpose '${1:-}'" "scripts/setup.sh run, test, bench or rxe" ;;
esac
ensure_go
