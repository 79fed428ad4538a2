/* A program that attaches, makes a queue pair, says how long that took and where it is, exchanges a datagram with
 * the peer that it is
 * told on its input, and then waits for the end of its input without doing anything. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QKEY 0x1234567

#define MUST(x)                                                                    \
	do {                                                                       \
		if (!(x)) {                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);     \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static char buffer[8192];

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void completions(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		int n = ibv_poll_cq(cq, 1, &wc);

		MUST(n >= 0);
		MUST(n == 0 || wc.status == IBV_WC_SUCCESS);
		count -= n;
	}
}

int main(void)
{
	long start = now_us();
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_port_attr port;
	unsigned int lid, qpn;

	MUST(list && list[0]);
	MUST((ctx = ibv_open_device(list[0])));
	long opened = now_us();
	MUST((pd = ibv_alloc_pd(ctx)));
	MUST((cq = ibv_create_cq(ctx, 16, NULL, NULL, 0)));
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	MUST((qp = ibv_create_qp(pd, &init)));
	long made = now_us();

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	MUST((mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE)));
	struct ibv_sge in = { (uintptr_t)buffer, 4096, mr->lkey }, out = { (uintptr_t)buffer + 4096, 64, mr->lkey };
	struct ibv_recv_wr rwr = { .sg_list = &in, .num_sge = 1 }, *bad_recv;
	MUST(!ibv_post_recv(qp, &rwr, &bad_recv));
	MUST(!ibv_query_port(ctx, 1, &port));
	printf("open %ld us, first queue pair %ld us\nat %u %u\n", opened - start, made - start, port.lid, qp->qp_num);
	fflush(stdout);

	MUST(scanf("%u %u", &lid, &qpn) == 2);
	struct ibv_ah_attr where = { .dlid = lid, .port_num = 1 };
	MUST((ah = ibv_create_ah(pd, &where)));
	memset(buffer + 4096, 0x5a, 64);
	struct ibv_send_wr swr = {
		.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	}, *bad_send;
	MUST(!ibv_post_send(qp, &swr, &bad_send));
	completions(cq, 2);
	MUST(!memcmp(buffer + 40, buffer + 4096, 64));
	printf("idle\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) &&
		!ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	printf("done\n");
	return 0;
}
