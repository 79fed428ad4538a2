/*
 * What many objects cost. The first argument says what is made, the second how many:
 *
 *	qps N		RC queue pairs of depth 16, connected to each other, with 16 receives each: the time until they are
 *			connected, then the memory of one with its receives
 *	regions N	regions of 4 KiB
 *	region BYTES	one region of that size, of memory that nobody has touched
 *
 * Times are in microseconds, memory is in bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { depth = 16, page = 4096 };

static struct ibv_context *context;
static struct ibv_pd *pd;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void *must(void *made, const char *what)
{
	if (!made || made == MAP_FAILED) {
		perror(what);
		exit(1);
	}
	return made;
}

static void done(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", what, strerror(error));
		exit(1);
	}
}

static long resident(void)
{
	FILE *f = must(fopen("/proc/self/statm", "r"), "statm");
	long pages = 0;

	if (fscanf(f, "%*d %ld", &pages) != 1)
		exit(1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

static void *memory(size_t bytes)
{
	return must(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), "mmap");
}

static struct ibv_mr *reg(void *mem, size_t bytes)
{
	return must(ibv_reg_mr(pd, mem, bytes, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
}

static void join(struct ibv_qp *qp, uint32_t peer, uint16_t lid)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer,
		.max_dest_rd_atomic = depth, .max_rd_atomic = depth, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7, .ah_attr = { .dlid = lid, .port_num = 1 },
	};

	done(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a.qp_state = IBV_QPS_RTR;
	done(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a.qp_state = IBV_QPS_RTS;
	done(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void qps(int count)
{
	struct ibv_cq *cq = must(ibv_create_cq(context, depth, NULL, NULL, 0), "ibv_create_cq");
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp **qp = must(calloc(count, sizeof(*qp)), "calloc");
	void *mem = memory(page);
	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = page, .lkey = reg(mem, page)->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_port_attr port;
	long began, before;

	done(ibv_query_port(context, 1, &port), "ibv_query_port");
	before = resident();
	began = now();
	for (int i = 0; i < count; i++) {
		struct ibv_qp_init_attr granted = init;

		qp[i] = must(ibv_create_qp(pd, &granted), "ibv_create_qp");
	}
	for (int i = 0; i < count; i++)
		join(qp[i], qp[(i ^ 1) < count ? i ^ 1 : i]->qp_num, port.lid);
	printf("connected %ld\n", now() - began);
	for (int i = 0; i < count; i++)
		for (int k = 0; k < depth; k++)
			done(ibv_post_recv(qp[i], &wr, &bad), "ibv_post_recv");
	ibv_poll_cq(cq, 1, &(struct ibv_wc){ 0 }); /* what was posted is the adapter's now */
	printf("bytes %ld\n", (resident() - before) / count);
}

static void regions(int count)
{
	char *mem = memory((size_t)count * page);
	long began = now();

	for (int i = 0; i < count; i++)
		reg(mem + (size_t)i * page, page);
	printf("registered %ld\n", now() - began);
}

static void region(size_t bytes)
{
	void *mem = memory(bytes);
	long began = now();

	reg(mem, bytes);
	printf("registered %ld\n", now() - began);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = must(ibv_get_device_list(NULL), "ibv_get_device_list");
	long n = argc == 3 ? atol(argv[2]) : 0;

	context = must(list[0] ? ibv_open_device(list[0]) : NULL, "ibv_open_device");
	pd = must(ibv_alloc_pd(context), "ibv_alloc_pd");
	if (n > 0 && !strcmp(argv[1], "qps"))
		qps(n);
	else if (n > 0 && !strcmp(argv[1], "regions"))
		regions(n);
	else if (n > 0 && !strcmp(argv[1], "region"))
		region(n);
	else
		return 2;
	return 0;
}
