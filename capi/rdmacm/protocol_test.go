package rdmacm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"softib/proto/ib"
)

// Sizes and places are those of the kernel's header, and of the library's.
func TestLayouts(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("no gcc on this machine; next: make test, which installs it")
	}
	type fact struct {
		expr string
		want int
	}
	size := func(s string, n int) fact { return fact{"sizeof(struct " + s + ")", n} }
	at := func(s, f string, n int) fact { return fact{"__builtin_offsetof(struct " + s + ", " + f + ")", n} }
	facts := []fact{
		size("rdma_ucm_cmd_hdr", cmdHeadSize), size("rdma_ucm_conn_param", connParamSize),
		size("rdma_ucm_ud_param", udParamSize),
		size("ib_uverbs_ah_attr", ahAttrSize), size("ib_uverbs_qp_attr", qpAttrSize),
		size("ib_user_path_rec", userPathSize),
		size("ib_path_rec_data", pathDataSize), size("rdma_ucm_event_resp", eventSize),
		size("rdma_ucm_query_route_resp", routeRespSize),
		size("rdma_ucm_query_addr_resp", addrRespSize), size("rdma_ucm_query_path_resp", pathRespHead),
		size("sockaddr_in", sockaddrIn), size("sockaddr_in6", sockaddrIn6), size("sockaddr_storage", sockaddrAny),
		at("rdma_ucm_event_resp", "uid", evUID), at("rdma_ucm_event_resp", "id", evID),
		at("rdma_ucm_event_resp", "event", evEvent),
		at("rdma_ucm_event_resp", "status", evStatus), at("rdma_ucm_event_resp", "param", evParam),
		at("rdma_ucm_event_resp", "reserved", evReserved), at("rdma_ucm_event_resp", "ece", evECE),
		at("rdma_ucm_conn_param", "private_data_len", 264), at("rdma_ucm_conn_param", "valid", 271),
		at("rdma_ucm_ud_param", "ah_attr", 8), at("rdma_ucm_ud_param", "private_data", 40),
		at("rdma_ucm_ud_param", "private_data_len", 296),
		at("ib_uverbs_ah_attr", "dlid", 24), at("ib_uverbs_ah_attr", "port_num", 30),
		at("ib_uverbs_ah_attr", "grh.sgid_index", 20),
		at("ib_uverbs_qp_attr", "qp_access_flags", 36), at("ib_uverbs_qp_attr", "ah_attr", 40),
		at("ib_uverbs_qp_attr", "alt_ah_attr", 72),
		at("ib_uverbs_qp_attr", "pkey_index", 124), at("ib_uverbs_qp_attr", "max_rd_atomic", 130),
		at("ib_uverbs_qp_attr", "port_num", 133),
		at("ib_uverbs_qp_attr", "timeout", 134), at("ib_uverbs_qp_attr", "alt_timeout", 138),
		at("ib_uverbs_qp_attr", "qkey", 20),
		at("rdma_ucm_query_route_resp", "src_addr", 136), at("rdma_ucm_query_route_resp", "dst_addr", 164),
		at("rdma_ucm_query_route_resp", "num_paths", 192), at("rdma_ucm_query_route_resp", "port_num", 196),
		at("rdma_ucm_query_route_resp", "ibdev_index", commands[cmdQueryRoute].resp),
		at("rdma_ucm_query_addr_resp", "pkey", 10), at("rdma_ucm_query_addr_resp", "src_size", 12),
		at("rdma_ucm_query_addr_resp", "src_addr", 16),
		at("rdma_ucm_query_addr_resp", "ibdev_index", queryRoom(queryAddr)),
		at("ib_user_path_rec", "mtu", 48), at("ib_user_path_rec", "pkey", 52), at("ib_user_path_rec", "sl", 57),
		at("ib_user_path_rec", "preference", 63),
		at("rdma_ucm_connect", "ece", commands[cmdConnect].need),
		at("rdma_ucm_accept", "ece", commands[cmdAccept].need),
		at("rdma_ucm_accept", "conn_param", 8), at("rdma_ucm_reject", "reason", 5),
		at("rdma_ucm_reject", "private_data", 8),
		at("rdma_ucm_create_id", "ps", 16), at("rdma_ucm_create_id", "qp_type", 18),
		at("rdma_ucm_set_option", "optlen", 20),
		at("rdma_ucm_join_mcast", "addr_size", 20), at("rdma_ucm_join_mcast", "join_flags", 22),
		at("rdma_ucm_join_mcast", "addr", 24),
		at("rdma_ucm_join_ip_mcast", "addr", 16), at("rdma_ucm_resolve_addr", "src_size", 8),
		at("rdma_ucm_resolve_addr", "dst_addr", 144),
		at("rdma_ucm_migrate_id", "id", 8),
		{"RDMA_USER_CM_CMD_JOIN_MCAST", int(cmdJoinMcast)}, {"RDMA_USER_CM_CMD_QUERY", int(cmdQuery)},
		{"RDMA_PS_IB", int(psIB)},
		{"sizeof(struct rdmacm_hello)", helloSize}, {"sizeof(struct rdmacm_welcome)", welcomeSize},
		{"RDMACM_MAGIC", protocolMagic},
		{"RDMACM_VERSION", protocolVersion}, {"RDMACM_HOST_MAX", hostMax}, {"RDMACM_TEXT_MAX", textMax},
		{"sizeof(struct rdmacm_answer)", answerHeadSize},
	}
	structs := map[command]string{cmdCreateID: "create_id", cmdDestroyID: "destroy_id", cmdBindIP: "bind_ip",
		cmdResolveIP:    "resolve_ip",
		cmdResolveRoute: "resolve_route", cmdQueryRoute: "query", cmdConnect: "connect", cmdListen: "listen",
		cmdAccept: "accept", cmdReject: "reject",
		cmdDisconnect: "disconnect", cmdInitQPAttr: "init_qp_attr", cmdSetOption: "set_option", cmdNotify: "notify",
		cmdJoinIPMcast: "join_ip_mcast",
		cmdLeaveMcast:  "destroy_id", cmdMigrateID: "migrate_id", cmdQuery: "query", cmdBind: "bind",
		cmdResolveAddr: "resolve_addr", cmdJoinMcast: "join_mcast"}
	for c := range numCommand {
		name := structs[c]
		if name == "" {
			continue
		}
		facts = append(facts, size("rdma_ucm_"+name, commands[c].size),
			fact{"RDMA_USER_CM_CMD_" + commands[c].name, int(c)})
		if c != cmdCreateID && c != cmdMigrateID {
			facts = append(facts, at("rdma_ucm_"+name, "id", idOffset[c]))
		}
	}
	var src strings.Builder
	src.WriteString("#include <netinet/in.h>\n#include <sys/socket.h>\n#include <rdma/rdma_user_cm.h>\n" +
		"#include \"clib/protocol.h\"\n")
	for i, f := range facts {
		fmt.Fprintf(&src, "_Static_assert(%s == %d, %q);\n", f.expr, f.want,
			fmt.Sprintf("fact %d: %s is %d", i, f.expr, f.want))
	}
	file := filepath.Join(t.TempDir(), "facts.c")
	if err := os.WriteFile(file, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-I.", "-fsyntax-only", file).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "rdma_user_cm.h: No such file") {
			t.Fatal("no rdma/rdma_user_cm.h on this machine; next: make test, which installs libibverbs-dev")
		}
		t.Errorf("%v\n%s", err, out)
	}
}

func TestHello(t *testing.T) {
	h := hello{role: roleEvents, channel: 0x1122334455667788, host: "h12"}
	b := appendHello(nil, &h)
	got, err := parseHello(b)
	if err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range b {
		if _, err := parseHello(b[:i]); !errors.Is(err, errNotHello) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if _, err := parseHello(append(b, 0)); !errors.Is(err, errNotHello) {
		t.Errorf("a byte more: %v", err)
	}
	for i := range hostMax {
		b[24+i] = 'x'
	}
	if _, err := parseHello(b); !errors.Is(err, errNotHello) {
		t.Errorf("a name without end: %v", err)
	}
}

// What is missing from the end of a command is 0, as far as older libraries leave it off.
func TestRequest(t *testing.T) {
	for c := range numCommand {
		full := make([]byte, cmdHeadSize+commands[c].size)
		native.PutUint32(full, uint32(c))
		native.PutUint16(full[6:], 99)
		for n := range len(full) + 1 {
			r, err := parseRequest(full[:n])
			if ok := n >= cmdHeadSize+commands[c].need; ok != (err == nil) {
				t.Errorf("%v of %d bytes: %v", c, n, err)
			} else if ok && (len(r.body) != commands[c].size || r.cmd != c || r.room != 99) {
				t.Errorf("%v of %d bytes: %+v", c, n, r)
			}
		}
	}
}

func TestSockaddr(t *testing.T) {
	for _, a := range []sockaddr{
		{},
		{family: afInet, ip: netip.MustParseAddr("198.18.0.1"), port: 7471},
		{family: afInet6, ip: netip.MustParseAddr("fd53::1"), port: 1, flow: 0x12345, scope: 7},
		{family: afIB, pkey: 0x8001, flow: 9, gid: ib.GID{1, 15: 2}, sid: 0x1060001, mask: ^uint64(0), scope: 3},
	} {
		b := make([]byte, sockaddrAny)
		n := a.put(b)
		if got := parseSockaddr(b); got != a || n != sockaddrSize(a.family) {
			t.Errorf("%+v becomes %+v of %d bytes", a, got, n)
		}
		for i := range n {
			if got := parseSockaddr(b[:i]); got.family != afNone {
				t.Errorf("%d of %d bytes: %+v", i, n, got)
			}
		}
	}
	// Golden: family in the machine's order, port in the network's.
	b := make([]byte, 16)
	a := addr("198.18.0.2:7471")
	a.put(b)
	if want := append(native.AppendUint16(nil, 2), 0x1D, 0x2F, 198, 18, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0); !bytes.Equal(b,
		want) {
		t.Errorf("% x, want % x", b, want)
	}
}

func TestIPHead(t *testing.T) {
	for _, x := range []struct {
		src, dst string
		want     []byte
	}{
		{"198.18.0.1:4660", "198.18.0.2:1", append(append([]byte{0, 0x40, 0x12, 0x34, 15: 0}, 198, 18, 0, 1), 0, 0, 0,
			0, 0, 0, 0, 0, 0, 0, 0, 0, 198, 18, 0, 2)},
		{"[::1]:1", "[ff02::9]:2", []byte{0, 0x60, 0, 1, 19: 1, 20: 0xFF, 21: 2, 35: 9}},
	} {
		src, dst := addr(x.src), addr(x.dst)
		b := make([]byte, ipHeadSize)
		putIPHead(b, &src, &dst)
		if !bytes.Equal(b, x.want) {
			t.Errorf("% x, want % x", b, x.want)
		}
		s, d, ok := parseIPHead(b)
		if !ok || s != src || d.ip != dst.ip || d.family != dst.family {
			t.Errorf("%+v %+v %v", s, d, ok)
		}
		for i := range b {
			if _, _, ok := parseIPHead(b[:i]); ok {
				t.Errorf("%d bytes are a head", i)
			}
		}
	}
	for _, b := range [][]byte{{1, 0x40, 35: 0}, {0, 0x50, 35: 0}} {
		if _, _, ok := parseIPHead(b); ok {
			t.Errorf("% x is a head", b[:2])
		}
	}
}

// play runs records on a new channel of h1 and ends it; each begins with its length in two bytes.
func (w *world) play(t testing.TB, data []byte) {
	h, err := w.s.host("h1")
	if err != nil {
		t.Fatal(err)
	}
	c := newChannel(h, nil, 2, nil)
	w.s.mu.Lock()
	w.s.channels[c.number] = c
	w.s.mu.Unlock()
	for len(data) >= 2 {
		n := min(int(data[0])|int(data[1])<<8, len(data)-2)
		rec := bytes.Clone(data[2 : 2+n])
		data = data[2+n:]
		resp, err := w.s.command(c, rec)
		if err != nil && errnoOf(err) == 0 {
			t.Errorf("error without errno: %v", err)
		}
		if len(resp) > recordMax {
			t.Errorf("%d bytes of response", len(resp))
		}
	}
	w.s.close(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.ports {
		if len(p.conns) != 0 || len(p.listens) != 0 {
			t.Errorf("%d connections and %d listeners stay", len(p.conns), len(p.listens))
		}
		for _, g := range p.groups {
			if len(g.members) != 0 {
				t.Errorf("members of %v stay", g.key.mgid)
			}
		}
	}
	for s, ports := range h.spaces {
		if len(ports) != 0 {
			t.Errorf("%d ports of 0x%x stay", len(ports), uint16(s))
		}
	}
	if len(c.ids) != 0 || len(c.groups) != 0 {
		t.Errorf("%d IDs and %d memberships stay", len(c.ids), len(c.groups))
	}
}

// script is records as play takes them.
func script(next uint32, f func(rec func(command, []byte), id uint32)) (out []byte) {
	f(func(cmd command, body []byte) {
		b := native.AppendUint32(nil, uint32(cmd))
		b = native.AppendUint16(b, uint16(len(body)))
		b = append(native.AppendUint16(b, 512), body...)
		out = append(append(out, byte(len(b)), byte(len(b)>>8)), b...)
	}, next)
	return out
}

func seeds(next uint32) [][]byte {
	create := func(space portSpace) []byte {
		return append(append(native.AppendUint64(nil, 7), make([]byte, 8)...), byte(space), byte(space>>8), qptRC, 0, 0,
			0, 0, 0)
	}
	return [][]byte{
		script(next, func(rec func(command, []byte), id uint32) {
			rec(cmdCreateID, create(psTCP))
			rec(cmdBind, bindBody(id, addr("198.18.0.1:5000")))
			rec(cmdListen, u32s(id, 3))
			rec(cmdCreateID, create(psTCP))
			rec(cmdResolveAddr, resolveBody(id+1, sockaddr{}, addr("127.0.0.1:5000")))
			rec(cmdResolveRoute, u32s(id+1, 100))
			rec(cmdConnect, connectBody(id+1, connParam{qpn: 4}))
			rec(cmdQueryRoute, queryBody(id+1, 0))
			rec(cmdDestroyID, destroyBody(id))
		}),
		script(next, func(rec func(command, []byte), id uint32) {
			rec(cmdCreateID, create(psUDP))
			rec(cmdBind, bindBody(id, addr("198.18.0.1:0")))
			rec(cmdJoinMcast, joinBody(id, 9, addr("239.1.1.1:0"), 0))
			rec(cmdLeaveMcast, destroyBody(id+1))
			rec(cmdSetOption, optionBody(id, levelID, optTOS, 4))
			rec(cmdInitQPAttr, queryBody(id, 1))
		}),
		script(next, func(rec func(command, []byte), id uint32) {
			rec(cmdCreateID, create(psIB))
			rec(cmdResolveIP, make([]byte, 64))
			rec(cmdMigrateID, append(native.AppendUint64(nil, 2), u32s(id, 0)...))
			rec(cmdQuery, queryBody(id, queryGID))
			rec(cmdNotify, u32s(id, 4))
			rec(cmdReject, rejectBody(id, "x"))
			rec(cmdDisconnect, u32s(id))
		}),
	}
}

func FuzzCommands(f *testing.F) {
	w := up(f, "star:2", quick)
	for _, s := range seeds(1) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w.s.lastID.Store(0) // so that inputs can name what they make
		w.play(t, data)
	})
}

// Commands in random order with random arguments, on IDs that exist for the most part.
func TestRandomCommands(t *testing.T) {
	w := up(t, "star:2", quick)
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		w.s.lastID.Store(0)
		pool := bytes.Join(seeds(1), nil)
		var records [][]byte
		for len(pool) >= 2 {
			n := int(pool[0]) | int(pool[1])<<8
			records = append(records, pool[2:2+n])
			pool = pool[2+n:]
		}
		var in []byte
		for range 200 {
			rec := bytes.Clone(records[r.IntN(len(records))])
			cmd := command(native.Uint32(rec))
			if cmd != cmdCreateID && r.IntN(4) > 0 {
				native.PutUint32(rec[cmdHeadSize+idOffset[cmd]:], uint32(r.IntN(40)))
			}
			for r.IntN(3) == 0 {
				rec[cmdHeadSize+r.IntN(len(rec)-cmdHeadSize)] = byte(r.Uint32())
			}
			in = append(append(in, byte(len(rec)), byte(len(rec)>>8)), rec...)
		}
		w.play(t, in)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
