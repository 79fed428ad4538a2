/* Extended verbs: each of them once as it is meant, and with arguments that it must refuse. */
#include <sched.h>

#include <endian.h>
#include <infiniband/tm_types.h>

#include "rig.h"

#define RC_OPS                                                                                                    \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |                   \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |            \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |                \
	 IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE)

static void device_attributes(void)
{
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_device_attr plain;
	struct ibv_device_attr_ex ex;
	struct verbs_context *v = verbs_get_ctx(ctx);
	uint8_t longer[sizeof(ex) + 16];
	struct ibv_values_ex a = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, b = a;

	MUST(ibv_query_device(ctx, &plain) == 0);
	memset(&ex, 0xee, sizeof(ex));
	MUST(ibv_query_device_ex(ctx, NULL, &ex) == 0);
	MUST(!memcmp(&ex.orig_attr, &plain, sizeof(plain)));
	MUST(ex.completion_timestamp_mask && ex.hca_core_clock && ex.cq_mod_caps.max_cq_count && ex.phys_port_cnt_ex == 1);
	MUST(!ex.tso_caps.max_tso && !ex.raw_packet_caps && !ex.max_wq_type_rq);
	MUST(ibv_query_device_ex(ctx, &input, &ex) == EINVAL);
	MUST(v->query_device_ex(ctx, &input, &ex, sizeof(ex)) == EINVAL);
	MUST(v->query_device_ex(ctx, NULL, &ex, 8) == EOPNOTSUPP);
	memset(longer, 0xee, sizeof(longer));
	MUST(v->query_device_ex(ctx, NULL, (void *)longer, sizeof(longer)) == 0);
	MUST(!memcmp(longer, &ex, sizeof(ex)) && longer[sizeof(ex)] == 0 && longer[sizeof(longer) - 1] == 0);

	MUST(ibv_query_rt_values_ex(ctx, &a) == 0 && ibv_query_rt_values_ex(ctx, &b) == 0);
	MUST(a.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && a.raw_clock.tv_nsec > 0);
	MUST(b.raw_clock.tv_nsec >= a.raw_clock.tv_nsec);
}

static void gids(void)
{
	struct ibv_gid_entry entry, table[64];
	union ibv_gid gid;
	ssize_t n;

	MUST(ibv_query_gid(ctx, 1, 0, &gid) == 0);
	memset(&entry, 0xee, sizeof(entry));
	MUST(ibv_query_gid_ex(ctx, 1, 0, &entry, 0) == 0);
	MUST(!memcmp(&entry.gid, &gid, sizeof(gid)) && entry.gid_index == 0 && entry.port_num == 1);
	MUST(entry.gid_type == IBV_GID_TYPE_IB && entry.ndev_ifindex == 0);
	MUST(ibv_query_gid_ex(ctx, 1, 0, &entry, 1) == EINVAL);
	MUST(ibv_query_gid_ex(ctx, 2, 0, &entry, 0) == EINVAL);
	MUST(ibv_query_gid_ex(ctx, 0, 0, &entry, 0) == EINVAL);
	MUST(ibv_query_gid_ex(ctx, 1, port.gid_tbl_len, &entry, 0) == EINVAL);
	MUST(ibv_query_gid_ex(ctx, 1, ~0u, &entry, 0) == EINVAL);
	MUST(ibv_query_gid_ex(ctx, 257, 0, &entry, 0) == EINVAL);
	MUST(_ibv_query_gid_ex(ctx, 1, 0, &entry, 0, 8) == EINVAL);
	n = ibv_query_gid_table(ctx, table, 64, 0);
	MUST(n >= 1 && n <= port.gid_tbl_len && !memcmp(&table[0], &entry, sizeof(entry)));
	MUST(ibv_query_gid_table(ctx, table, 0, 0) == -EINVAL);
	MUST(ibv_query_gid_table(ctx, table, 64, 1) == -EINVAL);
}

static void post_write(struct ibv_qp *qp, uint64_t id, unsigned int flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags };

	wr.wr.rdma.remote_addr = (uintptr_t)mem + HALF;
	wr.wr.rdma.rkey = mr->rkey;
	MUST(ibv_post_send(qp, &wr, &bad) == 0);
}

static void completion_queues(void)
{
	const uint64_t all = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct ibv_poll_cq_attr none = { 0 }, some = { .comp_mask = 1 };
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_CVLAN };
	struct ibv_modify_cq_attr mod = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 4, 1000 } };
	struct ibv_values_ex clock = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_cq_ex *cq = new_cq_ex(all);
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);
	struct ibv_qp *a = new_qp(IBV_QPT_RC, plain, plain, 0), *b = new_qp(IBV_QPT_RC, plain, plain, 0);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc[32];
	struct timespec wall;
	uint64_t before, last;
	int got;

	NONE(ibv_create_cq_ex(ctx, &attr), EOPNOTSUPP);
	attr.wc_flags = 1 << 20;
	NONE(ibv_create_cq_ex(ctx, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = 1 << 7;
	NONE(ibv_create_cq_ex(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD; /* without one */
	NONE(ibv_create_cq_ex(ctx, &attr), EINVAL);
	attr.parent_domain = pd; /* which is not a parent domain */
	NONE(ibv_create_cq_ex(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1 << 2;
	NONE(ibv_create_cq_ex(ctx, &attr), EOPNOTSUPP);
	attr.comp_mask = 0;
	attr.cqe = 0;
	NONE(ibv_create_cq_ex(ctx, &attr), EINVAL);
	attr.cqe = 16;
	attr.comp_vector = 99;
	NONE(ibv_create_cq_ex(ctx, &attr), EINVAL);

	MUST(ibv_start_poll(cq, &none) == ENOENT);
	MUST(ibv_start_poll(cq, &some) == EINVAL);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);

	/* A message with everything that a reader can ask for. */
	MUST(ibv_query_rt_values_ex(ctx, &clock) == 0);
	before = clock.raw_clock.tv_nsec;
	post_recv(b, 77, HALF, 100);
	{
		struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = 60, .lkey = mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.wr_id = 78, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0xabcdef01),
		};

		MUST(ibv_post_send(a, &wr, &bad) == 0);
	}
	wait_start(cq);
	MUST(cq->wr_id == 77 && cq->status == IBV_WC_SUCCESS);
	MUST(ibv_wc_read_opcode(cq) == IBV_WC_RECV);
	MUST(ibv_wc_read_byte_len(cq) == 60);
	MUST(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
	MUST(ibv_wc_read_imm_data(cq) == htonl(0xabcdef01));
	MUST(ibv_wc_read_qp_num(cq) == b->qp_num);
	MUST(ibv_wc_read_vendor_err(cq) == 0);
	MUST(ibv_wc_read_slid(cq) == port.lid || ibv_wc_read_slid(cq) == 0); /* means something for datagrams only */
	MUST(ibv_wc_read_sl(cq) == 0 && ibv_wc_read_dlid_path_bits(cq) == 0);
	MUST(ibv_query_rt_values_ex(ctx, &clock) == 0);
	last = ibv_wc_read_completion_ts(cq);
	MUST(last + 1000000 >= before && last <= (uint64_t)clock.raw_clock.tv_nsec);
	clock_gettime(CLOCK_REALTIME, &wall);
	MUST(llabs((long long)ibv_wc_read_completion_wallclock_ns(cq) - (wall.tv_sec * 1000000000ll + wall.tv_nsec)) <
		5000000000ll);
	/* In the critical section its own thread is told, not hung. */
	MUST(ibv_start_poll(cq, &none) == EDEADLK);
	MUST(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	ibv_end_poll(cq);

	/* What is left of a batch waits for whoever polls next, by either way. */
	for (int i = 0; i < 20; i++)
		post_write(a, i, IBV_SEND_SIGNALED);
	for (got = 0; got < 3;) {
		wait_start(cq);
		MUST(cq->wr_id == (uint64_t)got && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
		MUST(ibv_wc_read_completion_ts(cq) >= last);
		last = ibv_wc_read_completion_ts(cq);
		got++;
		ibv_end_poll(cq);
	}
	for (; got < 6; got++)
		wait_done(plain, got, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	wait_start(cq);
	do {
		MUST(cq->wr_id == (uint64_t)got);
		got++;
	} while (ibv_next_poll(cq) == 0);
	ibv_end_poll(cq);
	for (; got < 20; got++)
		wait_done(plain, got, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	MUST(ibv_poll_cq(plain, 32, wc) == 0);

	/* Completions of a queue pair that is reset are gone, also those of a batch. */
	for (int i = 0; i < 10; i++)
		post_write(i % 2 ? a : b, i, IBV_SEND_SIGNALED);
	wait_start(cq);
	ibv_end_poll(cq);
	MUST(ibv_modify_qp(a, &reset, IBV_QP_STATE) == 0);
	for (double end = now() + 0.05; now() < end;)
		for (int n = ibv_poll_cq(plain, 32, wc); n > 0; n--)
			MUST(wc[n - 1].qp_num == b->qp_num);

	MUST(ibv_modify_cq(plain, &mod) == 0);
	mod.attr_mask = IBV_CQ_ATTR_RESERVED;
	MUST(ibv_modify_cq(plain, &mod) == EINVAL);
	mod.attr_mask = 0;
	MUST(ibv_modify_cq(plain, &mod) == 0);

	MUST(ibv_destroy_cq(plain) == EBUSY);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(plain) == 0);
}

/* A queue that ignores overruns has the newest completions, and goes on. */
static void overrun(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
	};
	struct ibv_cq_ex *x = ibv_create_cq_ex(ctx, &attr);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(x), *fine = new_cq();
	struct ibv_qp *a = new_qp(IBV_QPT_RC, cq, cq, 0), *b = new_qp(IBV_QPT_RC, fine, fine, 0);
	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	MUST(x && cq->cqe == 4);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 20; i++)
			post_write(a, i, IBV_SEND_SIGNALED);
		post_recv(b, 77, HALF, 100);
		MUST(ibv_post_send(a, &wr, &bad) == 0); /* when it has come, so have the others */
		wait_done(fine, 77, IBV_WC_SUCCESS, IBV_WC_RECV);
		for (struct ibv_wc wc = { 0 }; wc.wr_id != 19;) {
			wc = wait_wc(cq);
			MUST(wc.status == IBV_WC_SUCCESS);
		}
	}
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(fine) == 0);
}

/* Queues that are full and become longer. */
static void resized(void)
{
	struct ibv_cq *cq = new_cq();
	struct ibv_qp_init_attr ia = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 3, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *a = ibv_create_qp(pd, &ia), *b = new_qp(IBV_QPT_RC, cq, cq, 0);
	struct ibv_qp_attr longer = { .cap = { .max_send_wr = 90, .max_recv_wr = 200 } };
	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_recv_wr *bad_recv, recv = { .sg_list = &sge, .num_sge = 1 };
	uint32_t sends = 0, recvs = 0;

	MUST(a);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	for (int longest = 0; longest < 2; longest++) {
		/* b has no receives: what a sends waits. */
		for (; !ibv_post_send(a, &wr, &bad); sends++)
			;
		for (; !ibv_post_recv(a, &recv, &bad_recv); recvs++)
			;
		MUST(sends == ia.cap.max_send_wr && recvs == ia.cap.max_recv_wr);
		if (!longest) {
			MUST(ibv_modify_qp(a, &longer, IBV_QP_CAP) == 0);
			MUST(longer.cap.max_send_wr >= 90 && longer.cap.max_recv_wr >= 200);
			MUST(ibv_query_qp(a, &longer, IBV_QP_CAP, &ia) == 0 && ia.cap.max_send_wr == longer.cap.max_send_wr);
		}
	}
	/* Full as it is, it takes as many again as have gone. */
	sge.length = 0;
	for (int i = 0; i < 3; i++)
		MUST(ibv_post_send(b, &wr, &bad) == 0);
	for (int i = 0; i < 3; i++)
		MUST(wait_wc(cq).opcode == IBV_WC_RECV);
	for (; !ibv_post_recv(a, &recv, &bad_recv); recvs++)
		;
	MUST(recvs == ia.cap.max_recv_wr + 3);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
}

/* A queue pair that sends no faster than it is told. */
static void limited(void)
{
	enum { KBPS = 4000, BYTES = 50000 };
	struct ibv_cq *cq = new_cq();
	struct ibv_qp *a = new_qp(IBV_QPT_RC, cq, cq, 0), *b = new_qp(IBV_QPT_RC, cq, cq, 0);
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = KBPS, .max_burst_sz = 4096, .typical_pkt_sz = 1024 };
	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = BYTES / 5, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED };
	struct ibv_qp_attr attr = { .rate_limit = 2 * KBPS };
	struct ibv_qp_init_attr init;
	struct ibv_device_attr_ex ex;
	double began;

	MUST(ibv_query_device_ex(ctx, NULL, &ex) == 0 && ex.packet_pacing_caps.qp_rate_limit_min <= KBPS);
	MUST(ex.packet_pacing_caps.qp_rate_limit_max >= KBPS && ex.packet_pacing_caps.supported_qpts & 1 << IBV_QPT_RC);
	MUST(ibv_modify_qp_rate_limit(a, &limit) == EINVAL); /* nothing can be sent yet */
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	limit.comp_mask = 1;
	MUST(ibv_modify_qp_rate_limit(a, &limit) == EINVAL);
	limit.comp_mask = 0;
	limit.rate_limit = ex.packet_pacing_caps.qp_rate_limit_min - 1;
	MUST(ibv_modify_qp_rate_limit(a, &limit) == EINVAL);
	attr.rate_limit = limit.rate_limit;
	MUST(ibv_modify_qp(a, &attr, IBV_QP_RATE_LIMIT) == EINVAL);
	attr.rate_limit = 2 * KBPS;
	MUST(ibv_modify_qp(a, &attr, IBV_QP_RATE_LIMIT) == 0);
	MUST(ibv_query_qp(a, &attr, IBV_QP_RATE_LIMIT, &init) == 0 && attr.rate_limit == 2 * KBPS);
	limit.rate_limit = KBPS;
	MUST(ibv_modify_qp_rate_limit(a, &limit) == 0);
	MUST(ibv_query_qp(a, &attr, IBV_QP_RATE_LIMIT, &init) == 0 && attr.rate_limit == KBPS);
	wr.wr.rdma.remote_addr = (uintptr_t)mem + HALF;
	wr.wr.rdma.rkey = mr->rkey;
	began = now();
	for (int i = 0; i < 5; i++)
		MUST(ibv_post_send(a, &wr, &bad) == 0);
	for (int i = 0; i < 5; i++)
		wait_done(cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	MUST(now() - began > 0.8 * (BYTES - 4096) * 8 / (KBPS * 1000.0)); /* 73 ms */
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
}

static void builders(void)
{
	struct ibv_cq *scq = new_cq(), *rcq = new_cq();
	struct ibv_qp_init_attr_ex attr = qp_attr(IBV_QPT_RC, scq, rcq, IBV_QP_EX_WITH_TSO);
	struct ibv_qp *a = new_qp(IBV_QPT_RC, scq, scq, RC_OPS), *b = new_qp(IBV_QPT_RC, rcq, rcq, 0);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(a);
	struct ibv_data_buf bufs[3] = { { "soft", 4 }, { NULL, 0 }, { "ib!!", 4 } };
	struct ibv_sge sges[2] = { { (uintptr_t)mem, 100, mr->lkey }, { (uintptr_t)mem + 1000, 50, mr->lkey } };
	uint64_t *word = (uint64_t *)(mem + HALF + 1024), *result = (uint64_t *)(mem + 2048);
	uint8_t far[300];
	struct ibv_wc wc;

	NONE(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	attr.send_ops_flags = 1ull << 40;
	NONE(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	attr.qp_type = IBV_QPT_UC;
	NONE(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	attr.qp_type = IBV_QPT_UD;
	NONE(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	attr = qp_attr(IBV_QPT_RC, scq, rcq, RC_OPS);
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_PD;
	NONE(ibv_create_qp_ex(ctx, &attr), EINVAL);
	attr = qp_attr(IBV_QPT_RC, scq, rcq, RC_OPS);
	attr.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
	NONE(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_SOURCE_QPN;
	NONE(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 20;
	NONE(ibv_create_qp_ex(ctx, &attr), EINVAL);

	MUST(x && &x->qp_base == a);
	MUST(ibv_qp_to_qp_ex(b) == NULL);

	/* Not connected yet: the whole batch is refused. */
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8);
	MUST(ibv_wr_complete(x) == EINVAL);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);

	/* One of everything in a batch. */
	for (int i = 0; i < 4; i++)
		post_recv(b, 100 + i, HALF + 4096 + 512 * i, 512);
	*word = 40;
	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED;
	x->wr_id = 1;
	ibv_wr_send(x);
	ibv_wr_set_sge_list(x, 2, sges);
	x->wr_id = 2;
	ibv_wr_send_imm(x, htonl(7));
	ibv_wr_set_inline_data_list(x, 3, bufs);
	x->wr_id = 3;
	x->wr_flags = 0;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)mem + HALF);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem + 3000, 200);
	x->wr_id = 4;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write_imm(x, mr->rkey, (uintptr_t)mem + HALF + 512, htonl(8));
	memcpy(far, "gone before it is sent", 23);
	ibv_wr_set_inline_data(x, far, 23);
	memset(far, 0, sizeof(far));
	x->wr_id = 5;
	ibv_wr_atomic_fetch_add(x, mr->rkey, (uintptr_t)word, 2);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)result, 8);
	x->wr_id = 6;
	ibv_wr_atomic_cmp_swp(x, mr->rkey, (uintptr_t)word, 42, 4711);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)(result + 1), 8);
	x->wr_id = 7;
	ibv_wr_rdma_read(x, mr->rkey, (uintptr_t)word);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)(result + 2), 8);
	x->wr_id = 8; /* without data */
	ibv_wr_send(x);
	MUST(ibv_wr_complete(x) == 0);
	wait_done(scq, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	wait_done(scq, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
	wait_done(scq, 4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	wait_done(scq, 5, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
	wait_done(scq, 6, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
	wait_done(scq, 7, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	wait_done(scq, 8, IBV_WC_SUCCESS, IBV_WC_SEND);
	MUST(result[0] == 40 && result[1] == 42 && result[2] == 4711 && *word == 4711);
	MUST(!memcmp(mem + HALF, mem + 3000, 200));
	MUST(!memcmp(mem + HALF + 512, "gone before it is sent", 23));
	wc = wait_wc(rcq);
	MUST(wc.wr_id == 100 && wc.byte_len == 150 && !memcmp(mem + HALF + 4096, mem, 100) &&
		!memcmp(mem + HALF + 4196, mem + 1000, 50));
	wc = wait_wc(rcq);
	MUST(wc.wr_id == 101 && wc.byte_len == 8 && wc.imm_data == htonl(7) && !memcmp(mem + HALF + 4608, "softib!!", 8));
	wc = wait_wc(rcq);
	MUST(wc.wr_id == 102 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htonl(8));
	wc = wait_wc(rcq);
	MUST(wc.wr_id == 103 && wc.byte_len == 0);

	/* Nothing of a batch goes if one request is wrong, whichever, and whoever finds it. */
	for (int bad = 0; bad < 9; bad++) {
		struct ibv_mw_bind_info info = { 0 };

		ibv_wr_start(x);
		x->wr_id = 999;
		for (int i = 0; i < 3; i++) {
			ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)mem + HALF);
			ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8);
		}
		switch (bad) {
		case 0:
			ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8); /* twice */
			break;
		case 1:
			ibv_wr_send(x);
			ibv_wr_set_inline_data(x, far, 257);
			break;
		case 2:
			ibv_wr_send(x);
			ibv_wr_set_sge_list(x, 5, sges);
			break;
		case 3:
			ibv_wr_set_ud_addr(x, NULL, 1, 1);
			break;
		case 4:
			ibv_wr_set_xrc_srqn(x, 1);
			break;
		case 5:
			ibv_wr_bind_mw(x, NULL, 0, &info);
			break;
		case 6:
			ibv_wr_atomic_fetch_add(x, mr->rkey, (uintptr_t)word + 1, 2); /* which the adapter refuses */
			ibv_wr_set_sge(x, mr->lkey, (uintptr_t)result, 8);
			break;
		case 7:
			ibv_wr_start(x);
			break;
		case 8:
			ibv_wr_local_inv(x, 0);
			ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8);
			break;
		}
		MUST(ibv_wr_complete(x) == EINVAL);
	}
	/* A word is written as one; a whole number of them, at its own place. */
	*result = 0x0123456789abcdef;
	ibv_wr_start(x);
	x->wr_id = 60;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(x, mr->rkey, (uintptr_t)word, result);
	MUST(ibv_wr_complete(x) == 0);
	*result = 0; /* the data was taken */
	wait_done(scq, 60, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE);
	MUST(*word == 0x0123456789abcdef);
	ibv_wr_start(x);
	ibv_wr_atomic_write(x, mr->rkey, (uintptr_t)word + 4, result);
	MUST(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	for (int i = 0; i < DEPTH * 3; i++)
		ibv_wr_send(x);
	MUST(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_send_tso(x, far, 4, 4);
	MUST(ibv_wr_complete(x) == EOPNOTSUPP);
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)mem + HALF);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8);
	MUST(ibv_wr_complete(x) == EINVAL); /* there was no request */
	MUST(ibv_wr_complete(x) == EINVAL); /* nor a start */
	ibv_wr_start(x);
	MUST(ibv_wr_complete(x) == 0);
	ibv_wr_start(x);
	x->wr_id = 12;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)mem + HALF);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8);
	MUST(ibv_wr_complete(x) == 0);
	wait_done(scq, 12, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);

	MUST(ibv_query_ece(a, &(struct ibv_ece){ 0 }) == EOPNOTSUPP);
	MUST(ibv_set_ece(a, &(struct ibv_ece){ .vendor_id = 1 }) == EOPNOTSUPP);
	MUST(ibv_query_qp_data_in_order(a, IBV_WR_RDMA_WRITE, 0) == 0);

	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(scq) == 0 && ibv_destroy_cq(rcq) == 0);
}

static void datagrams(void)
{
	struct ibv_cq *scq = new_cq(), *rcq = new_cq();
	struct ibv_qp *a = new_qp(IBV_QPT_UD, scq, scq, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	struct ibv_qp *b = new_qp(IBV_QPT_UD, rcq, rcq, 0);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(a);
	struct ibv_ah_attr where = { .dlid = port.lid, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &where);
	struct ibv_wc wc;

	MUST(x && ah);
	connect_qp(a, 0);
	connect_qp(b, 0);
	post_recv(b, 1, HALF, 1000);
	ibv_wr_start(x);
	x->wr_id = 5;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(x, htonl(3));
	ibv_wr_set_ud_addr(x, ah, b->qp_num, 0x1234);
	ibv_wr_set_inline_data(x, "datagram", 8);
	MUST(ibv_wr_complete(x) == 0);
	wait_done(scq, 5, IBV_WC_SUCCESS, IBV_WC_SEND);
	wc = wait_wc(rcq);
	MUST(wc.wr_id == 1 && wc.byte_len == 48 && wc.src_qp == a->qp_num && wc.slid == port.lid &&
		wc.imm_data == htonl(3));
	MUST(!memcmp(mem + HALF + 40, "datagram", 8));
	ibv_wr_start(x);
	ibv_wr_send(x); /* nowhere */
	MUST(ibv_wr_complete(x) == EINVAL);
	MUST(ibv_destroy_ah(ah) == 0);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(scq) == 0 && ibv_destroy_cq(rcq) == 0);
}

static void windows(void)
{
	struct ibv_cq *scq = new_cq(), *rcq = new_cq();
	struct ibv_qp *a = new_qp(IBV_QPT_RC, scq, scq, RC_OPS), *b = new_qp(IBV_QPT_RC, rcq, rcq, RC_OPS);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(a), *y = ibv_qp_to_qp_ex(b);
	struct ibv_mw *one = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr,
			.addr = (uintptr_t)mem + HALF,
			.length = 64,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	struct ibv_mw_bind_info info = bind.bind_info;
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mw *theirs;
	uint32_t old;
	struct ibv_wc wc;

	NONE(ibv_alloc_mw(pd, 3), EINVAL);
	NONE(ibv_alloc_mw(pd, 0), EINVAL);
	MUST(one && two && other);
	theirs = ibv_alloc_mw(other, IBV_MW_TYPE_1);
	MUST(theirs);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);

	MUST(ibv_bind_mw(b, two, &bind) == EINVAL);
	MUST(ibv_bind_mw(b, theirs, &bind) == EPERM);
	bind.send_flags |= IBV_SEND_INLINE;
	MUST(ibv_bind_mw(b, one, &bind) == EINVAL);
	bind.send_flags = IBV_SEND_SIGNALED;

	/* The key is known as soon as the bind is posted, and opens what was bound. */
	old = one->rkey;
	MUST(ibv_bind_mw(b, one, &bind) == 0 && one->rkey == ibv_inc_rkey(old));
	wait_done(rcq, 1, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	MUST(ibv_dereg_mr(mr) == EBUSY);
	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED;
	x->wr_id = 2;
	ibv_wr_rdma_write(x, one->rkey, (uintptr_t)mem + HALF);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 64);
	MUST(ibv_wr_complete(x) == 0);
	wait_done(scq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	MUST(!memcmp(mem, mem + HALF, 64));

	/* Type 2: bound with a key of the program's choice, by either way; closed by the peer's send. */
	for (int round = 0; round < 2; round++) {
		uint32_t key = ibv_inc_rkey(two->rkey);

		if (round == 0) {
			struct ibv_send_wr *bad, wr = { .wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

			wr.bind_mw.mw = two;
			wr.bind_mw.rkey = key;
			wr.bind_mw.bind_info = info;
			MUST(ibv_post_send(b, &wr, &bad) == 0);
		} else {
			ibv_wr_start(y);
			y->wr_id = 3;
			y->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_bind_mw(y, two, key, &info);
			MUST(ibv_wr_complete(y) == 0);
		}
		wait_done(rcq, 3, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		two->rkey = key;
		post_recv(b, 4, HALF + 4096, 64);
		ibv_wr_start(x);
		x->wr_id = 5;
		ibv_wr_rdma_write(x, key, (uintptr_t)mem + HALF);
		ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem + 100, 64);
		x->wr_id = 6;
		if (round == 0)
			ibv_wr_send_inv(x, key);
		else
			ibv_wr_send(x);
		MUST(ibv_wr_complete(x) == 0);
		wait_done(scq, 5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		wait_done(scq, 6, IBV_WC_SUCCESS, IBV_WC_SEND);
		wc = wait_wc(rcq);
		MUST(wc.wr_id == 4 && !wc.status);
		if (round == 0) {
			MUST(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
		} else {
			ibv_wr_start(y);
			y->wr_id = 7;
			ibv_wr_local_inv(y, key);
			MUST(ibv_wr_complete(y) == 0);
			wait_done(rcq, 7, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
		}
		MUST(!memcmp(mem + 100, mem + HALF, 64));
	}

	/* Unbound, the key opens nothing any more. */
	old = one->rkey;
	bind.wr_id = 8;
	bind.bind_info = (struct ibv_mw_bind_info){ 0 };
	MUST(ibv_bind_mw(b, one, &bind) == 0);
	wait_done(rcq, 8, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	ibv_wr_start(x);
	x->wr_id = 9;
	ibv_wr_rdma_write(x, old, (uintptr_t)mem + HALF);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 8);
	MUST(ibv_wr_complete(x) == 0);
	wait_done(scq, 9, IBV_WC_REM_ACCESS_ERR, 0);

	MUST(ibv_dealloc_pd(other) == EBUSY);
	MUST(ibv_dealloc_mw(one) == 0 && ibv_dealloc_mw(two) == 0 && ibv_dealloc_mw(theirs) == 0);
	MUST(ibv_dealloc_pd(other) == 0);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(scq) == 0 && ibv_destroy_cq(rcq) == 0);
}

static struct ibv_xrcd *open_domain(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags
	};

	return ibv_open_xrcd(ctx, &attr);
}

static void send_xrc(struct ibv_qp_ex *b, uint32_t srq_num, struct ibv_cq *cq)
{
	ibv_wr_start(b);
	b->wr_id = 1;
	b->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(b);
	ibv_wr_set_xrc_srqn(b, srq_num);
	ibv_wr_set_sge(b, mr->lkey, (uintptr_t)mem, 64);
	MUST(ibv_wr_complete(b) == 0);
	wait_done(cq, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
}

static void xrc(void)
{
	char name[] = "/tmp/softib-xrcd-XXXXXX";
	int fd = mkstemp(name), again = open(name, O_RDWR), other;
	struct ibv_xrcd_init_attr few = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	struct ibv_xrcd *x, *same, *mine;
	struct ibv_cq_ex *received = new_cq_ex(IBV_WC_STANDARD_FLAGS);
	struct ibv_cq *scq = new_cq(), *rcq = ibv_cq_ex_to_cq(received);
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = 16, .max_sge = 2 }, .srq_type = IBV_SRQT_XRC, .pd = pd, .cq = rcq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ,
	};
	struct ibv_qp_init_attr_ex ta = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	struct ibv_qp_open_attr oa = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_type = IBV_QPT_XRC_RECV, .qp_context = &few,
	};
	struct ibv_sge sge = { .addr = (uintptr_t)mem + HALF, .length = 64, .lkey = mr->lkey };
	struct ibv_recv_wr rw = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp *ini, *tgt, *opened;
	struct ibv_srq *srq, *basic;
	struct ibv_srq_attr q;
	struct ibv_qp_ex *b;
	struct ibv_wc wc;
	uint32_t num;

	MUST(fd >= 0 && again >= 0);
	other = dup(fd);
	NONE(ibv_open_xrcd(ctx, &few), EINVAL);
	NONE(open_domain(fd, 0), EAGAIN);
	NONE(open_domain(12345, O_CREAT), EBADF);
	x = open_domain(fd, O_CREAT | O_EXCL);
	MUST(x);
	NONE(open_domain(again, O_CREAT | O_EXCL), EINVAL);
	same = open_domain(other, 0);
	mine = open_domain(-1, O_CREAT);
	MUST(same && mine);
	close(fd);
	close(other);

	NONE(ibv_create_srq_ex(ctx, &sa), EINVAL); /* no domain */
	sa.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
	sa.xrcd = x;
	sa.srq_type = IBV_SRQT_TM;
	NONE(ibv_create_srq_ex(ctx, &sa), EINVAL); /* for no tags */
	sa.srq_type = 77;
	NONE(ibv_create_srq_ex(ctx, &sa), EINVAL);
	sa.srq_type = IBV_SRQT_XRC;
	srq = ibv_create_srq_ex(ctx, &sa);
	MUST(srq && sa.attr.max_wr >= 16 && ibv_get_srq_num(srq, &num) == 0 && num);
	MUST(ibv_query_srq(srq, &q) == 0 && q.max_wr >= 16 && q.max_sge >= 2);
	sa.comp_mask = IBV_SRQ_INIT_ATTR_PD;
	basic = ibv_create_srq_ex(ctx, &sa);
	MUST(basic && ibv_get_srq_num(basic, &num) == EINVAL);
	MUST(ibv_destroy_srq(basic) == 0);
	MUST(ibv_get_srq_num(srq, &num) == 0);

	NONE(ibv_create_qp_ex(ctx, &ta), EINVAL);
	ta.xrcd = same; /* the same domain by another name */
	tgt = ibv_create_qp_ex(ctx, &ta);
	ini = new_qp(IBV_QPT_XRC_SEND, scq, NULL, RC_OPS);
	b = ibv_qp_to_qp_ex(ini);
	MUST(tgt && b);

	oa.xrcd = mine;
	oa.qp_num = tgt->qp_num;
	NONE(ibv_open_qp(ctx, &oa), EINVAL); /* not in that domain */
	oa.xrcd = x;
	oa.qp_num = ini->qp_num;
	NONE(ibv_open_qp(ctx, &oa), EINVAL); /* not a target */
	oa.qp_num = 0xffffffff;
	NONE(ibv_open_qp(ctx, &oa), EINVAL);
	oa.qp_num = tgt->qp_num;
	oa.comp_mask &= ~IBV_QP_OPEN_ATTR_TYPE;
	NONE(ibv_open_qp(ctx, &oa), EINVAL);
	oa.comp_mask |= IBV_QP_OPEN_ATTR_TYPE;
	opened = ibv_open_qp(ctx, &oa);
	MUST(opened && opened->qp_num == tgt->qp_num && opened->qp_context == &few && opened->handle != tgt->handle);

	/* Its maker may go; who opened it keeps it. */
	connect_qp(tgt, ini->qp_num);
	connect_qp(ini, tgt->qp_num);
	MUST(ibv_close_xrcd(same) == EBUSY);
	MUST(ibv_destroy_qp(tgt) == 0);
	MUST(ibv_close_xrcd(same) == 0);
	MUST(ibv_close_xrcd(x) == EBUSY);
	MUST(ibv_post_srq_recv(srq, &rw, &bad) == 0);
	send_xrc(b, num, scq);
	wc = wait_wc(rcq);
	MUST(wc.wr_id == 9 && wc.byte_len == 64 && !memcmp(mem, mem + HALF, 64));

	/* What it has received is the shared queue's and outlives it: one taken, two of the batch, one behind it. */
	for (int i = 0; i < 4; i++) {
		rw.wr_id = 10 + i;
		MUST(ibv_post_srq_recv(srq, &rw, &bad) == 0);
		if (i == 3) {
			wait_start(received);
			MUST(received->wr_id == 10);
			ibv_end_poll(received);
		}
		send_xrc(b, num, scq);
	}
	MUST(ibv_destroy_qp(opened) == 0);
	MUST(wait_wc(rcq).wr_id == 11);
	NONE(ibv_open_qp(ctx, &oa), EINVAL); /* now it is gone */
	MUST(ibv_close_xrcd(x) == EBUSY);
	MUST(ibv_destroy_cq(rcq) == EBUSY);
	MUST(ibv_destroy_srq(srq) == 0);
	MUST(ibv_poll_cq(rcq, 1, &wc) == 0);
	MUST(ibv_close_xrcd(x) == 0 && ibv_close_xrcd(mine) == 0);
	NONE(open_domain(again, 0), EAGAIN); /* nothing is left of it */
	MUST(ibv_destroy_qp(ini) == 0);
	MUST(ibv_destroy_cq(scq) == 0 && ibv_destroy_cq(rcq) == 0);
	close(again);
	unlink(name);
}

static void domains(void)
{
	struct ibv_td_init_attr ta = { .comp_mask = 1 };
	struct ibv_parent_domain_init_attr pa = { 0 };
	struct ibv_cq_init_attr_ex ca = { .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_pd *base = ibv_alloc_pd(ctx), *parent;
	struct ibv_td *td;
	struct ibv_mr *m;
	struct ibv_cq_ex *cq;
	struct ibv_qp_init_attr_ex qa;
	struct ibv_qp *qp;

	NONE(ibv_alloc_td(ctx, &ta), EINVAL);
	ta.comp_mask = 0;
	td = ibv_alloc_td(ctx, &ta);
	MUST(td && base);
	NONE(ibv_alloc_parent_domain(ctx, &pa), EINVAL);
	pa.pd = base;
	pa.comp_mask = 1 << 9;
	NONE(ibv_alloc_parent_domain(ctx, &pa), EINVAL);
	pa.comp_mask = 0;
	pa.td = td;
	parent = ibv_alloc_parent_domain(ctx, &pa);
	MUST(parent);
	pa.pd = parent;
	NONE(ibv_alloc_parent_domain(ctx, &pa), EINVAL); /* of a parent domain */
	MUST(ibv_dealloc_td(td) == EBUSY);
	MUST(ibv_dealloc_pd(base) == EBUSY);

	/* It is as good as the domain that it stands for. */
	m = ibv_reg_mr(parent, mem, 64, IBV_ACCESS_LOCAL_WRITE);
	MUST(m && m->pd == parent);
	ca.parent_domain = parent;
	cq = ibv_create_cq_ex(ctx, &ca);
	MUST(cq);
	MUST(ibv_start_poll(cq, &(struct ibv_poll_cq_attr){ 0 }) == ENOENT);
	qa = qp_attr(IBV_QPT_RC, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq), RC_OPS);
	qa.pd = parent;
	qp = ibv_create_qp_ex(ctx, &qa);
	MUST(qp && qp->pd == parent);
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	MUST(ibv_wr_complete(ibv_qp_to_qp_ex(qp)) == 0);
	MUST(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0 && ibv_dereg_mr(m) == 0);
	MUST(ibv_dealloc_pd(parent) == 0);
	MUST(ibv_dealloc_td(td) == 0);
	MUST(ibv_dealloc_pd(base) == 0);
}

enum { THREADS = 4, EACH = 500 };
static struct ibv_qp_ex *crowded;
static struct ibv_cq_ex *shared_cq;
static int seen[THREADS * EACH], count;

/* Posts by way of a builder that others use as well. */
static void *post_crowd(void *arg)
{
	int first = (int)(intptr_t)arg;

	for (int i = 0; i < EACH;) {
		ibv_wr_start(crowded);
		for (int j = 0; j < 3 && i + j < EACH; j++) {
			crowded->wr_id = first + i + j;
			crowded->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write(crowded, mr->rkey, (uintptr_t)mem + HALF + 8 * (first + i + j));
			ibv_wr_set_inline_data(crowded, mem + 8 * (first + i + j), 8);
		}
		if (ibv_wr_complete(crowded) == 0)
			i = i + 3 < EACH ? i + 3 : EACH; /* else the queue is full, and nothing of the batch went */
		else
			sched_yield();
	}
	return NULL;
}

static void *poll_crowd(void *arg)
{
	struct ibv_poll_cq_attr attr = { 0 };
	double deadline = now() + 60;

	(void)arg;
	while (__atomic_load_n(&count, __ATOMIC_RELAXED) < THREADS * EACH) {
		int error = ibv_start_poll(shared_cq, &attr);

		MUST(now() < deadline);
		if (error == ENOENT) {
			sched_yield();
			continue;
		}
		MUST(error == 0);
		do {
			MUST(shared_cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(shared_cq) == IBV_WC_RDMA_WRITE);
			MUST(shared_cq->wr_id < THREADS * EACH && !seen[shared_cq->wr_id]);
			seen[shared_cq->wr_id] = 1; /* no lock: the section is one */
			__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
		} while (ibv_next_poll(shared_cq) == 0);
		ibv_end_poll(shared_cq);
	}
	return NULL;
}

static void crowd(void)
{
	struct ibv_cq *plain;
	struct ibv_qp *a, *b;
	pthread_t t[2 * THREADS];

	shared_cq = new_cq_ex(IBV_WC_STANDARD_FLAGS);
	plain = ibv_cq_ex_to_cq(shared_cq);
	MUST(ibv_resize_cq(plain, THREADS * EACH) == 0); /* who posts does not wait for who polls */
	a = new_qp(IBV_QPT_RC, plain, plain, RC_OPS);
	b = new_qp(IBV_QPT_RC, plain, plain, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	crowded = ibv_qp_to_qp_ex(a);
	memset(mem + HALF, 0, HALF);
	for (int i = 0; i < THREADS; i++) {
		MUST(pthread_create(&t[i], NULL, post_crowd, (void *)(intptr_t)(i * EACH)) == 0);
		MUST(pthread_create(&t[THREADS + i], NULL, poll_crowd, NULL) == 0);
	}
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(t[i], NULL);
	MUST(count == THREADS * EACH && !memcmp(mem, mem + HALF, 8 * THREADS * EACH));
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(plain) == 0);
}

/* Tags: a message goes to the memory of its tag, a large one is fetched, and the sender is told. */
static void tags(void)
{
	struct ibv_cq_ex *cq = new_cq_ex(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO);
	struct ibv_cq *scq = new_cq(), *rcq = ibv_cq_ex_to_cq(cq);
	struct ibv_srq_init_attr_ex sa = { .attr = { .max_wr = 16, .max_sge = 1 },
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = rcq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = { .max_num_tags = 4, .max_ops = 4 } };
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &sa);
	struct ibv_qp_init_attr_ex qa = qp_attr(IBV_QPT_RC, rcq, rcq, 0);
	struct ibv_sge in = { .addr = (uintptr_t)mem + HALF, .length = 4096, .lkey = mr->lkey };
	struct ibv_ops_wr *bad_op, op = { .wr_id = 5, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED,
		.tm = { .add = { .recv_wr_id = 6, .sg_list = &in, .num_sge = 1, .tag = 0x1200, .mask = 0xff00 } } };
	struct ibv_tmh *h = (struct ibv_tmh *)mem;
	struct ibv_rvh *far = (struct ibv_rvh *)(h + 1);
	struct ibv_sge out = { .addr = (uintptr_t)mem, .length = sizeof(*h) + 100, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_wc_tm_info info;
	struct ibv_device_attr_ex ex;
	struct ibv_qp *a = new_qp(IBV_QPT_RC, scq, scq, 0), *b;

	MUST(srq && ibv_query_device_ex(ctx, NULL, &ex) == 0);
	MUST(ex.tm_caps.flags & IBV_TM_CAP_RC && ex.tm_caps.max_num_tags >= 4 && ex.tm_caps.max_rndv_hdr_size >= 32);
	sa.tm_cap.max_num_tags = ex.tm_caps.max_num_tags + 1;
	NONE(ibv_create_srq_ex(ctx, &sa), EINVAL);
	qa.srq = srq;
	qa.qp_type = IBV_QPT_UD;
	NONE(ibv_create_qp_ex(ctx, &qa), EINVAL);
	qa.qp_type = IBV_QPT_RC;
	b = ibv_create_qp_ex(ctx, &qa);
	MUST(b);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	MUST(ibv_post_send(b, &wr, &bad) == EINVAL); /* its send queue is the adapter's */
	MUST(ibv_post_srq_ops(srq, &op, &bad_op) == 0);
	wait_start(cq);
	MUST(cq->wr_id == 5 && ibv_wc_read_opcode(cq) == IBV_WC_TM_ADD && !ibv_wc_read_wc_flags(cq));
	ibv_end_poll(cq);
	op.opcode = 9;
	MUST(ibv_post_srq_ops(srq, &op, &bad_op) == EINVAL && bad_op == &op);

	memset(mem, 0, sizeof(*h));
	h->opcode = IBV_TMH_EAGER;
	h->app_ctx = htonl(0xcafe0001);
	h->tag = htobe64(0x12ab);
	MUST(ibv_post_send(a, &wr, &bad) == 0);
	wait_start(cq);
	MUST(cq->wr_id == 6 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_TM_RECV);
	MUST(ibv_wc_read_wc_flags(cq) == (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID) && ibv_wc_read_byte_len(cq) == 100);
	ibv_wc_read_tm_info(cq, &info);
	MUST(info.tag == 0x12ab && info.priv == 0xcafe0001);
	ibv_end_poll(cq);
	MUST(!memcmp(mem + HALF, mem + sizeof(*h), 100));

	op.opcode = IBV_WR_TAG_ADD;
	op.flags = 0;
	MUST(ibv_post_srq_ops(srq, &op, &bad_op) == 0);
	post_recv(a, 3, 1024, 64);
	for (int i = 0; i < 4096; i++)
		mem[2048 + i] = i * 5;
	h->opcode = IBV_TMH_RNDV;
	far->va = htobe64((uintptr_t)mem + 2048);
	far->rkey = htonl(mr->rkey);
	far->len = htonl(4000);
	out.length = sizeof(*h) + sizeof(*far);
	MUST(ibv_post_send(a, &wr, &bad) == 0);
	wait_start(cq);
	MUST(cq->wr_id == 6 && ibv_wc_read_wc_flags(cq) == IBV_WC_TM_MATCH);
	ibv_end_poll(cq);
	wait_start(cq);
	MUST(cq->wr_id == 6 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_TM_RECV);
	MUST(ibv_wc_read_wc_flags(cq) == IBV_WC_TM_DATA_VALID && ibv_wc_read_byte_len(cq) == 4000);
	ibv_end_poll(cq);
	MUST(!memcmp(mem + HALF, mem + 2048, 4000));
	wait_done(scq, 3, IBV_WC_SUCCESS, IBV_WC_RECV);
	MUST(mem[1024] == IBV_TMH_FIN && !memcmp(mem + 1025, mem + 1, 31));

	MUST(ibv_destroy_srq(srq) == EBUSY);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_srq(srq) == 0);
	MUST(ibv_destroy_cq(rcq) == 0 && ibv_destroy_cq(scq) == 0);
}

static void not_supported(void)
{
	struct ibv_wq_init_attr wq = { .max_wr = 1, .max_sge = 1, .pd = pd };
	struct ibv_cq *cq = new_cq();
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, cq, 0);
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct verbs_context *v = verbs_get_ctx(ctx);
	void **f;

	wq.cq = cq;
	NONE(ibv_create_wq(ctx, &wq), EOPNOTSUPP);
	NONE(ibv_create_flow(qp, &flow), EOPNOTSUPP);
	NONE(ibv_create_rwq_ind_table(ctx, &table), EOPNOTSUPP);
	NONE(ibv_create_counters(ctx, &counters), EOPNOTSUPP);
	NONE(ibv_create_flow_action_esp(ctx, &esp), EOPNOTSUPP);

	/* Every entry of the table is there, but for two holes that it has, and the library's own field. */
	MUST(v && v->sz == sizeof(*v));
	for (f = (void **)v; (void *)f < (void *)&v->_ABI_placeholder3; f++)
		if ((void *)f != (void *)&v->priv && (void *)f != (void *)&v->ABI_placeholder1 &&
			(void *)f != (void *)&v->ABI_placeholder2)
			MUST(*f);

	MUST(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

int main(void)
{
	rig();
	device_attributes();
	gids();
	completion_queues();
	overrun();
	resized();
	limited();
	builders();
	datagrams();
	windows();
	xrc();
	domains();
	crowd();
	tags();
	not_supported();
	unrig();
	puts("extended verbs hold");
	return 0;
}
