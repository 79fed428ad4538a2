/*
 * The librspreload of rdma-core 44 knows poll and select, and not epoll: what it gives to programs for an rsocket is
 * for the kernel a file that is never waited for (EPERM). Such files are kept here beside the epoll instance, and
 * waited for by poll, whoever stands in front of that, together with the instance itself, which has all others. Edges
 * are not told from levels, so that EPOLLET is refused as before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "cm.h"

/* A file that the kernel does not wait for. */
struct kept {
	int instance, fd;
	struct epoll_event event;
	struct kept *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *all;
static atomic_int count;

/* How long one waits before it looks whether another thread has changed what is waited for. */
enum { LOOK_MS = 50 };

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR &&
		       EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP,
	       "what poll and epoll call alike");

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

/* Where an entry is, or would be; lock held. */
static struct kept **place(int instance, int fd)
{
	struct kept **at = &all;

	while (*at && ((*at)->instance != instance || (*at)->fd != fd))
		at = &(*at)->next;
	return at;
}

static void forget(struct kept **at)
{
	struct kept *k = *at;

	*at = k->next;
	free(k);
	atomic_fetch_sub(&count, 1);
}

/* Adds or changes what the kernel refused; lock held. */
static int keep(int instance, int fd, const struct epoll_event *event)
{
	struct kept **at = place(instance, fd), *k = *at;

	if (!k) {
		k = calloc(1, sizeof(*k));
		if (!k)
			return fail(ENOMEM);
		*at = k;
		atomic_fetch_add(&count, 1);
	}
	k->instance = instance;
	k->fd = fd;
	k->event = *event;
	return 0;
}

EXPORT int epoll_ctl(int instance, int operation, int fd, struct epoll_event *event)
{
	static typeof(&epoll_ctl) next;
	int status;

	if (!next && !(next = NEXT(epoll_ctl)))
		return fail(ENOSYS);
	status = next(instance, operation, fd, event);
	if (!status || errno != EPERM)
		return status; /* which the kernel says of every operation on a file that is never waited for */
	if (operation != EPOLL_CTL_DEL && (event->events & EPOLLET || !is_put_under(fd)))
		return fail(EPERM);
	pthread_mutex_lock(&lock);
	if (operation != EPOLL_CTL_DEL) {
		status = keep(instance, fd, event);
	} else if (*place(instance, fd)) {
		forget(place(instance, fd));
		status = 0;
	} else {
		status = fail(EPERM);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

/* What an instance has here, and the instance itself at the end; lock held. NULL if it has nothing, or for want of
 * memory. */
static struct pollfd *gather(int instance, int *n)
{
	struct pollfd *fds = NULL;

	*n = 0;
	for (struct kept *k = all; k; k = k->next)
		*n += k->instance == instance;
	if (*n)
		fds = calloc(*n + 1, sizeof(*fds));
	if (!fds)
		return NULL;
	*n = 0;
	for (struct kept *k = all; k; k = k->next)
		if (k->instance == instance)
			fds[(*n)++] = (struct pollfd){
				.fd = k->fd,
				.events = k->event.events & (POLLIN | POLLOUT | POLLPRI | POLLRDHUP),
			};
	fds[(*n)++] = (struct pollfd){ .fd = instance, .events = POLLIN };
	return fds;
}

/* Turns what poll found into events. A file that is closed is forgotten, as the kernel does; lock held. */
static int report(int instance, const struct pollfd *fds, int n, struct epoll_event *events, int most)
{
	int found = 0;

	for (int i = 0; i < n && found < most; i++) {
		struct kept **at = place(instance, fds[i].fd);

		if (!fds[i].revents || !*at)
			continue;
		if (fds[i].revents & POLLNVAL) {
			forget(at);
			continue;
		}
		if (!((*at)->event.events & (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)))
			continue; /* it has had its one shot */
		events[found++] = (struct epoll_event){ .events = fds[i].revents, .data = (*at)->event.data };
		if ((*at)->event.events & EPOLLONESHOT)
			(*at)->event.events = EPOLLONESHOT;
	}
	return found;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

EXPORT int epoll_wait(int instance, struct epoll_event *events, int most, int timeout)
{
	static typeof(&epoll_wait) next;
	int64_t end = timeout < 0 ? INT64_MAX : now_ms() + timeout;

	if (!next && !(next = NEXT(epoll_wait)))
		return fail(ENOSYS);
	while (atomic_load_explicit(&count, memory_order_relaxed) && most > 0) {
		int64_t left = end - now_ms();
		struct pollfd *fds;
		int n, got;

		pthread_mutex_lock(&lock);
		fds = gather(instance, &n);
		pthread_mutex_unlock(&lock);
		if (!fds)
			break;
		got = poll(fds, n, left < 0 ? 0 : left < LOOK_MS ? left : LOOK_MS);
		if (got > 0) {
			pthread_mutex_lock(&lock);
			got = report(instance, fds, n - 1, events, most);
			pthread_mutex_unlock(&lock);
			if (fds[n - 1].revents && got < most) {
				int others = next(instance, events + got, most - got, 0);

				got += others > 0 ? others : 0;
			}
		}
		free(fds);
		if (got || left <= 0)
			return got; /* or poll has failed, and errno says why */
	}
	return next(instance, events, most, timeout);
}
