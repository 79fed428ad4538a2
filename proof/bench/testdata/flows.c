/*
 * SimGrid as a peer of simulations by flows: so many steps of an all-to-all, in which each host sends to one and
 * receives from one at a time, on a fat tree of three levels. Prints how many messages it has simulated in a
 * second.
 */
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 65536 };

static int hosts, steps;
static sg_mailbox_t *boxes;

static void rank(int argc, char **argv)
{
	int me = atoi(argv[1]);
	static char nothing;

	(void)argc;
	for (int k = 1; k <= steps; k++) {
		void *got;
		sg_comm_t in = sg_mailbox_get_async(boxes[me], &got);
		sg_comm_t out = sg_mailbox_put_async(boxes[(me + k) % hosts], &nothing, SIZE);

		sg_comm_wait(in);
		sg_comm_wait(out);
	}
}

/* A switch has half of its ports on each side: radix/2 squared times radix hosts. */
static void platform(int radix)
{
	char path[] = "/tmp/softib-bench-XXXXXX.xml";
	FILE *f = fdopen(mkstemps(path, 4), "w");

	if (!f)
		exit(1);
	fprintf(f, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
		"<platform version=\"4.1\"><cluster id=\"c\" prefix=\"h\" suffix=\"\" radical=\"0-%d\" speed=\"1Gf\" "
		"bw=\"50GBps\" lat=\"150ns\" topology=\"FAT_TREE\" topo_parameters=\"3;%d,%d,%d;1,%d,%d;1,1,1\" "
		"sharing_policy=\"SPLITDUPLEX\"/></platform>\n", hosts - 1, radix / 2, radix / 2, radix, radix / 2, radix / 2);
	fclose(f);
	simgrid_load_platform(path);
	unlink(path);
}

int main(int argc, char **argv)
{
	struct timespec from, to;
	char name[32], number[32];
	int radix;

	simgrid_init(&argc, argv);
	if (argc != 3)
		return 2;
	radix = atoi(argv[1]);
	hosts = radix / 2 * (radix / 2) * radix;
	steps = atoi(argv[2]);
	platform(radix);
	boxes = calloc(hosts, sizeof(*boxes));
	for (int i = 0; i < hosts; i++) {
		const char *args[] = { "rank", number, NULL };

		snprintf(number, sizeof(number), "%d", i);
		snprintf(name, sizeof(name), "h%d", i);
		boxes[i] = sg_mailbox_by_name(name);
		sg_actor_create_(name, sg_host_by_name(name), rank, 2, args);
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	simgrid_run();
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.1f\n", hosts * steps / (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9));
	return 0;
}
