/* Queue pairs, and what is posted to them. */
#include "softib.h"

/* Completions of a queue pair go with it, also those that have left the adapter. */
static void purge(struct ibv_qp *qp)
{
	if (qp->send_cq)
		softib_purge_cq(qp->send_cq, qp->qp_num, 0);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		softib_purge_cq(qp->recv_cq, qp->qp_num, 0);
}

int softib_begin_qp(struct softib_qp *q, struct ibv_context *context, const struct softib_made *made, uint32_t qp_num,
	enum ibv_qp_type type)
{
	int error = softib_track(SOFTIB_QP, made, &q->tracked, q, softib_go.destroy_qp);

	if (error)
		return error;
	q->qp.context = context;
	q->qp.handle = made->handle;
	q->qp.qp_num = qp_num;
	q->qp.qp_type = type;
	pthread_mutex_init(&q->qp.mutex, NULL);
	pthread_cond_init(&q->qp.cond, NULL);
	softib_xrcd_use(q->xrcd, 1);
	return 0;
}

struct softib_qp *softib_make_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct softib_qp_args args = { .context = to_context(context)->handle, .type = attr->qp_type,
		.sig_all = !!attr->sq_sig_all, .cap = attr->cap };
	struct ibv_pd *pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
	struct softib_qp *q = softib_new(context, sizeof(*q));
	int error;

	if (!q)
		return NULL;
	args.sends = &q->sends;
	if ((pd && pd->context != context) || (attr->send_cq && attr->send_cq->context != context) ||
	    (attr->recv_cq && attr->recv_cq->context != context) || (attr->srq && attr->srq->context != context))
		return softib_discard(q, EINVAL);
	args.pd = pd ? pd->handle : 0;
	args.send_cq = attr->send_cq ? attr->send_cq->handle : 0;
	args.recv_cq = attr->recv_cq ? attr->recv_cq->handle : 0;
	args.srq = attr->srq ? attr->srq->handle : 0;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && attr->xrcd) {
		q->xrcd = attr->xrcd;
		args.xrcd = to_xrcd(attr->xrcd)->handle;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)
		args.create_flags = attr->create_flags;
	error = softib_go.create_qp(&args);
	if (!error)
		error = softib_begin_qp(q, context, &args.made, args.qp_num, attr->qp_type);
	if (error)
		return softib_discard(q, error);
	attr->cap = args.cap;
	q->cap = args.cap;
	q->sends.is.handle = args.made.handle;
	q->sq_sig_all = attr->sq_sig_all;
	q->qp.qp_context = attr->qp_context;
	q->qp.pd = pd;
	/* An XRC target has no queues of its own, an initiator only one: what else was passed is not held on to. */
	if (attr->qp_type != IBV_QPT_XRC_RECV)
		q->qp.send_cq = attr->send_cq;
	if (attr->qp_type != IBV_QPT_XRC_RECV && attr->qp_type != IBV_QPT_XRC_SEND) {
		q->qp.recv_cq = attr->recv_cq;
		q->qp.srq = attr->srq;
	}
	q->qp.state = IBV_QPS_RESET;
	if (q->qp.recv_cq && !q->qp.srq && q->cap.max_recv_wr)
		q->stage = softib_new_stage(q->qp.handle, &q->cap); /* without it receives go by call */
	return q;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq,
		.cap = attr->cap, .qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct softib_qp *q = softib_make_qp(pd->context, &ex);

	if (!q)
		return NULL;
	attr->cap = ex.cap;
	return &q->qp;
}
ALSO_1_0(ibv_create_qp);

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->builder ? &to_qp(qp)->ex : NULL;
}

/* An errno, or 0. What was granted is told, as when the queue pair was made. */
static int resize(struct softib_qp *q, struct ibv_qp_cap *cap)
{
	int error = softib_go.resize_qp(q->qp.handle, cap);

	if (error)
		return error;
	q->cap.max_send_wr = cap->max_send_wr;
	q->cap.max_recv_wr = cap->max_recv_wr;
	*cap = q->cap;
	return 0;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int error = softib_gone(qp->context);

	if (!error && mask & IBV_QP_CAP)
		error = resize(to_qp(qp), &attr->cap);
	if (!error && mask & ~IBV_QP_CAP)
		error = softib_go.modify_qp(qp->handle, attr, mask & ~IBV_QP_CAP);
	if (!error && mask & IBV_QP_STATE) {
		qp->state = attr->qp_state;
		if (qp->state == IBV_QPS_RESET)
			purge(qp);
	}
	return error;
}
ALSO_1_0(ibv_modify_qp);

/* How long packets are makes no difference: each takes what it takes. */
int softib_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	int error = softib_gone(qp->context);

	if (error)
		return error;
	if (attr->comp_mask || (attr->typical_pkt_sz && !attr->rate_limit))
		return EINVAL;
	return softib_go.limit_qp(qp->handle, attr->rate_limit, attr->max_burst_sz);
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct softib_qp *q = to_qp(qp);
	int error = softib_gone(qp->context);

	(void)mask; /* what is not asked for is told all the same */
	if (error)
		return error;
	memset(attr, 0, sizeof(*attr));
	error = softib_go.query_qp(qp->handle, attr);
	if (error)
		return error;
	attr->cap = q->cap;
	if (init)
		*init = (struct ibv_qp_init_attr){
			.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq, .srq = qp->srq,
			.cap = q->cap, .qp_type = qp->qp_type, .sq_sig_all = q->sq_sig_all,
		};
	qp->state = attr->qp_state;
	return 0;
}
ALSO_1_0(ibv_query_qp);

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct softib_qp *q = to_qp(qp);
	int error = softib_left(qp->context) ? EIO : softib_go.destroy_qp(qp->handle);

	if (error)
		return error;
	purge(qp);
	softib_untrack(SOFTIB_QP, qp->handle, &q->tracked, &qp->mutex, &qp->cond, &qp->events_completed);
	softib_xrcd_use(q->xrcd, -1);
	softib_free_builder(q->builder);
	pthread_cond_destroy(&qp->cond);
	pthread_mutex_destroy(&qp->mutex);
	free(q->stage);
	free(q->sends.at);
	free(q);
	return 0;
}
ALSO_1_0(ibv_destroy_qp);

int softib_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int error = softib_gone(qp->context);

	if (error) {
		*bad = wr;
		return error;
	}
	if (softib_stage_sends(to_qp(qp), wr))
		return 0;
	return softib_go.post_send(qp->handle, wr, bad);
}

int softib_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = softib_gone(qp->context);
	struct ibv_recv_wr *none;

	if (error) {
		*bad = wr;
		return error;
	}
	/* In RESET there is nothing to post to, and that is for the adapter to say. */
	if (__builtin_expect(!to_qp(qp)->stage || qp->state == IBV_QPS_RESET, 0))
		return softib_go.post_recv(qp->handle, wr, bad);
	error = softib_stage_recv(to_qp(qp), wr, bad);
	/* To a queue pair that has failed they complete at once, and a program about to sleep may not call for long. */
	if (to_cq(qp->recv_cq)->armed)
		softib_go.post_recv(qp->handle, NULL, &none);
	return error;
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return softib_gone(qp->context) ?: softib_go.attach_mcast(qp->handle, gid->raw, lid);
}
ALSO_1_0(ibv_attach_mcast);

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	/* Like what destroys, it works when the fabric is gone. */
	return softib_left(qp->context) ? EIO : softib_go.detach_mcast(qp->handle, gid->raw, lid);
}
ALSO_1_0(ibv_detach_mcast);
