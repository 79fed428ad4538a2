package ufm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"softib/operate/manager"
	"softib/operate/manager/tenant"
)

// Error is a request that is refused. It is what the caller reads.
type Error struct {
	Status int `json:"-"`
	// Reason says what was wrong and what would be right.
	Reason string `json:"error"`
	// Field is the member of the body, the query parameter or the part of the path that it is about, where it is about
	// one.
	Field string `json:"field,omitempty"`
	// after is when to come back, for those who came too often or at a bad moment.
	after time.Duration
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("ufm: %d: %s", e.Status, e.Reason)
	}
	return fmt.Sprintf("ufm: %d: %s: %s", e.Status, e.Field, e.Reason)
}

// bad is a value that cannot be.
func bad(field, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Field: field, Reason: fmt.Sprintf(format, args...)}
}

func refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Reason: fmt.Sprintf(format, args...)}
}

// tenantFields are the book's names for what the body calls otherwise.
var tenantFields = map[string]string{"name": "partition_name", "guid": "guids", "members": "guids",
	"service level": "service_level", "rate": "rate_limit", "MTU": "mtu_limit"}

// refused makes an answer of whatever went wrong below.
func refused(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var inv *tenant.InvalidError
	if errors.As(err, &inv) {
		field := inv.Field
		if f, ok := tenantFields[field]; ok {
			field = f
		}
		return bad(field, "%s: want %s", clip(inv.Value), inv.Want)
	}
	e = &Error{Reason: err.Error()}
	switch {
	case errors.Is(err, tenant.ErrNotFound), errors.Is(err, manager.ErrUnknown):
		e.Status = http.StatusNotFound
	case errors.Is(err, tenant.ErrExists), errors.Is(err, tenant.ErrReserved), errors.Is(err, tenant.ErrRefused),
		errors.Is(err, tenant.ErrUnmanaged):
		e.Status = http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.Status, e.after = http.StatusServiceUnavailable, time.Second
	case errors.Is(err, tenant.ErrClosed):
		e.Status, e.after = http.StatusServiceUnavailable, 5*time.Second
	default:
		e.Status = http.StatusInternalServerError
	}
	return e
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, e *Error) {
	if e.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.after+time.Second-1)/time.Second)))
	}
	writeJSON(w, e.Status, e)
}

// writeJSON answers with a value. There is no newline at the end: clients compare bodies with {}.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}

// writeList answers with an array, element by element: a fabric's ports may be many megabytes, and a caller that does
// not read must not make them wait in memory. Page, if there is one, is around it.
func writeList[T any](w http.ResponseWriter, p page, list iter.Seq[T]) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	b := bufio.NewWriterSize(w, 32<<10)
	defer b.Flush()
	if p.given {
		b.WriteString(`{"data":`)
	}
	b.WriteByte('[')
	total, sent := 0, 0
	for v := range list {
		total++
		if p.given && (total <= p.skip || sent >= p.size) {
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			return // the array stays open, and nobody takes it for a whole one
		}
		if sent > 0 {
			b.WriteByte(',')
		}
		sent++
		if _, err := b.Write(text); err != nil {
			return
		}
	}
	b.WriteByte(']')
	if p.given {
		fmt.Fprintf(b, `,"total_resources":%d,"filtered_resources":%d}`, total, sent)
	}
}

// page is which part of a list is wanted.
type page struct {
	given      bool
	skip, size int
}

// pageMax bounds the numbers of a page; the SDK asks for a page of 1,000,000,000.
const pageMax = 1 << 40

// pageOf reads page_number (from 1) and rpp, results per page.
func pageOf(q *query) page {
	number, size := q.number("page_number", 0, pageMax), q.number("rpp", 0, pageMax)
	if number == 0 && size == 0 {
		return page{}
	}
	if number == 0 {
		number = 1
	}
	if size == 0 {
		size = 20
	}
	p := page{given: true, size: size}
	if number-1 > pageMax/size {
		p.skip = pageMax
	} else {
		p.skip = (number - 1) * size
	}
	return p
}

// stamp is a time as UFM writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
