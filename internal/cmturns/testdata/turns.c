/*
 * Loaded before librdmacm into both programs of a pair, it makes a client connect only where its server listens.
 *
 * perftest's programs connect twice, by an event channel each time, and the client does not wait until the server
 * listens for the second time, nor does it survive a refusal. Each rdma_listen puts a byte into the pipe that
 * SOFTIB_TURNS names, and the first rdma_connect of each event channel takes one out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

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
