package ufm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Statuses of jobs.
const (
	jobRunning      = "Running"
	jobCompleted    = "Completed"
	jobWithWarnings = "Completed With Warnings"
	jobWithErrors   = "Completed With Errors"
	jobAborted      = "Aborted"
)

// jobShape is a job as UFM's are.
type jobShape struct {
	ID          string   `json:"ID"`
	Status      string   `json:"Status"`
	Progress    int      `json:"Progress"`
	Description string   `json:"Description"`
	Created     string   `json:"Created"`
	LastUpdated string   `json:"LastUpdated"`
	Summary     string   `json:"Summary"`
	Related     []string `json:"RelatedObjects"`
	CreatedBy   string   `json:"CreatedBy"`
	Operation   string   `json:"Operation"`
	Foreground  bool     `json:"Foreground"`
	SiteName    *string  `json:"SiteName"`
	// Location is where to ask again.
	Location string `json:"location,omitempty"`
}

// job is something that takes a while. Its parts are what it found, each a job of its own, as UFM has it.
type job struct {
	number    int
	operation string
	about     string
	user      string
	related   []string
	created   time.Time
	updated   time.Time
	status    string
	progress  int
	summary   string
	parts     []finding
	stop      context.CancelFunc
}

// finding is one thing that a test has found.
type finding struct {
	severe bool
	text   string
	object string
}

// Bounds of what is remembered.
const (
	jobsMax  = 256
	partsMax = 200
	// jobsRunning is how many run at once.
	jobsRunning = 4
)

// jobs are those that run, and the last that ran.
type jobs struct {
	mu   sync.Mutex
	last int
	list []*job // oldest first
}

// add makes a job. Those that ended longest ago make room.
func (j *jobs) add(x *job, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	x.number, x.created, x.updated = j.last, now, now
	j.list = append(j.list, x)
	for i := 0; len(j.list) > jobsMax && i < len(j.list); {
		if j.list[i].status == jobRunning {
			i++
			continue
		}
		j.list = slices.Delete(j.list, i, i+1)
	}
}

// running counts jobs of an operation that have not ended, and of all.
func (j *jobs) running(operation string) (same, all int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, x := range j.list {
		if x.status == jobRunning {
			all++
			if x.operation == operation {
				same++
			}
		}
	}
	return same, all
}

// update changes a job.
func (j *jobs) update(x *job, now time.Time, f func(*job)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	x.updated = now
	f(x)
}

// find finds a job.
func (j *jobs) find(number int) *job {
	for _, x := range j.list {
		if x.number == number {
			return x
		}
	}
	return nil
}

func (x *job) shape(root string) jobShape {
	id := strconv.Itoa(x.number)
	related := x.related
	if related == nil {
		related = []string{}
	}
	return jobShape{ID: id, Status: x.status, Progress: x.progress, Description: x.about, Created: stamp(x.created),
		LastUpdated: stamp(x.updated), Summary: x.summary, Related: related, CreatedBy: x.user,
		Operation: x.operation, Foreground: true, Location: root + "/jobs/" + id}
}

// part shows one of the parts of a job.
func (x *job) part(i int, root string) jobShape {
	o := x.shape(root)
	p := x.parts[i]
	o.ID = fmt.Sprintf("%d.%d", x.number, i+1)
	o.Status, o.Progress, o.Summary, o.Location = jobWithWarnings, 100, p.text, ""
	if p.severe {
		o.Status = jobWithErrors
	}
	if p.object != "" {
		o.Related = []string{p.object}
	}
	return o
}

// jobDone answers with a job that has ended already.
func (s *Server) jobDone(c *call, operation, summary string, related []string) {
	const shown = 64
	x := &job{operation: operation, about: operation, user: c.user, related: related[:min(len(related), shown)],
		status: jobCompleted, progress: 100, summary: summary}
	s.jobs.add(x, s.now())
	s.answerJob(c, x)
}

// answerJob says where a job is: in the header, as UFM's guide has it, and in the body, where the SDK looks for it.
func (s *Server) answerJob(c *call, x *job) {
	s.jobs.mu.Lock()
	o := x.shape(c.root)
	s.jobs.mu.Unlock()
	c.w.Header().Set("Location", o.Location)
	writeJSON(c.w, http.StatusAccepted, o)
}

// tests lists the tests that can be run.
func (s *Server) tests(c *call) error {
	names := make([]string, len(checks))
	for i := range checks {
		names[i] = checks[i].name
	}
	c.json(names)
	return nil
}

// runTest runs a test as a job.
func (s *Server) runTest(c *call) error {
	name := c.arg("test")
	i := slices.IndexFunc(checks, func(x check) bool { return strings.EqualFold(x.name, name) })
	if i < 0 {
		return &Error{Status: http.StatusNotFound, Field: "test",
			Reason: fmt.Sprintf("%q: want one of those that GET fabricValidation/tests names", clip(name))}
	}
	x, err := s.start(&checks[i], c.user)
	if err != nil {
		return err
	}
	s.answerJob(c, x)
	return nil
}

// start starts a test, unless it runs already.
func (s *Server) start(k *check, user string) (*job, *Error) {
	same, all := s.jobs.running(k.name)
	if same > 0 {
		return nil, refuse(http.StatusConflict, "%s runs already: wait until it has ended", k.name)
	}
	if all >= jobsRunning {
		e := refuse(http.StatusTooManyRequests, "%d tests run already: wait until one has ended", all)
		e.after = time.Second
		return nil, e
	}
	ctx, stop := context.WithCancel(s.ctx)
	x := &job{operation: k.name, about: k.about, user: user, status: jobRunning, stop: stop}
	s.jobs.add(x, s.now())
	s.done.Go(func() {
		defer stop()
		found, err := k.run(ctx, s, func(percent int) {
			s.jobs.update(x, s.now(),
				func(x *job) { x.progress = max(x.progress, percent) })
		})
		s.jobs.update(x, s.now(), func(x *job) { x.end(found, err, ctx.Err()) })
	})
	return x, nil
}

// end writes down how a test has ended.
func (x *job) end(found []finding, err, stopped error) {
	switch {
	case x.status == jobAborted || stopped != nil:
		x.status, x.summary = jobAborted, "the test was stopped"
		return
	case err != nil:
		x.status, x.summary = jobWithErrors, err.Error()
		x.parts = []finding{{severe: true, text: err.Error()}}
	case len(found) == 0:
		x.status, x.summary = jobCompleted, x.operation+" completed successfully: nothing is wrong"
	default:
		x.status = jobWithWarnings
		var b strings.Builder
		fmt.Fprintf(&b, "%s found %d", x.operation, len(found))
		for i, f := range found {
			if f.severe {
				x.status = jobWithErrors
			}
			if i < partsMax {
				fmt.Fprintf(&b, "\n%s", f.text)
			}
		}
		if len(found) > partsMax {
			fmt.Fprintf(&b, "\nand %d more", len(found)-partsMax)
		}
		x.summary, x.parts = b.String(), found[:min(len(found), partsMax)]
	}
	x.progress = 100
}

// jobList lists jobs, or the parts of one.
func (s *Server) jobList(c *call) error {
	parent, operation, status := c.query.text("parent_id"), c.query.text("operation"), c.query.text("status")
	var objects []string
	if t := c.query.text("object_ids"); t != "" {
		objects = strings.Split(t, ",")
	}
	list := []jobShape{}
	s.jobs.mu.Lock()
	for _, x := range slices.Backward(s.jobs.list) {
		if parent != "" && parent != "null" {
			if strconv.Itoa(x.number) == parent {
				for i := range x.parts {
					list = append(list, x.part(i, c.root))
				}
			}
			continue
		}
		if operation != "" && x.operation != operation || status != "" && !strings.EqualFold(x.status, status) ||
			objects != nil && !slices.ContainsFunc(objects,
				func(o string) bool { return slices.Contains(x.related, o) }) {
			continue
		}
		list = append(list, x.shape(c.root))
	}
	s.jobs.mu.Unlock()
	c.json(list)
	return nil
}

// job shows one job; of several, those that there are.
func (s *Server) job(c *call) error {
	ids := strings.Split(c.arg("id"), ",")
	list := []jobShape{}
	s.jobs.mu.Lock()
	for _, id := range ids {
		text, part, isPart := strings.Cut(id, ".")
		number, err := strconv.Atoi(text)
		if err != nil {
			s.jobs.mu.Unlock()
			return bad("id", "%q: want the number of a job", clip(id))
		}
		x := s.jobs.find(number)
		if x == nil {
			continue
		}
		if !isPart {
			list = append(list, x.shape(c.root))
		} else if i, err := strconv.Atoi(part); err == nil && i >= 1 && i <= len(x.parts) {
			list = append(list, x.part(i-1, c.root))
		}
	}
	s.jobs.mu.Unlock()
	if len(ids) > 1 {
		c.json(list)
		return nil
	}
	if len(list) == 0 {
		return &Error{Status: http.StatusNotFound, Field: "id", Reason: fmt.Sprintf("there is no job %s", clip(ids[0]))}
	}
	c.json(list[0])
	return nil
}

// deleteJob forgets a job; one that runs is stopped.
func (s *Server) deleteJob(c *call) error {
	number, e := c.number("id")
	if e != nil {
		return e
	}
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	i := slices.IndexFunc(s.jobs.list, func(x *job) bool { return uint64(x.number) == number })
	if i < 0 {
		return &Error{Status: http.StatusNotFound, Field: "id", Reason: fmt.Sprintf("there is no job %d", number)}
	}
	x := s.jobs.list[i]
	if x.status == jobRunning {
		x.status = jobAborted
		x.stop()
	}
	s.jobs.list = slices.Delete(s.jobs.list, i, i+1)
	c.json(struct{}{})
	return nil
}
