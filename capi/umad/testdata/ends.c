/* Waits on an open port for its fabric to end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include <infiniband/umad.h>

int main(void)
{
	void *umad = umad_alloc(1, umad_size() + 256);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, 0x81, 1, 0, NULL), length = 256;
	struct timespec from, to;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (agent < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	if (poll(&p, 1, 30000) != 1 || umad_poll(fd, 0) != 0)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 4; i++)
		if (umad_recv(fd, umad, &length, -1) != -EIO || errno != EIO)
			return 3;
	clock_gettime(CLOCK_MONOTONIC, &to);
	if ((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 100)
		return 4;
	if (umad_send(fd, agent, umad, 256, 0, 0) != -EIO || errno != EIO)
		return 5;
	if (umad_register(fd, 0x81, 1, 0, NULL) != -EPERM)
		return 6;
	if (umad_open_port(NULL, 1) >= 0)
		return 7;
	umad_close_port(fd);
	return 0;
}
