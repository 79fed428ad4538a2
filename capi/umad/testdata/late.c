/* Asks a daemon that has no turn for longer than a request's time. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/umad.h>

enum { TIMEOUT_MS = 100, LATE_US = 500000, LONG_MS = 1000000 };

static void node_info(void *umad, uint8_t tid, int hops)
{
	uint8_t *mad = umad_get_mad(umad);

	memset(umad, 0, umad_size() + 256);
	mad[0] = mad[2] = mad[3] = 1;
	mad[1] = 0x81;
	mad[7] = mad[129] = hops;
	mad[15] = tid;
	mad[17] = 0x11;
	memset(mad + 32, 0xff, 4);
	umad_set_addr(umad, 0xffff, 0, 0, 0);
}

static void *late(void *arg)
{
	usleep(LATE_US);
	puts("late");
	fflush(stdout);
	return arg;
}

int main(void)
{
	void *umad = umad_alloc(1, umad_size() + 256);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, 0x81, 1, 0, NULL), length = 256;
	int none = umad_open_port(NULL, 2), other = umad_register(none, 0x81, 1, 0, NULL);
	pthread_t t;

	if (agent < 0 || other < 0)
		return 1;
	/* What has its time still before it makes nobody wait for longer than he wants. */
	node_info(umad, 7, 2); /* to where nobody is */
	if (umad_send(none, other, umad, 256, LONG_MS, 0) || umad_recv(none, umad, &length, 1) != -ETIMEDOUT)
		return 2;
	puts("ready");
	fflush(stdout);
	getchar();
	if (pthread_create(&t, NULL, late, NULL))
		return 3;
	node_info(umad, 8, 0);
	length = 256;
	if (umad_send(fd, agent, umad, 256, TIMEOUT_MS, 0) || umad_recv(fd, umad, &length, TIMEOUT_MS) != agent ||
	    ((uint8_t *)umad_get_mad(umad))[15] != 8)
		return 4;
	pthread_join(t, NULL);
	umad_close_port(none);
	umad_close_port(fd);
	return 0;
}
