/* rsockets: what they have in common, and waiting. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rs.h"

enum { DESCRIPTORS_MAX = 1 << 20, PAGE = 1024 };

/* Found by descriptor: pages of pointers, which are made when one is needed and stay. */
static struct rs *_Atomic *_Atomic table[DESCRIPTORS_MAX / PAGE];

struct rs *rs_find(int fd)
{
	struct rs *_Atomic *page;
	struct rs *rs = NULL;

	if (fd >= 0 && fd < DESCRIPTORS_MAX) {
		page = atomic_load(&table[fd / PAGE]);
		rs = page ? atomic_load(&page[fd % PAGE]) : NULL;
	}
	if (!rs)
		errno = EBADF;
	return rs;
}

static int enter(int fd, struct rs *rs)
{
	struct rs *_Atomic *page, *_Atomic *none = NULL;

	if (fd >= DESCRIPTORS_MAX)
		return fail(EMFILE);
	page = atomic_load(&table[fd / PAGE]);
	if (!page) {
		page = calloc(PAGE, sizeof(*page));
		if (!page)
			return -1;
		if (!atomic_compare_exchange_strong(&table[fd / PAGE], &none, page)) {
			free(page);
			page = none;
		}
	}
	atomic_store(&page[fd % PAGE], rs);
	return 0;
}

static _Thread_local int cancellable;

void rs_lock(struct rs *rs)
{
	int before = keep_going();

	pthread_mutex_lock(&rs->lock);
	cancellable = before;
}

void rs_unlock(struct rs *rs)
{
	int before = cancellable;

	pthread_mutex_unlock(&rs->lock);
	may_cancel(before);
}

/* Settings of the system, as the manual page says: a file with a number each. */
static int setting(const char *name, int otherwise, int least, int most)
{
	char path[64] = "/etc/rdma/rsocket/", text[32];
	ssize_t n;
	long value;
	int fd;

	strcat(path, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return otherwise;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return otherwise;
	text[n] = 0;
	value = strtol(text, NULL, 10);
	return value < least ? least : value > most ? most : value;
}

struct rs_options rs_defaults;
static int spin_us;

static void read_settings(void)
{
	rs_defaults = (struct rs_options){
		.send_bytes = setting("wmem_default", 1 << 17, 1 << 10, 1 << 28),
		.receive_bytes = setting("mem_default", 1 << 17, 1 << 10, 1 << 28),
		.send_queue = setting("sqsize_default", 384, 16, 16384),
		.receive_queue = setting("rqsize_default", 384, 16, 16384),
		.inline_bytes = setting("inline_default", 64, 0, 256),
		.mappings = setting("iomap_size", 0, 0, 128),
		.maxseg = 1 << 15,
	};
	spin_us = setting("polling_time", 10, 0, 1000000);
}

int rs_spin_us(void)
{
	return spin_us;
}

void rs_fail(struct rs *rs, int error)
{
	if (rs->state == RS_CLOSED)
		return;
	rs->state = RS_CLOSED;
	rs->error = error;
}

int rs_take_error(struct rs *rs)
{
	int error = rs->error;

	rs->error = 0;
	return error;
}

static struct rs *make(int family, int type, struct rdma_event_channel *channel)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct rs *rs = calloc(1, sizeof(*rs));

	pthread_once(&once, read_settings);
	if (!rs)
		return NULL;
	rs->family = family;
	rs->type = type;
	rs->options = rs_defaults;
	rs->channel = channel;
	rs->fd = channel->fd;
	pthread_mutex_init(&rs->lock, NULL);
	pthread_cond_init(&rs->moved, NULL);
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	return rs;
}

static void release(struct rs *rs)
{
	int error = errno;

	rs_mappings_release(rs);
	if (rs->type == SOCK_DGRAM)
		rs_datagram_release(rs);
	else
		rs_stream_release(rs);
	if (rs->id)
		rdma_destroy_id(rs->id);
	rdma_destroy_event_channel(rs->channel);
	pthread_cond_destroy(&rs->moved);
	pthread_mutex_destroy(&rs->lock);
	free(rs);
	errno = error;
}

EXPORT int rsocket(int domain, int type, int protocol)
{
	struct rdma_event_channel *channel;
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct rs *rs;

	if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB)
		return fail(EAFNOSUPPORT);
	if (kind != SOCK_STREAM && kind != SOCK_DGRAM)
		return fail(ESOCKTNOSUPPORT);
	if (protocol && protocol != (kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
		return fail(EPROTONOSUPPORT);
	channel = rdma_create_event_channel();
	if (!channel)
		return -1;
	rs = make(domain, kind, channel);
	if (!rs) {
		rdma_destroy_event_channel(channel);
		return -1;
	}
	if (type & SOCK_NONBLOCK)
		rs->flags |= O_NONBLOCK;
	if (rdma_create_id(channel, &rs->id, rs, kind == SOCK_STREAM ? RDMA_PS_TCP : RDMA_PS_UDP) < 0 ||
	    enter(rs->fd, rs) < 0) {
		release(rs);
		return -1;
	}
	return rs->fd;
}

/* Options that the id must know before it has an address. */
static int apply_options(struct rs *rs)
{
	if (rs->options.reuse &&
	    rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &rs->options.reuse, sizeof(int)) < 0)
		return -1;
	if (rs->options.v6only &&
	    rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &rs->options.v6only, sizeof(int)) < 0)
		return -1;
	return 0;
}

static int do_bind(struct rs *rs, const struct sockaddr *address)
{
	if (rs->state != RS_FRESH)
		return fail(EINVAL);
	if (apply_options(rs) < 0)
		return -1;
	if (rs->type == SOCK_DGRAM)
		return rs_datagram_bind(rs, address);
	if (rdma_bind_addr(rs->id, (struct sockaddr *)address) < 0)
		return -1;
	rs->state = RS_BOUND;
	return 0;
}

EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rs *rs = rs_find(socket);
	int failed;

	if (!rs)
		return -1;
	if (!address_size(addr) || addrlen < (socklen_t)address_size(addr))
		return fail(EINVAL);
	rs_lock(rs);
	failed = do_bind(rs, addr);
	rs_unlock(rs);
	return failed;
}

EXPORT int rlisten(int socket, int backlog)
{
	struct rs *rs = rs_find(socket);
	int failed = 0;

	if (!rs)
		return -1;
	if (rs->type != SOCK_STREAM)
		return fail(EOPNOTSUPP);
	rs_lock(rs);
	if (rs->state == RS_FRESH || rs->state == RS_BOUND) {
		failed = rdma_listen(rs->id, backlog);
		if (!failed)
			rs->state = RS_LISTENING;
	} else if (rs->state != RS_LISTENING) {
		failed = fail(EINVAL);
	}
	rs_unlock(rs);
	return failed;
}

/* The next request for a connection; lock of the listener held. NULL and errno. */
static struct rdma_cm_event *next_request(struct rs *rs)
{
	struct rdma_cm_event *event;

	for (;;) {
		if (rdma_get_cm_event(rs->channel, &event) == 0) {
			if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
				return event;
			rdma_ack_cm_event(event);
			continue;
		}
		if (errno != EAGAIN || rs_wait(rs, rs->flags & O_NONBLOCK) < 0)
			return NULL;
	}
}

/* Makes the socket of a requested connection. It owns the id from the moment that it has a channel of its own. */
static struct rs *adopt(struct rs *listener, struct rdma_cm_event *event)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = event->id;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rs_hello hello;
	struct rs *rs;

	if (!channel)
		goto no_channel;
	rs = make(listener->family, SOCK_STREAM, channel);
	if (!rs)
		goto no_socket;
	rs->options = listener->options;
	if (rdma_migrate_id(id, channel) < 0)
		goto no_id;
	rs->id = id;
	id->context = rs;
	if (rs_stream_meet(rs, event->param.conn.private_data, event->param.conn.private_data_len) < 0) {
		rdma_reject(id, NULL, 0);
		goto no_connection;
	}
	if (rs_stream_setup(rs) < 0)
		goto no_connection;
	rs_stream_hello(rs, &hello);
	param.private_data = &hello;
	param.private_data_len = sizeof(hello);
	rs->state = RS_ACCEPTING;
	if (rdma_accept(id, &param) < 0)
		goto no_connection;
	return rs;

no_connection:
	release(rs);
	return NULL;
no_id:
	release(rs); /* the channel too */
	rdma_destroy_id(id);
	return NULL;
no_socket:
	rdma_destroy_event_channel(channel);
no_channel:
	rdma_destroy_id(id);
	return NULL;
}

static void copy_address(struct sockaddr *to, socklen_t *room, const struct sockaddr *from)
{
	socklen_t size = address_size(from);

	if (!to || !room)
		return;
	memcpy(to, from, MIN(*room, size));
	*room = size;
}

EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *rs = rs_find(socket), *made = NULL;
	struct rdma_cm_event *event = NULL;

	if (!rs)
		return -1;
	if (rs->type != SOCK_STREAM)
		return fail(EOPNOTSUPP);
	rs_lock(rs);
	if (rs->state == RS_LISTENING)
		event = next_request(rs);
	else
		errno = EINVAL;
	rs_unlock(rs);
	if (!event)
		return -1;
	made = adopt(rs, event);
	rdma_ack_cm_event(event);
	if (!made)
		return fail(ECONNABORTED);
	if (enter(made->fd, made) < 0) {
		release(made);
		return -1;
	}
	copy_address(addr, addrlen, rdma_get_peer_addr(made->id));
	return made->fd;
}

enum { RESOLVE_MS = 2000 };

static int begin_connect(struct rs *rs, const struct sockaddr *address)
{
	if (rs->state == RS_FRESH && apply_options(rs) < 0)
		return -1;
	if (rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)address, RESOLVE_MS) < 0)
		return -1;
	rs->state = RS_RESOLVING;
	return 0;
}

static int do_connect(struct rs *rs, const struct sockaddr *address)
{
	switch (rs->state) {
	case RS_FRESH:
	case RS_BOUND:
		if (begin_connect(rs, address) < 0)
			return -1;
		break;
	case RS_RESOLVING:
	case RS_CONNECTING:
		rs_progress(rs, 1);
		if (rs->state != RS_OPEN && rs->state != RS_CLOSED && rs->flags & O_NONBLOCK)
			return fail(EALREADY);
		break;
	case RS_CLOSED:
		return fail(rs->error ? rs_take_error(rs) : ECONNABORTED);
	case RS_LISTENING:
		return fail(EOPNOTSUPP);
	default:
		return fail(EISCONN);
	}
	while (rs->state == RS_RESOLVING || rs->state == RS_CONNECTING)
		if (rs_wait(rs, rs->flags & O_NONBLOCK) < 0)
			return fail(errno == EAGAIN ? EINPROGRESS : errno);
	if (rs->state == RS_OPEN)
		return 0;
	return fail(rs->error ? rs_take_error(rs) : ECONNREFUSED);
}

EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rs *rs = rs_find(socket);
	int failed;

	if (!rs)
		return -1;
	if (rs->type == SOCK_STREAM && (!address_size(addr) || addrlen < (socklen_t)address_size(addr)))
		return fail(EINVAL);
	rs_lock(rs);
	failed = rs->type == SOCK_DGRAM ? rs_datagram_connect(rs, addr, addrlen) : do_connect(rs, addr);
	rs->refused = failed ? errno : 0;
	rs_unlock(rs);
	return failed;
}

static int why(const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return ECONNREFUSED;
	case RDMA_CM_EVENT_ADDR_ERROR:
		return EHOSTUNREACH;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return ENETUNREACH;
	default:
		return event->status < 0 ? -event->status : ETIMEDOUT;
	}
}

static int ask_peer(struct rs *rs)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rs_hello hello;

	rs_stream_hello(rs, &hello);
	param.private_data = &hello;
	param.private_data_len = sizeof(hello);
	if (rdma_connect(rs->id, &param) < 0)
		return -1;
	rs->state = RS_CONNECTING;
	return 0;
}

static void on_stream_event(struct rs *rs, struct rdma_cm_event *event)
{
	int failed = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		failed = rs_stream_setup(rs) < 0 || rdma_resolve_route(rs->id, RESOLVE_MS) < 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		failed = ask_peer(rs);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (rs->state == RS_CONNECTING)
			failed = rs_stream_meet(rs, event->param.conn.private_data, event->param.conn.private_data_len);
		if (!failed && (rs->state == RS_CONNECTING || rs->state == RS_ACCEPTING))
			rs->state = RS_OPEN;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* What the peer sent before it left has arrived. */
		rs_stream_progress(rs);
		rs_fail(rs, rs->peer_ended || rs->end_sent ? 0 : ECONNRESET);
		rdma_disconnect(rs->id);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		rs_fail(rs, why(event));
		break;
	default:
		break;
	}
	if (failed)
		rs_fail(rs, errno);
}

void rs_progress(struct rs *rs, int events)
{
	struct rdma_cm_event *event;

	if (rs->type == SOCK_DGRAM)
		rs_datagram_progress(rs);
	else
		rs_stream_progress(rs);
	while (events && rs->state != RS_LISTENING) {
		if (rdma_get_cm_event(rs->channel, &event) < 0) {
			if (errno == ENODEV)
				rs_fail(rs, ENODEV);
			break;
		}
		rs->happened++;
		if (rs->type == SOCK_DGRAM) {
			rs_datagram_event(rs, event); /* acknowledges it */
			continue;
		}
		on_stream_event(rs, event);
		rdma_ack_cm_event(event);
	}
}

void rs_arm(struct rs *rs)
{
	if (!rs->cq)
		return;
	if (ibv_req_notify_cq(rs->cq, 0))
		rs_fail(rs, EIO);
	rs_progress(rs, 0);
}

void rs_disarm(struct rs *rs)
{
	struct ibv_cq *cq;
	void *context;

	if (!rs->completions)
		return;
	while (ibv_get_cq_event(rs->completions, &cq, &context) == 0)
		if (++rs->unacked == 1 << 10) {
			ibv_ack_cq_events(rs->cq, rs->unacked);
			rs->unacked = 0;
		}
}

/* What changes when something came that somebody may wait for. */
static uint64_t shape(const struct rs *rs)
{
	uint64_t credit = rs->control ? rs->control->incoming.bytes + rs->control->incoming.messages : 0;

	return rs->arrived + rs->messages + credit + rs->happened + rs->state + rs->peer_ended + rs->full - rs->posted;
}

static int spin(struct rs *rs)
{
	uint64_t before = shape(rs);
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		rs_progress(rs, 0);
		if (shape(rs) != before)
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < spin_us * 1000L);
	return 0;
}

/* The thread that slept for all was cancelled: another one has to. */
static void abandon(void *arg)
{
	struct rs *rs = arg;

	pthread_mutex_lock(&rs->lock);
	rs->waiting = 0;
	pthread_cond_broadcast(&rs->moved);
	pthread_mutex_unlock(&rs->lock);
}

int rs_wait(struct rs *rs, int nonblocking)
{
	struct pollfd fds[2] = { { .fd = rs->fd, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	uint64_t before = shape(rs);
	int n, error;

	rs_progress(rs, rs->state != RS_OPEN);
	if (shape(rs) != before)
		return 0;
	if (nonblocking)
		return fail(EAGAIN);
	if (rs->waiting) {
		/* One waits for all: whoever is told of a completion takes the word away. */
		pthread_cond_wait(&rs->moved, &rs->lock);
		return 0;
	}
	if (rs->cq) {
		if (spin(rs))
			return 0;
		rs_arm(rs);
		if (shape(rs) != before)
			return 0;
		fds[1].fd = rs->completions->fd;
	}
	rs->waiting = 1;
	pthread_cleanup_push(abandon, rs);
	rs_unlock(rs);
	n = poll(fds, 2, -1);
	error = errno;
	rs_lock(rs);
	pthread_cleanup_pop(0);
	rs->waiting = 0;
	if (n > 0) {
		rs_disarm(rs);
		rs_progress(rs, fds[0].revents);
		rs_wake_pollers();
	}
	pthread_cond_broadcast(&rs->moved);
	return n < 0 ? fail(error) : 0;
}

EXPORT int rshutdown(int socket, int how)
{
	struct rs *rs = rs_find(socket);
	int failed = 0;

	if (!rs)
		return -1;
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return fail(EINVAL);
	rs_lock(rs);
	if (rs->type == SOCK_DGRAM || rs->state < RS_RESOLVING) {
		failed = rs->type == SOCK_DGRAM ? 0 : fail(ENOTCONN);
	} else {
		if (how != SHUT_WR)
			rs->read_shut = 1;
		if (how != SHUT_RD) {
			failed = rs_stream_end(rs, 0);
			rs_stream_flush(rs);
		}
		if (how == SHUT_RDWR && rs->state == RS_OPEN) {
			rdma_disconnect(rs->id);
			rs_fail(rs, 0);
		}
	}
	pthread_cond_broadcast(&rs->moved);
	rs_unlock(rs);
	rs_wake_pollers();
	return failed;
}

EXPORT int rclose(int socket)
{
	struct rs *rs = rs_find(socket);

	if (!rs)
		return -1;
	enter(socket, NULL);
	rs_lock(rs);
	if (rs->type == SOCK_STREAM) {
		rs_progress(rs, 1);
		if (rs->state == RS_OPEN || rs->state == RS_ACCEPTING) {
			if (rs->state == RS_OPEN)
				rs_stream_end(rs, 1);
			rs_stream_flush(rs);
			if (rs->state != RS_CLOSED)
				rdma_disconnect(rs->id);
		}
	}
	rs_unlock(rs);
	release(rs);
	return 0;
}
