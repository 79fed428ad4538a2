package dropin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"softib/proto/ib"
)

// Host is what a program is told of the host that it runs on.
type Host struct {
	Name  string     // or those of the interfaces at Ethernet
	IP    netip.Addr // none at Ethernet, whose interfaces have their own
	GUIDs []ib.GUID  // of its adapters; not told if there are none
	// Sockets of the fabric's servers; an empty one is not told.
	UMAD, Verbs, RDMACM string
}

// defaults are variables that are set where the user has not.
func (h *Host) defaults() [][2]string {
	// NCCL's communication from inside kernels (GIN) is for mlx5. 2.28 and 2.29 look for one whether or not it is
	// enabled, and crash where there are adapters and none is an mlx5; they do not look if its type is none.
	d := [][2]string{{"NCCL_GIN_ENABLE", "0"}, {"NCCL_GIN_TYPE", "0"}}
	if h.UMAD != "" {
		// A host of a fabric is one of its own to NCCL, whichever machine it is on: else it would go by shared memory
		// between two of them, and refuse two ranks at one GPU. An interface of Ethernet is not: its name is one
		// machine's, others have the same.
		d = append(d, [2]string{hostID, h.Name})
	}
	return d
}

const (
	hostName = "SOFTIB_HOST"
	hostID   = "NCCL_HOSTID"
)

// Environment is env with what makes a program use the set on a host. What env preloads, where it looks for libraries
// and how valgrind is to run stays, after ours. A program of one host may start one of another.
func (s Set) Environment(env []string, h Host) []string {
	front := []struct {
		name, value, between string
		done                 bool
	}{{name: "LD_LIBRARY_PATH", value: s.Dir, between: ":"}, {name: "LD_PRELOAD", value: s.preload(), between: ":"},
		{name: "VALGRIND_OPTS", value: s.suppress(), between: " "}}
	own := [...][2]string{
		{hostName, h.Name}, {"SOFTIB_UMAD", h.UMAD}, {"SOFTIB_VERBS", h.Verbs}, {"SOFTIB_RDMACM", h.RDMACM},
		{"SOFTIB_NODE_GUID", guidText(h.GUIDs)}, {"SOFTIB_ADDRESS", ipText(h.IP)}, {"SOFTIB_LIB", s.Dir},
	}
	defaults := h.defaults()
	was := "" // the host that this one is started from
	for _, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); name == hostName {
			was = value
		}
	}
	out := make([]string, 0, len(env)+len(front)+len(own)+len(defaults))
next:
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		for i := range front {
			if f := &front[i]; f.name == name && f.value != "" {
				out = append(out, name+"="+prepend(f.value, value, f.between))
				f.done = true
				continue next
			}
		}
		for _, o := range own {
			if o[0] == name {
				continue next
			}
		}
		if name == hostID && was != "" && value == was {
			continue // it is ours, not the user's
		}
		defaults = slices.DeleteFunc(defaults, func(d [2]string) bool { return d[0] == name })
		out = append(out, kv)
	}
	for _, f := range front {
		if !f.done && f.value != "" {
			out = append(out, f.name+"="+f.value)
		}
	}
	for _, d := range defaults {
		out = append(out, d[0]+"="+d[1])
	}
	for _, o := range own {
		if o[1] != "" {
			out = append(out, o[0]+"="+o[1])
		}
	}
	return out
}

func ipText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func guidText(all []ib.GUID) string {
	var list []string
	for _, g := range all {
		list = append(list, fmt.Sprintf("%016x", uint64(g)))
	}
	return strings.Join(list, ",")
}

// preload is the list of libraries to preload; empty where the folder's path cannot stand in such a list, which has no
// quoting.
func (s Set) preload() string {
	if strings.ContainsAny(s.Dir, " :") {
		return ""
	}
	list := make([]string, len(preloaded))
	for i, name := range preloaded {
		list[i] = s.Path(name)
	}
	return strings.Join(list, ":")
}

// suppress has valgrind not complain of what Go does; empty where the folder's path cannot stand in its options.
func (s Set) suppress() string {
	if strings.ContainsAny(s.Dir, " \t\n") {
		return ""
	}
	return "--suppressions=" + s.Path(Suppressions)
}

// prepend puts ours, a list, in front of another list. What is in both stays in front.
func prepend(ours, list, between string) string {
	if list == "" {
		return ours
	}
	out := strings.Split(ours, between)
	n := len(out)
next:
	for v := range strings.SplitSeq(list, between) {
		for _, o := range out[:n] {
			if v == o {
				continue next
			}
		}
		out = append(out, v)
	}
	return strings.Join(out, between)
}
