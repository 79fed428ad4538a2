/*
 * Loaded before the libraries of perftest's programs, it spares tests two things.
 *
 * The programs find out how fast the processor's clock is, for every line of results, by looking at the time of day for
 * a quarter of a second. With SOFTIB_QUICK the time of day runs faster, and what they say of speed is wrong by as much.
 *
 * Over rdma_cm they connect twice, by an event channel each time, and the client does not wait until the server listens
 * for the second time, nor does it survive a refusal. Each rdma_listen puts a byte into the pipe that SOFTIB_TURNS
 * names, and the first rdma_connect of each event channel takes one out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

enum { FASTER = 16 };

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	struct timespec now;
	int64_t us;

	(void)zone;
	clock_gettime(CLOCK_MONOTONIC, &now);
	us = (now.tv_sec * INT64_C(1000000000) + now.tv_nsec) * (getenv("SOFTIB_QUICK") ? FASTER : 1) / 1000;
	at->tv_sec = us / 1000000;
	at->tv_usec = us % 1000000;
	return 0;
}

static int turns(void)
{
	static int fd = -1;

	if (fd < 0 && (fd = open(getenv("SOFTIB_TURNS"), O_RDWR | O_CLOEXEC)) < 0)
		abort();
	return fd;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int (*next)(struct rdma_cm_id *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	int result = next(id, backlog);

	if (result == 0 && write(turns(), "", 1) != 1)
		abort();
	return result;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	static struct rdma_event_channel *last;
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) = dlsym(RTLD_NEXT, "rdma_connect");
	char turn;

	if (id->channel != last && read(turns(), &turn, 1) != 1)
		abort();
	last = id->channel;
	return next(id, param);
}
