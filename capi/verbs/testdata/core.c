/* Tests of the verbs that every program uses: core NAME runs one. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "rig.h"

static struct ibv_cq *cq;
static struct ibv_qp *a, *b; /* two ends of a connection */

static void rig_pair(enum ibv_qp_type type)
{
	rig();
	cq = new_cq();
	a = new_qp(type, cq, cq, 0);
	b = new_qp(type, cq, cq, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
}

static void unrig_pair(void)
{
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();
}

static struct ibv_sge part(uint32_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)mem + offset, .length = length, .lkey = mr->lkey };
}

static int post_send(struct ibv_qp *qp, uint64_t id, struct ibv_sge *sge, int flags)
{
	struct ibv_send_wr wr = { .wr_id = id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = flags },
			   *bad = NULL;
	int error = ibv_post_send(qp, &wr, &bad);

	MUST(!error == !bad);
	return error;
}

static void test_strings(void)
{
	MUST(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success"));
	MUST(!strcmp(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded"));
	MUST(!strcmp(ibv_wc_status_str(1000), "unknown"));
	MUST(!strcmp(ibv_event_type_str(IBV_EVENT_PORT_ACTIVE), "port active"));
	MUST(!strcmp(ibv_event_type_str(99), "unknown"));
	MUST(!strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter"));
	MUST(!strcmp(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown"));
	MUST(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
	MUST(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && ibv_rate_to_mult(IBV_RATE_100_GBPS) == -1 &&
		ibv_rate_to_mult(77) == -1);
	MUST(ibv_rate_to_mbps(IBV_RATE_400_GBPS) == 425000 && ibv_rate_to_mbps(IBV_RATE_MAX) == -1);
	for (int r = 0; r <= IBV_RATE_1200_GBPS; r++) {
		if (ibv_rate_to_mbps(r) > 0)
			MUST(mbps_to_ibv_rate(ibv_rate_to_mbps(r)) == (enum ibv_rate)r);
		if (ibv_rate_to_mult(r) > 0)
			MUST(mult_to_ibv_rate(ibv_rate_to_mult(r)) == (enum ibv_rate)r);
	}
	MUST(mult_to_ibv_rate(0) == IBV_RATE_MAX && mbps_to_ibv_rate(-1) == IBV_RATE_MAX);
}

static void test_device(void)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr p;
	struct ibv_context *other;
	struct ibv_device *device;
	union ibv_gid gid;
	__be16 pkey;
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	MUST(n == 1 && list[0] && !list[1]);
	device = list[0];
	ibv_free_device_list(list);
	MUST(!strcmp(ibv_get_device_name(device), "softib0") && device->node_type == IBV_NODE_CA &&
		device->transport_type == IBV_TRANSPORT_IB);
	NONE(ibv_open_device((struct ibv_device *)&n), ENODEV);
	rig();
	MUST(ibv_query_device(ctx, &attr) == 0);
	MUST(attr.node_guid == ibv_get_device_guid(device) && attr.phys_port_cnt == 1 && attr.max_qp > 0 &&
		attr.atomic_cap == IBV_ATOMIC_HCA);
	MUST(port.state == IBV_PORT_ACTIVE && port.lid && port.link_layer == IBV_LINK_LAYER_INFINIBAND &&
		port.phys_state == 5);
	MUST(ibv_query_port(ctx, 0, &p) == EINVAL && ibv_query_port(ctx, 2, &p) == EINVAL &&
		ibv_query_port(ctx, 255, &p) == EINVAL);
	MUST(ibv_query_gid(ctx, 1, 0, &gid) == 0 && gid.raw[0] == 0xfe && gid.raw[1] == 0x80);
	MUST(ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid) == -1 && ibv_query_gid(ctx, 1, -1, &gid) == -1 &&
		ibv_query_gid(ctx, 3, 0, &gid) == -1);
	MUST(ibv_query_pkey(ctx, 1, 0, &pkey) == 0 && pkey == 0xffff);
	MUST(ibv_get_pkey_index(ctx, 1, pkey) == 0 && ibv_get_pkey_index(ctx, 1, htons(0x1234)) == -1);
	MUST(ibv_query_pkey(ctx, 1, port.pkey_tbl_len, &pkey) == -1);
	/* A second context of the same device is another world, on the same adapter. */
	other = ibv_open_device(device);
	MUST(other && other->async_fd != ctx->async_fd);
	NONE(ibv_create_cq(other, 1, NULL, (struct ibv_comp_channel *)&(struct ibv_comp_channel){ .context = ctx }, 0),
		EINVAL);
	MUST(ibv_close_device(other) == 0);
	MUST(ibv_query_port(ctx, 1, &p) == 0);
	unrig();
}

/* Regions of more memory than is there to be had: none of it is touched, and what is in its midst is seen. */
static void large_regions(void)
{
	const size_t size = (size_t)1 << 40, hole = size / 2;
	long page = sysconf(_SC_PAGESIZE);
	unsigned char seen[1024];
	struct ibv_mr *m;
	char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	MUST(map != MAP_FAILED);
	m = ibv_reg_mr(pd, map, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(m);
	MUST(mincore(map, sizeof(seen) * page, seen) == 0);
	for (size_t i = 0; i < sizeof(seen); i++)
		MUST(!(seen[i] & 1));
	MUST(ibv_dereg_mr(m) == 0);
	MUST(mprotect(map + hole, page, PROT_READ) == 0);
	NONE(ibv_reg_mr(pd, map, size, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	m = ibv_reg_mr(pd, map, size, IBV_ACCESS_REMOTE_READ);
	MUST(m && ibv_dereg_mr(m) == 0);
	MUST(munmap(map + hole, page) == 0);
	NONE(ibv_reg_mr(pd, map, size, IBV_ACCESS_REMOTE_READ), EFAULT);
	NONE(ibv_reg_mr(pd, map + hole / 2, size, IBV_ACCESS_REMOTE_READ), EFAULT);
	m = ibv_reg_mr(pd, map, hole, IBV_ACCESS_LOCAL_WRITE);
	MUST(m && ibv_dereg_mr(m) == 0);
	MUST(munmap(map, size) == 0);
}

static void test_memory(void)
{
	long page = sysconf(_SC_PAGESIZE);
	struct ibv_pd *pd2;
	struct ibv_mr *m;
	uint32_t key;
	char *map;

	rig();
	map = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(map != MAP_FAILED);
	MUST(munmap(map + page, page) == 0);
	MUST(mprotect(map + 3 * page, page, PROT_READ) == 0);
	NONE(ibv_reg_mr(pd, map, 2 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT); /* a hole */
	NONE(ibv_reg_mr(pd, map + page, 16, 0), EFAULT);
	NONE(ibv_reg_mr(pd, map + 3 * page, 16, IBV_ACCESS_LOCAL_WRITE), EFAULT); /* may not be written */
	NONE(ibv_reg_mr(pd, map, 0, 0), EINVAL);
	NONE(ibv_reg_mr(pd, map, SIZE_MAX, 0), EINVAL);
	NONE(ibv_reg_mr(pd, map, page, IBV_ACCESS_REMOTE_WRITE), EINVAL); /* needs LOCAL_WRITE */
	NONE(ibv_reg_mr(pd, map, page, 1 << 16), EINVAL);
	m = ibv_reg_mr(pd, map + 3 * page, page, IBV_ACCESS_REMOTE_READ);
	MUST(m && m->addr == map + 3 * page && m->length == (size_t)page && m->lkey && m->pd == pd);
	MUST(ibv_dereg_mr(m) == 0);
	m = ibv_reg_mr(pd, map, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB);
	MUST(m);
	MUST(ibv_dereg_mr(m) == 0);
	m = ibv_reg_mr_iova(pd, map, page, 0x1000, IBV_ACCESS_LOCAL_WRITE);
	MUST(m);
	MUST(ibv_dereg_mr(m) == 0);

	large_regions();

	/* Registering again. */
	m = ibv_reg_mr(pd, map, page, IBV_ACCESS_LOCAL_WRITE);
	MUST(m);
	key = m->rkey;
	pd2 = ibv_alloc_pd(ctx);
	MUST(pd2);
	MUST(ibv_rereg_mr(m, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	MUST(ibv_rereg_mr(m, 1 << 5, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	MUST(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 16, 0) == IBV_REREG_MR_ERR_INPUT);
	MUST(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	MUST(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, map + page, page, 0) == IBV_REREG_MR_ERR_INPUT &&
		errno == EFAULT);
	MUST(m->rkey == key);
	MUST(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, pd2,
		     map + 2 * page, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == 0);
	MUST(m->pd == pd2 && m->addr == map + 2 * page && m->length == 64 && m->rkey != key);
	MUST(ibv_dealloc_pd(pd2) == EBUSY);
	MUST(ibv_dereg_mr(m) == 0);
	MUST(ibv_dealloc_pd(pd2) == 0);
	unrig();
}

static void test_queues(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_srq_attr sa;
	struct ibv_device_attr dev;
	struct ibv_qp_attr qa;
	struct ibv_srq *srq;

	rig();
	MUST(ibv_query_device(ctx, &dev) == 0);
	NONE(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(ctx, -5, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(ctx, dev.max_cqe + 1, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(ctx, 10, NULL, NULL, ctx->num_comp_vectors), EINVAL);
	NONE(ibv_create_cq(ctx, 10, NULL, NULL, -1), EINVAL);
	cq = ibv_create_cq(ctx, 10, &init, NULL, 0);
	MUST(cq && cq->cqe >= 10 && cq->cq_context == &init && cq->context == ctx);
	MUST(ibv_resize_cq(cq, 100) == 0 && cq->cqe >= 100);
	MUST(ibv_resize_cq(cq, 0) == EINVAL && ibv_resize_cq(cq, dev.max_cqe + 1) == EINVAL);

	srq = ibv_create_srq(pd, &si);
	MUST(srq && si.attr.max_wr >= 8);
	MUST(ibv_query_srq(srq, &sa) == 0 && sa.max_wr >= 8 && sa.max_sge >= 2 && sa.srq_limit == 0);
	MUST(ibv_modify_srq(srq, &(struct ibv_srq_attr){ .srq_limit = 4 }, IBV_SRQ_LIMIT) == 0);
	MUST(ibv_query_srq(srq, &sa) == 0 && sa.srq_limit == 4);
	MUST(ibv_modify_srq(srq, &(struct ibv_srq_attr){ .srq_limit = 1000 }, IBV_SRQ_LIMIT) == EINVAL);
	MUST(ibv_modify_srq(srq, &(struct ibv_srq_attr){ .max_wr = 16 }, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EINVAL);
	MUST(ibv_modify_srq(srq, &(struct ibv_srq_attr){ .max_wr = 0 }, IBV_SRQ_MAX_WR) == EINVAL);
	MUST(ibv_modify_srq(srq, &(struct ibv_srq_attr){ .max_wr = 16 }, IBV_SRQ_MAX_WR) == 0);
	MUST(ibv_query_srq(srq, &sa) == 0 && sa.max_wr >= 16);
	MUST(ibv_modify_srq(srq, &sa, 64) == EINVAL);
	si.attr.max_wr = 0;
	NONE(ibv_create_srq(pd, &si), EINVAL);
	si.attr.max_wr = dev.max_srq_wr + 1;
	NONE(ibv_create_srq(pd, &si), EINVAL);

	for (int i = 0; i < 7; i++) {
		init = (struct ibv_qp_init_attr){
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 5, 2, 3, 16 }
		};
		switch (i) {
		case 0: init.send_cq = NULL; break;
		case 1: init.recv_cq = NULL; break;
		case 2: init.qp_type = 77; break;
		case 3: init.cap.max_send_wr = dev.max_qp_wr + 1; break;
		case 4: init.cap.max_send_sge = dev.max_sge + 1; break;
		case 5: init.cap.max_inline_data = 1 << 20; break;
		case 6: init.cap.max_recv_wr = UINT32_MAX; break;
		}
		NONE(ibv_create_qp(pd, &init), EINVAL);
	}
	init = (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET };
	NONE(ibv_create_qp(pd, &init), EOPNOTSUPP);
	init = (struct ibv_qp_init_attr){
		.qp_context = &sa,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = { 4, 5, 2, 3, 16 },
		.sq_sig_all = 1,
	};
	a = ibv_create_qp(pd, &init);
	MUST(a && a->srq == srq && a->pd == pd && a->qp_num > 1 && a->state == IBV_QPS_RESET && a->qp_context == &sa);
	MUST(init.cap.max_send_wr >= 4 && init.cap.max_send_sge >= 2 && init.cap.max_inline_data >= 16);
	memset(&init, 0, sizeof(init));
	MUST(ibv_query_qp(a, &qa, IBV_QP_STATE, &init) == 0);
	MUST(qa.qp_state == IBV_QPS_RESET && init.send_cq == cq && init.srq == srq && init.sq_sig_all == 1 &&
		init.qp_type == IBV_QPT_RC && init.cap.max_send_wr >= 4);
	MUST(ibv_qp_to_qp_ex(a) == NULL);
	MUST(ibv_destroy_srq(srq) == EBUSY && ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_srq(srq) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();
}

static void test_states(void)
{
	struct ibv_qp_attr qa = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_init_attr ia;

	rig();
	cq = new_cq();
	a = new_qp(IBV_QPT_RC, cq, cq, 0);
	MUST(ibv_modify_qp(a, &qa, init & ~IBV_QP_PORT) == EINVAL);
	MUST(ibv_modify_qp(a, &qa, init | IBV_QP_QKEY) == EINVAL);
	MUST(ibv_modify_qp(a, &qa, init | 1 << 30) == EINVAL);
	qa.cap.max_send_wr = 1 << 30;
	MUST(ibv_modify_qp(a, &qa, init | IBV_QP_CAP) == EINVAL);
	qa.cap = (struct ibv_qp_cap){ .max_recv_sge = 99 };
	MUST(ibv_modify_qp(a, &qa, init | IBV_QP_CAP) == EINVAL);
	qa.rate_limit = 1000000;
	MUST(ibv_modify_qp(a, &qa, init | IBV_QP_RATE_LIMIT) == EINVAL); /* nothing can be sent yet */
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS }, IBV_QP_STATE) == EINVAL);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = 0x101 }, IBV_QP_STATE) == EINVAL);
	qa.port_num = 2;
	MUST(ibv_modify_qp(a, &qa, init) == EINVAL);
	qa.port_num = 1;
	qa.pkey_index = 999;
	MUST(ibv_modify_qp(a, &qa, init) == EINVAL);
	qa.pkey_index = 0;
	MUST(a->state == IBV_QPS_RESET);
	/* What the mask does not name may be anything. */
	memset(&qa, 0xee, sizeof(qa));
	qa.qp_state = IBV_QPS_INIT;
	qa.port_num = 1;
	qa.pkey_index = 0;
	qa.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	MUST(ibv_modify_qp(a, &qa, init) == 0 && a->state == IBV_QPS_INIT);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE) == 0);
	MUST(connect_to(a, a->qp_num, port.lid) == 0);
	MUST(ibv_query_qp(a, &qa, -1, &ia) == 0);
	MUST(qa.qp_state == IBV_QPS_RTS && qa.cur_qp_state == IBV_QPS_RTS && qa.path_mtu == IBV_MTU_1024 &&
		qa.dest_qp_num == a->qp_num && qa.ah_attr.dlid == port.lid && qa.timeout == 14 && qa.retry_cnt == 7 &&
		qa.rnr_retry == 7 && qa.max_rd_atomic == 4 && qa.max_dest_rd_atomic == 4 && qa.port_num == 1 &&
		qa.min_rnr_timer == 1 && qa.cap.max_send_wr == ia.cap.max_send_wr);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD }, IBV_QP_STATE) == 0);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTR },
		     IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD },
		     IBV_QP_STATE | IBV_QP_CUR_STATE) == 0);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE) == 0 &&
		a->state == IBV_QPS_ERR);
	MUST(ibv_modify_qp(a, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE) == 0);
	/* A zero port in the address is no port. */
	qa = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	MUST(ibv_modify_qp(a, &qa, init) == 0);
	qa = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.ah_attr = { .dlid = port.lid },
		.max_dest_rd_atomic = 1 };
	MUST(ibv_modify_qp(a, &qa,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == EINVAL);
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();
}

static void test_posting(void)
{
	struct ibv_sge sge[8], s;
	struct ibv_send_wr wr[3], *bad;
	struct ibv_recv_wr rr[3], *rbad;
	char text[64] = "not registered";
	struct ibv_qp *fresh;

	rig_pair(IBV_QPT_RC);
	fresh = new_qp(IBV_QPT_RC, cq, cq, 0);
	s = part(0, 8);
	MUST(post_send(fresh, 1, &s, 0) == EINVAL); /* in RESET */
	memset(rr, 0, sizeof(rr));
	rr[0].sg_list = &s;
	rr[0].num_sge = 1;
	MUST(ibv_post_recv(fresh, rr, &rbad) == EINVAL && rbad == rr);
	MUST(ibv_destroy_qp(fresh) == 0);

	/* A list: the second is bad, the first goes. */
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = i,
			.next = i < 2 ? &wr[i + 1] : NULL,
			.sg_list = &s,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED };
	post_recv(b, 10, HALF, 64);
	wr[1].opcode = 99;
	MUST(ibv_post_send(a, wr, &bad) == EINVAL && bad == &wr[1]);
	wait_done(cq, 10, IBV_WC_SUCCESS, IBV_WC_RECV);
	wait_done(cq, 0, IBV_WC_SUCCESS, IBV_WC_SEND);
	wr[1].opcode = IBV_WR_SEND;
	wr[1].num_sge = -1;
	MUST(ibv_post_send(a, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	wr[1].num_sge = 1000;
	MUST(ibv_post_send(a, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	wr[1].num_sge = 1;
	wr[1].send_flags = 1 << 10;
	MUST(ibv_post_send(a, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	wr[1].send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	s.length = 1 << 20;
	MUST(ibv_post_send(a, &wr[1], &bad) == EINVAL && bad == &wr[1]);

	/* Inline data come from anywhere, in pieces, and are the program's again at once. */
	for (int i = 0; i < 4; i++)
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)text + i * 4, .length = 4, .lkey = 0xbad };
	post_recv(b, 11, HALF, 64);
	wr[1] = (struct ibv_send_wr){ .wr_id = 5,
		.sg_list = sge,
		.num_sge = 4,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
		.imm_data = htonl(0x01020304) };
	MUST(ibv_post_send(a, &wr[1], &bad) == 0);
	memset(text, 'x', sizeof(text));
	for (int i = 0, seen = 0; i < 2; i++) {
		struct ibv_wc wc = wait_wc(cq);

		MUST(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		MUST(!seen++ && wc.wr_id == 11 && wc.byte_len == 16 && wc.wc_flags == IBV_WC_WITH_IMM &&
			ntohl(wc.imm_data) == 0x01020304 && wc.qp_num == b->qp_num);
		MUST(!memcmp(mem + HALF, "not registered", 15));
	}

	/* RDMA and atomics, to addresses of our own. */
	memcpy(mem, "written", 8);
	s = part(0, 8);
	wr[0] = (struct ibv_send_wr){ .wr_id = 20,
		.sg_list = &s,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)mem + HALF + 64, mr->rkey } };
	MUST(ibv_post_send(a, wr, &bad) == 0);
	wait_done(cq, 20, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	MUST(!strcmp((char *)mem + HALF + 64, "written"));
	s = part(128, 8);
	wr[0].wr_id = 21;
	wr[0].opcode = IBV_WR_RDMA_READ;
	MUST(ibv_post_send(a, wr, &bad) == 0);
	wait_done(cq, 21, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	MUST(!strcmp((char *)mem + 128, "written"));
	*(uint64_t *)(mem + HALF + 256) = 40;
	wr[0] = (struct ibv_send_wr){ .wr_id = 22,
		.sg_list = &s,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { (uintptr_t)mem + HALF + 256, 2, 0, mr->rkey } };
	MUST(ibv_post_send(a, wr, &bad) == 0);
	wait_done(cq, 22, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
	MUST(*(uint64_t *)(mem + HALF + 256) == 42 && *(uint64_t *)(mem + 128) == 40);
	wr[0].wr.atomic.remote_addr++;
	MUST(ibv_post_send(a, wr, &bad) == EINVAL && bad == wr);

	/* A full queue. */
	s = part(0, 8);
	for (int i = 0;; i++) {
		int error = post_send(b, i, &s, 0); /* nothing is received: it stays */

		if (error) {
			MUST(error == ENOMEM && i >= DEPTH);
			break;
		}
		MUST(i < 1 << 16);
	}
	for (int i = 0;; i++) {
		int error = ibv_post_recv(b, rr, &rbad);

		if (error) {
			MUST(error == ENOMEM && i >= DEPTH && rbad == rr);
			break;
		}
		MUST(i < 1 << 16);
	}
	unrig_pair();
}

/* Fills a's send queue behind a request for which b has no receive: those behind it wait where C code keeps them, too.
 */
static void fill_queue(void)
{
	struct ibv_sge s = part(0, 8);
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	char text[16];
	int i;

	for (i = 0; i < DEPTH; i++) {
		snprintf(text, sizeof(text), "send %d", i);
		if (i % 3 == 0) {
			memcpy(mem + 64 * i, text, sizeof(text));
			s = part(64 * i, 16);
		} else {
			s = (struct ibv_sge){ .addr = (uintptr_t)text, .length = 16, .lkey = 0xbad };
		}
		wr.wr_id = i;
		wr.send_flags = (i % 3 ? IBV_SEND_INLINE : 0) | IBV_SEND_SIGNALED;
		MUST(ibv_post_send(a, &wr, &bad) == 0);
		memset(text, 'x', sizeof(text));
		if (i % 8)
			continue;
		/* What is wrong is said at once, whatever waits. */
		wr.opcode = 99;
		MUST(ibv_post_send(a, &wr, &bad) == EINVAL && bad == &wr);
		wr.opcode = IBV_WR_SEND;
		wr.num_sge = 5;
		MUST(ibv_post_send(a, &wr, &bad) == EINVAL && bad == &wr);
		wr.num_sge = 1;
	}
	bad = NULL;
	wr.num_sge = 0;
	MUST(ibv_post_send(a, &wr, &bad) == ENOMEM && bad == &wr);
}

static void test_behind(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	volatile uint8_t *to;
	char text[16];
	double end;
	struct ibv_wc wc;

	/* A program that looks at its memory alone gets all of them, in order, with what they held when they were posted.
	 */
	rig_pair(IBV_QPT_RC);
	fill_queue();
	memset(mem + HALF, 0, HALF);
	for (int i = 0; i < DEPTH; i++)
		post_recv(b, 100 + i, HALF + 64 * i, 64);
	end = now() + 20;
	for (int i = DEPTH - 1; i >= 0; i--) {
		to = mem + HALF + 64 * i;
		snprintf(text, sizeof(text), "send %d", i);
		while (memcmp((void *)to, text, strlen(text) + 1))
			MUST(now() < end);
	}
	for (int i = 0, sent = 0, received = 0; i < 2 * DEPTH; i++) {
		wc = wait_wc(cq);
		MUST(wc.status == IBV_WC_SUCCESS);
		MUST(wc.wr_id == (wc.opcode == IBV_WC_RECV ? 100u + received++ : 0u + sent++));
	}
	unrig_pair();

	/* What a queue pair has when it fails is flushed, in order. */
	rig_pair(IBV_QPT_RC);
	fill_queue();
	MUST(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
	for (int i = 0; i < DEPTH; i++)
		wait_done(cq, i, IBV_WC_WR_FLUSH_ERR, 0);
	MUST(post_send(a, 7, &(struct ibv_sge){ 0 }, 0) == 0);
	wait_done(cq, 7, IBV_WC_WR_FLUSH_ERR, 0);

	/* In RESET it has nothing, and nothing is posted to it; then it begins anew. */
	attr.qp_state = IBV_QPS_RESET;
	MUST(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0 && ibv_modify_qp(b, &attr, IBV_QP_STATE) == 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	fill_queue();
	MUST(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
	MUST(post_send(a, 8, &(struct ibv_sge){ 0 }, 0) == EINVAL);
	MUST(ibv_poll_cq(cq, 1, &wc) == 0);
	MUST(ibv_modify_qp(b, &attr, IBV_QP_STATE) == 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	fill_queue();
	unrig_pair();
}

static void test_completions(void)
{
	struct ibv_wc wc[8];
	struct ibv_sge s;

	/* Status by status: wrong key, receive too short, flush. */
	rig_pair(IBV_QPT_RC);
	s = part(0, 8);
	s.lkey = 0x12345678;
	MUST(post_send(a, 1, &s, IBV_SEND_SIGNALED) == 0);
	wait_done(cq, 1, IBV_WC_LOC_PROT_ERR, 0);
	MUST(post_send(a, 2, &s, 0) == 0);
	wait_done(cq, 2, IBV_WC_WR_FLUSH_ERR, 0);
	post_recv(a, 3, HALF, 8);
	wait_done(cq, 3, IBV_WC_WR_FLUSH_ERR, 0);
	unrig_pair();

	rig_pair(IBV_QPT_RC);
	post_recv(b, 10, HALF, 4);
	s = part(0, 64);
	MUST(post_send(a, 11, &s, IBV_SEND_SIGNALED) == 0);
	for (int i = 0; i < 2; i++) {
		wc[0] = wait_wc(cq);
		MUST(wc[0].status == (wc[0].wr_id == 10 ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR));
	}
	unrig_pair();

	rig_pair(IBV_QPT_RC);
	{
		struct ibv_send_wr wr = { .wr_id = 12,
			.sg_list = &s,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { (uintptr_t)mem, mr->rkey ^ 0xff00 } },
				   *bad;

		s = part(0, 8);
		MUST(ibv_post_send(a, &wr, &bad) == 0);
		wait_done(cq, 12, IBV_WC_REM_ACCESS_ERR, 0);
	}
	unrig_pair();

	/* Many at once, more than one batch, polled with any room. */
	rig_pair(IBV_QPT_RC);
	s = part(0, 8);
	for (int i = 0; i < 24; i++) {
		post_recv(b, 100 + i, HALF + i * 8, 8);
		MUST(post_send(a, i, &s, IBV_SEND_SIGNALED) == 0);
	}
	MUST(ibv_poll_cq(cq, 0, wc) == 0 && ibv_poll_cq(cq, -1, wc) <= 0);
	for (int got = 0, sent = 0, n; got + sent < 48;) {
		n = ibv_poll_cq(cq, 1 + (got + sent) % 8, wc);
		MUST(n >= 0 && n <= 1 + (got + sent) % 8);
		for (int i = 0; i < n; i++) {
			MUST(wc[i].status == IBV_WC_SUCCESS);
			if (wc[i].opcode == IBV_WC_RECV)
				MUST(wc[i].wr_id == (uint64_t)100 + got++);
			else
				MUST(wc[i].wr_id == (uint64_t)sent++);
		}
	}
	/* A queue found empty is not taken for empty later. */
	for (int i = 0; i < 2000; i++) {
		for (int j = 0; j < i % 130; j++)
			MUST(ibv_poll_cq(cq, 8, wc) == 0);
		post_recv(b, i, HALF, 8);
		MUST(post_send(a, i, &s, 0) == 0);
		wait_done(cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
	unrig_pair();
}

/* Memory that the program takes away while it is registered: nobody dies of it. */
static void test_unmapped(void)
{
	long page = sysconf(_SC_PAGESIZE);
	struct ibv_send_wr wr, *bad;
	struct ibv_recv_wr rr, *rbad;
	struct ibv_sge s, r;
	struct ibv_mr *m;
	char *map, path[] = "/tmp/softib-core-XXXXXX";
	int fd = mkstemp(path);

	MUST(fd >= 0 && unlink(path) == 0 && ftruncate(fd, 2 * page) == 0);
	for (int file = 0; file < 2; file++) {
		rig_pair(IBV_QPT_RC);
		map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS,
			file ? fd : -1, 0);
		MUST(map != MAP_FAILED);
		m = ibv_reg_mr(pd, map, 2 * page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		MUST(m);
		r = (struct ibv_sge){ (uintptr_t)map + page - 16, 32, m->lkey };
		rr = (struct ibv_recv_wr){ .wr_id = 1, .sg_list = &r, .num_sge = 1 };
		MUST(ibv_post_recv(b, &rr, &rbad) == 0);
		MUST((file ? ftruncate(fd, 0) : munmap(map, 2 * page)) == 0);
		s = part(0, 32);
		MUST(post_send(a, 2, &s, IBV_SEND_SIGNALED) == 0);
		for (int i = 0; i < 2; i++)
			MUST(wait_wc(cq).status == IBV_WC_SUCCESS);
		MUST(post_send(b, 3, &r, IBV_SEND_SIGNALED) == 0); /* and from there */
		post_recv(a, 4, HALF, 64);
		for (int i = 0; i < 2; i++)
			MUST(wait_wc(cq).status == IBV_WC_SUCCESS);
		wr = (struct ibv_send_wr){ .wr_id = 5,
			.sg_list = &s,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)map + page + 100, m->rkey } };
		MUST(ibv_post_send(a, &wr, &bad) == 0);
		wait_done(cq, 5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		MUST(ibv_dereg_mr(m) == 0);
		munmap(map, 2 * page);
		unrig_pair();
	}
	close(fd);
}

static int reports[2]; /* a pipe */

static void report(int sig)
{
	MUST(write(reports[1], &sig, sizeof(sig)) == sizeof(sig));
}

/* A program's own faults stay its own: it dies of them, after its handler has run, as often as it was asked to. */
static void test_ownfault(void)
{
	for (int handled = 0; handled < 2; handled++) {
		int status, sig, got;
		pid_t child;

		MUST(pipe(reports) == 0);
		child = fork();
		MUST(child >= 0);
		if (!child) {
			struct sigaction act = { .sa_handler = report, .sa_flags = SA_RESETHAND };
			long page = sysconf(_SC_PAGESIZE);
			char *map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			fclose(stderr);
			close(2);
			if (handled)
				MUST(sigaction(SIGSEGV, &act, NULL) == 0);
			rig();
			MUST(ibv_reg_mr(pd, map, page, IBV_ACCESS_LOCAL_WRITE));
			MUST(munmap(map, page) == 0);
			*(volatile char *)map = 1;
			exit(0);
		}
		close(reports[1]);
		for (got = 0; read(reports[0], &sig, sizeof(sig)) == sizeof(sig); got++)
			MUST(sig == SIGSEGV);
		MUST(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
		if (handled)
			MUST(got == 1 && WTERMSIG(status) == SIGSEGV);
		close(reports[0]);
	}
}

static int readable(int fd, int ms)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, ms);
}

static void test_channels(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *ecq, *of;
	struct ibv_sge s;
	struct ibv_wc wc;
	void *cookie;

	rig();
	ch = ibv_create_comp_channel(ctx);
	MUST(ch && ch->context == ctx && ch->fd >= 0);
	ecq = ibv_create_cq(ctx, 256, &ch, ch, 0);
	MUST(ecq && ch->refcnt == 1);
	MUST(ibv_destroy_comp_channel(ch) == EBUSY);
	cq = new_cq();
	a = new_qp(IBV_QPT_RC, cq, cq, 0);
	b = new_qp(IBV_QPT_RC, cq, ecq, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	s = part(0, 8);
	/* Not armed: no event. */
	post_recv(b, 1, HALF, 8);
	MUST(post_send(a, 1, &s, 0) == 0);
	wait_done(ecq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	MUST(readable(ch->fd, 0) == 0);
	/* Armed: one event for two messages, which wakes a sleeper. */
	MUST(ibv_req_notify_cq(ecq, 0) == 0);
	MUST(ibv_poll_cq(ecq, 1, &wc) == 0);
	for (int i = 2; i < 4; i++) {
		post_recv(b, i, HALF, 8);
		MUST(post_send(a, i, &s, 0) == 0);
	}
	MUST(ibv_get_cq_event(ch, &of, &cookie) == 0 && of == ecq && cookie == &ch);
	wait_done(ecq, 2, IBV_WC_SUCCESS, IBV_WC_RECV);
	wait_done(ecq, 3, IBV_WC_SUCCESS, IBV_WC_RECV);
	MUST(readable(ch->fd, 0) == 0);
	MUST(fcntl(ch->fd, F_SETFL, O_NONBLOCK) == 0);
	MUST(ibv_get_cq_event(ch, &of, &cookie) == -1 && errno == EAGAIN);
	/* Only solicited ones. */
	MUST(ibv_req_notify_cq(ecq, 1) == 0);
	post_recv(b, 4, HALF, 8);
	MUST(post_send(a, 4, &s, 0) == 0);
	wait_done(ecq, 4, IBV_WC_SUCCESS, IBV_WC_RECV);
	MUST(readable(ch->fd, 0) == 0);
	post_recv(b, 5, HALF, 8);
	MUST(post_send(a, 5, &s, IBV_SEND_SOLICITED) == 0);
	MUST(readable(ch->fd, 20000) == 1);
	MUST(ibv_get_cq_event(ch, &of, &cookie) == 0);
	wait_done(ecq, 5, IBV_WC_SUCCESS, IBV_WC_RECV);
	ibv_ack_cq_events(ecq, 2);
	/* An event that nobody has read goes with its queue. */
	MUST(ibv_req_notify_cq(ecq, 0) == 0);
	post_recv(b, 6, HALF, 8);
	MUST(post_send(a, 6, &s, 0) == 0);
	MUST(readable(ch->fd, 20000) == 1);
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(ecq) == 0);
	MUST(ibv_get_cq_event(ch, &of, &cookie) == -1 && errno == EAGAIN);
	MUST(ibv_destroy_comp_channel(ch) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();
}

static struct {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int got, interrupted;
} sleepers[2];

/* Takes events of a channel until it is cancelled. */
static void *sleeper(void *arg)
{
	int i = (intptr_t)arg;
	struct ibv_cq *of;
	void *cookie;

	for (;;) {
		if (ibv_get_cq_event(sleepers[i].channel, &of, &cookie)) {
			MUST(errno == EINTR);
			__atomic_add_fetch(&sleepers[i].interrupted, 1, __ATOMIC_SEQ_CST);
			continue;
		}
		MUST(of == sleepers[i].cq);
		ibv_ack_cq_events(of, 1);
		MUST(ibv_req_notify_cq(of, 0) == 0);
		__atomic_add_fetch(&sleepers[i].got, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void nothing(int sig) { (void)sig; }

static int until(int *count, int want)
{
	double end = now() + 20;

	while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < want && now() < end)
		usleep(100);
	return *count == want;
}

/* Threads that sleep in ibv_get_cq_event, each at its own channel: each gets its events, signals, and its end. */
static void test_sleepers(void)
{
	struct sigaction act = { .sa_handler = nothing };
	pthread_t thread[2];
	struct ibv_sge s;
	struct ibv_wc wc;

	rig();
	MUST(sigaction(SIGUSR1, &act, NULL) == 0);
	for (int i = 0; i < 2; i++) {
		sleepers[i].channel = ibv_create_comp_channel(ctx);
		MUST(sleepers[i].channel);
		sleepers[i].cq = ibv_create_cq(ctx, 256, NULL, sleepers[i].channel, 0);
		MUST(sleepers[i].cq && ibv_req_notify_cq(sleepers[i].cq, 0) == 0);
	}
	a = new_qp(IBV_QPT_RC, sleepers[0].cq, sleepers[0].cq, 0);
	b = new_qp(IBV_QPT_RC, sleepers[1].cq, sleepers[1].cq, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	for (int i = 0; i < 2; i++)
		MUST(pthread_create(&thread[i], NULL, sleeper, (void *)(intptr_t)i) == 0);
	s = part(0, 8);
	for (int i = 0; i < 20; i++) {
		if (i % 4 == 0)
			usleep(3000); /* past the first, short sleep */
		post_recv(b, i, HALF, 8);
		MUST(post_send(a, i, &s, IBV_SEND_SIGNALED) == 0);
		MUST(until(&sleepers[0].got, i + 1));
		MUST(until(&sleepers[1].got, i + 1));
		wait_done(sleepers[0].cq, i, IBV_WC_SUCCESS, IBV_WC_SEND);
		wait_done(sleepers[1].cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
	/* A thread that was told of its last event may still be on its way to the next sleep, where a signal is just
	 * taken. */
	for (int i = 0; i < 2; i++) {
		int *n = &sleepers[i].interrupted;

		for (double end = now() + 20; __atomic_load_n(n, __ATOMIC_SEQ_CST) == 0; usleep(3000))
			MUST(now() < end && pthread_kill(thread[i], SIGUSR1) == 0);
	}
	for (int i = 0; i < 2; i++) {
		MUST(pthread_cancel(thread[i]) == 0);
		MUST(pthread_join(thread[i], NULL) == 0);
	}
	/* Nobody sleeps there any more: events wait in the descriptors. */
	post_recv(b, 100, HALF, 8);
	MUST(post_send(a, 100, &s, 0) == 0);
	MUST(readable(sleepers[1].channel->fd, 20000) == 1);
	MUST(ibv_poll_cq(sleepers[0].cq, 1, &wc) == 0);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	for (int i = 0; i < 2; i++)
		MUST(ibv_destroy_cq(sleepers[i].cq) == 0 && ibv_destroy_comp_channel(sleepers[i].channel) == 0);
	unrig();
}

static void *ack_later(void *event)
{
	usleep(20000);
	ibv_ack_async_event(event);
	return NULL;
}

static void test_async(void)
{
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_async_event e;
	struct ibv_qp_init_attr_ex init;
	struct ibv_recv_wr rr = { .num_sge = 1 }, *rbad;
	struct ibv_srq *srq;
	struct ibv_sge s, r;
	pthread_t thread;

	rig();
	MUST(readable(ctx->async_fd, 0) == 0);
	cq = new_cq();
	srq = ibv_create_srq(pd, &si);
	MUST(srq);
	a = new_qp(IBV_QPT_RC, cq, cq, 0);
	init = qp_attr(IBV_QPT_RC, cq, cq, 0);
	init.srq = srq;
	b = ibv_create_qp_ex(ctx, &init);
	MUST(b);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	r = part(HALF, 64);
	rr.sg_list = &r;
	for (int i = 0; i < 4; i++)
		MUST(ibv_post_srq_recv(srq, &rr, &rbad) == 0);
	MUST(ibv_modify_srq(srq, &(struct ibv_srq_attr){ .srq_limit = 4 }, IBV_SRQ_LIMIT) == 0);
	s = part(0, 8);
	MUST(post_send(a, 1, &s, 0) == 0);
	MUST(readable(ctx->async_fd, 20000) == 1);
	MUST(ibv_get_async_event(ctx, &e) == 0 && e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && e.element.srq == srq);
	wait_wc(cq);
	/* The last request of a queue pair with a shared queue, when it fails. */
	MUST(ibv_modify_qp(b, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE) == 0);
	ibv_ack_async_event(&e);
	MUST(readable(ctx->async_fd, 20000) == 1);
	MUST(ibv_get_async_event(ctx, &e) == 0 && e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && e.element.qp == b);
	/* Destroying waits for the acknowledgement. */
	MUST(pthread_create(&thread, NULL, ack_later, &e) == 0);
	MUST(ibv_destroy_qp(b) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	MUST(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	MUST(ibv_get_async_event(ctx, &e) == -1 && errno == EAGAIN);
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_srq(srq) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();
}

static void test_datagrams(void)
{
	struct ibv_ah_attr attr = { .dlid = 0, .port_num = 1 }, back;
	struct ibv_ah *ah, *reply;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge s;
	struct ibv_wc wc;

	rig_pair(IBV_QPT_UD);
	NONE(ibv_create_ah(pd, &attr), EINVAL);
	attr.dlid = port.lid;
	attr.port_num = 0;
	NONE(ibv_create_ah(pd, &attr), EINVAL);
	attr.port_num = 2;
	NONE(ibv_create_ah(pd, &attr), EINVAL);
	attr.port_num = 1;
	for (int global = 0; global < 2; global++) {
		attr.is_global = global;
		attr.grh.hop_limit = 3;
		attr.grh.flow_label = 0x54321;
		attr.grh.traffic_class = 7;
		MUST(ibv_query_gid(ctx, 1, 0, &attr.grh.dgid) == 0);
		ah = ibv_create_ah(pd, &attr);
		MUST(ah && ah->pd == pd);
		s = part(0, 32);
		post_recv(b, 1, HALF, 40 + 32);
		wr = (struct ibv_send_wr){ .wr_id = 2,
			.sg_list = &s,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.wr.ud = { ah, b->qp_num, 0x1234 } };
		MUST(ibv_post_send(a, &wr, &bad) == 0);
		wc = wait_wc(cq);
		MUST(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1 && wc.src_qp == a->qp_num && wc.slid == port.lid &&
			wc.byte_len == 72);
		MUST(!(wc.wc_flags & IBV_WC_GRH) == !global && !memcmp(mem, mem + HALF + 40, 32));
		MUST(ibv_init_ah_from_wc(ctx, 1, &wc, (struct ibv_grh *)(mem + HALF), &back) == 0);
		MUST(back.dlid == port.lid && back.port_num == 1 && back.is_global == global);
		if (global)
			MUST(back.grh.flow_label == 0x54321 && back.grh.traffic_class == 7 && back.grh.sgid_index == 0);
		reply = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)(mem + HALF), 1);
		MUST(reply);
		post_recv(a, 3, HALF + 128, 72);
		wr.wr.ud.ah = reply;
		wr.wr.ud.remote_qpn = wc.src_qp;
		MUST(ibv_post_send(b, &wr, &bad) == 0);
		wait_done(cq, 3, IBV_WC_SUCCESS, IBV_WC_RECV);
		MUST(ibv_destroy_ah(reply) == 0);
		MUST(ibv_destroy_ah(ah) == 0);
	}
	wr.wr.ud.ah = NULL;
	MUST(ibv_post_send(a, &wr, &bad) == EINVAL && bad == &wr);
	wr.opcode = IBV_WR_RDMA_WRITE; /* what would be the handle is an address now */
	wr.wr.rdma.remote_addr = 0x123456789abc0;
	MUST(ibv_post_send(a, &wr, &bad) == EINVAL && bad == &wr);
	unrig_pair();
}

static void test_multicast(void)
{
	union ibv_gid group = { .raw = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 9 } }, odd = { .raw = { 0xfe } };

	rig_pair(IBV_QPT_UD);
	MUST(ibv_attach_mcast(a, &odd, 0xc001) == EINVAL);
	MUST(ibv_attach_mcast(a, &group, 5) == EINVAL);
	MUST(ibv_detach_mcast(a, &group, 0xc001) == EINVAL);
	MUST(ibv_attach_mcast(a, &group, 0xc001) == 0 && ibv_attach_mcast(a, &group, 0xc001) == 0);
	MUST(ibv_destroy_qp(a) == EBUSY);
	MUST(ibv_detach_mcast(a, &group, 0xc001) == 0);
	MUST(ibv_detach_mcast(a, &group, 0xc001) == EINVAL);
	unrig_pair();
	rig_pair(IBV_QPT_RC);
	MUST(ibv_attach_mcast(a, &group, 0xc001) == EINVAL);
	unrig_pair();
}

static void test_overflow(void)
{
	struct ibv_async_event e;
	struct ibv_cq *small;
	struct ibv_sge s;

	/* More completions than a queue holds: CQ_ERR. */
	rig();
	small = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	MUST(small);
	cq = new_cq();
	a = new_qp(IBV_QPT_RC, cq, cq, 0);
	b = new_qp(IBV_QPT_RC, cq, small, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	s = part(0, 8);
	for (int i = 0; i < 8; i++) {
		post_recv(b, i, HALF, 8);
		MUST(post_send(a, i, &s, 0) == 0);
	}
	do {
		MUST(readable(ctx->async_fd, 20000) == 1);
		MUST(ibv_get_async_event(ctx, &e) == 0);
		ibv_ack_async_event(&e);
	} while (e.event_type != IBV_EVENT_CQ_ERR);
	MUST(e.element.cq == small);
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(small) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();

	/* More events than a pipe holds: none is lost. */
	enum { EVENTS = 6000 };
	struct ibv_comp_channel *ch;
	struct ibv_cq *ecq, *of;
	void *cookie;

	rig();
	ch = ibv_create_comp_channel(ctx);
	MUST(ch);
	ecq = ibv_create_cq(ctx, 2 * EVENTS, NULL, ch, 0);
	MUST(ecq);
	cq = new_cq();
	a = new_qp(IBV_QPT_RC, cq, cq, 0);
	b = new_qp(IBV_QPT_RC, cq, ecq, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	s = part(0, 8);
	for (int i = 0; i < EVENTS; i++) {
		MUST(ibv_req_notify_cq(ecq, 0) == 0);
		post_recv(b, i, HALF, 8);
		MUST(post_send(a, i, &s, IBV_SEND_SIGNALED) == 0);
		wait_done(cq, i, IBV_WC_SUCCESS, IBV_WC_SEND);
		wait_done(ecq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
	for (int i = 0; i < EVENTS; i++) {
		MUST(readable(ch->fd, 20000) == 1);
		MUST(ibv_get_cq_event(ch, &of, &cookie) == 0 && of == ecq);
	}
	MUST(readable(ch->fd, 0) == 0);
	ibv_ack_cq_events(ecq, EVENTS);
	MUST(ibv_destroy_qp(a) == 0);
	MUST(ibv_destroy_qp(b) == 0);
	MUST(ibv_destroy_cq(ecq) == 0);
	MUST(ibv_destroy_comp_channel(ch) == 0);
	MUST(ibv_destroy_cq(cq) == 0);
	unrig();
}

enum { THREADS = 4, ROUNDS = 300 };

static void *make_and_use(void *arg)
{
	uint32_t at = (uintptr_t)arg * 64;

	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_cq *own = new_cq();
		struct ibv_qp *x = new_qp(IBV_QPT_RC, own, own, 0), *y = new_qp(IBV_QPT_RC, own, own, 0);
		struct ibv_sge s = part(at, 64);

		connect_qp(x, y->qp_num);
		connect_qp(y, x->qp_num);
		post_recv(y, 1, HALF + at, 64);
		MUST(post_send(x, 2, &s, 0) == 0);
		wait_done(own, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
		MUST(!memcmp(mem + at, mem + HALF + at, 64));
		MUST(ibv_destroy_qp(x) == 0);
		MUST(ibv_destroy_qp(y) == 0);
		MUST(ibv_destroy_cq(own) == 0);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t t[THREADS];

	rig();
	for (uintptr_t i = 0; i < THREADS; i++)
		MUST(pthread_create(&t[i], NULL, make_and_use, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		MUST(pthread_join(t[i], NULL) == 0);
	unrig();
}

/* A program that destroys nothing and closes the device, often. */
static void test_leak(void)
{
	union ibv_gid group = { .raw = { 0xff, 0x12, [15] = 9 } };

	for (int i = 0; i < 20; i++) {
		struct ibv_ah_attr attr = { .port_num = 1 };
		struct ibv_srq_init_attr si = { .attr = { .max_wr = 8, .max_sge = 1 } };

		rig_pair(IBV_QPT_UD);
		MUST(ibv_attach_mcast(a, &group, 0xc001) == 0);
		attr.dlid = port.lid;
		MUST(ibv_create_ah(pd, &attr));
		MUST(ibv_create_srq(pd, &si));
		MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
		MUST(ibv_close_device(ctx) == 0);
	}
}

static volatile sig_atomic_t alarms, elsewhere;

static void on_alarm(int sig)
{
	volatile char deep[16384]; /* more than a small stack has */
	stack_t stack;

	(void)sig;
	memset((char *)deep, 1, sizeof(deep));
	alarms++;
	if (sigaltstack(NULL, &stack) || !(stack.ss_flags & SS_ONSTACK))
		elsewhere++;
}

/* A handler that needs a stack, called at any moment of the data path: it must not be the adapter's. */
static void test_signals(void)
{
	struct itimerval every = { .it_interval.tv_usec = 200, .it_value.tv_usec = 200 }, never = { 0 };
	struct sigaction urgent;
	double end;
	struct ibv_sge s;

	rig_pair(IBV_QPT_RC);
	/* Nobody but the program interrupts its threads. */
	MUST(sigaction(SIGURG, NULL, &urgent) == 0 && urgent.sa_handler == SIG_DFL);
	MUST(signal(SIGALRM, on_alarm) != SIG_ERR);
	MUST(setitimer(ITIMER_REAL, &every, NULL) == 0);
	s = part(0, 8);
	end = now() + 1;
	for (int i = 0; now() < end || alarms < 100; i++) {
		post_recv(b, i, HALF, 8);
		MUST(post_send(a, i, &s, 0) == 0);
		wait_done(cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
	MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
	MUST(elsewhere == 0);
	/* Programs that look see what they set. */
	MUST(signal(SIGALRM, SIG_IGN) == on_alarm && signal(SIGALRM, SIG_DFL) == SIG_IGN);
	MUST(sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_alarm, .sa_flags = SA_RESTART }, NULL) == 0);
	MUST(raise(SIGALRM) == 0 && elsewhere == 0);
	unrig_pair();
}

/* A signal that Go uses too is the program's, also where its handler was there before the adapter. */
static void test_urgent(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG };
	struct itimerspec every = { .it_interval.tv_nsec = 200000, .it_value.tv_nsec = 200000 };
	timer_t timer;
	double end;
	struct ibv_sge s;

	MUST(sigaction(SIGURG, &(struct sigaction){ .sa_handler = on_alarm }, NULL) == 0);
	for (int sent = 0; sent < 2; sent++) {
		rig_pair(IBV_QPT_RC);
		s = part(0, 8);
		if (sent) {
			MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
			MUST(timer_settime(timer, 0, &every, NULL) == 0);
		}
		end = now() + 1;
		for (int i = 0; now() < end || (sent && alarms < 100); i++) {
			/* Garbage, so that the collector has to stop everybody. */
			MUST(ibv_destroy_cq(ibv_create_cq(ctx, 1024, NULL, NULL, 0)) == 0);
			post_recv(b, i, HALF, 8);
			MUST(post_send(a, i, &s, 0) == 0);
			wait_done(cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
		}
		if (sent)
			MUST(timer_delete(timer) == 0);
		else
			MUST(alarms == 0);
		unrig_pair();
	}
	MUST(elsewhere == 0);
}

static void test_fork(void)
{
	struct ibv_port_attr p;
	struct ibv_sge s;
	struct ibv_wc wc;
	int status;
	pid_t child;

	MUST(ibv_is_fork_initialized() == IBV_FORK_DISABLED);
	MUST(ibv_fork_init() == 0);
	MUST(ibv_is_fork_initialized() == IBV_FORK_ENABLED);
	rig_pair(IBV_QPT_RC);
	s = part(0, 8);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		struct ibv_cq *of;
		void *cookie;
		struct ibv_comp_channel ch = { .context = ctx, .fd = 0 };

		alarm(20);
		MUST(ibv_query_port(ctx, 1, &p) == EIO);
		MUST(post_send(a, 1, &s, 0) == EIO);
		NONE(ibv_alloc_pd(ctx), EIO);
		NONE(ibv_reg_mr(pd, mem, 8, 0), EIO);
		MUST(ibv_destroy_qp(a) == EIO && ibv_destroy_cq(cq) == EIO && ibv_dereg_mr(mr) == EIO &&
			ibv_dealloc_pd(pd) == EIO);
		MUST(ibv_req_notify_cq(cq, 0) == EIO);
		MUST(ibv_get_cq_event(&ch, &of, &cookie) == -1 && errno == EIO);
		for (int i = 0; i < 100; i++)
			MUST(ibv_poll_cq(cq, 1, &wc) <= 0);
		MUST(ibv_close_device(ctx) == 0);
		/* It may open the device for itself, and so may its own child. */
		for (int depth = 0; depth < 2; depth++) {
			rig_pair(IBV_QPT_RC);
			s = part(0, 8);
			post_recv(b, 1, HALF, 8);
			MUST(post_send(a, 2, &s, 0) == 0);
			wait_done(cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
			child = fork();
			MUST(child >= 0);
			if (child) {
				MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
				unrig_pair();
				exit(0);
			}
			MUST(post_send(a, 3, &s, 0) == EIO);
		}
		MUST(ibv_close_device(ctx) == 0);
		ibv_free_device_list(list);
		exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	post_recv(b, 1, HALF, 8);
	MUST(post_send(a, 2, &s, 0) == 0);
	wait_done(cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	unrig_pair();
}

/* Forking before the device is opened is what many programs do. */
static void test_forkfirst(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		int status;

		MUST(child >= 0);
		if (!child) {
			rig_pair(IBV_QPT_RC);
			unrig_pair();
			exit(0);
		}
		MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	rig_pair(IBV_QPT_RC);
	unrig_pair();
	ibv_free_device_list(list);
}

static void test_reopen(void)
{
	for (int i = 0; i < 50; i++) {
		rig_pair(IBV_QPT_RC);
		unrig_pair();
	}
}

static void test_nodevice(void)
{
	int n = 7;
	struct ibv_device **list = ibv_get_device_list(&n);

	MUST(list && !list[0] && n == 0);
	ibv_free_device_list(list);
}

static void test_nodaemon(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	NONE(ibv_open_device(list[0]), ENODEV);
}

static void test_fatal(void)
{
	struct ibv_async_event e;
	struct ibv_port_attr p;
	struct ibv_sge s;

	rig_pair(IBV_QPT_RC);
	s = part(0, 8);
	post_recv(b, 1, HALF, 8);
	printf("ready\n");
	fflush(stdout);
	do {
		MUST(ibv_get_async_event(ctx, &e) == 0);
		ibv_ack_async_event(&e);
	} while (e.event_type != IBV_EVENT_DEVICE_FATAL);
	wait_done(cq, 1, IBV_WC_WR_FLUSH_ERR, 0);
	MUST(post_send(a, 2, &s, 0) == EIO);
	MUST(ibv_query_port(ctx, 1, &p) == EIO);
	NONE(ibv_alloc_pd(ctx), EIO);
	unrig_pair(); /* what is there can be destroyed */
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "strings", test_strings },
	{ "device", test_device },
	{ "memory", test_memory },
	{ "queues", test_queues },
	{ "states", test_states },
	{ "posting", test_posting },
	{ "behind", test_behind },
	{ "completions", test_completions },
	{ "channels", test_channels },
	{ "sleepers", test_sleepers },
	{ "async", test_async },
	{ "datagrams", test_datagrams },
	{ "multicast", test_multicast },
	{ "overflow", test_overflow },
	{ "threads", test_threads },
	{ "leak", test_leak },
	{ "signals", test_signals },
	{ "urgent", test_urgent },
	{ "fork", test_fork },
	{ "forkfirst", test_forkfirst },
	{ "reopen", test_reopen },
	{ "unmapped", test_unmapped },
	{ "ownfault", test_ownfault },
	{ "nodevice", test_nodevice },
	{ "nodaemon", test_nodaemon },
	{ "fatal", test_fatal },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(argv[1], tests[i].name)) {
			tests[i].run();
			return 0;
		}
	fprintf(stderr, "usage: core NAME\n");
	return 2;
}
