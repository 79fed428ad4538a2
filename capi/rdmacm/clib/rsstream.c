/* Streams: rings, credit, and the bytes. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "rs.h"

enum {
	/* Receives beyond those that data may use: credit, the end, and one to spare for each. */
	SPARE_RECEIVES = 8,
	/* Sends that data leave for the same. */
	SPARE_SENDS = 4,
	LENGTH_MASK = (1 << RS_KIND_SHIFT) - 1,
	BATCH = 16,
};

/* wr_id: the kind in the lowest bits, above it the bytes of the send ring that are free again. */
enum { DONE_DATA, DONE_CREDIT, DONE_MAPPING, DONE_RECEIVE, DONE_BITS = 2 };

static int post_receive(struct rs *rs)
{
	struct ibv_recv_wr wr = { .wr_id = DONE_RECEIVE }, *bad;

	return ibv_post_recv(rs->id->qp, &wr, &bad);
}

static size_t control_size(const struct rs *rs)
{
	return sizeof(struct rs_control) + rs->options.mappings * sizeof(struct rs_mapping);
}

/* Memory and queues for an id that is bound to an adapter. */
int rs_stream_setup(struct rs *rs)
{
	struct rs_options *o = &rs->options;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	int error;

	rs->completions = ibv_create_comp_channel(rs->id->verbs);
	if (!rs->completions)
		return -1;
	fcntl(rs->completions->fd, F_SETFL, O_NONBLOCK);
	rs->cq = ibv_create_cq(rs->id->verbs, o->send_queue + o->receive_queue, rs, rs->completions, 0);
	if (!rs->cq)
		return -1;
	attr.send_cq = attr.recv_cq = rs->cq;
	attr.cap = (struct ibv_qp_cap){
		.max_send_wr = o->send_queue,
		.max_recv_wr = o->receive_queue,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline_data = o->inline_bytes,
	};
	if (rdma_create_qp(rs->id, NULL, &attr) < 0)
		return -1;
	o->inline_bytes = MIN((uint32_t)o->inline_bytes, attr.cap.max_inline_data);

	rs->send_ring = malloc(o->send_bytes);
	rs->ring = malloc(o->receive_bytes);
	rs->control = calloc(1, control_size(rs));
	if (!rs->send_ring || !rs->ring || !rs->control)
		return -1;
	rs->send_mr = rdma_reg_msgs(rs->id, rs->send_ring, o->send_bytes);
	rs->ring_mr = rdma_reg_write(rs->id, rs->ring, o->receive_bytes);
	rs->control_mr = rdma_reg_write(rs->id, rs->control, control_size(rs));
	if (!rs->send_mr || !rs->ring_mr || !rs->control_mr)
		return -1;
	for (int i = 0; i < o->receive_queue; i++) {
		error = post_receive(rs);
		if (error)
			return fail(error);
	}
	return 0;
}

void rs_stream_release(struct rs *rs)
{
	if (rs->id && rs->id->qp)
		rdma_destroy_qp(rs->id);
	if (rs->send_mr)
		ibv_dereg_mr(rs->send_mr);
	if (rs->ring_mr)
		ibv_dereg_mr(rs->ring_mr);
	if (rs->control_mr)
		ibv_dereg_mr(rs->control_mr);
	free(rs->send_ring);
	free(rs->ring);
	free(rs->control);
	if (rs->cq) {
		if (rs->unacked)
			ibv_ack_cq_events(rs->cq, rs->unacked);
		ibv_destroy_cq(rs->cq);
	}
	if (rs->completions)
		ibv_destroy_comp_channel(rs->completions);
}

void rs_stream_hello(struct rs *rs, struct rs_hello *hello)
{
	*hello = (struct rs_hello){
		.version = RS_VERSION,
		.messages = htonl(rs->options.receive_queue - SPARE_RECEIVES),
		.ring = htobe64((uintptr_t)rs->ring),
		.ring_key = htonl(rs->ring_mr->rkey),
		.ring_size = htonl(rs->options.receive_bytes),
		.control = htobe64((uintptr_t)rs->control),
		.control_key = htonl(rs->control_mr->rkey),
		.mappings = htonl(rs->options.mappings),
	};
}

int rs_stream_meet(struct rs *rs, const void *private_data, size_t size)
{
	struct rs_hello hello;

	if (!private_data || size < sizeof(hello))
		return fail(EPROTO);
	memcpy(&hello, private_data, sizeof(hello));
	if (hello.version != RS_VERSION || !hello.ring_size || !hello.messages)
		return fail(EPROTO);
	rs->peer_messages = ntohl(hello.messages);
	rs->peer_ring = be64toh(hello.ring);
	rs->peer_ring_key = ntohl(hello.ring_key);
	rs->peer_ring_size = ntohl(hello.ring_size);
	rs->peer_control = be64toh(hello.control);
	rs->peer_control_key = ntohl(hello.control_key);
	rs->peer_mappings = ntohl(hello.mappings);
	return 0;
}

static int post_write(struct rs *rs, uint64_t wr_id, int with_immediate, uint32_t immediate, const void *from,
	uint32_t length, uint32_t lkey, uint64_t to, uint32_t rkey)
{
	struct ibv_sge part = { .addr = (uintptr_t)from, .length = length, .lkey = lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &part,
		.num_sge = length ? 1 : 0,
		.opcode = with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		.send_flags = length && length <= (uint32_t)rs->options.inline_bytes ? IBV_SEND_INLINE : 0,
		.imm_data = htonl(immediate),
		.wr.rdma = { .remote_addr = to, .rkey = rkey },
	}, *bad;
	int error = ibv_post_send(rs->id->qp, &wr, &bad);

	if (error)
		return fail(error);
	rs->posted++;
	return 0;
}

static uint32_t say(enum rs_kind kind, uint32_t length)
{
	return (uint32_t)kind << RS_KIND_SHIFT | length;
}

/* Tells the peer how far we are, once that is worth a message. */
static void give_credit(struct rs *rs)
{
	if (rs->state != RS_OPEN || rs->credit_posted || rs->peer_ended)
		return;
	if (rs->taken - rs->told.bytes < (uint64_t)rs->options.receive_bytes / 2 &&
	    rs->messages - rs->told.messages < (uint64_t)(rs->options.receive_queue - SPARE_RECEIVES) / 2)
		return;
	rs->told = (struct rs_credit){ .bytes = rs->taken, .messages = rs->messages };
	rs->control->outgoing = rs->told;
	if (post_write(rs, DONE_CREDIT, 1, say(RS_CREDIT, 0), &rs->control->outgoing, sizeof(rs->told),
	    rs->control_mr->lkey, rs->peer_control + offsetof(struct rs_control, incoming), rs->peer_control_key) == 0)
		rs->credit_posted = 1;
}

static void on_arrival(struct rs *rs, uint32_t immediate)
{
	switch (immediate >> RS_KIND_SHIFT) {
	case RS_DATA:
		rs->messages++; /* of data alone: only they cost the peer credit */
		rs->arrived += immediate & LENGTH_MASK;
		break;
	case RS_END:
		rs->peer_ended = 1;
		break;
	default: /* credit is where it was written */
		break;
	}
	/* Whoever is heard of has got our answer. */
	if (rs->state == RS_ACCEPTING)
		rs->state = RS_OPEN;
	if (post_receive(rs))
		rs_fail(rs, ECONNRESET);
}

static int error_of(const struct ibv_wc *wc)
{
	switch (wc->status) {
	case IBV_WC_RETRY_EXC_ERR:
		return ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR: /* said by whoever broke the connection */
		return 0;
	default:
		return ECONNRESET;
	}
}

static void on_completion(struct rs *rs, const struct ibv_wc *wc)
{
	unsigned int what = wc->wr_id & ((1 << DONE_BITS) - 1);

	if (what != DONE_RECEIVE)
		rs->posted--;
	if (what == DONE_CREDIT)
		rs->credit_posted = 0;
	if (what == DONE_MAPPING)
		rs->staged_posted = 0;
	if (what == DONE_DATA)
		rs->send_done += wc->wr_id >> DONE_BITS;
	if (wc->status != IBV_WC_SUCCESS) {
		int error = error_of(wc);

		if (error)
			rs_fail(rs, error);
		return;
	}
	if (what == DONE_RECEIVE)
		on_arrival(rs, ntohl(wc->imm_data));
}

void rs_stream_progress(struct rs *rs)
{
	struct ibv_wc wc[BATCH];
	int n;

	if (!rs->cq)
		return;
	do {
		n = ibv_poll_cq(rs->cq, BATCH, wc);
		for (int i = 0; i < n; i++)
			on_completion(rs, &wc[i]);
	} while (n == BATCH);
	if (n < 0)
		rs_fail(rs, EIO);
	give_credit(rs);
}

/* How many bytes the next message may have. */
static uint32_t send_room(struct rs *rs, int needs_ring)
{
	uint64_t credit = __atomic_load_n(&rs->control->incoming.bytes, __ATOMIC_ACQUIRE);
	uint64_t messages = __atomic_load_n(&rs->control->incoming.messages, __ATOMIC_ACQUIRE);
	uint64_t room = rs->peer_ring_size - (rs->sent_bytes - credit);
	uint64_t to_end = rs->peer_ring_size - rs->sent_bytes % rs->peer_ring_size;

	if (rs->posted >= rs->options.send_queue - SPARE_SENDS || rs->sent_messages - messages >= rs->peer_messages)
		return 0;
	room = MIN(room, to_end);
	if (needs_ring) {
		uint64_t size = rs->options.send_bytes;

		room = MIN(room, size - (rs->send_put - rs->send_done));
		room = MIN(room, size - rs->send_put % size);
		/* A long message in pieces: one travels while the next is copied. */
		if (room > size / 4 && size > 4)
			room = size / 4;
	}
	return MIN(room, LENGTH_MASK);
}

int rs_stream_writable(struct rs *rs)
{
	return rs->state == RS_OPEN && !rs->end_sent && send_room(rs, 1) > 0;
}

int rs_stream_readable(struct rs *rs)
{
	return rs->arrived != rs->taken || rs->peer_ended || rs->read_shut || rs->state == RS_CLOSED;
}

/* A place in the program's buffers. */
struct cursor {
	const struct iovec *part;
	int parts;
	size_t at;
};

static size_t left(const struct cursor *c)
{
	size_t n = 0;

	for (int i = 0; i < c->parts; i++)
		n += c->part[i].iov_len;
	return n - c->at;
}

/* Copies n bytes, which are there, from the program's buffers or to them. */
static void copy(struct cursor *c, char *ours, size_t n, int out)
{
	while (n) {
		size_t piece = MIN(c->part->iov_len - c->at, n);
		char *theirs = (char *)c->part->iov_base + c->at;

		if (out)
			memcpy(ours, theirs, piece);
		else
			memcpy(theirs, ours, piece);
		ours += piece;
		c->at += piece;
		n -= piece;
		if (c->at == c->part->iov_len && n) {
			c->part++;
			c->parts--;
			c->at = 0;
		}
	}
}

/* 0 if bytes may be sent; waits for a connection that is being made. */
int rs_stream_wait_open(struct rs *rs, int nonblocking)
{
	for (;;) {
		if (rs->end_sent)
			return fail(EPIPE);
		if (rs->state == RS_OPEN)
			return 0;
		if (rs->state == RS_CLOSED)
			return fail(rs->error ? rs_take_error(rs) : EPIPE);
		if (rs->state < RS_RESOLVING)
			return fail(ENOTCONN);
		if (rs_wait(rs, nonblocking) < 0)
			return -1;
	}
}

ssize_t rs_stream_send(struct rs *rs, const struct iovec *parts, int count, int flags)
{
	struct cursor c = { parts, count, 0 };
	int nonblocking = (flags & MSG_DONTWAIT) || rs->flags & O_NONBLOCK;
	size_t todo = left(&c), done = 0;

	rs_progress(rs, rs->state != RS_OPEN);
	while (done < todo || !todo) {
		char tiny[256];
		uint32_t n;
		int is_tiny;
		char *from;

		if (rs_stream_wait_open(rs, nonblocking) < 0)
			return done ? (ssize_t)done : -1;
		if (!todo)
			return 0;
		is_tiny = todo - done <= MIN((size_t)rs->options.inline_bytes, sizeof(tiny));
		/* Looked at once: the peer writes its credit while we compare. */
		n = send_room(rs, !is_tiny);
		n = MIN(n, todo - done);
		if (!n) {
			rs_progress(rs, 0);
			if (send_room(rs, !is_tiny))
				continue;
			if (rs_wait(rs, nonblocking) < 0)
				return done ? (ssize_t)done : -1;
			continue;
		}
		from = is_tiny ? tiny : rs->send_ring + rs->send_put % rs->options.send_bytes;
		copy(&c, from, n, 1);
		if (post_write(rs, (is_tiny ? 0 : (uint64_t)n << DONE_BITS) | DONE_DATA, 1, say(RS_DATA, n), from, n,
		    rs->send_mr->lkey, rs->peer_ring + rs->sent_bytes % rs->peer_ring_size, rs->peer_ring_key) < 0) {
			rs_fail(rs, ECONNRESET);
			return done ? (ssize_t)done : fail(rs_take_error(rs));
		}
		if (!is_tiny)
			rs->send_put += n;
		rs->sent_bytes += n;
		rs->sent_messages++;
		done += n;
	}
	return done;
}

ssize_t rs_stream_receive(struct rs *rs, const struct iovec *parts, int count, int flags)
{
	struct cursor c = { parts, count, 0 };
	int nonblocking = (flags & MSG_DONTWAIT) || rs->flags & O_NONBLOCK;
	size_t todo = left(&c), done = 0;
	uint64_t at;

	if (rs->state < RS_RESOLVING)
		return fail(ENOTCONN);
	if (!todo)
		return 0;
	rs_progress(rs, rs->state != RS_OPEN);
	at = rs->taken;
	while (done < todo) {
		uint64_t size = rs->options.receive_bytes;
		size_t n = rs->arrived - at;

		n = MIN(n, todo - done);

		if (n) {
			n = MIN(n, size - at % size);
			copy(&c, rs->ring + at % size, n, 0);
			at += n;
			done += n;
			if (!(flags & MSG_PEEK))
				rs->taken = at;
			continue;
		}
		if (done && (!(flags & MSG_WAITALL) || flags & MSG_PEEK))
			break;
		if (rs->peer_ended || rs->read_shut)
			break;
		if (rs->state == RS_CLOSED) {
			if (rs->error && !done)
				return fail(rs_take_error(rs));
			break;
		}
		if (rs_wait(rs, nonblocking) < 0) {
			if (!done)
				return -1;
			break;
		}
	}
	give_credit(rs);
	return done;
}

/* Everything that was sent has arrived, or the connection is gone. */
void rs_stream_flush(struct rs *rs)
{
	while (rs->posted && rs->state == RS_OPEN) {
		rs_progress(rs, 0);
		if (rs->posted && rs->state == RS_OPEN && rs_wait(rs, 0) < 0)
			return;
	}
}

/* Says that no more bytes come. */
int rs_stream_end(struct rs *rs, int nonblocking)
{
	if (rs->end_sent)
		return 0;
	if (rs_stream_wait_open(rs, nonblocking) < 0)
		return -1;
	while (rs->posted >= rs->options.send_queue - 1)
		if (rs_wait(rs, 0) < 0)
			return -1;
	if (rs->state != RS_OPEN)
		return fail(ENOTCONN);
	if (post_write(rs, DONE_DATA, 1, say(RS_END, 0), NULL, 0, 0, rs->peer_ring, rs->peer_ring_key) < 0)
		return -1;
	rs->end_sent = 1;
	return 0;
}

/* riowrite: into memory that the peer has mapped, by way of the send ring. */
ssize_t rs_stream_write_direct(struct rs *rs, const void *buffer, size_t length, uint64_t address, uint32_t key,
	int flags)
{
	struct iovec part = { (void *)buffer, length };
	struct cursor c = { &part, 1, 0 };
	int nonblocking = (flags & MSG_DONTWAIT) || rs->flags & O_NONBLOCK;
	size_t done = 0;

	rs_progress(rs, 0);
	while (done < length) {
		uint64_t size = rs->options.send_bytes;
		uint64_t room = MIN(size - (rs->send_put - rs->send_done), size - rs->send_put % size);
		uint32_t n = MIN(room, length - done);
		char *from = rs->send_ring + rs->send_put % size;

		if (rs_stream_wait_open(rs, nonblocking) < 0)
			return done ? (ssize_t)done : -1;
		if (!n || rs->posted >= rs->options.send_queue - SPARE_SENDS) {
			if (rs_wait(rs, nonblocking) < 0)
				return done ? (ssize_t)done : -1;
			continue;
		}
		n = MIN(n, size / 4 + 1);
		copy(&c, from, n, 1);
		if (post_write(rs, (uint64_t)n << DONE_BITS | DONE_DATA, 0, 0, from, n, rs->send_mr->lkey, address + done,
		    key) < 0) {
			rs_fail(rs, ECONNRESET);
			return done ? (ssize_t)done : fail(rs_take_error(rs));
		}
		rs->send_put += n;
		done += n;
	}
	return done;
}

/* Writes one of our mappings into the peer's table. What is sent after it arrives after it. */
int rs_stream_send_mapping(struct rs *rs, uint32_t place, const struct rs_mapping *mapping)
{
	for (;;) {
		if (rs_stream_wait_open(rs, 0) < 0)
			return -1;
		if (!rs->staged_posted && rs->posted < rs->options.send_queue - 1)
			break;
		if (rs_wait(rs, 0) < 0)
			return -1;
	}
	rs->control->staged = *mapping;
	if (post_write(rs, DONE_MAPPING, 0, 0, &rs->control->staged, sizeof(*mapping), rs->control_mr->lkey,
		       rs->peer_control + offsetof(struct rs_control, mappings) + place * sizeof(*mapping),
		       rs->peer_control_key) < 0)
		return -1;
	rs->staged_posted = 1;
	return 0;
}
