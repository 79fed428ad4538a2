package webui

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"softib/operate/manager"
)

// alarmShown is a condition that stands.
type alarmShown struct {
	ID           uint64                   `json:"id"`
	Link         string                   `json:"link"`
	Node         string                   `json:"node,omitempty"` // where it is about one, and no link
	Kind         string                   `json:"kind"`
	Severity     string                   `json:"severity"`
	Since        time.Time                `json:"since"`
	Text         string                   `json:"text"`
	Next         string                   `json:"next"`
	Quiet        bool                     `json:"quiet,omitempty"`
	Acknowledged *manager.Acknowledgement `json:"acknowledged,omitempty"`
	Muted        *manager.Mute            `json:"muted,omitempty"`
}

func (s *Server) alarms(*http.Request) (any, error) { return showAlarms(s.m.OpenAlarms()), nil }

func showAlarms(open []manager.OpenAlarm) []alarmShown {
	list := []alarmShown{}
	for i := range open {
		a := &open[i]
		show := alarmShown{ID: a.ID, Link: a.Link, Kind: a.Kind.String(), Severity: a.Severity.String(),
			Since: a.Since, Text: a.Text, Next: a.Next, Quiet: a.IsQuiet, Acknowledged: a.Acknowledged, Muted: a.Muted}
		if a.OfNode() {
			show.Node = a.Link
		}
		list = append(list, show)
	}
	return list
}

// alarmed is how many cables have an alarm that is not muted. Nodes that have one are no cables.
func alarmed(open []manager.OpenAlarm) int {
	links := map[string]bool{}
	for i := range open {
		if open[i].Muted == nil && !open[i].OfNode() {
			links[open[i].Link] = true
		}
	}
	return len(links)
}

// pathID reads the number in a path.
func pathID(r *http.Request) (uint64, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return 0, badField("id", "GET /api/v1/alarms and /api/v1/mutes have them", "%q is no number", r.PathValue("id"))
	}
	return id, nil
}

// attention turns what the manager says to what people say about alarms into an answer.
func attention(err error) error {
	e := &apiError{Status: http.StatusBadRequest, Text: err.Error()}
	switch {
	case errors.Is(err, manager.ErrNoAlarm):
		e.Status, e.Field, e.Next = http.StatusNotFound, "id", "it may be over: GET /api/v1/alarms has those that stand"
	case errors.Is(err, manager.ErrNoMute):
		e.Status, e.Field, e.Next = http.StatusNotFound, "id", "it may have ended: GET /api/v1/mutes has the others"
	case errors.Is(err, manager.ErrLongNote):
		e.Field, e.Next = "note", "say it in fewer words"
	case errors.Is(err, manager.ErrBadMute):
		e.Field, e.Next = "kind", "name a link, a node, or a kind that /api/v1/alarms shows"
	case errors.Is(err, manager.ErrManyMute):
		e.Status, e.Next = http.StatusConflict, "remove some that nobody needs"
	default:
		return err
	}
	return e
}

// acknowledge notes who looks after an alarm.
func (s *Server) acknowledge(r *http.Request) (any, error) {
	var body struct {
		By   string `json:"by"`
		Note string `json:"note"`
	}
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	by, err := byWhom(r, body.By)
	if err != nil {
		return nil, err
	}
	if err := s.m.Acknowledge(id, by, body.Note); err != nil {
		return nil, attention(err)
	}
	return s.alarms(r)
}

// byWhom is who says something: by name or, without, by address.
func byWhom(r *http.Request, name string) (string, error) {
	if len(name) > 100 {
		return "", badField("by", "a name will do", "by has %d bytes: want at most 100", len(name))
	}
	if name == "" {
		return who(r), nil
	}
	return name, nil
}

// muteMinutesMax is as long as a rule with an end may last.
const muteMinutesMax = 366 * 24 * 60

func (s *Server) mutes(*http.Request) (any, error) {
	list := s.m.Mutes()
	if list == nil {
		list = []manager.Mute{}
	}
	return list, nil
}

// mute adds a rule.
func (s *Server) mute(r *http.Request) (any, error) {
	var body struct {
		Link    string `json:"link"`
		Node    string `json:"node"`
		Kind    string `json:"kind"`
		Minutes int    `json:"minutes"`
		By      string `json:"by"`
		Note    string `json:"note"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	if body.Minutes < 0 || body.Minutes > muteMinutesMax {
		return nil, badField("minutes", "leave it out for a rule without an end", "minutes is %d: want 0 to %d",
			body.Minutes, muteMinutesMax)
	}
	by, err := byWhom(r, body.By)
	if err != nil {
		return nil, err
	}
	u := manager.Mute{Kind: body.Kind, By: by, Note: body.Note}
	// What an alarm is about may be a cable that is not there.
	missing := func(a manager.OpenAlarm) bool { return !a.OfNode() && a.Link == body.Link }
	switch {
	case body.Link != "" && body.Node != "":
		return nil, badField("node", "make a rule for each", "a rule is about a link or a node: want one of %q and %q",
			body.Link, body.Node)
	case body.Link != "" && slices.ContainsFunc(s.m.OpenAlarms(), missing):
		u.Link = body.Link
	case body.Link != "":
		ref, err := s.linkNamed("link", body.Link)
		if err != nil {
			return nil, err
		}
		i, _ := s.m.CableOf(ref)
		u.Link = s.m.LinkName(i)
	case body.Node != "":
		n, err := s.m.Node(body.Node)
		if err != nil {
			return nil, unknown("node", err)
		}
		u.Link = n.Name
	}
	if body.Minutes > 0 {
		u.Until = time.Now().Add(time.Duration(body.Minutes) * time.Minute)
	}
	if u, err = s.m.AddMute(u); err != nil {
		return nil, attention(err)
	}
	return u, nil
}

// unmute takes a rule away.
func (s *Server) unmute(r *http.Request) (any, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	if err := s.m.RemoveMute(id, who(r)); err != nil {
		return nil, attention(err)
	}
	return map[string]bool{"removed": true}, nil
}
