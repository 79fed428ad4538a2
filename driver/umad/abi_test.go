package umad

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// sample has a different value in every field.
var sample = mad.Envelope{
	LID: 0x1234, QPN: 1, QKey: ib.QKeyGSI, SL: 5, PathBits: 3, PKeyIndex: 0x0102,
	HasGRH: true, HopLimit: 64, TClass: 7, GIDIndex: 2, FlowLabel: 0xABCDE,
	GID: ib.MakeGID(ib.DefaultGIDPrefix, 0x0002_C903_0000_1111),
}

var sampleRegistration = madrpc.Registration{
	Class: 0x32, ClassVersion: 1, OUI: [3]byte{0x00, 0x14, 0x05}, RMPP: true,
	Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, 0x7F),
}

// golden is what a little-endian machine has for the samples. TestAgainstKernelHeader makes the same from the kernel's
// header.
const (
	// agent 4, status, 201 ms, 3 retries, length
	goldenHeader = "04000000" + "00000000" + "c9000000" + "03000000" + "00000000" +
		"00000001" + "80010000" + "1234" + "05" + "03" + "01" + "02" + "40" + "07" +
		"fe80000000000000" + "0002c90300001111" + "000abcde" + "0201" + "000000000000"
	goldenRegister1 = "00000000" + "0600000000000000" + "0000000000000080" + "01" + "32" + "01" + "001405" + "01" + "00"
	goldenRegister2 = "00000000" + "01000000" + "32" + "01" + "0000" + "00000000" + "0600000000000000" +
		"0000000000000080" + "05140000" + "01" + "000000"
)

func littleEndian() bool { return native.Uint16([]byte{1, 0}) == 1 }

func sampleHeader(size int) []byte {
	return appendHeader(nil, size, 4, &madrpc.Message{Env: sample, Timeout: 200*ib.Millisecond + 1, Retries: 3})
}

func TestGoldenBytes(t *testing.T) {
	if !littleEndian() {
		t.Skip("written down for little-endian machines")
	}
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"header", goldenHeader, sampleHeader(hdrSize)},
		{"old header", goldenHeader[:2*hdrSizeOld], sampleHeader(hdrSizeOld)},
		{"registration", goldenRegister1, register1(&sampleRegistration)},
		{"second registration", goldenRegister2, register2(&sampleRegistration)},
	} {
		if hex.EncodeToString(c.got) != c.want {
			t.Errorf("%s\n%x\nwant\n%s", c.name, c.got, c.want)
		}
	}
}

func TestParseHeader(t *testing.T) {
	for _, size := range []int{hdrSize, hdrSizeOld} {
		b := append(sampleHeader(size), make([]byte, mad.HeaderSize)...)
		p, err := parse(b, size)
		want := sample
		if size == hdrSizeOld {
			want.PKeyIndex = 0
		}
		if err != nil || p.id != 4 || p.env != want || len(p.data) != mad.HeaderSize {
			t.Errorf("%+v, %v", p, err)
		}
		for i := range b {
			if _, err := parse(b[:i], size); err == nil {
				t.Errorf("%d bytes of %d are taken", i, len(b))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(append(sampleHeader(hdrSize), make([]byte, mad.Size)...), true)
	f.Add(sampleHeader(hdrSizeOld), false)
	f.Fuzz(func(t *testing.T, b []byte, pkey bool) {
		size := hdrSizeOld
		if pkey {
			size = hdrSize
		}
		p, err := parse(b, size)
		if err != nil {
			return
		}
		again, err := parse(append(appendHeader(nil, size, p.id, &madrpc.Message{Env: p.env}), p.data...), size)
		again.status = p.status
		if err != nil || again.env != p.env || again.id != p.id || !bytes.Equal(again.data, p.data) {
			t.Errorf("%+v\n%+v, %v", p, again, err)
		}
	})
}

const headerProgram = `
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <arpa/inet.h>
#include <rdma/ib_user_mad.h>
#include <rdma/rdma_user_ioctl.h>
static void dump(const char *name, const void *p, size_t n) {
	printf("%s ", name);
	for (size_t i = 0; i < n; i++) printf("%02x", ((const unsigned char *)p)[i]);
	printf("\n");
}
int main(void) {
	struct ib_user_mad_hdr h;
	memset(&h, 0, sizeof h);
	h.id = 4; h.timeout_ms = 201; h.retries = 3;
	h.qpn = htonl(1); h.qkey = htonl(0x80010000); h.lid = htons(0x1234); h.sl = 5; h.path_bits = 3;
	h.grh_present = 1; h.gid_index = 2; h.hop_limit = 64; h.traffic_class = 7;
	static const unsigned char gid[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x02, 0xc9, 0x03, 0, 0, 0x11, 0x11};
	memcpy(h.gid, gid, 16);
	h.flow_label = htonl(0xabcde); h.pkey_index = 0x0102;
	dump("hdr", &h, sizeof h);
	dump("old", &h, sizeof(struct ib_user_mad_hdr_old));
	struct ib_user_mad_reg_req r;
	memset(&r, 0, sizeof r);
	((unsigned char *)r.method_mask)[0] = 6; ((unsigned char *)r.method_mask)[15] = 0x80;
	r.qpn = 1; r.mgmt_class = 0x32; r.mgmt_class_version = 1; r.oui[1] = 0x14; r.oui[2] = 5; r.rmpp_version = 1;
	dump("reg", &r, sizeof r);
	struct ib_user_mad_reg_req2 q;
	memset(&q, 0, sizeof q);
	q.qpn = 1; q.mgmt_class = 0x32; q.mgmt_class_version = 1; q.method_mask[0] = 6; q.method_mask[1] = 1ULL << 63;
	q.oui = 0x001405; q.rmpp_version = 1;
	dump("reg2", &q, sizeof q);
	printf("ioctls %x %x %x %x\n", (unsigned)IB_USER_MAD_REGISTER_AGENT, (unsigned)IB_USER_MAD_UNREGISTER_AGENT,
		(unsigned)IB_USER_MAD_ENABLE_PKEY, (unsigned)IB_USER_MAD_REGISTER_AGENT2);
	printf("abi %d status %zu length %zu\n", IB_USER_MAD_ABI_VERSION, offsetof(struct ib_user_mad_hdr, status),
		offsetof(struct ib_user_mad_hdr, length));
	return 0;
}
`

// TestAgainstKernelHeader lets a C compiler lay the samples out with the kernel's own header.
func TestAgainstKernelHeader(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Fatal("no C compiler on this machine; next: make test, which installs gcc")
	}
	if _, err := os.Stat("/usr/include/rdma/ib_user_mad.h"); err != nil {
		t.Fatal("no rdma/ib_user_mad.h on this machine; next: make test, which installs linux-libc-dev")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(src, []byte(headerProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"hdr " + hex.EncodeToString(sampleHeader(hdrSize)),
		"old " + hex.EncodeToString(sampleHeader(hdrSizeOld)),
		"reg " + hex.EncodeToString(register1(&sampleRegistration)),
		"reg2 " + hex.EncodeToString(register2(&sampleRegistration)),
		"ioctls c01c1b01 40041b02 1b03 c0281b04",
		"abi 5 status 4 length 16",
	}, "\n") + "\n"
	if string(out) != want {
		t.Errorf("the header says\n%s\nwe say\n%s", out, want)
	}
	if ioctlRegister != 0xc01c1b01 || ioctlUnregister != 0x40041b02 || ioctlEnablePKey != 0x1b03 ||
		ioctlRegister2 != 0xc0281b04 || offStatus != 4 || offLength != 16 || abiVersion != 5 {
		t.Error("constants differ from the header's")
	}
}
