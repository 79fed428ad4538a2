package hostfiles

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"softib/driver/endpoint"
	"softib/driver/live"
	"softib/node/hca"
)

// TestHWCounters: what a program has counted is in its host's files, by mlx5's names, and stays there when it has
// ended.
func TestHWCounters(t *testing.T) {
	f := fabric(t, "star:2")
	_, root, _ := open(t, f, "h1")
	dir := filepath.Join(root, adapter, "ports/1/hw_counters")
	for _, c := range hwCounters {
		if got := read(t, dir, c.name); got != "0\n" {
			t.Errorf("%s: %q before there was a program", c.name, got)
		}
	}
	p, err := f.Attach("h1", live.Caller{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	mem, err := endpoint.MapMemory(p.FDs[2], endpoint.LedgerBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Unmap(mem)
	// As the program would write it: the counters come first.
	s := hca.Stats{
		WritesRcvd: 1, ReadsRcvd: 2, AtomicsRcvd: 3, OutOfSequence: 4, Duplicates: 5, RNRNAKs: 6, SeqNAKsRcvd: 7,
		ImpliedNAKs: 8, Timeouts: 9, AccessNAKsSent: 10,
	}
	s.Drops[hca.DropNoRecv], s.Drops[hca.DropDuplicate] = 11, 100
	s.SendErrors = [hca.NumWCStatus]uint64{hca.WCRemInvReqErr: 12, hca.WCRemAccessErr: 13, hca.WCWRFlushErr: 14,
		hca.WCRetryExcErr: 15, hca.WCRNRRetryExcErr: 16}
	s.RecvErrors = [hca.NumWCStatus]uint64{hca.WCLocLenErr: 17, hca.WCWRFlushErr: 18}
	*(*hca.Stats)(unsafe.Pointer(&mem[0])) = s
	for name, want := range map[string]string{
		"rx_write_requests": "1\n", "rx_read_requests": "2\n", "rx_atomic_requests": "3\n", "out_of_sequence": "4\n",
		"duplicate_request": "105\n",
		"rnr_nak_retry_err": "6\n", "packet_seq_err": "7\n", "implied_nak_seq_err": "8\n",
		"local_ack_timeout_err": "9\n", "resp_remote_access_errors": "10\n",
		"out_of_buffer": "11\n", "req_remote_invalid_request": "12\n", "req_remote_access_errors": "13\n",
		"req_cqe_flush_error":            "14\n",
		"req_transport_retries_exceeded": "15\n", "req_rnr_retries_exceeded": "16\n", "req_cqe_error": "70\n",
		"resp_local_length_error": "17\n", "resp_cqe_flush_error": "18\n", "resp_cqe_error": "35\n",
	} {
		await(t, filepath.Join(dir, name), want)
	}
	p.Close()
	if got, ok := f.StatsAt(f.Graph().ByName("h1").Index); !ok || got.Stats != s || got.Ended != 1 {
		t.Errorf("when the program has ended the host has %+v", got)
	}
	// A switch has no programs, and no such files.
	_, root, _ = open(t, f, f.Graph().Switches()[0].Name)
	if _, err := os.Stat(filepath.Join(root, adapter, "ports/0/hw_counters/out_of_sequence")); !os.IsNotExist(err) {
		t.Errorf("a switch has counters of queue pairs: %v", err)
	}
}
