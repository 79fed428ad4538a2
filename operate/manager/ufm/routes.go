package ufm

import (
	"net/http"
	"strings"
)

// Parameters that several routes have.
var (
	pages = []param{
		{name: "page_number", kind: "integer", about: "which page, from 1; the answer is then an object with data"},
		{name: "rpp", kind: "integer", about: "results per page"},
	}
	partitionShown = []param{
		{name: "guids_data", kind: "boolean", about: "with the GUIDs"},
		{name: "qos_conf", kind: "boolean", about: "with service level, rate and MTU"},
	}
	keyField = param{name: "pkey", kind: "string", about: "partition key in hexadecimal with 0x or in decimal",
		required: true}
	guidsField = param{name: "guids", kind: "array", about: "port GUIDs of 16 hexadecimal digits", required: true}
	newFields  = []param{
		{name: "partition_name", kind: "string", about: "name of a partition that is new; api_pkey_KEY without"},
		{name: "index0", kind: "boolean", about: "the key is first in the ports' tables; false without"},
		{name: "ip_over_ib", kind: "boolean", about: "IP over InfiniBand runs in it; true without"},
		{name: "mtu_limit", kind: "number", about: "2 or 4 (KiB), or bytes"},
		{name: "rate_limit", kind: "number", about: "Gb/s"},
		{name: "service_level", kind: "integer", about: "0 to 15"},
	}
	monitorFields = []param{
		{name: "scope_object", kind: "string", about: "Site, Device or Port: what objects are; Site without"},
		{name: "monitor_object", kind: "string", about: "Device or Port: what is shown", required: true},
		{name: "attributes", kind: "array", about: "names, as monitoring/attributes has them", required: true},
		{name: "functions", kind: "array", about: "RAW; so without"},
		{name: "interval", kind: "integer", about: "seconds between questions, 1 to 3600; 30 without"},
		{name: "objects", kind: "array", about: "Grid.default for all, Grid.default.GUID, Grid.default.GUID_PORT",
			required: true},
	}
	memberFields = []param{
		{name: "membership", kind: "string", about: "full or limited, of all; full without"},
		{name: "memberships", kind: "array", about: "full or limited, for each of the GUIDs"},
	}
)

func with(lists ...[]param) (out []param) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// table is all there is: the router, the authentication and the document are made of it.
func (s *Server) table() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	list := []route{
		{method: get, path: "/openapi.json", outside: true, id: "document", summary: "This document.", answer: "object",
			serve: s.serveDocument},
		{method: post, path: "/dologin", outside: true, id: "login",
			summary: "Open a session for /ufmRestV2; its cookie comes with the answer.", answer: "object",
			serve: s.login,
			body: []param{{name: "httpd_username", kind: "string", about: "user"},
				{name: "httpd_password", kind: "string", about: "password"}}},
		{method: post, path: "/logout", outside: true, id: "logout", summary: "End a session.", answer: "object",
			serve: s.logout},

		{method: get, path: "/app/ufm_version", id: "version", summary: "Versions of the server.", answer: "Version",
			serve: s.version},
		{method: get, path: "/app/smconf", id: "smConfig", summary: "The subnet manager's configuration.",
			answer: "object", serve: s.smConfig,
			query: []param{{name: "param_name", kind: "string", about: "this value only"}}},
		{method: get, path: "/app/events", id: "events", summary: "What happened, oldest first.", answer: "Event[]",
			serve: s.events,
			query: with([]param{{name: "object_name", kind: "string", about: "of this object"},
				{name: "type", kind: "string", about: "of this type"},
				{name: "category", kind: "string", about: "of this category"},
				{name: "severity", kind: "string", about: "Info, Warning or Critical"}}, pages)},
		{method: get, path: "/app/events/{id}", id: "event", summary: "One event.", answer: "Event", serve: s.event},
		{method: del, path: "/app/events/{id}", id: "deleteEvent", summary: "Show an event no more.", answer: "object",
			serve: s.deleteEvent},
		{method: get, path: "/app/alarms", id: "alarms", summary: "What is wrong now, the gravest first.",
			answer: "Alarm[]", serve: s.alarms,
			query: with([]param{{name: "device_id", kind: "string", about: "of this system, by GUID or name"}}, pages)},
		{method: get, path: "/app/alarms/{id}", id: "alarm", summary: "One alarm.", answer: "Alarm", serve: s.alarm},
		{method: del, path: "/app/alarms", id: "deleteAlarms",
			summary: "Clear the alarms of a system. What is still wrong raises a new one.", answer: "object",
			serve: s.deleteAlarms,
			query: []param{{name: "device_id", kind: "string", about: "the system, by GUID or name", required: true}}},
		{method: del, path: "/app/alarms/{id}", id: "deleteAlarm",
			summary: "Clear an alarm. What is still wrong raises a new one.", answer: "object", serve: s.deleteAlarm},
		{method: get, path: "/app/tokens", id: "tokens", summary: "Your access tokens. Of each is shown how it begins.",
			answer: "Token[]", serve: s.tokenList},
		{method: post, path: "/app/tokens", id: "issueToken",
			summary: "A new access token for /ufmRestV3. It is shown only now.", answer: "Token", serve: s.tokenIssue},
		{method: post, path: "/app/tokens/revoke", id: "revokeToken", summary: "Revoke one of your access tokens.",
			answer: "object", serve: s.tokenRevoke,
			body: []param{{name: "token", kind: "string", about: "the token, or how it begins", required: true}}},
		{method: del, path: "/app/tokens/{token}", id: "deleteToken",
			summary: "Revoke one of your access tokens, by the token or how it begins.", answer: "object",
			serve: s.tokenDelete},

		{method: get, path: "/resources/systems", id: "systems", summary: "Hosts and switches.", answer: "System[]",
			serve: s.systems,
			query: with([]param{{name: "type", kind: "string", about: "host, switch, router or gateway"}}, pages)},
		{method: get, path: "/resources/systems/{system}", id: "system", summary: "One system, by GUID or name.",
			answer: "System[]", serve: s.system},
		{method: get, path: "/resources/ports", id: "ports", summary: "Ports.", answer: "Port[]", serve: s.ports,
			query: with([]param{{name: "system", kind: "string", about: "of this system, by GUID or name"},
				{name: "active", kind: "boolean", about: "only those whose link is up"},
				{name: "external", kind: "boolean", about: "only those that a cable is plugged into"},
				{name: "sys_type", kind: "string", about: "Computer or Switch"},
				{name: "high_ber_only", kind: "boolean", about: "only those whose cable damages signals"},
				{name: "high_ber_severity", kind: "string", about: "warning or error, of those"},
				{name: "show_disabled", kind: "boolean", about: "those that are disabled too; true without"}}, pages)},
		{method: get, path: "/resources/ports/{ports}", id: "portsByName",
			summary: "Ports by name (GUID_NUMBER), with commas.", answer: "Port[]", serve: s.portsByName},
		{method: get, path: "/resources/links", id: "links", summary: "Links that are up.", answer: "Link[]",
			serve: s.links,
			query: with([]param{{name: "system", kind: "string", about: "of this system, by GUID or name"},
				{name: "cable_info", kind: "boolean", about: "with what is known of the cable"},
				{name: "monitoring_counters_info", kind: "boolean", about: "with the counters of both ends"}}, pages)},
		{method: get, path: "/app/links", id: "appLinks", summary: "As /resources/links, for other clients.",
			answer: "Link[]", serve: s.links,
			query: with([]param{{name: "system", kind: "string", about: "of this system, by GUID or name"},
				{name: "cable_info", kind: "boolean", about: "with what is known of the cable"},
				{name: "monitoring_counters_info", kind: "boolean", about: "with the counters of both ends"}}, pages)},
		{method: get, path: "/resources/vports", id: "virtualPorts",
			summary: "Virtual ports: adapters here have no virtual functions, so there are none.", answer: "object[]",
			serve: s.none, query: with([]param{{name: "system", kind: "string", about: "of this system"},
				{name: "port", kind: "string", about: "of this port"}}, pages)},
		{method: get, path: "/resources/modules", id: "modules",
			summary: "Modules of a chassis: switches here have none.", answer: "object[]", serve: s.none,
			query: with([]param{{name: "system", kind: "string", about: "of this system"}}, pages)},

		{method: get, path: "/resources/pkeys", id: "partitions",
			summary: "All partitions: their keys, or an object by key where more is asked for.", answer: "Partitions",
			serve: s.partitions, query: partitionShown},
		{method: get, path: "/resources/pkeys/last_updated", id: "partitionsUpdated",
			summary: "When a partition was last changed; null if none was since the server began.", answer: "Updated",
			serve: s.partitionsUpdated},
		{method: get, path: "/resources/pkeys/{pkey}", id: "partition",
			summary: "One partition. A key that has none gets {}.", answer: "Partition", serve: s.partition,
			query: partitionShown},
		{method: post, path: "/resources/pkeys", id: "addGUIDs",
			summary: "Add ports to a partition, which is made if there is none.", answer: "object", serve: s.addGUIDs,
			body: with([]param{keyField, guidsField}, memberFields, newFields)},
		{method: put, path: "/resources/pkeys", id: "setGUIDs",
			summary: "Set the ports of a partition, which is made if there is none.", answer: "object",
			serve: s.setGUIDs, body: with([]param{keyField, guidsField}, memberFields, newFields)},
		{method: post, path: "/resources/pkeys/add", id: "addPartition", summary: "Make a partition without ports.",
			answer: "object", status: http.StatusCreated, serve: s.addPartition,
			body: with([]param{keyField}, newFields)},
		{method: del, path: "/resources/pkeys/{pkey}", id: "deletePartition", summary: "Delete a partition.",
			answer: "object", serve: s.deletePartition},
		{method: del, path: "/resources/pkeys/{pkey}/guids/{guids}", id: "removeGUIDs",
			summary: "Take ports out of a partition, by GUIDs with commas.", answer: "object", serve: s.removeGUIDs},
		{method: post, path: "/resources/pkeys/hosts", id: "addHosts",
			summary: "Add all ports of hosts to a partition.", answer: "Job", status: http.StatusAccepted,
			serve: s.addHosts,
			body: with([]param{keyField, {name: "hosts_names", kind: "string",
				about: "names with commas and ranges: h1,h[3-8]", required: true}}, memberFields[:1], newFields)},
		{method: del, path: "/resources/pkeys/{pkey}/hosts/{hosts}", id: "removeHosts",
			summary: "Take all ports of hosts out of a partition.", answer: "Job", status: http.StatusAccepted,
			serve: s.removeHosts},
		{method: put, path: "/resources/pkeys/qos_conf", id: "setQoS",
			summary: "Set service level, rate and MTU of a partition.", answer: "object", serve: s.setQoS,
			body: with([]param{keyField}, required(newFields[3:]))},
		{method: post, path: "/resources/pkeys/qos_conf", id: "setQoSByPost", summary: "As PUT; some clients post.",
			answer: "object", serve: s.setQoS, body: with([]param{keyField}, required(newFields[3:]))},
		{method: post, path: "/actions/remove_guids_from_pkey", id: "removeGUIDsAction",
			summary: "Take ports out of a partition. Those that are no members are passed over.", answer: "object",
			serve: s.removeGUIDsAction, body: []param{keyField, guidsField}},
		{method: post, path: "/actions/add_guids_to_pkey", id: "addGUIDsAction",
			summary: "As POST /resources/pkeys, for older clients.", answer: "object", serve: s.addGUIDs,
			body: with([]param{keyField, guidsField}, memberFields, newFields)},
		{method: get, path: "/actions/get_all_pkeys", id: "partitionsAction",
			summary: "As GET /resources/pkeys, for older clients.", answer: "Partitions", serve: s.partitions,
			query: partitionShown},

		{method: get, path: "/monitoring/attributes", id: "monitorable", summary: "What can be monitored.",
			answer: "Attributes", serve: s.monitorable},
		{method: post, path: "/monitoring/snapshot", id: "snapshot",
			summary: "Counters and rates as last sampled: by time, class and name, an object with statistics.",
			answer:  "object", serve: s.snapshot, body: monitorFields},
		{method: post, path: "/monitoring/start", id: "startMonitor",
			summary: "Begin a session, which shows the same again and again. It ends when nobody asks for ten " +
				"minutes and two intervals.",
			answer: "Monitor", status: http.StatusAccepted, serve: s.startMonitor, body: monitorFields},
		{method: get, path: "/monitoring/session/{id}", id: "monitor",
			summary: "What a session shows. Number 0 is always there and has everything.", answer: "Monitor",
			serve: s.showMonitor},
		{method: get, path: "/monitoring/session/{id}/data", id: "monitorData",
			summary: "What a session shows now, as a snapshot does.", answer: "object", serve: s.monitorData,
			query: []param{{name: "pkey", kind: "string", about: "only what is in this partition"}}},
		{method: del, path: "/monitoring/session/{id}", id: "deleteMonitor", summary: "End a session.",
			answer: "object", serve: s.deleteMonitor},
		{method: get, path: "/monitoring/aggr_topx", id: "topX",
			summary: "Those that send and receive, wait and are waited for most, or have most alarms: ten " +
				"systems, ten ports.",
			answer: "object", serve: s.topX,
			query: []param{{name: "object", kind: "string", about: "servers or switches", required: true},
				{name: "attr", kind: "string", about: "bw, cong or alarms", required: true}}},

		{method: get, path: "/fabricValidation/tests", id: "tests", summary: "Names of the tests that can be run.",
			answer: "string[]", serve: s.tests},
		{method: post, path: "/fabricValidation/tests/{test}", id: "runTest", summary: "Run a test as a job.",
			answer: "Job", status: http.StatusAccepted, serve: s.runTest},
		{method: get, path: "/jobs", id: "jobs", summary: "Jobs, newest first.", answer: "Job[]", serve: s.jobList,
			query: []param{{name: "parent_id", kind: "string",
				about: "parts of this job; null for jobs that are no parts"},
				{name: "operation", kind: "string", about: "of this operation"},
				{name: "status", kind: "string", about: "with this status"},
				{name: "object_ids", kind: "string", about: "about these systems, with commas"}}},
		{method: get, path: "/app/jobs", id: "appJobs", summary: "As /jobs, for other clients.", answer: "Job[]",
			serve: s.jobList,
			query: []param{{name: "parent_id", kind: "string",
				about: "parts of this job; null for jobs that are no parts"},
				{name: "operation", kind: "string", about: "of this operation"},
				{name: "status", kind: "string", about: "with this status"},
				{name: "object_ids", kind: "string", about: "about these systems, with commas"}}},
		{method: get, path: "/app/jobs/{id}", id: "appJob", summary: "As /jobs/{id}.", answer: "Job", serve: s.job},
		{method: get, path: "/jobs/{id}", id: "job", summary: "One job; several IDs with commas get a list.",
			answer: "Job", serve: s.job},
		{method: del, path: "/jobs/{id}", id: "deleteJob", summary: "Forget a job, which ends if it runs.",
			answer: "object", serve: s.deleteJob},
	}
	for i := range list {
		list[i].parts = strings.Split(list[i].path, "/")[1:]
		if list[i].status == 0 {
			list[i].status = http.StatusOK
		}
	}
	return list
}

// required are parameters that must be there.
func required(list []param) []param {
	out := append([]param(nil), list...)
	for i := range out {
		out[i].required = true
	}
	return out
}
