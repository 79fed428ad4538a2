/* rsockets: the calls that move bytes, and addresses and options. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>

#include "rs.h"

static ssize_t send_parts(int socket, const struct iovec *parts, int count, int flags, const struct sockaddr *to,
	socklen_t size)
{
	struct rs *rs = rs_find(socket);
	ssize_t n;

	if (!rs)
		return -1;
	if (flags & MSG_OOB)
		return fail(EOPNOTSUPP);
	rs_lock(rs);
	if (rs->type == SOCK_DGRAM)
		n = rs_datagram_send(rs, parts, count, flags, to, size);
	else
		n = rs_stream_send(rs, parts, count, flags);
	rs_unlock(rs);
	return n;
}

static ssize_t receive_parts(int socket, const struct iovec *parts, int count, int flags, struct sockaddr *from,
	socklen_t *size)
{
	struct rs *rs = rs_find(socket);
	ssize_t n;

	if (!rs)
		return -1;
	if (flags & MSG_OOB)
		return fail(EOPNOTSUPP);
	rs_lock(rs);
	if (rs->type == SOCK_DGRAM) {
		n = rs_datagram_receive(rs, parts, count, flags, from, size);
	} else {
		n = rs_stream_receive(rs, parts, count, flags);
		if (size)
			*size = 0; /* as of any connected stream */
	}
	rs_unlock(rs);
	return n;
}

EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	struct iovec part = { (void *)buf, len };

	return send_parts(socket, &part, 1, flags, NULL, 0);
}

EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
	socklen_t addrlen)
{
	struct iovec part = { (void *)buf, len };

	return send_parts(socket, &part, 1, flags, dest_addr, addrlen);
}

EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return fail(ENOTSUP);
	return send_parts(socket, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name, msg->msg_namelen);
}

EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsend(socket, buf, count, 0);
}

EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return send_parts(socket, iov, iovcnt, 0, NULL, 0);
}

EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	struct iovec part = { buf, len };

	return receive_parts(socket, &part, 1, flags, NULL, NULL);
}

EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr, socklen_t *addrlen)
{
	struct iovec part = { buf, len };

	return receive_parts(socket, &part, 1, flags, src_addr, addrlen);
}

EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	ssize_t n;

	if (msg->msg_control && msg->msg_controllen)
		return fail(ENOTSUP);
	n = receive_parts(socket, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name,
		msg->msg_name ? &msg->msg_namelen : NULL);
	if (n >= 0)
		msg->msg_flags = 0;
	return n;
}

EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecv(socket, buf, count, 0);
}

EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return receive_parts(socket, iov, iovcnt, 0, NULL, NULL);
}

static int give_address(const struct sockaddr_storage *from, int family, struct sockaddr *addr, socklen_t *addrlen)
{
	struct sockaddr_storage any = { .ss_family = family };
	socklen_t size;

	if (!addr || !addrlen)
		return fail(EFAULT);
	if (!from->ss_family)
		from = &any;
	size = address_size((const struct sockaddr *)from);
	memcpy(addr, from, MIN(*addrlen, size));
	*addrlen = size;
	return 0;
}

EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *rs = rs_find(socket);

	if (!rs)
		return -1;
	if (rs->type == SOCK_DGRAM) {
		if (!rs->connected_to.ss_family)
			return fail(ENOTCONN);
		return give_address(&rs->connected_to, rs->family, addr, addrlen);
	}
	if (rs->state < RS_ACCEPTING)
		return fail(ENOTCONN);
	return give_address(&rs->id->route.addr.dst_storage, rs->family, addr, addrlen);
}

EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *rs = rs_find(socket);

	if (!rs)
		return -1;
	/* So librspreload begins to make a TCP socket of one that could not connect, or that is connected by now. There is
	 * no TCP at the fabric's addresses: the program is told why it did not connect. */
	if (!addr && addrlen && !*addrlen && rs->refused)
		return fail(rs->refused);
	return give_address(&rs->id->route.addr.src_storage, rs->family, addr, addrlen);
}

/* Where an option is kept that is a number; those that queues are made from are fixed once they are made. */
static int *place(struct rs_options *o, int level, int name, int *early, int *read_only)
{
	*early = 0;
	*read_only = 0;
	switch (level) {
	case SOL_SOCKET:
		switch (name) {
		case SO_SNDBUF:
			*early = 1;
			return &o->send_bytes;
		case SO_RCVBUF:
			*early = 1;
			return &o->receive_bytes;
		case SO_REUSEADDR:
			return &o->reuse;
		case SO_KEEPALIVE:
			return &o->keepalive;
		case SO_OOBINLINE:
			return &o->oob_inline;
		}
		break;
	case IPPROTO_TCP:
		switch (name) {
		case TCP_NODELAY:
			return &o->nodelay;
		case TCP_MAXSEG:
			*read_only = 1;
			return &o->maxseg;
		case TCP_KEEPIDLE:
		case TCP_KEEPINTVL:
		case TCP_KEEPCNT:
			return &o->keepalive;
		}
		break;
	case IPPROTO_IPV6:
		if (name == IPV6_V6ONLY)
			return &o->v6only;
		break;
	case SOL_RDMA:
		*early = 1;
		switch (name) {
		case RDMA_SQSIZE:
			return &o->send_queue;
		case RDMA_RQSIZE:
			return &o->receive_queue;
		case RDMA_INLINE:
			return &o->inline_bytes;
		case RDMA_IOMAPSIZE:
			return &o->mappings;
		}
		break;
	}
	return NULL;
}

static int bounded(int value, int least, int most)
{
	return value < least ? least : value > most ? most : value;
}

/* What can be had of what was asked for, as setsockopt does it. */
static int possible(int level, int name, int value)
{
	if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF))
		return bounded(value, 1 << 10, 1 << 28);
	if (level == SOL_RDMA && (name == RDMA_SQSIZE || name == RDMA_RQSIZE))
		return bounded(value, 16, 16384);
	if (level == SOL_RDMA && name == RDMA_INLINE)
		return bounded(value, 0, 256);
	if (level == SOL_RDMA && name == RDMA_IOMAPSIZE)
		return bounded(value, 0, 128);
	return value;
}

static int set_option(struct rs *rs, int level, int name, const void *value, socklen_t size)
{
	int early, read_only, number;
	int *at = place(&rs->options, level, name, &early, &read_only);

	if (level == SOL_SOCKET && name == SO_LINGER) {
		if (size < sizeof(struct linger))
			return fail(EINVAL);
		memcpy(&rs->options.linger, value, sizeof(struct linger));
		return 0;
	}
	if (level == SOL_RDMA && name == RDMA_ROUTE)
		return rdma_set_option(rs->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, (void *)value, size);
	if (!at || read_only)
		return fail(ENOPROTOOPT);
	if (size < sizeof(number))
		return fail(EINVAL);
	if (early && rs->cq)
		return fail(EINVAL);
	memcpy(&number, value, sizeof(number));
	*at = possible(level, name, number);
	return 0;
}

EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	struct rs *rs = rs_find(socket);
	int failed;

	if (!rs)
		return -1;
	if (!optval)
		return fail(EFAULT);
	rs_lock(rs);
	failed = set_option(rs, level, optname, optval, optlen);
	rs_unlock(rs);
	return failed;
}

static int give_option(const void *from, socklen_t size, void *to, socklen_t *room)
{
	if (*room < size)
		return fail(EINVAL);
	memcpy(to, from, size);
	*room = size;
	return 0;
}

static int get_option(struct rs *rs, int level, int name, void *value, socklen_t *size)
{
	int early, read_only, number;
	int *at;

	if (level == SOL_SOCKET) {
		switch (name) {
		case SO_ERROR:
			number = rs_take_error(rs);
			return give_option(&number, sizeof(number), value, size);
		case SO_TYPE:
			return give_option(&rs->type, sizeof(rs->type), value, size);
		case SO_DOMAIN:
			return give_option(&rs->family, sizeof(rs->family), value, size);
		case SO_ACCEPTCONN:
			number = rs->state == RS_LISTENING;
			return give_option(&number, sizeof(number), value, size);
		case SO_LINGER:
			return give_option(&rs->options.linger, sizeof(struct linger), value, size);
		}
	}
	at = place(&rs->options, level, name, &early, &read_only);
	if (!at)
		return fail(ENOPROTOOPT);
	return give_option(at, sizeof(*at), value, size);
}

EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	struct rs *rs = rs_find(socket);
	int failed;

	if (!rs)
		return -1;
	if (!optval || !optlen)
		return fail(EFAULT);
	rs_lock(rs);
	rs_progress(rs, rs->state == RS_RESOLVING || rs->state == RS_CONNECTING);
	failed = get_option(rs, level, optname, optval, optlen);
	rs_unlock(rs);
	return failed;
}

EXPORT int rfcntl(int socket, int cmd, ...)
{
	struct rs *rs = rs_find(socket);
	va_list args;
	int value;

	if (!rs)
		return -1;
	va_start(args, cmd);
	value = va_arg(args, int);
	va_end(args);
	switch (cmd) {
	case F_GETFL:
		return O_RDWR | rs->flags;
	case F_SETFL:
		rs->flags = value & O_NONBLOCK;
		return 0;
	case F_GETFD:
		return fcntl(socket, F_GETFD);
	case F_SETFD:
		return fcntl(socket, F_SETFD, value);
	default:
		return fail(ENOTSUP);
	}
}
