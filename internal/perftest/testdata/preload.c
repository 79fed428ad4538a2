/*
 * Loaded before the libraries of perftest's programs, it spares tests some things.
 *
 * The programs find out how fast the processor's clock is, for every line of results, by looking at the time of day for
 * a quarter of a second. They give up where they lose their core meanwhile, so they sleep at times; see gettimeofday.
 * With SOFTIB_QUICK the time of day runs faster, and what they say of speed is wrong by as much.
 *
 * Over rdma_cm they connect twice, by an event channel each time, and the client does not wait until the server listens
 * for the second time, nor does it survive a refusal. Each rdma_listen puts a byte into the pipe that SOFTIB_TURNS
 * names, if any, and the first rdma_connect of each event channel takes one out.
 *
 * With -D they send for so many seconds, in which a program on a busy machine may have had no turn. With
 * SOFTIB_OWN_TIME these are seconds of processor time of the thread that sends and polls, so the sides end at different
 * times; see alarm. With SOFTIB_NO_ALARM they send until somebody sends them the signal.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

enum { FASTER = 16, NAP = 8 * 1000 * 1000, NAP_EVERY = 6 * 1000 * 1000 };

static bool quick, no_alarm;
static const char *turns_path, *own_time_path;

__attribute__((constructor)) static void look(void)
{
	quick = getenv("SOFTIB_QUICK");
	no_alarm = getenv("SOFTIB_NO_ALARM");
	turns_path = getenv("SOFTIB_TURNS");
	own_time_path = getenv("SOFTIB_OWN_TIME");
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/*
 * The programs read the processor's clock before a first look and after a last one, and give up where 200 such pairs
 * are not on a line: that is, where they lost their core once between a look and its reading. A few pairs that are a
 * hundred times as far apart keep the line straight. So the looks that are repeated, which have the same argument as
 * the one before, sleep at times.
 */
int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	static struct timeval *last;
	static int64_t slept;
	int64_t ns = now_ns();

	(void)zone;
	if (at == last && ns - slept > NAP_EVERY) {
		nanosleep(&(struct timespec){ .tv_nsec = NAP }, NULL);
		slept = ns = now_ns();
	}
	last = at;
	ns *= quick ? FASTER : 1;
	at->tv_sec = ns / 1000000000;
	at->tv_usec = ns % 1000000000 / 1000;
	return 0;
}

static int turns(void)
{
	static int fd = -1;

	if (fd < 0 && (fd = open(turns_path, O_RDWR | O_CLOEXEC)) < 0)
		abort();
	return fd;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int (*next)(struct rdma_cm_id *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	int result = next(id, backlog);

	if (turns_path && result == 0 && write(turns(), "", 1) != 1)
		abort();
	return result;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	static struct rdma_event_channel *last;
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) = dlsym(RTLD_NEXT, "rdma_connect");
	char turn;

	if (turns_path && id->channel != last && read(turns(), &turn, 1) != 1)
		abort();
	last = id->channel;
	return next(id, param);
}

/* The file that SOFTIB_OWN_TIME names, which each side holds while its time runs. */
static int running = -1;

/*
 * A thread that polls without an end has its time go on. One that sleeps until an event comes, as with -e, does not,
 * and is not for this. The signal is that thread's, as the handler sets the next alarm.
 */
unsigned alarm(unsigned seconds)
{
	static bool has_timer;
	static timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };

	if (no_alarm)
		return 0;
	if (!own_time_path) {
		unsigned (*next)(unsigned) = dlsym(RTLD_NEXT, "alarm");

		return next(seconds);
	}
	if (!has_timer) {
		event._sigev_un._tid = gettid();
		running = open(own_time_path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
		if (running < 0 || flock(running, LOCK_SH) || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer))
			abort();
		has_timer = true;
	}
	if (timer_settime(timer, 0, &(struct itimerspec){ .it_value.tv_sec = seconds }, NULL))
		abort();
	return 0;
}

/*
 * ib_write_lat alone does not ask the other side whether it is done before it destroys its queue pair, and the other
 * fails when it then answers the last message. So who is first waits until the other's time is over, too, or the other
 * is gone.
 */
int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*next)(struct ibv_qp *) = dlsym(RTLD_NEXT, "ibv_destroy_qp");

	if (running >= 0 && strcmp(program_invocation_short_name, "ib_write_lat") == 0) {
		/* A lock that is let go first, as two that want to have more of theirs would wait for each other. */
		if (flock(running, LOCK_UN) || flock(running, LOCK_EX))
			abort();
		close(running);
		running = -1;
	}
	return next(qp);
}
