/* Programs that fork.
 *
 *   forks before   forks first; parent and child then open the device, each for itself, and exchange messages
 *   forks after    opens the device and has memory registered and a queue pair connected to itself; then children
 * come that end, that ask for
 *                  things of the device, and that become another program; the parent goes on in between
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x)                                                                                                  \
	do {                                                                                                     \
		if (!(x)) {                                                                                      \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #x, errno);                 \
			_exit(1);                                                                                \
		}                                                                                                \
	} while (0)

#define SIZE 100000

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *buffer;
};

struct address {
	uint32_t qpn, rkey;
	uint64_t at;
	uint16_t lid;
};

static struct address open_side(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	MUST(list && list[0]);
	MUST((s->ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((s->pd = ibv_alloc_pd(s->ctx)));
	MUST((s->cq = ibv_create_cq(s->ctx, 16, NULL, NULL, 0)));
	MUST((s->buffer = calloc(2, SIZE)));
	MUST((s->mr = ibv_reg_mr(s->pd, s->buffer, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	MUST((s->qp = ibv_create_qp(s->pd, &init)));
	MUST(!ibv_query_port(s->ctx, 1, &port));
	return (struct address){ s->qp->qp_num, s->mr->rkey, (uintptr_t)s->buffer, port.lid };
}

static void connect_to(struct side *s, struct address to)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	MUST(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = to.qpn, .min_rnr_timer = 12,
		.ah_attr = { .dlid = to.lid, .port_num = 1 },
	};
	MUST(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };
	MUST(!ibv_modify_qp(s->qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Writes the first half of the buffer to the second half of the peer's. */
static void write_to(struct side *s, struct address to, int seed)
{
	struct ibv_sge sge = { (uintptr_t)s->buffer, SIZE, s->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = to.at + SIZE, .rkey = to.rkey },
	}, *bad;
	struct ibv_wc wc;
	int n;

	for (int i = 0; i < SIZE; i++)
		s->buffer[i] = seed + i * 7;
	MUST(!ibv_post_send(s->qp, &wr, &bad));
	while (!(n = ibv_poll_cq(s->cq, 1, &wc)))
		;
	MUST(n == 1 && wc.status == IBV_WC_SUCCESS);
}

static void check(struct side *s, int seed)
{
	for (int i = 0; i < SIZE; i++)
		MUST(s->buffer[SIZE + i] == (char)(seed + i * 7));
}

/* One side of a pair in two processes. */
static void exchange(int in, int out, int seed, int peer_seed)
{
	struct side s;
	struct address mine = open_side(&s), to;
	char c;

	MUST(write(out, &mine, sizeof(mine)) == sizeof(mine) && read(in, &to, sizeof(to)) == sizeof(to));
	connect_to(&s, to);
	MUST(write(out, "r", 1) == 1 && read(in, &c, 1) == 1);
	write_to(&s, to, seed);
	MUST(write(out, "w", 1) == 1 && read(in, &c, 1) == 1);
	check(&s, peer_seed);
}

static void reap(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void before(void)
{
	int up[2], down[2];
	pid_t child;

	MUST(!ibv_fork_init() && !pipe(up) && !pipe(down));
	/* To look for devices is not to open one. */
	MUST(ibv_get_device_list(NULL));
	MUST((child = fork()) >= 0);
	if (!child) {
		exchange(down[0], up[1], 11, 22);
		_exit(0);
	}
	exchange(up[0], down[1], 22, 11);
	reap(child);
}

static void after(void)
{
	struct side s;
	struct address self;
	struct ibv_port_attr port;
	struct ibv_wc wc;
	pid_t child;

	MUST(!ibv_fork_init());
	self = open_side(&s);
	connect_to(&s, self);
	write_to(&s, self, 1);
	check(&s, 1);

	MUST((child = fork()) >= 0);
	if (!child)
		exit(0); /* with handlers and all */
	reap(child);
	write_to(&s, self, 2);
	check(&s, 2);

	MUST((child = fork()) >= 0);
	if (!child) {
		/* What the parent has opened is not the child's. Nothing hangs, nothing breaks. */
		alarm(20);
		MUST(ibv_query_port(s.ctx, 1, &port));
		MUST(!ibv_alloc_pd(s.ctx) && errno == EIO);
		MUST(ibv_poll_cq(s.cq, 1, &wc) <= 0);
		MUST(s.buffer[SIZE] == 2);
		memset(s.buffer, 0x77, 2 * SIZE);
		_exit(0);
	}
	reap(child);
	check(&s, 2);
	write_to(&s, self, 3);
	check(&s, 3);

	MUST((child = fork()) >= 0);
	if (!child) {
		execlp("ibv_devinfo", "ibv_devinfo", "-l", NULL);
		_exit(9);
	}
	write_to(&s, self, 4); /* while it runs */
	reap(child);
	check(&s, 4);
}

int main(int argc, char **argv)
{
	MUST(argc == 2);
	if (!strcmp(argv[1], "before"))
		before();
	else
		after();
	printf("good\n");
	return 0;
}
