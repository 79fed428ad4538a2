package ufm

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// object is a JSON object; keys are written in order.
type object = map[string]any

// shapes are the schemas of answers, by the types that are written.
var shapes = map[string]reflect.Type{
	"Event": reflect.TypeFor[eventShape](), "Alarm": reflect.TypeFor[alarmShape](),
	"Token": reflect.TypeFor[tokenShape](), "System": reflect.TypeFor[systemShape](),
	"Port": reflect.TypeFor[portShape](),
	"Link": reflect.TypeFor[linkShape](), "Partition": reflect.TypeFor[partitionShape](),
	"Job": reflect.TypeFor[jobShape](), "Error": reflect.TypeFor[Error](), "Updated": reflect.TypeFor[updatedShape](),
	"Attributes": reflect.TypeFor[attributesShape](), "Monitor": reflect.TypeFor[monitorShape](),
}

// openAPI is the document of the interface, made of the table of routes.
func (s *Server) openAPI() ([]byte, error) {
	schemas := object{
		"Version": object{"type": "object", "required": []string{"ufm_release_version"},
			"properties": object{"ufm_release_version": object{"type": "string"}}},
		"Partitions": object{"description": "keys alone, or an object by key",
			"oneOf": []any{object{"type": "array", "items": object{"type": "string"}},
				object{"type": "object", "additionalProperties": ref("Partition")}}},
	}
	for name, t := range shapes {
		schemas[name] = schemaOf(t)
	}
	paths := object{}
	for i := range s.routes {
		r := &s.routes[i]
		at, _ := paths[r.path].(object)
		if at == nil {
			at = object{}
			paths[r.path] = at
		}
		if r.outside { // of the roots
			at["servers"] = []any{object{"url": "/"}}
		}
		at[strings.ToLower(r.method)] = r.document()
	}
	var servers, security []any
	for _, x := range roots {
		w := schemeWords[x.scheme]
		servers = append(servers, object{"url": x.path, "description": w.about})
		security = append(security, object{w.name: []string{}})
	}
	// A certificate is as good everywhere, and an open server wants nothing.
	security = append(security, object{"certificate": []string{}}, object{})
	doc := object{
		"openapi": "3.0.3",
		"info": object{"title": "softib: UFM REST", "version": interfaceVersion,
			"description": "The REST interface of UFM over a fabric in software. Partitions are tenants: a " +
				"change is in force, and proved, when its answer comes. Every wrong request gets a status of " +
				"400 or above with error and field, and has changed nothing."},
		"servers": servers, "security": security, "paths": paths,
		"components": object{"schemas": schemas, "securitySchemes": object{
			"password":    object{"type": "http", "scheme": "basic"},
			"certificate": object{"type": "mutualTLS"},
			"session":     object{"type": "apiKey", "in": "cookie", "name": cookieName},
			"token": object{"type": "apiKey", "in": "header", "name": "Authorization",
				"description": "Basic TOKEN"},
		}},
	}
	return json.MarshalIndent(doc, "", "  ")
}

// schemeWords are how the document calls what a root wants.
var schemeWords = [numScheme]struct{ name, about string }{
	basicAuth:   {"password", "with a user and a password, or a client certificate"},
	sessionAuth: {"session", "with the cookie of POST /dologin, or a client certificate"},
	tokenAuth:   {"token", "with a token of POST /app/tokens, or a client certificate"},
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// document describes a route.
func (r *route) document() object {
	answer := object{"type": "object"}
	if name, ok := strings.CutSuffix(r.answer, "[]"); ok {
		item := ref(name)
		if name == "string" || name == "object" {
			item = object{"type": name}
		}
		answer = object{"type": "array", "items": item}
	} else if r.answer != "object" {
		answer = ref(r.answer)
	}
	content := func(schema object) object { return object{"application/json": object{"schema": schema}} }
	op := object{"operationId": r.id, "summary": r.summary, "responses": object{
		strconv.Itoa(r.status): object{"description": http.StatusText(r.status), "content": content(answer)},
		"default": object{"description": "refused, and nothing was changed",
			"content": content(ref("Error"))},
	}}
	if r.outside {
		op["security"] = []any{}
	}
	var params []any
	for _, p := range r.parts {
		if p[0] == '{' {
			params = append(params, object{"name": p[1 : len(p)-1], "in": "path", "required": true,
				"schema": object{"type": "string"}})
		}
	}
	for _, p := range r.query {
		params = append(params, object{"name": p.name, "in": "query", "required": p.required, "description": p.about,
			"schema": object{"type": p.kind}})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.body != nil {
		fields, needed := object{}, []string{}
		for _, p := range r.body {
			f := object{"type": p.kind, "description": p.about}
			if p.kind == "array" {
				f["items"] = object{"type": "string"}
			}
			fields[p.name] = f
			if p.required {
				needed = append(needed, p.name)
			}
		}
		schema := object{"type": "object", "properties": fields, "additionalProperties": true}
		if len(needed) > 0 {
			schema["required"] = needed
		}
		op["requestBody"] = object{"required": len(needed) > 0, "content": content(schema)}
	}
	return op
}

// schemaOf describes a type as encoding/json writes it.
func schemaOf(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Pointer:
		o := schemaOf(t.Elem())
		o["nullable"] = true
		return o
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		fields, needed := object{}, []string{}
		for i := range t.NumField() {
			name, rest, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if !t.Field(i).IsExported() || name == "-" || name == "" {
				continue
			}
			fields[name] = schemaOf(t.Field(i).Type)
			if !strings.Contains(rest, "omitempty") {
				needed = append(needed, name)
			}
		}
		return object{"type": "object", "properties": fields, "required": needed}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	}
	return object{"type": "integer"}
}

// serveDocument serves the document.
func (s *Server) serveDocument(c *call) error {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(s.document)))
	c.w.Write(s.document)
	return nil
}
