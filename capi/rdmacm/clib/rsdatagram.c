/* Datagram sockets: one queue pair, and peers by address. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "rs.h"

enum {
	GRH_BYTES = 40, /* in front of every datagram that arrives */
	SLOTS_LEAST = 16,
	BATCH = 16,
	RESOLVE_MS = 2000,
	BACKLOG = 1024,
};

/* In front of every datagram: who sent it. */
struct head {
	uint8_t version;
	uint8_t family; /* 4 or 6 */
	uint16_t port;  /* network order */
	uint32_t reserved;
	uint8_t address[16]; /* the first 4 bytes if family is 4 */
};

_Static_assert(sizeof(struct head) == 24, "head");

enum peer_state { PEER_ASKED, PEER_KNOWN, PEER_FAILED };

struct rs_peer {
	struct sockaddr_storage address;
	enum peer_state state;
	int error;
	struct rdma_cm_id *id; /* while it is asked for */
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
	struct rs_peer *next;
};

struct rs_arrival {
	uint32_t slot, length; /* with the head */
};

/* Two addresses name one socket if family, port and address are equal. */
static int same(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return 0;
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *x = (const void *)a, *y = (const void *)b;

		return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
	}
	if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)b;

		return x->sin6_port == y->sin6_port && !memcmp(&x->sin6_addr, &y->sin6_addr, 16);
	}
	return 0;
}

static struct rs_peer *find_peer(struct rs *rs, const struct sockaddr *address)
{
	struct rs_peer **at, *p;

	for (at = &rs->peers; *at && !same((struct sockaddr *)&(*at)->address, address); at = &(*at)->next)
		;
	p = *at;
	if (p && p != rs->peers) { /* the next one is probably for the same */
		*at = p->next;
		p->next = rs->peers;
		rs->peers = p;
	}
	return p;
}

static struct rs_peer *add_peer(struct rs *rs, const struct sockaddr *address)
{
	struct rs_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	memcpy(&p->address, address, address_size(address));
	p->next = rs->peers;
	rs->peers = p;
	return p;
}

static void drop_id(struct rs *rs, struct rdma_cm_id *id)
{
	if (id && id != rs->home)
		rdma_destroy_id(id);
}

static void free_peer(struct rs *rs, struct rs_peer *p)
{
	drop_id(rs, p->id);
	if (p->ah)
		ibv_destroy_ah(p->ah);
	free(p);
}

static void remove_peer(struct rs *rs, struct rs_peer *p)
{
	struct rs_peer **at;

	for (at = &rs->peers; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	free_peer(rs, p);
}

static char *receive_slot(struct rs *rs, uint32_t slot)
{
	return rs->ring + (size_t)slot * (GRH_BYTES + rs->slot_bytes);
}

static int post_receive(struct rs *rs, uint32_t slot)
{
	struct ibv_sge part = {
		.addr = (uintptr_t)receive_slot(rs, slot),
		.length = GRH_BYTES + rs->slot_bytes,
		.lkey = rs->ring_mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)slot << 1 | 1, .sg_list = &part, .num_sge = 1 }, *bad;

	return ibv_post_recv(rs->home->qp, &wr, &bad);
}

static uint32_t bytes_of_mtu(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* Memory and queues, on the first id that has an adapter. That id stays. */
static int setup(struct rs *rs, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD, .sq_sig_all = 1 };
	struct rs_options *o = &rs->options;
	struct ibv_port_attr port;
	int error;

	if (rs->home)
		return 0;
	error = ibv_query_port(id->verbs, id->port_num, &port);
	if (error)
		return fail(error);
	rs->slot_bytes = bytes_of_mtu(port.active_mtu);
	rs->send_slots = MIN(o->send_queue, o->send_bytes / (int)rs->slot_bytes);
	rs->receive_slots = MIN(o->receive_queue, o->receive_bytes / (int)rs->slot_bytes);
	if (rs->send_slots < SLOTS_LEAST)
		rs->send_slots = SLOTS_LEAST;
	if (rs->receive_slots < SLOTS_LEAST)
		rs->receive_slots = SLOTS_LEAST;

	rs->completions = ibv_create_comp_channel(id->verbs);
	if (!rs->completions)
		return -1;
	fcntl(rs->completions->fd, F_SETFL, O_NONBLOCK);
	rs->cq = ibv_create_cq(id->verbs, rs->send_slots + rs->receive_slots, rs, rs->completions, 0);
	if (!rs->cq)
		return -1;
	attr.send_cq = attr.recv_cq = rs->cq;
	attr.cap = (struct ibv_qp_cap){
		.max_send_wr = rs->send_slots,
		.max_recv_wr = rs->receive_slots,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	if (rdma_create_qp(id, NULL, &attr) < 0)
		return -1;
	rs->home = id;
	rs->send_ring = malloc((size_t)rs->send_slots * rs->slot_bytes);
	rs->ring = malloc((size_t)rs->receive_slots * (GRH_BYTES + rs->slot_bytes));
	rs->arrivals = calloc(rs->receive_slots, sizeof(*rs->arrivals));
	if (!rs->send_ring || !rs->ring || !rs->arrivals)
		return -1;
	rs->send_mr = rdma_reg_msgs(id, rs->send_ring, (size_t)rs->send_slots * rs->slot_bytes);
	rs->ring_mr = rdma_reg_msgs(id, rs->ring, (size_t)rs->receive_slots * (GRH_BYTES + rs->slot_bytes));
	if (!rs->send_mr || !rs->ring_mr)
		return -1;
	for (uint32_t i = 0; i < rs->receive_slots; i++) {
		error = post_receive(rs, i);
		if (error)
			return fail(error);
	}
	return 0;
}

void rs_datagram_release(struct rs *rs)
{
	while (rs->peers) {
		struct rs_peer *p = rs->peers;

		rs->peers = p->next;
		free_peer(rs, p);
	}
	if (rs->home) {
		rdma_destroy_qp(rs->home);
		if (rs->send_mr)
			ibv_dereg_mr(rs->send_mr);
		if (rs->ring_mr)
			ibv_dereg_mr(rs->ring_mr);
	}
	free(rs->send_ring);
	free(rs->ring);
	free(rs->arrivals);
	if (rs->cq) {
		if (rs->unacked)
			ibv_ack_cq_events(rs->cq, rs->unacked);
		ibv_destroy_cq(rs->cq);
	}
	if (rs->completions)
		ibv_destroy_comp_channel(rs->completions);
	if (rs->home)
		rdma_destroy_id(rs->home);
}

/* Peers ask at the port of a bound socket for its queue pair; so it listens. */
int rs_datagram_bind(struct rs *rs, const struct sockaddr *address)
{
	if (rdma_bind_addr(rs->id, (struct sockaddr *)address) < 0 || rdma_listen(rs->id, BACKLOG) < 0)
		return -1;
	rs->state = RS_BOUND;
	return 0;
}

static int bind_any(struct rs *rs)
{
	struct sockaddr_storage any = { .ss_family = rs->family };

	return rs->state == RS_FRESH ? rs_datagram_bind(rs, (struct sockaddr *)&any) : 0;
}

int rs_datagram_connect(struct rs *rs, const struct sockaddr *address, socklen_t size)
{
	if (address->sa_family == AF_UNSPEC) {
		memset(&rs->connected_to, 0, sizeof(rs->connected_to));
		return 0;
	}
	if (!address_size(address) || size < (socklen_t)address_size(address))
		return fail(EINVAL);
	if (bind_any(rs) < 0)
		return -1;
	memset(&rs->connected_to, 0, sizeof(rs->connected_to));
	memcpy(&rs->connected_to, address, address_size(address));
	return 0;
}

static void answer(struct rs *rs, struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { 0 };

	if (setup(rs, id) == 0) {
		param.qp_num = rs->home->qp->qp_num;
		rdma_accept(id, &param);
	} else {
		rdma_reject(id, NULL, 0);
	}
}

/* Returns 1 if the peer needs its id no longer. */
static int advance(struct rs *rs, struct rs_peer *p, const struct rdma_cm_event *event)
{
	struct rdma_conn_param param = { 0 };
	int failed = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		failed = setup(rs, p->id) < 0 || rdma_resolve_route(p->id, RESOLVE_MS) < 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		param.qp_num = rs->home->qp->qp_num;
		failed = rdma_connect(p->id, &param);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		p->ah = ibv_create_ah(rs->home->pd, (struct ibv_ah_attr *)&event->param.ud.ah_attr);
		if (!p->ah) {
			failed = -1;
			break;
		}
		p->qpn = event->param.ud.qp_num;
		p->qkey = event->param.ud.qkey;
		p->state = PEER_KNOWN;
		return 1;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		p->state = PEER_FAILED;
		p->error = event->status < 0 ? -event->status : ECONNREFUSED;
		return 1;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		p->state = PEER_FAILED;
		p->error = EHOSTUNREACH;
		return 1;
	default:
		return 0;
	}
	if (failed) {
		p->state = PEER_FAILED;
		p->error = errno;
	}
	return failed != 0;
}

void rs_datagram_event(struct rs *rs, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct rs_peer *p;
	int done;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		answer(rs, id);
		rdma_ack_cm_event(event);
		drop_id(rs, id);
		return;
	}
	for (p = rs->peers; p && p->id != id; p = p->next)
		;
	done = p && advance(rs, p, event);
	rdma_ack_cm_event(event);
	if (done) {
		drop_id(rs, id);
		p->id = NULL;
	}
}

void rs_datagram_progress(struct rs *rs)
{
	struct ibv_wc wc[BATCH];
	int n;

	if (!rs->cq)
		return;
	do {
		n = ibv_poll_cq(rs->cq, BATCH, wc);
		for (int i = 0; i < n; i++) {
			uint32_t slot = wc[i].wr_id >> 1;

			if (!(wc[i].wr_id & 1)) {
				rs->posted--;
				continue;
			}
			if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
				continue;
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].byte_len < GRH_BYTES + sizeof(struct head)) {
				post_receive(rs, slot);
				continue;
			}
			rs->arrivals[(rs->first + rs->full++) % rs->receive_slots] = (struct rs_arrival){
				.slot = slot,
				.length = wc[i].byte_len - GRH_BYTES,
			};
		}
	} while (n == BATCH);
	if (n < 0)
		rs_fail(rs, EIO);
}

int rs_datagram_readable(struct rs *rs)
{
	return rs->full > 0 || rs->state == RS_CLOSED;
}

int rs_datagram_writable(struct rs *rs)
{
	for (struct rs_peer *p = rs->peers; p; p = p->next)
		if (p->state == PEER_ASKED)
			return 0;
	return !rs->cq || rs->posted < (int)rs->send_slots;
}

/* Begins to ask for a peer's queue pair. */
static struct rs_peer *ask(struct rs *rs, const struct sockaddr *to)
{
	struct rs_peer *p = add_peer(rs, to);

	if (!p)
		return NULL;
	if (rdma_create_id(rs->channel, &p->id, rs, RDMA_PS_UDP) < 0 ||
	    rdma_resolve_addr(p->id, NULL, (struct sockaddr *)to, RESOLVE_MS) < 0) {
		int error = errno;

		remove_peer(rs, p);
		errno = error;
		return NULL;
	}
	return p;
}

/* The peer of an address, with its queue pair known. NULL and errno. */
static struct rs_peer *meet(struct rs *rs, const struct sockaddr *to, int nonblocking)
{
	for (;;) {
		struct rs_peer *p = find_peer(rs, to);

		if (!p) {
			p = ask(rs, to);
			if (!p)
				return NULL;
		}
		if (p->state == PEER_KNOWN)
			return p;
		if (p->state == PEER_FAILED) {
			int error = p->error;

			remove_peer(rs, p); /* the next datagram asks again */
			errno = error;
			return NULL;
		}
		rs_progress(rs, 1);
		if (p->state == PEER_ASKED && rs_wait(rs, nonblocking) < 0)
			return NULL;
	}
}

static void write_head(struct rs *rs, struct head *head)
{
	const struct sockaddr *own = rdma_get_local_addr(rs->home);

	*head = (struct head){ .version = RS_VERSION, .port = rdma_get_src_port(rs->id) };
	if (own->sa_family == AF_INET6) {
		head->family = 6;
		memcpy(head->address, &((const struct sockaddr_in6 *)own)->sin6_addr, 16);
	} else {
		head->family = 4;
		memcpy(head->address, &((const struct sockaddr_in *)own)->sin_addr, 4);
	}
}

static int read_head(const struct head *head, struct sockaddr_storage *from)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)from;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)from;

	memset(from, 0, sizeof(*from));
	if (head->version != RS_VERSION)
		return -1;
	if (head->family == 6) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = head->port;
		memcpy(&v6->sin6_addr, head->address, 16);
	} else {
		v4->sin_family = AF_INET;
		v4->sin_port = head->port;
		memcpy(&v4->sin_addr, head->address, 4);
	}
	return 0;
}

static int post_send(struct rs *rs, const struct rs_peer *p, const char *from, uint32_t length)
{
	struct ibv_sge part = { .addr = (uintptr_t)from, .length = length, .lkey = rs->send_mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = p->ah, .remote_qpn = p->qpn, .remote_qkey = p->qkey },
	}, *bad;

	return ibv_post_send(rs->home->qp, &wr, &bad);
}

ssize_t rs_datagram_send(struct rs *rs, const struct iovec *parts, int count, int flags, const struct sockaddr *to,
	socklen_t size)
{
	int nonblocking = (flags & MSG_DONTWAIT) || rs->flags & O_NONBLOCK;
	struct rs_peer *p;
	size_t length = 0;
	char *slot, *at;
	int error;

	if (!to && rs->connected_to.ss_family) {
		to = (struct sockaddr *)&rs->connected_to;
		size = sizeof(rs->connected_to);
	}
	if (!to)
		return fail(EDESTADDRREQ);
	if (!address_size(to) || size < (socklen_t)address_size(to))
		return fail(EINVAL);
	for (int i = 0; i < count; i++)
		length += parts[i].iov_len;
	if (rs->state == RS_CLOSED)
		return fail(rs->error ? rs_take_error(rs) : EIO);
	if (bind_any(rs) < 0)
		return -1;
	p = meet(rs, to, nonblocking);
	if (!p)
		return -1;
	if (sizeof(struct head) + length > rs->slot_bytes)
		return fail(EMSGSIZE);
	rs_progress(rs, 0);
	while (rs->posted >= (int)rs->send_slots) {
		if (rs->state == RS_CLOSED)
			return fail(EIO);
		if (rs_wait(rs, nonblocking) < 0)
			return -1;
	}
	p = meet(rs, to, nonblocking); /* others may have sent meanwhile */
	if (!p)
		return -1;
	slot = rs->send_ring + (size_t)rs->next_slot * rs->slot_bytes;
	write_head(rs, (struct head *)slot);
	at = slot + sizeof(struct head);
	for (int i = 0; i < count; i++) {
		memcpy(at, parts[i].iov_base, parts[i].iov_len);
		at += parts[i].iov_len;
	}
	error = post_send(rs, p, slot, at - slot);
	if (error)
		return fail(error);
	rs->posted++;
	rs->next_slot = (rs->next_slot + 1) % rs->send_slots;
	return length;
}

/* Takes the first datagram off; its buffer is posted again. */
static void forget_first(struct rs *rs)
{
	post_receive(rs, rs->arrivals[rs->first].slot);
	rs->first = (rs->first + 1) % rs->receive_slots;
	rs->full--;
}

ssize_t rs_datagram_receive(struct rs *rs, const struct iovec *parts, int count, int flags, struct sockaddr *from,
	socklen_t *size)
{
	int nonblocking = (flags & MSG_DONTWAIT) || rs->flags & O_NONBLOCK;
	struct sockaddr_storage source;
	const struct rs_arrival *a;
	const char *data;
	size_t done = 0;

	for (;;) {
		rs_progress(rs, rs->full == 0);
		if (!rs->full) {
			if (rs->state == RS_CLOSED)
				return fail(rs->error ? rs_take_error(rs) : EIO);
			if (rs_wait(rs, nonblocking) < 0)
				return -1;
			continue;
		}
		a = &rs->arrivals[rs->first];
		data = receive_slot(rs, a->slot) + GRH_BYTES;
		if (read_head((const struct head *)data, &source) == 0 &&
		    (!rs->connected_to.ss_family || same((struct sockaddr *)&source, (struct sockaddr *)&rs->connected_to)))
			break;
		forget_first(rs);
	}
	for (int i = 0; i < count; i++) {
		size_t n = MIN(a->length - sizeof(struct head) - done, parts[i].iov_len);

		memcpy(parts[i].iov_base, data + sizeof(struct head) + done, n);
		done += n;
	}
	if (from && size) {
		memcpy(from, &source, MIN(*size, (socklen_t)address_size((struct sockaddr *)&source)));
		*size = address_size((struct sockaddr *)&source);
	}
	if (!(flags & MSG_PEEK))
		forget_first(rs);
	return done;
}
