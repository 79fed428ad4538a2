package ib

import "testing"

// TestRNRDelay is IBA table 46, in hundredths of a millisecond.
func TestRNRDelay(t *testing.T) {
	for code, want := range map[uint8]Time{
		0:  655_360 * Microsecond,
		1:  10 * Microsecond,
		2:  20 * Microsecond,
		3:  30 * Microsecond,
		4:  40 * Microsecond,
		5:  60 * Microsecond,
		12: 640 * Microsecond,
		14: 1280 * Microsecond,
		30: 327_680 * Microsecond,
		31: 491_520 * Microsecond,
	} {
		if got := RNRDelay(code); got != want {
			t.Errorf("RNR code %d: %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if RNRDelay(code) <= RNRDelay(code-1) {
			t.Errorf("RNR code %d waits %v, no longer than code %d", code, RNRDelay(code), code-1)
		}
		// From 4 on, two steps double.
		if code >= 6 && RNRDelay(code) != 2*RNRDelay(code-2) {
			t.Errorf("RNR code %d waits %v, code %d %v", code, RNRDelay(code), code-2, RNRDelay(code-2))
		}
	}
	if RNRDelay(0) <= RNRDelay(31) {
		t.Error("RNR code 0 is the longest wait")
	}
	if RNRDelay(33) != RNRDelay(1) {
		t.Error("only five bits of an RNR code count")
	}
}

func TestAckTimeout(t *testing.T) {
	for code, want := range map[uint8]Time{
		0:  Never,
		1:  8192 * Nanosecond,
		2:  16_384 * Nanosecond,
		14: 67_108_864 * Nanosecond,
		18: 1_073_741_824 * Nanosecond,
		31: 4096 * Nanosecond << 31,
	} {
		if got := AckTimeout(code); got != want {
			t.Errorf("timeout code %d: %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if AckTimeout(code) != 2*AckTimeout(code-1) {
			t.Errorf("timeout code %d is %v, code %d %v", code, AckTimeout(code), code-1, AckTimeout(code-1))
		}
	}
}

func TestHOQLife(t *testing.T) {
	for code, want := range map[uint8]Time{
		0:   4096 * Nanosecond,
		1:   8192 * Nanosecond,
		19:  4096 * Nanosecond << 19,
		20:  Never,
		31:  Never,
		255: Never,
	} {
		if got := HOQLife(code); got != want {
			t.Errorf("head-of-queue code %d: %v, want %v", code, got, want)
		}
	}
}

func TestTimeString(t *testing.T) {
	for in, want := range map[Time]string{
		0:                    "0.000ns",
		80:                   "0.080ns",
		-80:                  "-0.080ns",
		999_999:              "999.999ns",
		Microsecond:          "1.000us",
		1500 * Nanosecond:    "1.500us",
		-1500 * Nanosecond:   "-1.500us",
		655_360 * Nanosecond: "655.360us",
		Second:               "1.000000s",
		-2 * Second:          "-2.000000s",
		Never:                "never",
	} {
		if got := in.String(); got != want {
			t.Errorf("%d ps prints as %s, want %s", int64(in), got, want)
		}
	}
}

func TestEarlier(t *testing.T) {
	if Earlier(1, 2) != 1 || Earlier(2, 1) != 1 || Earlier(Never, 5) != 5 || Earlier(Never, Never) != Never {
		t.Error("Earlier does not pick the earlier deadline")
	}
	if Second != 1_000_000_000_000 {
		t.Errorf("a second is %d ps", int64(Second))
	}
}
