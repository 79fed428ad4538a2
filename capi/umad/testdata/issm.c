/* Holds the file of IsSM open, as OpenSM does, until it is ended. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <infiniband/umad.h>

int main(void)
{
	char path[256], c;
	int fd;

	if (umad_init() < 0 || umad_get_issm_path(NULL, 1, path, sizeof(path)) != 0)
		return 1;
	fd = open(path, O_NONBLOCK);
	if (fd < 0) {
		perror(path);
		return 1;
	}
	puts("open");
	fflush(stdout);
	return read(0, &c, 1) < 0;
}
