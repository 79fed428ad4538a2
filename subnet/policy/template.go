package policy

import (
	"strings"

	"softib/proto/ib"
)

// Template is a way to share lanes out that people ask for by name: classes of traffic, each with a service level and a
// lane of its own, and how the lanes take turns (IBA 7.6.9).
type Template struct {
	Name  string
	About string
	// Classes have one level each. Levels that no class has use the lane of the first one.
	Classes []TrafficClass
	// HighLimit is how much the lanes of high priority may send before one packet of others goes, in units of 4096
	// bytes; 255 is without end.
	HighLimit uint8
}

// TrafficClass is some traffic that has a lane of its own.
type TrafficClass struct {
	Name  string
	About string
	SL    ib.SL
	VL    ib.VL
	// High and Low are the lane's weights in the two tables, in units of 64 bytes; 0 is no turn there.
	High, Low uint8
}

// templates are those that there are.
var templates = []Template{
	{
		Name:  "classic",
		About: "MPI on one lane, storage on another, management on a third; MPI and management go before the rest",
		Classes: []TrafficClass{
			{Name: "default", About: "what asks for nothing", SL: 0, VL: 0, Low: 64},
			{Name: "mpi", About: "short messages that others wait for", SL: 1, VL: 1, High: 192, Low: 64},
			{Name: "storage", About: "bulk that may wait", SL: 2, VL: 2, Low: 128},
			{Name: "management", About: "logins, monitoring, provisioning", SL: 3, VL: 3, High: 32, Low: 32},
		},
		HighLimit: 64, // 256 KiB: long enough for a burst of messages, short enough that storage is never shut out
	},
	{
		Name:  "flat",
		About: "every class on one lane and in one queue: what most fabrics have",
		Classes: []TrafficClass{
			{Name: "default", About: "everything", SL: 0, VL: 0, Low: 64},
			{Name: "mpi", SL: 1, VL: 0},
			{Name: "storage", SL: 2, VL: 0},
			{Name: "management", SL: 3, VL: 0},
		},
	},
}

// Templates are all templates.
func Templates() []Template { return templates }

// TemplateByName finds one.
func TemplateByName(name string) (Template, bool) {
	for _, t := range templates {
		if t.Name == name {
			return t, true
		}
	}
	return Template{}, false
}

// TemplateNames are the names of all, for messages.
func TemplateNames() string {
	names := make([]string, len(templates))
	for i := range templates {
		names[i] = templates[i].Name
	}
	return strings.Join(names, ", ")
}

// Class finds a class of a template.
func (t *Template) Class(name string) (TrafficClass, bool) {
	for _, c := range t.Classes {
		if c.Name == name {
			return c, true
		}
	}
	return TrafficClass{}, false
}

// ClassNames are the names of its classes, for messages.
func (t *Template) ClassNames() string {
	names := make([]string, len(t.Classes))
	for i := range t.Classes {
		names[i] = t.Classes[i].Name
	}
	return strings.Join(names, ", ")
}

// PortQoS is what every port gets. A lane that several classes share is in the tables once for each that has a weight.
func (t *Template) PortQoS() PortQoS {
	q := PortQoS{MaxVLs: uint8(ib.VLMgmt), HighLimit: t.HighLimit}
	for sl := range q.SL2VL {
		q.SL2VL[sl] = t.Classes[0].VL
	}
	for _, c := range t.Classes {
		q.SL2VL[c.SL] = c.VL
		if c.High > 0 {
			q.VLArbHigh = append(q.VLArbHigh, VLWeight{c.VL, c.High})
		}
		if c.Low > 0 {
			q.VLArbLow = append(q.VLArbLow, VLWeight{c.VL, c.Low})
		}
	}
	return q
}
