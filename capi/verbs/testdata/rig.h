/* A device with queue pairs that talk to each other, for the tests of extended verbs. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define MUST(cond)                                                                                     \
	do {                                                                                           \
		if (!(cond)) {                                                                         \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			exit(1);                                                                       \
		}                                                                                      \
	} while (0)

/* The call makes nothing and sets errno. */
#define NONE(call, error)              \
	do {                           \
		errno = 0;             \
		MUST((call) == NULL);  \
		MUST(errno == (error)); \
	} while (0)

enum { MEM = 1 << 16, HALF = MEM / 2, DEPTH = 32 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *mem; /* one half sends, the other receives */
static struct ibv_port_attr port;

static __attribute__((unused)) void rig(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	ctx = ibv_open_device(list[0]);
	MUST(ctx);
	ibv_free_device_list(list);
	MUST(ibv_query_port(ctx, 1, &port) == 0);
	pd = ibv_alloc_pd(ctx);
	MUST(pd);
	mem = aligned_alloc(4096, MEM);
	MUST(mem);
	for (int i = 0; i < MEM; i++)
		mem[i] = i * 7 + (i >> 8);
	mr = ibv_reg_mr(pd, mem, MEM,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	MUST(mr);
}

static __attribute__((unused)) void unrig(void)
{
	MUST(ibv_dereg_mr(mr) == 0);
	MUST(ibv_dealloc_pd(pd) == 0);
	MUST(ibv_close_device(ctx) == 0);
	free(mem);
}

static __attribute__((unused)) struct ibv_cq *new_cq(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);

	MUST(cq);
	return cq;
}

static __attribute__((unused)) struct ibv_cq_ex *new_cq_ex(uint64_t wc_flags)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 256, .wc_flags = wc_flags };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);

	MUST(cq);
	return cq;
}

static struct ibv_qp_init_attr_ex qp_attr(enum ibv_qp_type type, struct ibv_cq *scq, struct ibv_cq *rcq, uint64_t ops)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = scq,
		.recv_cq = rcq,
		.qp_type = type,
		.pd = pd,
		.send_ops_flags = ops,
		.cap = { .max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 256 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
	};
}

static __attribute__((unused)) struct ibv_qp *new_qp(
	enum ibv_qp_type type, struct ibv_cq *scq, struct ibv_cq *rcq, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = qp_attr(type, scq, rcq, ops);
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &attr);

	MUST(qp);
	return qp;
}

/* Takes a queue pair to RTS, towards another one. 0 or an errno. */
static __attribute__((unused)) int connect_to(struct ibv_qp *qp, uint32_t peer, uint16_t lid)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE,
	    rts = IBV_QP_STATE | IBV_QP_SQ_PSN, error;

	init |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (qp->qp_type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		rts |= IBV_QP_TIMEOUT;

	error = ibv_modify_qp(qp, &a, init);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = peer;
	a.ah_attr.dlid = lid;
	a.ah_attr.port_num = 1;
	a.max_dest_rd_atomic = 4;
	a.min_rnr_timer = 1;
	if (!error)
		error = ibv_modify_qp(qp, &a, rtr);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 4;
	return error ? error : ibv_modify_qp(qp, &a, rts);
}

static __attribute__((unused)) void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	MUST(connect_to(qp, peer, port.lid) == 0);
}

static __attribute__((unused)) void post_recv(struct ibv_qp *qp, uint64_t id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mem + offset, .length = length, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(ibv_post_recv(qp, &wr, &bad) == 0);
}

static __attribute__((unused)) double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* The next completion, which has to come soon. */
static __attribute__((unused)) struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	double deadline = now() + 20;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		MUST(now() < deadline);
	MUST(n == 1);
	return wc;
}

/* Starts a poll that finds something. */
static __attribute__((unused)) void wait_start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	double deadline = now() + 20;
	int error;

	while ((error = ibv_start_poll(cq, &attr)) == ENOENT)
		MUST(now() < deadline);
	MUST(error == 0);
}

static __attribute__((unused)) void wait_done(
	struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = wait_wc(cq);

	if (wc.wr_id != id || wc.status != status || (!status && wc.opcode != opcode)) {
		fprintf(stderr, "completion %llu: %s, opcode %d; want %llu: %s, %d\n", (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status), wc.opcode, (unsigned long long)id, ibv_wc_status_str(status), opcode);
		exit(1);
	}
}
