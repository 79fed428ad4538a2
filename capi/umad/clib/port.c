/* Open ports: agents, and the datagrams that go and come. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "adapter.h"
#include "client.h"

enum {
	OPENIB_OUI = 0x001405,
	VENDOR2_FIRST = 0x30,
	VENDOR2_LAST = 0x4f,

	LENGTH_MAX = 64 << 20, /* of a datagram in many segments */
	AWAITED_MAX = 64,      /* requests whose end is remembered; there may be more */
	RETRIES_MAX = 1 << 30, /* as the daemon has it */
	LATE_MS = 10000,       /* how much later than it should the daemon may tell of a request's end */
	LOOK_MS = 50,          /* another thread may have taken what this one waits for */
	DEAD_PAUSE_US = 50000,
};

/* A request of whose end the daemon has not told yet. */
struct awaited {
	uint32_t agent;
	uint32_t tid; /* the half of it that is the program's */
	int64_t due;  /* in milliseconds; 0: free */
};

/*
 * What the library remembers about a descriptor. Slots are in a list that only
 * grows, so that looking takes no lock: a lock that another thread holds
 * while this one forks would never be opened in the child.
 */
struct slot {
	_Atomic int fd; /* -1: free */
	_Atomic uint64_t token;
	_Atomic uint32_t agents; /* bit i: agent i is registered */
	atomic_flag receiving;   /* between a look at a record and taking it */
	atomic_flag noting;      /* holds awaited */
	struct awaited awaited[AWAITED_MAX];
	struct slot *next;
};

static struct slot *_Atomic slots;

static struct slot *find_slot(int fd)
{
	for (struct slot *s = atomic_load(&slots); s; s = s->next)
		if (atomic_load(&s->fd) == fd)
			return s;
	return NULL;
}

static struct slot *take_slot(int fd, uint64_t token)
{
	struct slot *s = find_slot(fd); /* left behind if the program called close itself */

	if (!s) {
		for (s = atomic_load(&slots); s; s = s->next) {
			int none = -1;

			if (atomic_compare_exchange_strong(&s->fd, &none, fd))
				break;
		}
	}
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		atomic_store(&s->fd, fd);
		s->next = atomic_load(&slots);
		while (!atomic_compare_exchange_weak(&slots, &s->next, s))
			;
	}
	atomic_store(&s->token, token);
	atomic_store(&s->agents, 0);
	memset(s->awaited, 0, sizeof(s->awaited));
	atomic_flag_clear(&s->noting);
	atomic_flag_clear(&s->receiving);
	return s;
}

/* In a child there is one thread, and it receives nothing yet. What its parent awaits is not its own. */
static void after_fork(void)
{
	for (struct slot *s = atomic_load(&slots); s; s = s->next) {
		memset(s->awaited, 0, sizeof(s->awaited));
		atomic_flag_clear(&s->noting);
		atomic_flag_clear(&s->receiving);
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void hold(struct slot *s)
{
	while (atomic_flag_test_and_set(&s->noting))
		sched_yield();
}

/*
 * A device tells of a request's end, an answer or that none came, as soon as
 * its time is over, and programs rely on it: they wait for as long themselves
 * and give up for good when nothing comes. The daemon tells as surely, but it
 * may have had no turn. So it is remembered when it will tell at the latest.
 */
static void await_end(struct slot *s, const struct user_mad *mad)
{
	uint32_t tid, retries = mad->retries < RETRIES_MAX ? mad->retries : RETRIES_MAX;
	uint8_t method = mad->data[3];
	int64_t now = now_ms();

	if (!mad->timeout_ms || method & METHOD_RESPONSE || method == METHOD_TRAP_REPRESS)
		return; /* nothing answers it */
	memcpy(&tid, mad->data + TID_OWN, sizeof(tid));
	hold(s);
	for (int i = 0; i < AWAITED_MAX; i++) {
		struct awaited *a = &s->awaited[i];

		if (a->due && a->due + LATE_MS > now)
			continue;
		*a = (struct awaited){ mad->agent_id, tid, now + mad->timeout_ms * (1LL + retries) };
		break;
	}
	atomic_flag_clear(&s->noting);
}

static void end_of(struct slot *s, uint32_t agent, const uint8_t *data)
{
	uint32_t tid;

	memcpy(&tid, data + TID_OWN, sizeof(tid));
	hold(s);
	for (int i = 0; i < AWAITED_MAX; i++)
		if (s->awaited[i].tid == tid && s->awaited[i].agent == agent)
			s->awaited[i].due = 0;
	atomic_flag_clear(&s->noting);
}

static void forget_agent(struct slot *s, uint32_t agent)
{
	hold(s);
	for (int i = 0; i < AWAITED_MAX; i++)
		if (s->awaited[i].agent == agent)
			s->awaited[i].due = 0;
	atomic_flag_clear(&s->noting);
}

/* How long the daemon still has to tell of an end that is due; 0 if none is. */
static int overdue_ms(struct slot *s)
{
	int64_t now = now_ms(), left = 0;

	hold(s);
	for (int i = 0; i < AWAITED_MAX; i++) {
		int64_t due = s->awaited[i].due;

		if (due && due <= now && due + LATE_MS - now > left)
			left = due + LATE_MS - now;
	}
	atomic_flag_clear(&s->noting);
	return left;
}

int umad_open_port(const char *ca_name, int portnum)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct softib_request request = { .op = OP_OPEN };
	struct softib_reply reply;
	struct umad_ca ca;
	int fd, error;

	TRACE("ca %s port %d", ca_name ? ca_name : "(any)", portnum);
	pthread_once(&once, watch_forks);
	error = find_port(ca_name, &portnum, &ca);
	if (error)
		return error;
	umad_release_ca(&ca);

	request.port = portnum;
	if (ask(&request, &reply, NULL, NULL, &fd) < 0)
		return -EIO;
	/* A device's descriptor would neither block nor close when a program is executed. */
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, 0) < 0 || !take_slot(fd, reply.token)) {
		close(fd);
		return -EIO;
	}
	TRACE("port %d opened as fd %d", portnum, fd);
	return fd;
}

int umad_close_port(int fd)
{
	struct softib_request request = { .op = OP_CLOSED };
	struct softib_reply reply;
	struct slot *s = find_slot(fd);

	if (s) {
		request.token = atomic_load(&s->token);
		atomic_store(&s->fd, -1);
	}
	close(fd);
	if (s) {
		/* A device's classes are free for others when close returns. */
		quiet = 1;
		ask(&request, &reply, NULL, NULL, NULL);
		quiet = 0;
	}
	TRACE("closed fd %d", fd);
	return 0;
}

int umad_get_fd(int fd)
{
	TRACE("fd %d", fd);
	return fd;
}

/* Returns 0 or an errno. */
static int enroll(int fd, struct softib_request *request, uint32_t *agent)
{
	struct slot *s = find_slot(fd);
	struct softib_reply reply;
	int error;

	if (!s)
		return fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTTY;
	request->op = OP_REGISTER;
	request->token = atomic_load(&s->token);
	error = ask(request, &reply, NULL, NULL, NULL);
	if (error) {
		TRACE("fd %d class 0x%x version %d: %s", fd, request->mgmt_class, request->class_version, strerror(-error));
		return -error;
	}
	if (reply.agent >= AGENTS_MAX)
		return EIO;
	atomic_fetch_or(&s->agents, 1u << reply.agent);
	*agent = reply.agent;
	TRACE("fd %d class 0x%x version %d: agent %u", fd, request->mgmt_class, request->class_version, reply.agent);
	return 0;
}

static int enroll_masked(int fd, struct softib_request *request, const long *method_mask)
{
	uint32_t agent;
	int error;

	if (method_mask)
		memcpy(request->methods, method_mask, sizeof(request->methods));
	error = enroll(fd, request, &agent);
	if (error) {
		errno = error;
		return -EPERM;
	}
	return agent;
}

int umad_register(int fd, int mgmt_class, int mgmt_version, uint8_t rmpp_version, long method_mask[])
{
	struct softib_request request = {
		.mgmt_class = mgmt_class,
		.class_version = mgmt_version,
		.rmpp_version = rmpp_version,
		.oui = OPENIB_OUI,
	};

	return enroll_masked(fd, &request, method_mask);
}

int umad_register_oui(int fd, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3], long method_mask[])
{
	struct softib_request request = {
		.mgmt_class = mgmt_class,
		.class_version = 1,
		.rmpp_version = rmpp_version,
		.oui = oui[0] << 16 | oui[1] << 8 | oui[2],
	};

	if (mgmt_class < VENDOR2_FIRST || mgmt_class > VENDOR2_LAST) {
		TRACE("class %d is not in the second vendor range", mgmt_class);
		return -EINVAL;
	}
	return enroll_masked(fd, &request, method_mask);
}

int umad_register2(int fd, struct umad_reg_attr *attr, uint32_t *agent_id)
{
	struct softib_request request = { 0 };
	int error;

	if (!attr || !agent_id)
		return EINVAL;
	if (attr->mgmt_class >= VENDOR2_FIRST && attr->mgmt_class <= VENDOR2_LAST &&
	    (!attr->oui || attr->oui > 0xffffff)) {
		TRACE("class %d is in the second vendor range and the oui 0x%x is none", attr->mgmt_class, attr->oui);
		return EINVAL;
	}
	request.mgmt_class = attr->mgmt_class;
	request.class_version = attr->mgmt_class_version;
	request.rmpp_version = attr->rmpp_version;
	request.flags = attr->flags;
	request.oui = attr->oui;
	memcpy(request.methods, attr->method_mask, sizeof(request.methods));
	error = enroll(fd, &request, agent_id);
	/* Programs read from the flags whether theirs were what was wrong. */
	if (error == EINVAL || error == ENOTTY)
		attr->flags = 0;
	if (error)
		errno = error;
	return error;
}

int umad_unregister(int fd, int agentid)
{
	struct softib_request request = { .op = OP_UNREGISTER };
	struct softib_reply reply;
	struct slot *s = find_slot(fd);

	TRACE("fd %d agent %d", fd, agentid);
	if (!s) {
		errno = fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTTY;
		return -1;
	}
	if (agentid < 0 || agentid >= AGENTS_MAX || !(atomic_load(&s->agents) >> agentid & 1)) {
		errno = EINVAL;
		return -1;
	}
	request.token = atomic_load(&s->token);
	request.agent = agentid;
	/* First here, so that no thread sends once the other side has forgotten it. */
	atomic_fetch_and(&s->agents, ~(1u << agentid));
	forget_agent(s, agentid);
	return ask(&request, &reply, NULL, NULL, NULL) < 0 ? -1 : 0;
}

/* A file that holds what is beyond the first segment; no name leads to it. */
static int beyond_segment(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("softib-mad", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	for (size_t done = 0; done < size;) {
		ssize_t n = pwrite(fd, bytes + done, size - done, done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			close(fd);
			return -1;
		}
		done += n;
	}
	return fd;
}

/* The buffer of a message that carries one descriptor. */
union one_fd {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static int transmit(int fd, const struct user_mad *head, const uint8_t *data, size_t length)
{
	size_t first = length < MAD_SIZE ? length : MAD_SIZE;
	struct iovec parts[2] = {
		{ (void *)head, sizeof(*head) },
		{ (void *)data, first },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	union one_fd control = { 0 };
	int file = -1, error = 0;

	if (length > first) {
		file = beyond_segment(data + first, length - first);
		if (file < 0)
			return errno;
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &file, sizeof(file));
	}
	while (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		struct pollfd room = { .fd = fd, .events = POLLOUT };

		/* A device takes everything; the daemon soon has. */
		if (errno == EAGAIN) {
			poll(&room, 1, -1);
		} else if (errno != EINTR) {
			error = errno;
			break;
		}
	}
	if (file >= 0)
		close(file);
	return error;
}

int umad_send(int fd, int agentid, void *umad, int length, int timeout_ms, int retries)
{
	struct user_mad *mad = umad;
	struct user_mad head;
	struct slot *s;
	int error = 0;

	TRACE("fd %d agentid %d umad %p timeout %d", fd, agentid, umad, timeout_ms);
	mad->timeout_ms = timeout_ms;
	mad->retries = retries;
	mad->agent_id = agentid;
	if (debug_level > 1)
		umad_dump(mad);

	s = find_slot(fd);
	if (!s)
		error = fcntl(fd, F_GETFD) < 0 ? EBADF : EINVAL;
	else if (length < MAD_RMPP_HEADER || length > LENGTH_MAX || agentid < 0 || agentid >= AGENTS_MAX)
		error = EINVAL;
	else if (!(atomic_load(&s->agents) >> agentid & 1))
		error = EIO;
	if (!error) {
		memcpy(&head, mad, sizeof(head));
		head.length = sizeof(head) + length;
		await_end(s, mad);
		error = transmit(fd, &head, mad->data, length);
		if (error)
			end_of(s, agentid, mad->data);
	}
	errno = error == EPIPE || error == ECONNRESET ? EIO : error;
	if (error)
		TRACE("fd %d agentid %d length %d: %s", fd, agentid, length, strerror(errno));
	return error ? -EIO : 0;
}

static int wait_input(int fd, int timeout_ms)
{
	struct pollfd input = { .fd = fd, .events = POLLIN };
	int n = poll(&input, 1, timeout_ms), late;
	struct slot *s;

	if (n == 0 && timeout_ms > 0) {
		s = find_slot(fd);
		while (n == 0 && s && (late = overdue_ms(s)) > 0)
			n = poll(&input, 1, late < LOOK_MS ? late : LOOK_MS);
	}
	return n == 1 ? 0 : n == 0 ? -ETIMEDOUT : -EIO;
}

/* Reads what lies beyond the first segment; returns 0 or an errno. */
static int read_beyond(struct msghdr *message, uint8_t *to, size_t size)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(message);
	int file, error = 0;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(sizeof(int)))
		return size ? EIO : 0;
	memcpy(&file, CMSG_DATA(c), sizeof(file));
	for (size_t done = 0; done < size && !error;) {
		ssize_t n = pread(file, to + done, size - done, done);

		if (n > 0)
			done += n;
		else if (n == 0 || errno != EINTR)
			error = EIO;
	}
	close(file);
	return error;
}

/* A record as it lies in the socket: the head and the first segment. */
struct record {
	struct user_mad head;
	uint8_t data[MAD_SIZE];
};

/*
 * Takes the next record if it fits into length bytes; leaves it where it is
 * if not, as the device does. *length becomes the datagram's. Returns 0 or
 * an errno.
 */
static int take(int fd, struct user_mad *mad, int *length)
{
	struct record seen;
	struct iovec parts[2];
	union one_fd control;
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	size_t room = *length > 0 ? *length : 0, total, first;
	ssize_t n;

	n = recv(fd, &seen, sizeof(seen), MSG_PEEK | MSG_DONTWAIT);
	if (n < 0)
		return errno;
	if (n < (ssize_t)sizeof(seen.head)) {
		/* The daemon is gone. Some programs ask again at once and for ever, and log each time. */
		usleep(DEAD_PAUSE_US);
		return EIO;
	}
	total = seen.head.length - sizeof(seen.head);
	first = total < MAD_SIZE ? total : MAD_SIZE;
	if ((size_t)n != sizeof(seen.head) + first || total > LENGTH_MAX)
		return EIO;
	if (room < total) {
		*length = total;
		if (room < first)
			return EINVAL;
		/* The first segment says how long the whole is. */
		memcpy(mad, &seen, sizeof(seen.head) + first);
		return ENOSPC;
	}

	parts[0] = (struct iovec){ mad, sizeof(*mad) };
	parts[1] = (struct iovec){ mad->data, first };
	if (total > first) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
	}
	n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno;
	/* Another process that shares the descriptor may have been faster, and this be a longer one. */
	if (n != (ssize_t)(sizeof(*mad) + first) || mad->length != sizeof(*mad) + total)
		return EIO;
	*length = total;
	return read_beyond(&message, mad->data + first, total - first);
}

int umad_recv(int fd, void *umad, int *length, int timeout_ms)
{
	struct user_mad *mad = umad;
	struct slot *s;
	int error;

	TRACE("fd %d umad %p timeout %d", fd, umad, timeout_ms);
	if (!umad || !length) {
		errno = EINVAL;
		return -EINVAL;
	}
	errno = 0;
	if (timeout_ms) {
		error = wait_input(fd, timeout_ms);
		if (error) {
			if (!errno)
				errno = -error;
			return error;
		}
	}

	s = find_slot(fd);
	while (s && atomic_flag_test_and_set(&s->receiving))
		sched_yield();
	error = take(fd, mad, length);
	if (s && !error)
		end_of(s, mad->agent_id, mad->data);
	if (s)
		atomic_flag_clear(&s->receiving);
	if (error) {
		TRACE("fd %d length %d: %s", fd, *length, strerror(error));
		errno = error;
		return -error;
	}
	TRACE("agent %u received %d bytes", mad->agent_id, *length);
	errno = 0;
	return mad->agent_id;
}

int umad_poll(int fd, int timeout_ms)
{
	TRACE("fd %d timeout %d", fd, timeout_ms);
	return wait_input(fd, timeout_ms);
}
