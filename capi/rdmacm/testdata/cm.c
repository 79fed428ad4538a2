/*
 * The calls of librdmacm, one by one, on host h1 of a fabric that has a host
 * h2, but no program there. Peers are in this process.
 */
#include "rig.h"

#define OWN "198.18.0.1"
#define OTHER "198.18.0.2"

enum { SOON_MS = 2000, LONG_MS = 30000 };

static int readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *c = rdma_create_event_channel();

	if (!c)
		DIE("no channel");
	return c;
}

/* The next event, which must be of this kind. One end's time wait may be over before the other end hears of the end. */
static struct rdma_cm_event *next(struct rdma_event_channel *c, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	for (;;) {
		if (!readable(c->fd, LONG_MS))
			DIE("no event, want %s", rdma_event_str(type));
		OK(rdma_get_cm_event(c, &e));
		if (e->event != RDMA_CM_EVENT_TIMEWAIT_EXIT || type == RDMA_CM_EVENT_TIMEWAIT_EXIT)
			break;
		OK(rdma_ack_cm_event(e));
	}
	if (e->event != type)
		DIE("%s with status %d, want %s", rdma_event_str(e->event), e->status, rdma_event_str(type));
	return e;
}

static void expect(struct rdma_event_channel *c, enum rdma_cm_event_type type)
{
	OK(rdma_ack_cm_event(next(c, type)));
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *c, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	OK(rdma_create_id(c, &id, c, ps));
	return id;
}

static struct rdma_cm_id *listener(struct rdma_event_channel *c, enum rdma_port_space ps, int port)
{
	struct rdma_cm_id *id = new_id(c, ps);

	OK(rdma_bind_addr(id, v4("0.0.0.0", port)));
	OK(rdma_listen(id, 128));
	return id;
}

/* An id with a route to a port. */
static struct rdma_cm_id *routed(struct rdma_event_channel *c, enum rdma_port_space ps, const char *host, int port)
{
	struct rdma_cm_id *id = new_id(c, ps);

	OK(rdma_resolve_addr(id, NULL, v4(host, port), SOON_MS));
	expect(c, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, SOON_MS));
	expect(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = id->ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD,
		.sq_sig_all = 1,
	};

	OK(rdma_create_qp(id, NULL, &attr));
	WANT(attr.send_cq == id->send_cq && attr.recv_cq == id->recv_cq && attr.cap.max_send_wr >= 4);
}

static void test_addresses(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = new_id(c, RDMA_PS_TCP), *other;
	struct sockaddr_storage odd = { .ss_family = AF_UNIX };

	WANT(id->channel == c && id->context == c && id->ps == RDMA_PS_TCP && id->qp_type == IBV_QPT_RC && !id->verbs);
	REFUSED(EINVAL, rdma_bind_addr(id, NULL));
	REFUSED(EINVAL, rdma_bind_addr(id, (struct sockaddr *)&odd));
	REFUSED(EINVAL, rdma_resolve_addr(id, NULL, (struct sockaddr *)&odd, SOON_MS));
	REFUSED(EINVAL, rdma_resolve_addr(id, (struct sockaddr *)&odd, v4(OTHER, 1), SOON_MS));
	errno = 0;
	WANT(rdma_bind_addr(id, v4("192.0.2.1", 0)) == -1 && (errno == ENODEV || errno == EADDRNOTAVAIL));
	WANT(rdma_get_src_port(id) == 0);

	OK(rdma_bind_addr(id, v4(OWN, 0)));
	WANT(id->verbs && id->pd && id->port_num == 1 && rdma_get_src_port(id) != 0);
	WANT(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr ==
		((struct sockaddr_in *)v4(OWN, 0))->sin_addr.s_addr);
	WANT(id->route.addr.addr.ibaddr.sgid.global.subnet_prefix != 0 &&
		be16toh(id->route.addr.addr.ibaddr.pkey) == 0xffff);
	REFUSED(EINVAL, rdma_bind_addr(id, v4(OWN, 0)));
	OK(rdma_listen(id, 1));
	other = new_id(c, RDMA_PS_TCP);
	REFUSED(EADDRINUSE, rdma_bind_addr(other, v4(OWN, ntohs(rdma_get_src_port(id)))));
	OK(rdma_destroy_id(other));
	OK(rdma_destroy_id(id));

	/* An id that is bound to nothing listens on some port. */
	id = new_id(c, RDMA_PS_TCP);
	OK(rdma_listen(id, 1));
	WANT(rdma_get_src_port(id) != 0);
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(c);
}

static void test_routes(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = new_id(c, RDMA_PS_TCP);
	struct rdma_cm_event *e;
	struct ibv_context **devices;
	int n;

	REFUSED(EINVAL, rdma_resolve_route(id, SOON_MS));
	OK(rdma_resolve_addr(id, NULL, v4(OTHER, 4711), SOON_MS));
	e = next(c, RDMA_CM_EVENT_ADDR_RESOLVED);
	WANT(e->id == id && e->status == 0 && id->verbs && rdma_get_dst_port(id) == htons(4711));
	OK(rdma_ack_cm_event(e));
	OK(rdma_resolve_route(id, SOON_MS));
	expect(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
	WANT(id->route.num_paths == 1 && id->route.path_rec);
	WANT(id->route.path_rec->dlid && id->route.path_rec->slid && id->route.path_rec->slid != id->route.path_rec->dlid);
	WANT(id->route.path_rec->mtu == IBV_MTU_4096 && id->route.path_rec->mtu_selector == 2 &&
		id->route.path_rec->reversible);
	WANT(!memcmp(&id->route.path_rec->dgid, &id->route.addr.addr.ibaddr.dgid, 16));
	WANT(!memcmp(&id->route.path_rec->sgid, &id->route.addr.addr.ibaddr.sgid, 16));
	WANT((devices = rdma_get_devices(&n)) && n == 1 && devices[0] == id->verbs && !devices[1]);
	rdma_free_devices(devices);
	OK(rdma_destroy_id(id));

	/* An address that no host has. */
	id = new_id(c, RDMA_PS_TCP);
	if (rdma_resolve_addr(id, NULL, v4("198.18.200.1", 4711), 100) == 0) {
		e = next(c, RDMA_CM_EVENT_ADDR_ERROR);
		WANT(e->status < 0);
		OK(rdma_ack_cm_event(e));
	}
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(c);
}

static void send_text(struct rdma_cm_id *from, struct rdma_cm_id *to, const char *text)
{
	char there[64] = "", here[64];
	struct ibv_mr *a, *b;
	struct ibv_wc wc;

	strcpy(here, text);
	a = rdma_reg_msgs(from, here, sizeof(here));
	b = rdma_reg_msgs(to, there, sizeof(there));
	WANT(a && b);
	OK(rdma_post_recv(to, (void *)7, there, sizeof(there), b));
	OK(rdma_post_send(from, (void *)8, here, sizeof(here), a, 0));
	WANT(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 8);
	WANT(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 &&
		wc.byte_len == sizeof(here));
	WANT(!strcmp(there, text));
	OK(rdma_dereg_mr(a));
	OK(rdma_dereg_mr(b));
}

static void test_connect(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *l = listener(c, RDMA_PS_TCP, 4711), *a, *p;
	struct rdma_conn_param param = {
		.private_data = "question",
		.private_data_len = 9,
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 6,
		.rnr_retry_count = 4,
	};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rdma_cm_event *e;

	a = routed(c, RDMA_PS_TCP, OWN, 4711);
	REFUSED(EINVAL, rdma_connect(a, NULL)); /* neither a queue pair nor words about one */
	REFUSED(EINVAL, rdma_accept(a, NULL));
	REFUSED(EINVAL, rdma_create_qp(l, NULL, &(struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC }));
	give_qp(a);
	REFUSED(EINVAL, rdma_create_qp(a, NULL, &(struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC }));
	REFUSED(EINVAL, rdma_establish(a));
	param.responder_resources = 254;
	REFUSED(EINVAL, rdma_connect(a, &param));
	param.responder_resources = 3;
	OK(rdma_connect(a, &param));

	e = next(c, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	WANT(e->listen_id == l && p != l && p->context == l->context && p->verbs && p->channel == c);
	WANT(e->param.conn.private_data_len >= 9 && !strcmp(e->param.conn.private_data, "question"));
	/* Each side is told what it may do, not what the other may. */
	WANT(e->param.conn.initiator_depth == 3 && e->param.conn.responder_resources == 5);
	WANT(e->param.conn.retry_count == 6 && e->param.conn.rnr_retry_count == 4 && e->param.conn.qp_num == a->qp->qp_num);
	WANT(rdma_get_dst_port(p) == rdma_get_src_port(a) && rdma_get_src_port(p) == htons(4711));
	WANT(p->route.num_paths == 1);
	OK(rdma_ack_cm_event(e));
	give_qp(p);
	param = (struct rdma_conn_param){
		.private_data = "answer",
		.private_data_len = 7,
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.rnr_retry_count = 7,
	};
	OK(rdma_accept(p, &param));

	/* Both are told; in which order is open. */
	for (int i = 0; i < 2; i++) {
		e = next(c, RDMA_CM_EVENT_ESTABLISHED);
		WANT(e->id == a || e->id == p);
		if (e->id == a)
			WANT(!strcmp(e->param.conn.private_data, "answer") && e->param.conn.qp_num == p->qp->qp_num);
		OK(rdma_ack_cm_event(e));
	}
	OK(ibv_query_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init));
	WANT(attr.qp_state == IBV_QPS_RTS && attr.max_rd_atomic == 5 && attr.max_dest_rd_atomic == 3);
	OK(ibv_query_qp(p->qp, &attr, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init));
	WANT(attr.qp_state == IBV_QPS_RTS && attr.max_rd_atomic == 3 && attr.max_dest_rd_atomic == 5);
	send_text(a, p, "there");
	send_text(p, a, "and back");

	OK(rdma_disconnect(a));
	OK(ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init));
	WANT(attr.qp_state == IBV_QPS_ERR);
	/* The peer is told first, and answers by disconnecting too. */
	e = next(c, RDMA_CM_EVENT_DISCONNECTED);
	WANT(e->id == p);
	OK(rdma_ack_cm_event(e));
	OK(rdma_disconnect(p));
	e = next(c, RDMA_CM_EVENT_DISCONNECTED);
	WANT(e->id == a);
	OK(rdma_ack_cm_event(e));
	rdma_destroy_qp(a);
	rdma_destroy_qp(p);
	WANT(!a->qp && !a->send_cq && !a->recv_cq);
	OK(rdma_destroy_id(a));
	OK(rdma_destroy_id(p));
	OK(rdma_destroy_id(l));
	rdma_destroy_event_channel(c);
}

static void test_reject(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *l = listener(c, RDMA_PS_TCP, 4712), *a;
	struct rdma_conn_param param = { .qp_num = 77, .retry_count = 7 };
	struct rdma_cm_event *e;

	a = routed(c, RDMA_PS_TCP, OWN, 4712);
	OK(rdma_connect(a, &param));
	e = next(c, RDMA_CM_EVENT_CONNECT_REQUEST);
	WANT(e->param.conn.qp_num == 77);
	OK(rdma_reject(e->id, "no", 3));
	OK(rdma_destroy_id(e->id));
	OK(rdma_ack_cm_event(e));
	e = next(c, RDMA_CM_EVENT_REJECTED);
	WANT(e->id == a && e->status == 28 && !strcmp(e->param.conn.private_data, "no"));
	OK(rdma_ack_cm_event(e));
	OK(rdma_destroy_id(a));

	a = routed(c, RDMA_PS_TCP, OWN, 4712);
	OK(rdma_connect(a, &param));
	e = next(c, RDMA_CM_EVENT_CONNECT_REQUEST);
	OK(rdma_reject_ece(e->id, NULL, 0));
	OK(rdma_destroy_id(e->id));
	OK(rdma_ack_cm_event(e));
	e = next(c, RDMA_CM_EVENT_REJECTED);
	WANT(e->status == 35);
	OK(rdma_ack_cm_event(e));
	OK(rdma_destroy_id(a));

	/* Nobody listens. */
	a = routed(c, RDMA_PS_TCP, OWN, 4713);
	OK(rdma_connect(a, &param));
	e = next(c, RDMA_CM_EVENT_REJECTED);
	WANT(e->status == 8);
	OK(rdma_ack_cm_event(e));
	OK(rdma_destroy_id(a));
	OK(rdma_destroy_id(l));
	rdma_destroy_event_channel(c);
}

/* Programs that have their queue pairs themselves; and options of vendors. */
static void test_establish(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *l = listener(c, RDMA_PS_TCP, 4714), *a, *p;
	struct rdma_conn_param param = { .qp_num = 0x1234, .retry_count = 7, .srq = 1 };
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 0x90000001 }, got;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_event *e;
	int mask;

	a = routed(c, RDMA_PS_TCP, OWN, 4714);
	OK(rdma_init_qp_attr(a, &attr, &mask));
	WANT(attr.qp_state == IBV_QPS_INIT &&
		mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) && attr.port_num == 1);
	REFUSED(EINVAL, rdma_set_local_ece(a, NULL));
	OK(rdma_set_local_ece(a, &ece));
	OK(rdma_connect(a, &param));
	e = next(c, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	WANT(e->param.conn.qp_num == 0x1234 && e->param.conn.srq == 1);
	OK(rdma_ack_cm_event(e));
	OK(rdma_get_remote_ece(p, &got));
	WANT(got.vendor_id == ece.vendor_id && got.options == ece.options && !got.comp_mask);
	ece.options = 1;
	OK(rdma_set_local_ece(p, &ece));
	param = (struct rdma_conn_param){ .qp_num = 0x4321, .rnr_retry_count = 7 };
	OK(rdma_accept(p, &param));
	e = next(c, RDMA_CM_EVENT_CONNECT_RESPONSE);
	WANT(e->id == a && e->param.conn.qp_num == 0x4321);
	OK(rdma_ack_cm_event(e));
	OK(rdma_get_remote_ece(a, &got));
	WANT(got.vendor_id == 0x15b3 && got.options == 1);
	attr.qp_state = IBV_QPS_RTR;
	OK(rdma_init_qp_attr(a, &attr, &mask));
	WANT(attr.dest_qp_num == 0x4321 && mask & IBV_QP_AV && attr.ah_attr.dlid);
	attr.qp_state = IBV_QPS_RTS;
	OK(rdma_init_qp_attr(a, &attr, &mask));
	WANT(mask & IBV_QP_SQ_PSN && mask & IBV_QP_TIMEOUT);
	OK(rdma_establish(a));
	e = next(c, RDMA_CM_EVENT_ESTABLISHED);
	WANT(e->id == p);
	OK(rdma_ack_cm_event(e));
	OK(rdma_destroy_id(a)); /* which disconnects */
	expect(c, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_destroy_id(p));
	OK(rdma_destroy_id(l));
	rdma_destroy_event_channel(c);
}

/* An id goes with its unread events to another channel; what is destroyed takes them along. */
static void test_migrate(void)
{
	struct rdma_event_channel *c = channel(), *d = channel();
	struct rdma_cm_id *a = new_id(c, RDMA_PS_TCP), *b = new_id(c, RDMA_PS_TCP);
	struct rdma_cm_event *e;

	OK(rdma_resolve_addr(a, NULL, v4(OTHER, 1), SOON_MS));
	OK(rdma_resolve_addr(b, NULL, v4(OTHER, 1), SOON_MS));
	WANT(readable(c->fd, LONG_MS));
	OK(rdma_migrate_id(a, d));
	WANT(a->channel == d);
	e = next(d, RDMA_CM_EVENT_ADDR_RESOLVED);
	WANT(e->id == a);
	OK(rdma_ack_cm_event(e));
	e = next(c, RDMA_CM_EVENT_ADDR_RESOLVED);
	WANT(e->id == b);
	OK(rdma_ack_cm_event(e));
	WANT(!readable(c->fd, 0) && !readable(d->fd, 0));

	/* Without a channel: calls wait. */
	OK(rdma_migrate_id(a, NULL));
	REFUSED(EINVAL, rdma_migrate_id(a, NULL));
	OK(rdma_resolve_route(a, SOON_MS));
	WANT(a->event && a->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	OK(rdma_migrate_id(a, d));
	WANT(!a->event && a->channel == d);
	OK(rdma_destroy_id(a));

	OK(rdma_resolve_route(b, SOON_MS));
	WANT(readable(c->fd, LONG_MS));
	OK(rdma_destroy_id(b));
	WANT(!readable(c->fd, 0));
	rdma_destroy_event_channel(c);
	rdma_destroy_event_channel(d);
}

static void *destroyer(void *id)
{
	OK(rdma_destroy_id(id));
	return NULL;
}

/* Destroying waits until events are acknowledged. */
static void test_acks(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = new_id(c, RDMA_PS_TCP);
	struct rdma_cm_event *e;
	struct timespec soon;
	pthread_t t;

	REFUSED(EINVAL, rdma_ack_cm_event(NULL));
	OK(fcntl(c->fd, F_SETFL, O_NONBLOCK));
	REFUSED(EAGAIN, rdma_get_cm_event(c, &e));
	REFUSED(EINVAL, rdma_get_cm_event(c, NULL));
	OK(rdma_resolve_addr(id, NULL, v4(OTHER, 1), SOON_MS));
	e = next(c, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(pthread_create(&t, NULL, destroyer, id));
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 50 * 1000000;
	soon.tv_sec += soon.tv_nsec / 1000000000;
	soon.tv_nsec %= 1000000000;
	WANT(pthread_timedjoin_np(t, NULL, &soon) == ETIMEDOUT);
	OK(rdma_ack_cm_event(e));
	OK(pthread_join(t, NULL));
	rdma_destroy_event_channel(c);
}

static void test_datagrams(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *l = listener(c, RDMA_PS_UDP, 4715), *a, *p;
	struct rdma_conn_param param = { .private_data = "who", .private_data_len = 4 };
	char here[64] = "by datagram", there[104] = "";
	struct rdma_cm_event *e;
	struct ibv_mr *from, *to;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	a = routed(c, RDMA_PS_UDP, OWN, 4715);
	WANT(a->qp_type == IBV_QPT_UD);
	give_qp(a);
	OK(rdma_connect(a, &param));
	e = next(c, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	WANT(!strcmp(e->param.ud.private_data, "who"));
	OK(rdma_ack_cm_event(e));
	give_qp(p);
	param = (struct rdma_conn_param){ .private_data = "me", .private_data_len = 3, .qp_num = p->qp->qp_num };
	OK(rdma_accept(p, &param));
	e = next(c, RDMA_CM_EVENT_ESTABLISHED);
	WANT(e->id == a && e->param.ud.qp_num == p->qp->qp_num && e->param.ud.qkey == RDMA_UDP_QKEY &&
		!strcmp(e->param.ud.private_data, "me"));
	WANT((ah = ibv_create_ah(a->pd, &e->param.ud.ah_attr)));
	OK(rdma_ack_cm_event(e));
	WANT((from = rdma_reg_msgs(a, here, sizeof(here))) && (to = rdma_reg_msgs(p, there, sizeof(there))));
	OK(rdma_post_recv(p, NULL, there, sizeof(there), to));
	OK(rdma_post_ud_send(a, NULL, here, sizeof(here), from, 0, ah, p->qp->qp_num));
	WANT(rdma_get_recv_comp(p, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(there + 40, here));
	OK(ibv_destroy_ah(ah));
	OK(rdma_dereg_mr(from));
	OK(rdma_dereg_mr(to));
	rdma_destroy_ep(a);
	rdma_destroy_ep(p);

	/* Nobody listens: the service is not there. */
	a = routed(c, RDMA_PS_UDP, OWN, 4716);
	OK(rdma_connect(a, &param));
	e = next(c, RDMA_CM_EVENT_UNREACHABLE);
	WANT(e->status != 0);
	OK(rdma_ack_cm_event(e));
	OK(rdma_destroy_id(a));
	OK(rdma_destroy_id(l));
	rdma_destroy_event_channel(c);
}

static void test_groups(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = new_id(c, RDMA_PS_UDP);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS, .addr = v4("239.9.9.8", 0) };
	char here[16] = "to all", there[56] = "";
	struct ibv_ah_attr way;
	struct rdma_cm_event *e;
	struct ibv_mr *from, *to;
	uint32_t qkey;
	struct ibv_ah *ah;
	struct ibv_sge part;
	struct ibv_send_wr wr = { .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;

	OK(rdma_bind_addr(id, v4(OWN, 0)));
	give_qp(id);
	OK(rdma_join_multicast(id, v4("239.9.9.9", 0), &here));
	e = next(c, RDMA_CM_EVENT_MULTICAST_JOIN);
	WANT(e->id == id && e->param.ud.private_data == &here && e->param.ud.qp_num == 0xffffff &&
		e->param.ud.ah_attr.is_global);
	way = e->param.ud.ah_attr;
	qkey = e->param.ud.qkey;
	WANT(way.grh.dgid.raw[0] == 0xff && way.dlid >= 0xc000);
	OK(rdma_ack_cm_event(e));
	WANT((ah = ibv_create_ah(id->pd, &way)));
	WANT((from = rdma_reg_msgs(id, here, sizeof(here))) && (to = rdma_reg_msgs(id, there, sizeof(there))));
	OK(rdma_post_recv(id, NULL, there, sizeof(there), to));
	part = (struct ibv_sge){ .addr = (uintptr_t)here, .length = sizeof(here), .lkey = from->lkey };
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = qkey;
	OK(ibv_post_send(id->qp, &wr, &bad));
	WANT(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(there + 40, here));

	REFUSED(EINVAL, rdma_join_multicast_ex(id, &attr, NULL));
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	REFUSED(EINVAL, rdma_join_multicast_ex(id, &attr, NULL));
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_RESERVED;
	REFUSED(ENOTSUP, rdma_join_multicast_ex(id, &attr, NULL));
	attr.comp_mask &= ~RDMA_CM_JOIN_MC_ATTR_RESERVED;
	attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	OK(rdma_join_multicast_ex(id, &attr, NULL));
	expect(c, RDMA_CM_EVENT_MULTICAST_JOIN);
	OK(rdma_leave_multicast(id, attr.addr));
	OK(rdma_leave_multicast(id, v4("239.9.9.9", 0)));
	REFUSED(EADDRNOTAVAIL, rdma_leave_multicast(id, v4("239.9.9.9", 0)));

	/* Left with its event unread. */
	OK(rdma_join_multicast(id, v4("239.9.9.7", 0), NULL));
	WANT(readable(c->fd, LONG_MS));
	OK(rdma_leave_multicast(id, v4("239.9.9.7", 0)));
	WANT(!readable(c->fd, 0));
	OK(ibv_destroy_ah(ah));
	OK(rdma_dereg_mr(from));
	OK(rdma_dereg_mr(to));
	rdma_destroy_ep(id);
	rdma_destroy_event_channel(c);
}

static void test_names(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *r;
	char own[16], text[INET6_ADDRSTRLEN];

	REFUSED(EINVAL, rdma_getaddrinfo(NULL, NULL, NULL, &r));
	OK(rdma_getaddrinfo("h2", "4717", &hints, &r));
	WANT(r->ai_family == AF_INET && r->ai_qp_type == IBV_QPT_RC && r->ai_port_space == RDMA_PS_TCP &&
		r->ai_dst_len == sizeof(struct sockaddr_in) && !r->ai_src_len);
	WANT(inet_ntop(AF_INET, &((struct sockaddr_in *)r->ai_dst_addr)->sin_addr, own, sizeof(own)) &&
		!strcmp(own, OTHER));
	WANT(((struct sockaddr_in *)r->ai_dst_addr)->sin_port == htons(4717));
	rdma_freeaddrinfo(r);

	hints = (struct rdma_addrinfo){ .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP };
	OK(rdma_getaddrinfo(NULL, "4717", &hints, &r));
	WANT(r->ai_flags & RAI_PASSIVE && r->ai_src_len && !r->ai_dst_len && r->ai_qp_type == IBV_QPT_UD);
	rdma_freeaddrinfo(r);

	hints = (struct rdma_addrinfo){ .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP };
	WANT(rdma_getaddrinfo("no-number", "1", &hints, &r) == EAI_NONAME);
	OK(rdma_getaddrinfo("::1", "1", &hints, &r));
	WANT(r->ai_family == AF_INET6);
	rdma_freeaddrinfo(r);
	hints.ai_flags |= RAI_FAMILY;
	hints.ai_family = AF_IB;
	OK(rdma_getaddrinfo("fe80::1", "1", &hints, &r));
	WANT(r->ai_family == AF_IB && r->ai_dst_len == 48);
	WANT(inet_ntop(AF_INET6, (char *)r->ai_dst_addr + 8, text, sizeof(text)) && !strcmp(text, "fe80::1"));
	rdma_freeaddrinfo(r);

	/* From addresses alone. */
	hints = (struct rdma_addrinfo){ .ai_port_space = RDMA_PS_TCP,
		.ai_qp_type = IBV_QPT_RC,
		.ai_src_addr = v4(OWN, 0),
		.ai_dst_addr = v4(OTHER, 5) };
	hints.ai_src_len = hints.ai_dst_len = sizeof(struct sockaddr_in);
	OK(rdma_getaddrinfo(NULL, NULL, &hints, &r));
	WANT(r->ai_src_len == sizeof(struct sockaddr_in) && r->ai_dst_len == sizeof(struct sockaddr_in) && !r->ai_next);
	rdma_freeaddrinfo(r);
	rdma_freeaddrinfo(NULL);

	for (int i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++)
		WANT(!strncmp(rdma_event_str(i), "RDMA_CM_EVENT_", 14));
	WANT(!strcmp(rdma_event_str(99), "UNKNOWN EVENT") && !strcmp(rdma_event_str(-1), "UNKNOWN EVENT"));
}

static void test_options(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = new_id(c, RDMA_PS_TCP);
	uint8_t tos = 8;
	int on = 1;

	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	tos = 14;
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &tos, sizeof(tos)));
	REFUSED(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)));
	REFUSED(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 0));
	REFUSED(ENOSYS, rdma_set_option(id, 77, 0, &on, sizeof(on)));
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(c);
}

static struct rdma_addrinfo *address(const char *node, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *r;

	OK(rdma_getaddrinfo(node, "4718", &hints, &r));
	return r;
}

static void *connector(void *unused)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }, .sq_sig_all = 1
	};
	struct rdma_addrinfo *to = address(OWN, 0);
	char text[16] = "through an ep";
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	OK(rdma_create_ep(&id, to, NULL, &attr));
	rdma_freeaddrinfo(to);
	WANT(id->qp && id->qp->qp_type == IBV_QPT_RC);
	OK(rdma_connect(id, NULL));
	WANT(id->event && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	WANT((mr = rdma_reg_msgs(id, text, sizeof(text))));
	OK(rdma_post_send(id, NULL, text, sizeof(text), mr, 0));
	WANT(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	OK(rdma_disconnect(id));
	OK(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	return unused;
}

/* The synchronous calls. */
static void test_endpoints(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }, .sq_sig_all = 1
	};
	struct rdma_addrinfo *at = address(NULL, RAI_PASSIVE), *to;
	struct rdma_cm_id *l, *id;
	char text[16] = "";
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t t;

	OK(rdma_create_ep(&l, at, NULL, &attr));
	rdma_freeaddrinfo(at);
	OK(rdma_listen(l, 4));
	for (int i = 0; i < 3; i++) {
		OK(pthread_create(&t, NULL, connector, NULL));
		OK(rdma_get_request(l, &id));
		WANT(id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && id->channel != l->channel);
		REFUSED(EINVAL, rdma_get_request(id, NULL));
		WANT((mr = rdma_reg_msgs(id, text, sizeof(text))));
		OK(rdma_post_recv(id, NULL, text, sizeof(text), mr));
		OK(rdma_accept(id, NULL));
		WANT(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(text, "through an ep"));
		OK(rdma_disconnect(id));
		OK(pthread_join(t, NULL));
		OK(rdma_dereg_mr(mr));
		rdma_destroy_ep(id);
	}
	rdma_destroy_ep(l);

	/* Refused: said by the call itself. */
	to = address(OWN, 0);
	OK(rdma_create_ep(&id, to, NULL, &attr));
	rdma_freeaddrinfo(to);
	REFUSED(ECONNREFUSED, rdma_connect(id, NULL));
	rdma_destroy_ep(id);
}

/* Many at once, on one channel, with a shared receive queue for each that accepts. */
static void test_many(void)
{
	enum { MANY = 64 };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *l = listener(c, RDMA_PS_TCP, 4719), *a[MANY], *p[MANY];
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	int requests = 0, established = 0;

	for (int i = 0; i < MANY; i++) {
		a[i] = routed(c, RDMA_PS_TCP, OWN, 4719);
		give_qp(a[i]);
	}
	for (int i = 0; i < MANY; i++)
		OK(rdma_connect(a[i], &param));
	while (established < 2 * MANY) {
		struct rdma_cm_event *e;

		OK(rdma_get_cm_event(c, &e));
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			struct rdma_cm_id *id = p[requests++] = e->id;

			OK(rdma_create_srq(id, NULL, &srq));
			give_qp(id);
			WANT(id->qp->srq == id->srq);
			OK(rdma_accept(id, &param));
		} else {
			WANT(e->event == RDMA_CM_EVENT_ESTABLISHED);
			established++;
		}
		OK(rdma_ack_cm_event(e));
	}
	WANT(requests == MANY);
	for (int i = 0; i < MANY; i++) {
		rdma_destroy_ep(a[i]);
		rdma_destroy_ep(p[i]);
	}
	WANT(!readable(c->fd, 0));
	OK(rdma_destroy_id(l));
	rdma_destroy_event_channel(c);
}

static void *watcher(void *channel)
{
	struct rdma_cm_event *e;

	for (;;) {
		OK(rdma_get_cm_event(channel, &e));
		OK(rdma_ack_cm_event(e));
	}
	return NULL;
}

/* Threads that take events are cancelled at any moment; others go on. */
static void test_cancel(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id;
	pthread_t t;

	for (int i = 0; i < 200; i++) {
		id = new_id(c, RDMA_PS_TCP);
		OK(pthread_create(&t, NULL, watcher, c));
		OK(rdma_resolve_addr(id, NULL, v4(OTHER, 1), SOON_MS));
		if (i % 3)
			usleep(i % 7 * 20);
		OK(pthread_cancel(t));
		OK(pthread_join(t, NULL));
		/* Whether the thread was faster or not, nothing is held up, unless an event was taken and not acknowledged. */
		if (readable(c->fd, 0))
			expect(c, RDMA_CM_EVENT_ADDR_RESOLVED);
		OK(rdma_listen(new_id(c, RDMA_PS_TCP), 1));
	}
	rdma_destroy_event_channel(c);
}

/* Without a fabric. */
static void test_none(void)
{
	struct rdma_cm_id *id;
	struct rdma_addrinfo *r;

	errno = 0;
	WANT(!rdma_create_event_channel() && errno == ENODEV);
	REFUSED(ENODEV, rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	REFUSED(ENODEV, rdma_getaddrinfo("h1", "1", NULL, &r));
}

/* The daemon ends under the program. */
static void test_gone(void)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = new_id(c, RDMA_PS_TCP);
	struct rdma_cm_event *e;

	puts("ready");
	fflush(stdout);
	REFUSED(ENODEV, rdma_get_cm_event(c, &e));
	REFUSED(ENODEV, rdma_listen(id, 1));
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(c);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "addresses", test_addresses, 0 },
		{ "routes", test_routes, 0 },
		{ "connect", test_connect, 0 },
		{ "reject", test_reject, 0 },
		{ "establish", test_establish, 0 },
		{ "migrate", test_migrate, 0 },
		{ "acks", test_acks, 0 },
		{ "datagrams", test_datagrams, 0 },
		{ "groups", test_groups, 0 },
		{ "names", test_names, 0 },
		{ "options", test_options, 0 },
		{ "endpoints", test_endpoints, 0 },
		{ "many", test_many, 0 },
		{ "cancel", test_cancel, 0 },
		{ "none", test_none, 1 },
		{ "gone", test_gone, 1 },
		{ 0 },
	};

	return run_tests(tests, argc, argv);
}
