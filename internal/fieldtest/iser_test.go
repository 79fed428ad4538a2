package fieldtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestISER: a disk of tgt's on one host, and libiscsi's own test on another, which writes to it by iSER and has the
// target compare. The daemon keeps its socket where only root may.
func TestISER(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("tgtd is for root")
	}
	for _, name := range []string{"tgtd", "tgtadm", "iscsi-test-cu"} {
		tool(t, name)
	}
	p := newPerson(t, 0)
	p.up("star:2")
	disk := filepath.Join(p.dir, "disk")
	if err := os.WriteFile(disk, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	const target, initiator = "iqn.2026-11.test:disk", "iqn.2026-11.test:initiator"
	number := strconv.Itoa(1000 + rand.IntN(30000)) // of this tgtd among all of the machine
	ctx, cancel := patient()
	defer cancel()
	daemon := p.command(ctx, "exec", "h1", "--", "tgtd", "-f", "-C", number, "--iser", "port=3260", "--iscsi",
		fmt.Sprintf("portal=127.0.0.1:%d", freePort(p)))
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
		left, _ := filepath.Glob("/var/run/tgtd/socket." + number + "*")
		for _, file := range left {
			os.Remove(file)
		}
	}()
	p.eventually("tgtd to take commands", func() bool {
		_, err := os.Stat("/var/run/tgtd/socket." + number)
		return err == nil
	})
	for _, args := range [][]string{{"new", "-T", target}, {"bind", "-I", "ALL"},
		// By iSER, tgt wants both the address and the name to be let in.
		{"bind", "-Q", initiator}} {
		p.must(append([]string{"exec", "h1", "--", "tgtadm", "-C", number, "--lld", "iser", "--mode", "target", "--tid",
			"1", "--op"}, args...)...)
	}
	p.must("exec", "h1", "--", "tgtadm", "-C", number, "--lld", "iser", "--mode", "logicalunit", "--op", "new", "--tid",
		"1", "--lun", "1", "-b", disk)
	out, errs, status := p.softib("exec", "h2", "--", "iscsi-test-cu", "-i", initiator, "--dataloss", "-t",
		"SCSI.WriteVerify10.Simple", "iscsi://198.18.0.1:3260/"+target+"/1?iser")
	if status != 0 || !strings.Contains(out, "Test: Simple ...passed") || strings.Contains(out+errs, "SKIPPED") {
		t.Errorf("iscsi-test-cu ends with %d:\n%s%s", status, out, errs)
	}
}
