/* rate COUNT OUTSTANDING: asks this node for its NodeInfo that often, so many requests at a time. */
#include <stdlib.h>
#include <string.h>

#include <infiniband/umad.h>

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1, window = argc > 2 ? atoi(argv[2]) : 1;
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, 0x81, 1, 0, NULL), sent = 0;
	uint8_t *umad = umad_alloc(1, umad_size() + 256), *mad = umad_get_mad(umad);

	if (agent < 0)
		return 1;
	for (int received = 0; received < count; received++) {
		int length = 256;

		for (; sent < count && sent - received < window; sent++) {
			uint32_t tid = htobe32(sent);

			memset(umad, 0, umad_size() + 256);
			mad[0] = mad[2] = mad[3] = 1;
			mad[1] = 0x81;
			memcpy(mad + 12, &tid, sizeof(tid));
			mad[17] = 0x11;
			memset(mad + 32, 0xff, 4);
			umad_set_addr(umad, 0xffff, 0, 0, 0);
			if (umad_send(fd, agent, umad, 256, 10000, 0) < 0)
				return 2;
		}
		if (umad_recv(fd, umad, &length, -1) != agent || umad_status(umad))
			return 3;
	}
	return umad_close_port(fd);
}
