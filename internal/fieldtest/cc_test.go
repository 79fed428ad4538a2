package fieldtest

import (
	"fmt"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// cc asks a node's congestion control agent, without any packet or program in between.
func (w *world) cc(n *topo.Node, id mad.AttrID, mod uint32) []byte {
	w.Helper()
	var req, resp [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassCC, ClassVersion: 2, Method: mad.MethodGet, AttributeID: id,
		AttributeModifier: mod}
	copy(req[:], h.Append(nil))
	if !w.SMP(n.Index, ib.PortNum(endPort(n, 1)), &req, &resp) || mad.View(resp[:]).Status() != 0 {
		w.Fatalf("%s does not answer attribute %#x of congestion control: %v", n.Name, id, mad.View(resp[:]).Status())
	}
	return resp[mad.CCDataOff:]
}

// blocks cuts a text at empty lines.
func blocks(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

func TestCongestionControl(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	sw, host := w.node("leaf3"), w.node("h14")
	by := map[string]func(*topo.Node) []string{
		"LID":  func(n *topo.Node) []string { return []string{dec(w.lid(n, 1))} },
		"GUID": func(n *topo.Node) []string { return []string{"-G", hexGUID(n.PortGUID(ib.PortNum(endPort(n, 1))))} },
	}
	for name, address := range by {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			query := func(n *topo.Node, op string, more ...string) string {
				a := address(n)
				args := append(append(append([]string{}, a[:len(a)-1]...), op, a[len(a)-1]), more...)
				return w.run("h2", "ibccquery", args...)
			}
			config := func(n *topo.Node, op string, more ...string) {
				a := address(n)
				args := append(append(append([]string{}, a[:len(a)-1]...), op, a[len(a)-1]), more...)
				w.run("h2", "ibccconfig", args...)
			}
			for _, n := range []*topo.Node{sw, host} {
				cpi := read(t, query(n, "ClassPortInfo"))
				same(t, "ClassVersion", cpi["ClassVersion"], "2")
				same(t, "BaseVersion", cpi["BaseVersion"], "1")
				info := w.cc(n, mad.AttrCongestionInfo, 0)
				read(t, query(n, "CongestionInfo")).expect(t, "CongestionInfo",
					sheet{"CongestionInfo": fmt.Sprintf("0x%02x%02x", info[0], info[1]),
						"ControlTableCap": dec(info[2])})
				log := read(t, query(n, "CongestionLog"))
				same(t, "LogType", log["LogType"], map[bool]string{true: "1", false: "2"}[n.IsSwitch()])
				var first, second uint64
				fmt.Sscan(read(t, query(n, "Timestamp"))["Timestamp"], &first)
				fmt.Sscan(read(t, query(n, "TI"))["Timestamp"], &second)
				if first == 0 || second <= first {
					t.Errorf("time stamps %d and %d of %s do not grow", first, second, n.Name)
				}
			}

			config(sw, "SwitchCongestionSetting", "0x1F", "0x1FFFFFFFFF", "0x6", "0xA", "8", "3", "1:200", "77")
			read(t, query(sw, "SwitchCongestionSetting")).expect(t, "SwitchCongestionSetting", sheet{
				"Control_Map": "0x0000001f", "Victim_Mask": fmt.Sprintf("%064x", uint64(0x1FFFFFFFFF)),
				"Credit_Mask": fmt.Sprintf("%064x", 6), "Threshold": "0x0a",
				"Packet_Size": "8", "CS_Threshold": "0x03", "CS_ReturnDelay": fmt.Sprintf("0x%04x", 1<<14|200),
				"Marking_Rate": "77",
			})
			raw := w.cc(sw, mad.AttrSwitchCongestion, 0)
			same(t, "the switch's own Marking_Rate", mad.SwitchCongestionLayout.Field("MarkingRate").Get(raw, 0), 77)

			config(sw, "SwitchPortCongestionSetting", "2", "1", "1", "5", "9", "300")
			config(sw, "SP", "7", "1", "0", "15", "0", "2")
			read(t, query(sw, "SwitchPortCongestionSetting", "2")).expect(t, "SwitchPortCongestionSetting",
				sheet{"Valid": "1", "Control_Type": "1", "Threshold": "0x05", "Packet_Size": "9",
					"Cong_Parm_Marking_Rate": "300"})
			_, ports, _ := strings.Cut(query(sw, "SP"), "\n")
			list := blocks(ports)
			same(t, "ports", len(list), sw.NumPorts()+1)
			for p, part := range list {
				want := sheet{"Port": dec(p), "Valid": "0", "Control_Type": "0", "Threshold": "0x00",
					"Packet_Size": "0", "Cong_Parm_Marking_Rate": "0"}
				switch p {
				case 2:
					want = sheet{"Port": "2", "Valid": "1", "Control_Type": "1", "Threshold": "0x05",
						"Packet_Size": "9", "Cong_Parm_Marking_Rate": "300"}
				case 7:
					want = sheet{"Port": "7", "Valid": "1", "Control_Type": "0", "Threshold": "0x0f",
						"Packet_Size": "0", "Cong_Parm_Marking_Rate": "2"}
				}
				read(t, part).expect(t, fmt.Sprintf("SwitchPortCongestionSetting of port %d", p), want)
			}

			config(host, "CACongestionSetting", "1", "0x5", "150", "2", "3", "4") // levels 0 and 2
			_, text, _ := strings.Cut(query(host, "CACongestionSetting"), "\n")
			list = blocks(text)
			read(t, list[0]).expect(t, "CACongestionSetting", sheet{"Port_Control": "0x0001", "Control_Map": "0x0005"})
			same(t, "levels", len(list)-1, 16)
			for sl, part := range list[1:] {
				want := sheet{"SL": dec(sl), "CCTI_Timer": "0", "CCTI_Increase": "0", "Trigger_Threshold": "0",
					"CCTI_Min": "0"}
				if sl == 0 || sl == 2 {
					want = sheet{"SL": dec(sl), "CCTI_Timer": "150", "CCTI_Increase": "2", "Trigger_Threshold": "3",
						"CCTI_Min": "4"}
				}
				read(t, part).expect(t, fmt.Sprintf("CACongestionSetting of level %d", sl), want)
			}

			// A table of 128 entries in two blocks.
			table := make([]string, 128)
			for i := range table {
				table[i] = fmt.Sprintf("%d:%d", i%4, i*3)
			}
			config(host, "CongestionControlTable", append([]string{"63", "0"}, table[:64]...)...)
			config(host, "CT", append([]string{"127", "1"}, table[64:]...)...)
			out := query(host, "CongestionControlTable")
			same(t, "CCTI_Limit", fields(out)[0].value, "127")
			var got []string
			all := fields(out)[1:]
			entry := map[string]string{}
			for _, f := range all {
				entry[f.name] = f.value
				if f.name == "CCT_Multiplier" {
					got = append(got, entry["CCT_Shift"]+":"+entry["CCT_Multiplier"])
				}
			}
			same(t, "table", strings.Join(got, " "), strings.Join(table, " "))
			same(t, "the host's own entry 100", mad.CongestionTableLayout.Field("Multiplier").Get(w.cc(host,
				mad.AttrCongestionControlTable, 1), 36), 300)
		})
	}

	// With a key, only who knows it may write.
	lid := dec(w.lid(host, 1))
	w.run("h2", "ibccconfig", "CongestionKeyInfo", lid, "0x1234", "1", "60", "0")
	key := func(args ...string) sheet {
		return read(t, w.run("h2", "ibccquery", append(args, "CongestionKeyInfo", lid)...))
	}
	key("-c", "0x1234").expect(t, "with the key",
		sheet{"CC_Key": hexGUID(0x1234), "CC_KeyProtectBit": "1", "CC_KeyLeasePeriod": "60", "CC_KeyViolations": "0"})
	key().expect(t, "without the key", sheet{"CC_Key": hexGUID(0), "CC_KeyProtectBit": "1", "CC_KeyLeasePeriod": "60",
		"CC_KeyViolations": "0"})
	wants(t, w.fails("h2", "ibccconfig", "-t", "100", "CS", lid, "0", "0x1", "1", "1", "1", "1"), "failed")
	same(t, "violations", key("-c", "0x1234")["CC_KeyViolations"] != "0", true)
	w.run("h2", "ibccconfig", "-c", "0x1234", "CS", lid, "0", "0x1", "11", "1", "1", "1")
	wants(t, w.run("h2", "ibccquery", "CS", lid), "CCTI_Timer:......................11\n")
	w.run("h2", "ibccconfig", "-c", "0x1234", "CK", lid, "0", "0", "0", "0")
	key().expect(t, "the key taken off", sheet{"CC_Key": hexGUID(0), "CC_KeyProtectBit": "0", "CC_KeyLeasePeriod": "0",
		"CC_KeyViolations": "0"})
	// What a node does not have it does not answer for.
	wants(t, w.fails("h2", "ibccquery", "SS", lid), "failed")
	wants(t, w.fails("h2", "ibccquery", "CS", dec(w.lid(sw, 0))), "failed")
}
