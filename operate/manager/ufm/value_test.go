package ufm

import (
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

func TestParseKey(t *testing.T) {
	for text, want := range map[string]ib.PKey{"0x7fff": 0x7fff, "0X7FFF": 0x7fff, "32767": 0x7fff, "0x1": 1,
		"0x0001": 1, "1": 1, " 0x12 ": 0x12, "0x8012": 0x12, "65535": 0x7fff, "010": 10} {
		if got, err := parseKey("pkey", text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "0x0", "0x8000", "0x10000", "65536", "-1", "7fff", "0x", "0xg", "1.0", "1e3",
		"0x 1", "0x1_0", "+5"} {
		if got, err := parseKey("pkey", text); err == nil || err.Status != 400 || err.Field != "pkey" {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	if keyText(0x8012) != "0x12" {
		t.Errorf("0x8012 is written %s", keyText(0x8012))
	}
}

func TestParseGUID(t *testing.T) {
	for text, want := range map[string]ib.GUID{"0002c903000e0b72": 0x2c903000e0b72, "0002C903000E0B72": 0x2c903000e0b72,
		"0x0002c903000e0b72": 0x2c903000e0b72, " 0000000000000001 ": 1} {
		if got, err := parseGUID("guids", text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "0002c903000e0b7", "0002c903000e0b722", "0002c903000e0b7g",
		"00:02:c9:03:00:0e:0b:72", "0000000000000000", "ffffffffffffffff", "-002c903000e0b72", "0x02c903000e0b72"} {
		if got, err := parseGUID("guids", text); err == nil || err.Status != 400 {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestParseHosts(t *testing.T) {
	for text, want := range map[string]string{
		"h1": "h1", "h1,h2": "h1 h2", " h1 , h2 ": "h1 h2", "h[1-4]": "h1 h2 h3 h4",
		"h[1-2,7],gpu[08-10]a": "h1 h2 h7 gpu08a gpu09a gpu10a", "r[1-2]n[1-2]": "r1n1 r1n2 r2n1 r2n2", "h[3]": "h3",
		"h1,,h2,": "h1 h2",
	} {
		if got, err := parseHosts("hosts_names", text); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", ",", " ", "h[1-4", "h1]", "h[]", "h[a-b]", "h[4-1]", "h[1-99999999]",
		"h[1-1000]n[1-1000]", "h[1-2]]", "h[[1]]", "h[1-18446744073709551615]",
		// Short texts that would stand for gigabytes.
		"h[" + strings.Repeat("0", 1<<16) + "1-40000]", strings.Repeat("h", 1<<16) + "[1-40000]", "h[1-40000]" +
			strings.Repeat("h", 1<<16), strings.Repeat("[1]", 1<<17), strings.Repeat("[1-2]", 12) +
			strings.Repeat("a", 250)} {
		if got, err := parseHosts("hosts_names", text); err == nil || err.Field != "hosts_names" ||
			len(err.Reason) > 300 {
			t.Errorf("%.40q is %d hosts, %v", text, len(got), err)
		}
	}
}

func FuzzParseHosts(f *testing.F) {
	for _, s := range []string{"h1", "h[1-4],h7", "gpu[08-10]a", "r[1-2]n[1-2]", "h[", "]", "h[1-99999999]",
		"[1-2][1-2][1-2]", ",,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := parseHosts("f", s)
		if err == nil && (len(list) == 0 || len(list) > hostsMax ||
			slices.ContainsFunc(list, func(name string) bool { return name == "" || len(name) > hostNameMax })) {
			t.Errorf("%q is %d hosts", s, len(list))
		}
	})
}

func FuzzParseUsers(f *testing.F) {
	f.Add("")
	f.Add("# nobody\n")
	f.Add("ann:pbkdf2-sha256:600000:AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n")
	f.Add("ann:md5:1:x:y")
	f.Fuzz(func(t *testing.T, text string) {
		users, err := parseUsers([]byte(text))
		if err != nil {
			return
		}
		again, err := parseUsers(formatUsers(users))
		if err != nil || len(again) != len(users) {
			t.Errorf("%q: %d users, then %d, %v", text, len(users), len(again), err)
		}
	})
}

// TestParseFiles: damaged files of credentials are errors, whatever is missing.
func TestParseFiles(t *testing.T) {
	line := "ann:pbkdf2-sha256:600000:AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	if users, err := parseUsers([]byte(line)); err != nil || len(users) != 1 {
		t.Fatalf("%v, %v", users, err)
	}
	for i := 1; i < len(line); i++ {
		if _, err := parseUsers([]byte(line[:i])); err == nil {
			t.Errorf("%q is taken for a user", line[:i])
		}
	}
	if _, err := parseUsers([]byte(line + "\n" + line)); err == nil {
		t.Error("a user twice is taken")
	}
	tokens := `[{"id":"abcdefgh","sha256":"` + strings.Repeat("0", 64) +
		`","user":"ann","issued":"2026-01-02T03:04:05Z"}]`
	if list, err := parseTokens([]byte(tokens)); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	for i := range tokens {
		if _, err := parseTokens([]byte(tokens[:i])); err == nil {
			t.Errorf("%q is taken for tokens", tokens[:i])
		}
	}
}
