package ufm

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"softib/subnet/policy"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

const documentFile = "../../../docs/openapi.json"

// operation, parameter and pathItem are what the test reads of the document.
type operation struct {
	OperationID string
	Summary     string
	Parameters  []parameter
	RequestBody *struct {
		Content map[string]struct {
			Schema struct{ Required []string }
		}
	}
	Responses map[string]any
	Security  []map[string][]string
}

type parameter struct {
	Name, In string
	Required bool
}

type pathItem struct {
	Servers                []struct{ URL string }
	Get, Post, Put, Delete *operation
}

func (p pathItem) operations() map[string]operation {
	out := map[string]operation{}
	for method, op := range map[string]*operation{"get": p.Get, "post": p.Post, "put": p.Put, "delete": p.Delete} {
		if op != nil {
			out[method] = *op
		}
	}
	return out
}

// TestDocument: every route is in the document and every operation of the document answers; the document in the
// repository is this one.
func TestDocument(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	text := []byte(p.want(200, "GET", "/openapi.json", nil).body)
	if *update {
		if err := os.WriteFile(documentFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(documentFile); err != nil || !bytes.Equal(bytes.TrimSpace(kept), text) {
		t.Errorf("%s is another one (%v): go test ./operate/manager/ufm -run TestDocument -update", documentFile, err)
	}
	var doc struct {
		OpenAPI    string
		Servers    []struct{ URL string }
		Paths      map[string]pathItem
		Components struct {
			Schemas map[string]map[string]any
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.") {
		t.Fatalf("version %q: %v", doc.OpenAPI, err)
	}
	// What is referred to is there.
	for part := range strings.SplitSeq(string(text), `"$ref": "#/components/schemas/`) {
		if name, _, _ := strings.Cut(part, `"`); part[0] != '{' && doc.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	ids, operations := map[string]bool{}, 0
	for _, r := range p.s.routes {
		operations++
		op, ok := doc.Paths[r.path].operations()[strings.ToLower(r.method)]
		if !ok || op.Summary == "" || ids[op.OperationID] || len(op.Responses) != 2 {
			t.Errorf("%s %s is not in the document, or not as it should be: %+v", r.method, r.path, op)
			continue
		}
		ids[op.OperationID] = true
		if (op.Security != nil) != r.outside || (len(doc.Paths[r.path].Servers) == 1) != r.outside {
			t.Errorf("%s %s: security %v, servers %v", r.method, r.path, op.Security, doc.Paths[r.path].Servers)
		}
		for _, part := range r.parts {
			if part[0] == '{' && !slices.ContainsFunc(op.Parameters,
				func(x parameter) bool { return x.In == "path" && x.Required && "{"+x.Name+"}" == part }) {
				t.Errorf("%s %s: %s is not documented", r.method, r.path, part)
			}
		}
	}
	// Examples for the parts of paths, bodies for what needs one, in an order that lets each find what it needs.
	p.want(200, "POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["`+p.guid(1)+`","`+p.guid(2)+`"]}`)
	p.want(202, "POST", "/ufmRest/fabricValidation/tests/CheckLids", nil)
	p.awaitJob("/ufmRest/jobs/1")
	example := strings.NewReplacer("{pkey}", "0x5", "{guids}", p.guid(2), "{hosts}", "h1", "{id}", "1", "{system}",
		"h1", "{ports}", p.guid(1)+"_1", "{test}", "CheckLids", "{token}", "none")
	bodies := map[string]any{"pkey": "0x6", "guids": []string{p.guid(3)}, "hosts_names": "h3", "mtu_limit": 2,
		"rate_limit": 10, "service_level": 1, "token": "none", "monitor_object": "Port",
		"attributes": []string{"Infiniband_MBOut"}, "objects": []string{"Grid.default"}}
	answered := 0
	for path, item := range doc.Paths {
		servers := item.Servers
		if servers == nil {
			servers = doc.Servers
		}
		for method, op := range item.operations() {
			answered++
			for _, server := range servers {
				p.walk(strings.ToUpper(method), strings.TrimSuffix(server.URL, "/")+example.Replace(path), &op, bodies)
			}
		}
	}
	if answered != operations {
		t.Errorf("%d operations are documented, and there are %d", answered, operations)
	}
}

// walk makes a call that the document describes. Some of what the examples name may be gone already; what must not be
// is a route that is not there.
func (p *place) walk(method, path string, op *operation, values map[string]any) {
	p.t.Helper()
	var body map[string]any
	if op.RequestBody != nil {
		body = map[string]any{}
		for _, f := range op.RequestBody.Content["application/json"].Schema.Required {
			body[f] = values[f]
		}
	}
	r := p.do(method, path, body)
	if r.status == 405 || r.status >= 500 || !json.Valid([]byte(r.body)) || r.status == 404 &&
		into[Error](p.t, r).Field == "" {
		p.t.Errorf("%s %s: %d %.200s", method, path, r.status, r.body)
	}
	if _, ok := op.Responses[strconv.Itoa(r.status)]; r.status/100 == 2 && !ok {
		p.t.Errorf("%s %s: %d is not documented", method, path, r.status)
	}
	for f := range body {
		less := maps.Clone(body)
		delete(less, f)
		if r := p.do(method, path, less); r.status/100 != 4 {
			p.t.Errorf("%s %s without %s: %d", method, path, f, r.status)
		}
	}
}
