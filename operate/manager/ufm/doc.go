// Package ufm serves the REST interface of NVIDIA's UFM over a running softib fabric, so that programs which were
// written for UFM work unmodified.
//
// UFM's partitions ("pkeys") are softib's tenants: a GUID that is added here is in the port's table when the call
// returns, and a tenant that was made on the command line is shown here. The same resources are served under three
// roots, which differ in how callers say who they are:
//
//	/ufmRest     user and password (HTTP basic authentication), or a client certificate
//	/ufmRestV2   the cookie of a session, which POST /dologin opens with httpd_username and httpd_password
//	/ufmRestV3   an access token, which POST …/app/tokens gives out: "Authorization: Basic <token>"
//
// A server on a loopback address without any credential is open: it takes whatever a caller shows, so that clients
// which insist on a password work at once. Everywhere else CheckListen wants TLS and a credential before a server
// starts.
//
// # Who calls what
//
// What the clients do was read in their sources; clients_test.go plays it, with what each of them accepts.
//
//	client                      call                                                what it needs
//	ib-kubernetes               GET  /ufmRest/app/ufm_version                       status 200 and no other
//	                            POST /ufmRest/resources/pkeys                       200; pkey as 0x%04X in capitals, index0, ip_over_ib, membership, guids
//	                            POST /ufmRest/actions/remove_guids_from_pkey        200, also for GUIDs that are no members
//	                            GET  /ufmRest/resources/pkeys/?guids_data=true      an object by key with guids[].guid as 16 digits; a slash before the question mark
//	                            GET  /ufmRest/resources/pkeys/last_updated          null, or a time as date(1) writes it, to compare with the Date of answers (newer versions)
//	infra-controller            GET  app/smconf                                     subnet_prefix, m_key, sm_key, sa_key as strings, m_key_per_port
//	(V3, or ufmRest with a      GET  resources/pkeys?qos_conf=true, ?guids_data=true partition and ip_over_ib always, qos_conf with three numbers, the default's membership
//	certificate)                GET  resources/pkeys/0x1?guids_data=true…           200 with exactly {} is "not found"; so is a partition whose last GUID was removed
//	                            POST resources/pkeys, PUT resources/pkeys/qos_conf  status 200 and no other
//	                            GET  resources/ports?sys_type=Computer              guid, name, systemID, lid, dname, system_name, physical_state, logical_state
//	UFM SDK                     POST app/tokens with {}                             access_token, for "Authorization: Basic <token>" under V3
//	                            GET  resources/links?page_number=1&rpp=1000000000   an object with data
//	                            PUT  resources/pkeys with memberships               200
//	                            DELETE resources/pkeys/0x1 with the body {}         200, or 404
//	                            GET, DELETE app/events/1                            200
//	                            POST fabricValidation/tests/CheckLids               202, …/jobs/1 somewhere in the body; then jobs/1 with Status until it is not Running,
//	                                                                                then jobs?parent_id=1 with ID and Summary
//	SLURM plugin                POST resources/pkeys/hosts                          hosts_names is SLURM_JOB_NODELIST (h[1-4],h7), ip_over_ib and index0 may be "True"
//	                            DELETE resources/pkeys/0x1/hosts/h[1-4],h7          nothing
//	                            GET  monitoring/session/0/data                      one time; under it Port, names as GUID_NUMBER, statistics (before telemetry had its own port)
//	                            GET  monitoring/aggr_topx?object=servers&attr=bw    data.device.TxBW, data.port.RxBW, …: rows of name, description, value
//	IBM's Big Data Store        POST monitoring/snapshot                            one time; under it Port, by name objects with statistics
//	LiCO (Lenovo)               POST monitoring/snapshot of Grid.default.GUID       Device by GUID, then Port by GUID_NUMBER, with dname, last_updated, statistics
//	others                      POST monitoring/start                               Location is /ufmRest/monitoring/session/1; then …/data, and DELETE
//	networking-mlnx-baremetal   GET  resources/pkeys?guids_data=False               capitals in booleans
//	                            PUT, POST resources/pkeys/                          any status below 400
//	                            DELETE resources/pkeys/0x1/guids/a,b                any status below 400
//
// Decisions that UFM leaves open, or that differ from it:
//
//   - A partition that was made here without a name is called api_pkey_0x1, as in UFM, and goes away with its last
//     GUID. One with a name of its own stays.
//   - 0x7fff is "management": it can be looked at and not be changed. Keys with the membership bit mean the same
//     partition as without.
//   - A change has been made, and proved, when its answer comes. Where UFM would answer with a job (hosts), the job has
//     ended already.
//   - Tokens are stored as hashes. A list of tokens shows how each begins, and that is enough to revoke it.
//   - A session of monitoring shows the manager's last sample, whatever its interval is: that is a second old at most,
//     or five on large fabrics. It ends when nobody asks for it. How monitoring/attributes is laid out is our own
//     guess: clients only look whether names are in it.
//   - monitoring/congestion, monitoring/port_groups and resources/health are not served: what they answer is not
//     written anywhere that we have found.
//   - Every wrong request gets a status of 400 or above with {"error": …, "field": …}, and has changed nothing.
//
// The package knows HTTP and JSON. It does not know datagrams: all it shows comes from package manager, and all it
// changes goes through the book of tenants.
//
//	creds, err := ufm.OpenCredentials(dir)
//	err = ufm.CheckListen(addr, tlsConfig != nil, creds.Any() || clientCAs)
//	s, err := ufm.New(ufm.Config{Manager: m, Tenants: book, Credentials: creds, Loopback: ufm.IsLoopback(addr)})
//	defer s.Close()
//	mux.Handle("/ufmRest/", s) // and what else s.Roots() names
package ufm
