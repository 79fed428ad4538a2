/* rpoll and rselect: waiting for several rsockets, and other descriptors. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include "rs.h"

/*
 * A thread that sleeps here sleeps on the descriptors of sockets. A thread
 * that waits for one of the sockets alone may take the word off such a
 * descriptor first; so it rings for all that sleep here.
 */
struct sleeper {
	int bell;
	struct pollfd *room;
	struct sleeper *next;
};

static pthread_mutex_t sleepers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sleeper *sleepers;
static atomic_int sleeping;

void rs_wake_pollers(void)
{
	static const uint64_t one = 1;

	if (!atomic_load(&sleeping))
		return;
	pthread_mutex_lock(&sleepers_lock);
	for (struct sleeper *s = sleepers; s; s = s->next) {
		ssize_t n = write(s->bell, &one, sizeof(one));

		(void)n; /* a bell that cannot take more is ringing */
	}
	pthread_mutex_unlock(&sleepers_lock);
}

static void lie_down(struct sleeper *s)
{
	pthread_mutex_lock(&sleepers_lock);
	s->next = sleepers;
	sleepers = s;
	atomic_fetch_add(&sleeping, 1);
	pthread_mutex_unlock(&sleepers_lock);
}

static void get_up(struct sleeper *s)
{
	struct sleeper **at;

	pthread_mutex_lock(&sleepers_lock);
	for (at = &sleepers; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	atomic_fetch_sub(&sleeping, 1);
	pthread_mutex_unlock(&sleepers_lock);
}

/* Whether a listener has a request waiting. */
static int has_event(struct rs *rs)
{
	struct pollfd p = { .fd = rs->fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static short stream_state(struct rs *rs)
{
	short r = 0;

	switch (rs->state) {
	case RS_LISTENING:
		return has_event(rs) ? POLLIN : 0;
	case RS_RESOLVING:
	case RS_CONNECTING:
	case RS_ACCEPTING:
		return 0;
	case RS_FRESH:
	case RS_BOUND:
		return POLLOUT | POLLHUP;
	case RS_CLOSED:
		/* Programs that see the end stop reading: first what came before it. */
		if (rs->arrived != rs->taken)
			return POLLIN;
		r = POLLIN | POLLOUT | POLLHUP;
		return rs->error ? r | POLLERR : r;
	case RS_OPEN:
		break;
	}
	if (rs_stream_readable(rs))
		r |= POLLIN;
	if (rs_stream_writable(rs))
		r |= POLLOUT;
	if (rs->peer_ended && rs->end_sent)
		r |= POLLHUP;
	return r;
}

static short look(struct rs *rs, short events, int at_events)
{
	short r;

	rs_lock(rs);
	rs_progress(rs, at_events || rs->state == RS_RESOLVING || rs->state == RS_CONNECTING || rs->state == RS_ACCEPTING);
	if (rs->type == SOCK_DGRAM)
		r = (rs_datagram_readable(rs) ? POLLIN : 0) | (rs_datagram_writable(rs) ? POLLOUT : 0);
	else
		r = stream_state(rs);
	rs_unlock(rs);
	if (r & POLLIN)
		r |= POLLRDNORM;
	if (r & POLLOUT)
		r |= POLLWRNORM;
	return r & (events | POLLHUP | POLLERR);
}

/* One look at everything. others: there are descriptors that are none of ours. */
static int look_at_all(struct pollfd *fds, nfds_t n, int at_events, int *others)
{
	int ready = 0;

	*others = 0;
	for (nfds_t i = 0; i < n; i++) {
		struct rs *rs = fds[i].fd < 0 ? NULL : rs_find(fds[i].fd);

		if (rs)
			fds[i].revents = look(rs, fds[i].events, at_events);
		else if (fds[i].fd < 0 || poll(&fds[i], 1, 0) <= 0)
			fds[i].revents = 0;
		if (!rs && fds[i].fd >= 0)
			*others = 1;
		ready += fds[i].revents != 0;
	}
	return ready;
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* Fills what to sleep on: two descriptors of a socket that has queues. Returns how many. */
static nfds_t gather(struct pollfd *fds, nfds_t n, struct pollfd *out)
{
	nfds_t count = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct rs *rs;

		if (fds[i].fd < 0)
			continue;
		rs = rs_find(fds[i].fd);
		out[count++] = (struct pollfd){ .fd = fds[i].fd, .events = rs ? POLLIN : fds[i].events };
		if (!rs)
			continue;
		rs_lock(rs);
		if (rs->cq) {
			rs_arm(rs);
			out[count++] = (struct pollfd){ .fd = rs->completions->fd, .events = POLLIN };
		}
		rs_unlock(rs);
	}
	return count;
}

static void disarm(struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		struct rs *rs = fds[i].fd < 0 ? NULL : rs_find(fds[i].fd);

		if (!rs)
			continue;
		rs_lock(rs);
		if (!rs->waiting) /* else it is for who waits */
			rs_disarm(rs);
		rs_unlock(rs);
	}
}

/* Sleeps until something may have changed. -1 and errno, or whether anything did. */
static int sleep_on(struct pollfd *fds, nfds_t n, struct pollfd *room, int64_t until)
{
	nfds_t count = gather(fds, n, room);
	int timeout = -1, ready, others, result;

	/* What came before it was asked for. */
	ready = look_at_all(fds, n, 0, &others);
	if (ready)
		return 1;
	if (until >= 0) {
		int64_t left = until - now_us();

		timeout = left <= 0 ? 0 : left > 1000000000LL ? 1000000 : (left + 999) / 1000;
	}
	room[count++] = (struct pollfd){ .fd = room[2 * n].fd, .events = POLLIN };
	result = poll(room, count, timeout);
	if (result > 0)
		disarm(fds, n);
	return result;
}

static void end_sleep(void *arg)
{
	struct sleeper *s = arg;
	int error = errno;

	get_up(s);
	close(s->bell);
	free(s->room);
	errno = error;
}

static int wait_all(struct pollfd *fds, nfds_t n, int64_t until)
{
	struct sleeper self = { .room = calloc(2 * n + 2, sizeof(*self.room)) };
	struct pollfd *room = self.room;
	int ready = 0, others;

	if (!room)
		return -1;
	self.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (self.bell < 0) {
		free(room);
		return -1;
	}
	lie_down(&self);
	pthread_cleanup_push(end_sleep, &self);
	do {
		uint64_t rings;

		room[2 * n].fd = self.bell;
		if (sleep_on(fds, n, room, until) < 0) {
			ready = -1;
			break;
		}
		if (read(self.bell, &rings, sizeof(rings)) < 0 && errno != EAGAIN) {
			ready = -1;
			break;
		}
		ready = look_at_all(fds, n, 1, &others);
	} while (!ready && (until < 0 || now_us() < until));
	pthread_cleanup_pop(1);
	return ready;
}

EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	int64_t start, until;
	int ready, others;

	if (nfds && !fds)
		return fail(EFAULT);
	ready = look_at_all(fds, nfds, 1, &others);
	if (ready || !timeout)
		return ready;
	start = now_us();
	until = timeout < 0 ? -1 : start + timeout * 1000LL;
	while (!others && now_us() - start < rs_spin_us()) {
		ready = look_at_all(fds, nfds, 0, &others);
		if (ready)
			return ready;
	}
	return wait_all(fds, nfds, until);
}

static void add(fd_set *set, int fd, struct pollfd *p, short events)
{
	if (set && FD_ISSET(fd, set)) {
		p->fd = fd;
		p->events |= events;
	}
}

static int take(fd_set *set, const struct pollfd *p, short events)
{
	if (!set || !FD_ISSET(p->fd, set))
		return 0;
	if (p->revents & events)
		return 1;
	FD_CLR(p->fd, set);
	return 0;
}

EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct pollfd *fds;
	int n = 0, ready;

	if (nfds < 0 || nfds > FD_SETSIZE)
		return fail(EINVAL);
	fds = calloc(nfds + 1, sizeof(*fds));
	if (!fds)
		return -1;
	for (int fd = 0; fd < nfds; fd++) {
		struct pollfd p = { .fd = -1 };

		add(readfds, fd, &p, POLLIN);
		add(writefds, fd, &p, POLLOUT);
		add(exceptfds, fd, &p, POLLPRI);
		if (p.fd >= 0)
			fds[n++] = p;
	}
	ready = rpoll(fds, n, timeout ? timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000 : -1);
	if (ready >= 0) {
		ready = 0;
		for (int i = 0; i < n; i++) {
			if (fds[i].revents & POLLNVAL) {
				free(fds);
				return fail(EBADF);
			}
			ready += take(readfds, &fds[i], POLLIN | POLLHUP | POLLERR);
			ready += take(writefds, &fds[i], POLLOUT | POLLERR);
			ready += take(exceptfds, &fds[i], POLLPRI);
		}
	}
	free(fds);
	return ready;
}
