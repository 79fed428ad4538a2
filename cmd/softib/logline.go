package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"
)

// logLine is a line of a log, for programs.
type logLine struct {
	At   time.Time `json:"at"`
	Who  string    `json:"who,omitempty"`
	Kind string    `json:"kind,omitempty"`
	Text string    `json:"text"`
}

// parseLogLine takes a line apart that eventLog has written. One that is different is text.
func parseLogLine(s string) logLine {
	if len(s) <= len(logTime) {
		return logLine{Text: s}
	}
	at, err := time.ParseInLocation(logTime, s[:len(logTime)], time.Local)
	if err != nil {
		return logLine{Text: s}
	}
	l := logLine{At: at, Text: s[len(logTime)+1:]}
	if who, rest, ok := strings.Cut(l.Text, " "); ok {
		if kind, text, ok := strings.Cut(rest, ": "); ok && !strings.Contains(kind, " ") {
			l.Who, l.Kind, l.Text = who, kind, text
		}
	}
	return l
}

// logLines prints lines of a log, as they are or as objects.
func logLines(w io.Writer, asJSON bool) func(string) error {
	if asJSON {
		enc := json.NewEncoder(w)
		return func(s string) error { return enc.Encode(parseLogLine(s)) }
	}
	return func(s string) error {
		_, err := io.WriteString(w, s+"\n")
		return err
	}
}
