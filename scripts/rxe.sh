#!/usr/bin/env bash
# RoCEv2 against Linux: boots Debian's kernel with rdma_rxe in a guest, under plain emulation and without a disk, and
# runs unmodified programs here (on bin/softib) against the same programs there, each as client and as server, also
# while one packet in a hundred is lost. Prints a line for each and fails if one does not pass.
# Usage: scripts/rxe.sh [PATTERN]     only programs whose line matches
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:/usr/sbin:/sbin
softib=$PWD/bin/softib
pattern=${1:-.}
us=192.0.2.1 guest=192.0.2.9 port=2323

kernel() {
	local package
	package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
	echo "rxe: fetching $package (about 70 MB)"
	(cd "$work" && apt-get download "$package" >log 2>&1 && dpkg -x linux-image*.deb kernel) || {
		tail -n 3 "$work/log"
		echo "rxe: no kernel; next: apt-get update, or see why apt-get cannot download it" >&2
		exit 1
	}
	release=$(ls "$work/kernel/lib/modules")
	depmod -b "$work/kernel" "$release"
}

# take FILE...: copies programs and libraries, with the libraries that they need, to where the guest has them.
take() {
	local file lib
	for file in "$@"; do
		install -D "$(readlink -f "$file")" "$work/root$file"
		for lib in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do
			[[ -e "$work/root$lib" ]] || install -D "$(readlink -f "$lib")" "$work/root$lib"
		done
	done
}

programs=(ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat
	ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong rping ucmatose udaddy mckey)

disk() {
	local root=$work/root module file n=100 p tool
	mkdir -p "$root"/{bin,dev,proc,sys,tmp,modules,etc}
	cp "$(command -v busybox)" "$root/bin/busybox"
	for p in "${programs[@]}"; do take "$(command -v "$p")"; done
	for tool in rdma tc; do take "$(command -v $tool)"; done
	take /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so /lib/x86_64-linux-gnu/libgcc_s.so.1 # for pthread_exit
	install -D /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/rxe.driver"
	for module in virtio_pci virtio_net crc32_generic rdma_rxe ib_uverbs rdma_ucm sch_netem; do
		for file in $(modprobe -d "$work/kernel" -S "$release" --show-depends $module | awk '/^insmod/ {print $2}'); do
			p=$(basename "$file")
			compgen -G "$root/modules/*-$p" >/dev/null || cp "$file" "$root/modules/$n-$p"
			n=$((n + 1))
		done
	done
	cat >"$root/init" <<-END
		#!/bin/busybox sh
		/bin/busybox --install -s /bin
		export PATH=/usr/sbin:/usr/bin:/sbin:/bin
		mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
		for m in /modules/*; do insmod \$m; done
		ip link set lo up
		ip addr add $guest/24 dev eth0; ip link set eth0 up
		ip route add 224.0.0.0/4 dev eth0
		rdma link add rxe0 type rxe netdev eth0
		echo the guest is up
		while :; do nc -l -p $port -e sh; done
	END
	chmod +x "$root/init"
	(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/disk"
}

boot() {
	ip link set lo up
	ip tuntap add dev eth0 mode tap
	ip addr add $us/24 dev eth0
	ip link set eth0 up
	qemu-system-x86_64 -M q35 -cpu max -m 512 -nographic -no-reboot -kernel "$work/kernel/boot/vmlinuz-$release" \
		-initrd "$work/disk" -append "console=ttyS0 quiet panic=1" \
		-netdev tap,id=n,ifname=eth0,script=no,downscript=no -device virtio-net-pci,netdev=n \
		>"$work/console" 2>&1 </dev/null &
	for _ in $(seq 180); do
		! grep -q "the guest is up" "$work/console" || return 0
		sleep 1
	done
	tail -n 20 "$work/console"
	echo "rxe: the guest has not come up in 180 s; next: see its console above" >&2
	return 1
}

# there COMMAND: runs it in the guest and prints what it says.
there() {
	timeout 150 bash -c 'for _ in $(seq 100); do exec 3<>"/dev/tcp/$1/$2" && break; sleep 0.1; done 2>/dev/null
		printf "%s\nexit\n" "$3" >&3; cat <&3' - $guest $port "$1"
}

# listens says when somebody does at perftest's port and that of the pingpongs, 18515.
listens="until grep -qs ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done; echo listens"

# run client|server NAME ARG...: what we are, and the program.
run() {
	local role=$1 here=(-x 0) away="-d rxe0 -x 1" ok=yes server
	shift
	[[ $1 == ib_* ]] || { here=(-g 0) away="-d rxe0 -g 1"; }
	here=(timeout 120 "$softib" exec --roce eth0 -- "$@" "${here[@]}")
	away="timeout 120 $* $away"
	if [[ $role == client ]]; then
		there "$away >/tmp/out 2>&1 & $listens; wait \$!; echo status \$?; tail -n 5 /tmp/out" >"$work/there" &
		server=$!
		timeout 60 sh -c "until grep -q listens '$work/there'; do sleep 0.1; done" || ok=no
		"${here[@]}" $guest >"$work/here" 2>&1 || ok=no
		wait $server || ok=no
	else
		"${here[@]}" >"$work/here" 2>&1 &
		server=$!
		timeout 60 sh -c "$listens" >/dev/null || ok=no
		there "$away $us >/tmp/out 2>&1; echo status \$?; tail -n 5 /tmp/out" >"$work/there" || ok=no
		wait $server || ok=no
	fi
	grep -q '^status 0' "$work/there" || ok=no
	report "$role" "$ok" "$@"
}

# meet client|server NAME ARG...: what we are, and a program of librdmacm's. The server is told nothing of addresses;
# the client tries until it listens. Of mckey the server is the member, which has enough when it has heard so many.
meet() {
	local role=$1 ok=yes server=("${@:2}") client=("${@:2}") there=$guest
	shift
	[[ $role == client ]] || there=$us
	case $1 in
	rping) server+=(-s -a 0.0.0.0) client+=(-c -a "$there") ;;
	mckey) server+=(-b "$there") client+=(-s -b "$([[ $there == "$us" ]] && echo $guest || echo $us)") ;;
	*) client+=(-s "$there") ;;
	esac
	local here=(timeout 100 "$softib" exec --roce eth0 --)
	if [[ $role == client ]]; then
		there "timeout 100 ${server[*]} >/tmp/out 2>&1; echo status \$?; tail -n 5 /tmp/out" >"$work/there" &
		ok=no
		for _ in $(seq 30); do
			! "${here[@]}" "${client[@]}" >"$work/here" 2>&1 || ok=yes
			[[ $ok == no || $1 == mckey ]] || break
			! grep -q '^status' "$work/there" || break
			sleep 0.5
		done
		wait $! || ok=no
	else
		"${here[@]}" "${server[@]}" >"$work/here" 2>&1 &
		local pid=$!
		there "for i in \$(seq 30); do ${client[*]} >/tmp/out 2>&1; s=\$?; [ \$s != 0 ] || [ $1 = mckey ] || break
			sleep 0.5; [ $1 != mckey ] || [ \$i -lt 6 ] || break; done
			echo status \$s; tail -n 5 /tmp/out" >"$work/there"
		wait $pid || ok=no
	fi
	grep -q '^status 0' "$work/there" || ok=no
	report "$role" "$ok" "$@"
}

# report client|server yes|no NAME ARG...
report() {
	[[ $2 == yes ]] || failed=$((failed + 1))
	printf '%-7s %-7s %s\n' "$1" "$([[ $2 == yes ]] && echo passed || echo FAILED)" "${*:3}$note"
	[[ $2 == yes ]] || tail -n 5 "$work/here" "$work/there"
}

# all run|meet TEST...: each with us as client and as server.
all() {
	local role line how=$1
	for line in "${@:2}"; do
		for role in client server; do
			[[ "$role $line$note" =~ $pattern ]] || continue
			# shellcheck disable=SC2086
			$how $role $line
		done
	done
}

if [[ -z "${RXE_WORK:-}" ]]; then
	work=$(mktemp -d -t softib-rxe.XXXXXX)
	trap 'rm -rf "$work"' EXIT
	kernel
	disk
	# The rest happens in a network of our own, in which nothing else is.
	user=()
	[[ $(id -u) -eq 0 ]] || user=(-r)
	RXE_WORK=$work unshare "${user[@]}" -n --kill-child "$0" "$@"
	exit
fi
work=$RXE_WORK
export XDG_RUNTIME_DIR=$work
trap 'jobs -p | xargs -r kill 2>/dev/null' EXIT
failed=0 note=''
release=$(ls "$work/kernel/lib/modules")
boot
dumpcap -q -i eth0 -f "udp port 4791" -s 256 -w "$work/captured" 2>"$work/dumpcap" &
capture=$!
all run "ib_send_bw -n 200" "ib_send_bw -c UC -s 1024 -n 20" "ib_send_bw -c UD -s 1024 -n 20" "ib_send_lat -n 100" \
	"ib_send_lat -c UC -n 50" "ib_send_lat -c UD -n 50" "ib_write_bw -n 200" "ib_write_bw -c UC -s 1024 -n 20" \
	"ib_write_lat -n 100" "ib_read_bw -n 100" "ib_read_lat -n 100" "ib_atomic_bw -n 100" "ib_atomic_lat -n 50" \
	"ibv_rc_pingpong -c -n 200" "ibv_uc_pingpong -c -n 100" "ibv_ud_pingpong -c -n 100" "ibv_srq_pingpong -c -n 100"
all meet "rping -C 20 -V" "ucmatose -c 3" "udaddy -c 2" "mckey -m 239.1.1.1 -C 20"
note=', one packet in a hundred lost'
there "$(command -v tc) qdisc add dev eth0 root netem loss 1% 2>&1; $(command -v tc) qdisc show dev eth0" >"$work/there"
grep -q 'netem.*loss 1%' "$work/there" || { cat "$work/there"; echo "rxe: the guest's link loses nothing" >&2; exit 1; }
# Only programs that tell each other that they are done: of ibv_rc_pingpong one side may be gone while the other has not
# heard that its last message came.
all run "ib_send_bw -n 100" "ib_write_bw -n 100" "ib_read_bw -n 50" "ib_atomic_bw -n 100"
all meet "rping -C 50 -V" "ucmatose -c 3"
there "dmesg | grep -i icrc || true" | grep . && failed=$((failed + 1))
kill -INT $capture && wait $capture || { cat "$work/dumpcap"; failed=$((failed + 1)); }
# Of what programs put into messages tshark has guesses, and calls malformed what it has guessed wrong: only what it
# says of InfiniBand itself counts.
tshark -r "$work/captured" -T fields -e infiniband.bth.opcode -e _ws.malformed -e ip.src >"$work/seen" 2>"$work/dumpcap"
awk -F '\t' '{n++; if ($2 ~ /Packet: (IB|RRoCE)\]/ || $1 == "") {bad++; print "malformed:", $0}}
	END {printf "tshark: %d packets of RoCEv2, %d malformed\n", n, bad; exit n == 0 || bad > 0}' "$work/seen" ||
	failed=$((failed + 1))
[[ $failed -eq 0 ]] || { echo "rxe: $failed failed" >&2; exit 1; }
