/*
 * Opens a device, makes a queue pair, says how long that took, and then does nothing for as many milliseconds as it is
 * told, or until its standard input ends; at last it says how much CPU that nothing took. All in microseconds.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <infiniband/verbs.h>

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static long cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000L + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

int main(int argc, char **argv)
{
	long began = now(), used;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct pollfd end = { .fd = 0, .events = POLLIN };

	if (!cq || !ibv_create_qp(pd, &init)) {
		perror("attach");
		return 1;
	}
	printf("attached %ld\n", now() - began);
	fflush(stdout);
	poll(NULL, 0, 50);
	used = cpu();
	poll(&end, 1, argc > 1 ? atoi(argv[1]) : -1);
	printf("idle %ld\n", cpu() - used);
	return 0;
}
