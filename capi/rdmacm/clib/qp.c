/* Queue pairs, shared receive queues, and the completion queues that programs leave to the library. */
#include <string.h>

#include "cm.h"
#include <rdma/rdma_verbs.h>

void unpack_ah(struct ibv_ah_attr *to, const struct ib_uverbs_ah_attr *from)
{
	*to = (struct ibv_ah_attr){
		.grh = {
			.flow_label = from->grh.flow_label,
			.sgid_index = from->grh.sgid_index,
			.hop_limit = from->grh.hop_limit,
			.traffic_class = from->grh.traffic_class,
		},
		.dlid = from->dlid,
		.sl = from->sl,
		.src_path_bits = from->src_path_bits,
		.static_rate = from->static_rate,
		.is_global = from->is_global,
		.port_num = from->port_num,
	};
	memcpy(&to->grh.dgid, from->grh.dgid, sizeof(to->grh.dgid));
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask)
{
	struct ucma_abi_init_qp_attr request = { 0 };
	struct ib_uverbs_qp_attr a;

	if (!qp_attr || !qp_attr_mask)
		return fail(EINVAL);
	COMMAND(&request, INIT_QP_ATTR, sizeof(a));
	request.id = id_of(id)->handle;
	request.qp_state = qp_attr->qp_state;
	if (command(channel_of(id), &request, sizeof(request), &a, sizeof(a)) < 0)
		return -1;
	*qp_attr = (struct ibv_qp_attr){
		.qp_state = a.qp_state,
		.cur_qp_state = a.cur_qp_state,
		.path_mtu = a.path_mtu,
		.path_mig_state = a.path_mig_state,
		.qkey = a.qkey,
		.rq_psn = a.rq_psn,
		.sq_psn = a.sq_psn,
		.dest_qp_num = a.dest_qp_num,
		.qp_access_flags = a.qp_access_flags,
		.cap = {
			.max_send_wr = a.max_send_wr,
			.max_recv_wr = a.max_recv_wr,
			.max_send_sge = a.max_send_sge,
			.max_recv_sge = a.max_recv_sge,
			.max_inline_data = a.max_inline_data,
		},
		.pkey_index = a.pkey_index,
		.alt_pkey_index = a.alt_pkey_index,
		.en_sqd_async_notify = a.en_sqd_async_notify,
		.sq_draining = a.sq_draining,
		.max_rd_atomic = a.max_rd_atomic,
		.max_dest_rd_atomic = a.max_dest_rd_atomic,
		.min_rnr_timer = a.min_rnr_timer,
		.port_num = a.port_num,
		.timeout = a.timeout,
		.retry_cnt = a.retry_cnt,
		.rnr_retry = a.rnr_retry,
		.alt_port_num = a.alt_port_num,
		.alt_timeout = a.alt_timeout,
	};
	unpack_ah(&qp_attr->ah_attr, &a.ah_attr);
	unpack_ah(&qp_attr->alt_ah_attr, &a.alt_ah_attr);
	*qp_attr_mask = a.qp_attr_mask;
	return 0;
}

/* Moves a queue pair to a state with the attributes that the daemon gives; adjust may be NULL. */
static int move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state,
		void (*adjust)(struct ibv_qp_attr *attr, uint8_t depth), uint8_t depth)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	if (rdma_init_qp_attr(id, &attr, &mask) < 0)
		return -1;
	if (adjust)
		adjust(&attr, depth);
	return fail_if(ibv_modify_qp(qp, &attr, mask));
}

static void set_responder_resources(struct ibv_qp_attr *attr, uint8_t depth)
{
	if (depth != RDMA_MAX_RESP_RES)
		attr->max_dest_rd_atomic = depth;
}

static void set_initiator_depth(struct ibv_qp_attr *attr, uint8_t depth)
{
	if (depth != RDMA_MAX_INIT_DEPTH)
		attr->max_rd_atomic = depth;
}

int qp_ready(struct rdma_cm_id *id, uint8_t responder_resources, uint8_t initiator_depth)
{
	if (!id->qp)
		return 0;
	/* INIT once more: the access flags may be others now that the peer is known. */
	if (move(id, id->qp, IBV_QPS_INIT, NULL, 0) < 0 ||
	    move(id, id->qp, IBV_QPS_RTR, set_responder_resources, responder_resources) < 0)
		return -1;
	return move(id, id->qp, IBV_QPS_RTS, set_initiator_depth, initiator_depth);
}

int qp_fail(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return id->qp ? fail_if(ibv_modify_qp(id->qp, &attr, IBV_QP_STATE)) : 0;
}

/* A datagram queue pair knows no peer and may send at once. */
static int start_datagrams(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr receive = { .qp_state = IBV_QPS_RTR };
	struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS };

	if (move(id, qp, IBV_QPS_INIT, NULL, 0) < 0 || fail_if(ibv_modify_qp(qp, &receive, IBV_QP_STATE)) < 0)
		return -1;
	return fail_if(ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void destroy_queue(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void destroy_queues(struct rdma_cm_id *id)
{
	int error = errno;

	/* An XRC receiver's queue belongs to its shared receive queue, which outlives the queue pair. */
	if (id->qp_type == IBV_QPT_XRC_RECV && id->srq)
		return;
	destroy_queue(&id->recv_cq, &id->recv_cq_channel);
	destroy_queue(&id->send_cq, &id->send_cq_channel);
	errno = error;
}

static int create_queue(struct rdma_cm_id *id, uint32_t size, struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (!size)
		return 0;
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return -1;
	*cq = ibv_create_cq(id->verbs, size, id, *channel, 0);
	return *cq ? 0 : -1;
}

static int create_queues(struct rdma_cm_id *id, uint32_t send, uint32_t receive)
{
	if (create_queue(id, receive, &id->recv_cq, &id->recv_cq_channel) < 0 ||
	    create_queue(id, send, &id->send_cq, &id->send_cq_channel) < 0) {
		destroy_queues(id);
		return -1;
	}
	return 0;
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq;

	if (!id->verbs || id->srq || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return fail(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->pd = id->pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	if (attr->srq_type == IBV_SRQT_XRC) {
		if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
			attr->xrcd = device_xrcd(id_of(id)->device);
			if (!attr->xrcd)
				return -1;
		}
		if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq) {
			/* The id's queue pair, if it came first, has brought one. */
			if (!id->recv_cq && create_queues(id, 0, attr->attr.max_wr) < 0)
				return -1;
			attr->cq = id->recv_cq;
		}
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	}
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq) {
		if (!id->qp)
			destroy_queues(id);
		return -1;
	}
	if (!id->pd)
		id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex wide = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd,
	};
	int failed = rdma_create_srq_ex(id, &wide);

	attr->attr = wide.attr;
	return failed;
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
	destroy_queues(id);
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;

	if (id->qp || !id->verbs)
		return fail(EINVAL);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	} else if (attr->pd->context != id->verbs) {
		return fail(EINVAL);
	}
	if ((id->recv_cq && attr->recv_cq && attr->recv_cq != id->recv_cq) ||
	    (id->send_cq && attr->send_cq && attr->send_cq != id->send_cq))
		return fail(EINVAL);
	if (id->qp_type == IBV_QPT_XRC_RECV && (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd)) {
		attr->xrcd = device_xrcd(id_of(id)->device);
		if (!attr->xrcd)
			return -1;
		attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	}
	if (create_queues(id, attr->send_cq || id->send_cq ? 0 : attr->cap.max_send_wr,
			  attr->recv_cq || id->recv_cq ? 0 : attr->cap.max_recv_wr) < 0)
		return -1;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (!attr->srq)
		attr->srq = id->srq;

	qp = ibv_create_qp_ex(id->verbs, attr);
	if (!qp)
		goto no_qp;
	if ((is_datagram(id) ? start_datagrams(id, qp) : move(id, qp, IBV_QPS_INIT, NULL, 0)) < 0) {
		int error = errno;

		ibv_destroy_qp(qp);
		errno = error;
		goto no_qp;
	}
	id->pd = qp->pd;
	id->qp = qp;
	return 0;

no_qp:
	destroy_queues(id);
	return -1;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex wide = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd ? pd : id->pd,
	};
	int failed = rdma_create_qp_ex(id, &wide);

	attr->send_cq = wide.send_cq;
	attr->recv_cq = wide.recv_cq;
	attr->srq = wide.srq;
	attr->cap = wide.cap;
	return failed;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_queues(id);
}
