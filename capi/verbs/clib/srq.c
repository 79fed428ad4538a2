/* Shared receive queues: basic ones, and those of an XRC domain. */
#include "softib.h"

static struct ibv_srq *make_srq(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr,
	enum ibv_srq_type type, struct ibv_xrcd *xrcd, struct ibv_cq *cq, uint32_t tags)
{
	struct softib_srq_args args = { .pd = pd->handle, .attr = *attr, .xrcd = xrcd ? to_xrcd(xrcd)->handle : 0,
		.cq = cq ? cq->handle : 0, .tags = tags };
	struct softib_srq *s = softib_new(pd->context, sizeof(*s));
	int error;

	if (!s)
		return NULL;
	error = softib_go.create_srq(&args);
	if (!error)
		error = softib_track(SOFTIB_SRQ, &args.made, &s->tracked, s, softib_go.destroy_srq);
	if (error)
		return softib_discard(s, error);
	*attr = args.attr;
	s->srq_num = args.srq_num;
	s->type = type;
	s->xrcd = xrcd;
	s->cq = xrcd ? cq : NULL;
	softib_xrcd_use(xrcd, 1);
	s->srq.context = pd->context;
	s->srq.srq_context = srq_context;
	s->srq.pd = pd;
	s->srq.handle = args.made.handle;
	pthread_mutex_init(&s->srq.mutex, NULL);
	pthread_cond_init(&s->srq.cond, NULL);
	return &s->srq;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return make_srq(pd, attr->srq_context, &attr->attr, IBV_SRQT_BASIC, NULL, NULL, 0);
}
ALSO_1_0(ibv_create_srq);

struct ibv_srq *softib_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t supported =
		IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
		IBV_SRQ_INIT_ATTR_TM;
	enum ibv_srq_type type;
	struct ibv_xrcd *xrcd;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t tags;

	if (!attr)
		return FAIL(EINVAL);
	type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	if (attr->comp_mask & ~supported)
		return FAIL(EOPNOTSUPP);
	pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL;
	xrcd = attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD ? attr->xrcd : NULL;
	cq = attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ ? attr->cq : NULL;
	tags = attr->comp_mask & IBV_SRQ_INIT_ATTR_TM ? attr->tm_cap.max_num_tags : 0;
	if (type > IBV_SRQT_TM || (type == IBV_SRQT_XRC && (!xrcd || !cq)) || (type == IBV_SRQT_TM && (!tags || !cq)) ||
	    !pd ||
	    pd->context != context || (xrcd && xrcd->context != context) || (cq && cq->context != context))
		return FAIL(EINVAL);
	return make_srq(pd, attr->srq_context, &attr->attr, type, xrcd, type == IBV_SRQT_BASIC ? NULL : cq,
		type == IBV_SRQT_TM ? tags : 0);
}

int softib_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	/* Only those of XRC have a number that means anything to a peer. */
	if (to_srq(srq)->type != IBV_SRQT_XRC)
		return EINVAL;
	*num = to_srq(srq)->srq_num;
	return 0;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return softib_gone(srq->context) ?: softib_go.modify_srq(srq->handle, attr, mask);
}
ALSO_1_0(ibv_modify_srq);

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return softib_gone(srq->context) ?: softib_go.query_srq(srq->handle, attr);
}
ALSO_1_0(ibv_query_srq);

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct softib_srq *s = to_srq(srq);
	int error = softib_left(srq->context) ? EIO : softib_go.destroy_srq(srq->handle);

	if (error)
		return error;
	if (s->cq)
		softib_purge_cq(s->cq, 0, s->srq_num);
	softib_untrack(SOFTIB_SRQ, srq->handle, &s->tracked, &srq->mutex, &srq->cond, &srq->events_completed);
	softib_xrcd_use(s->xrcd, -1);
	pthread_cond_destroy(&srq->cond);
	pthread_mutex_destroy(&srq->mutex);
	free(s);
	return 0;
}
ALSO_1_0(ibv_destroy_srq);

int softib_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = softib_gone(srq->context);

	if (error) {
		*bad = wr;
		return error;
	}
	return softib_go.post_srq_recv(srq->handle, wr, bad);
}

int softib_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	int error = softib_gone(srq->context);

	if (error) {
		*bad = op;
		return error;
	}
	return softib_go.post_srq_ops(srq->handle, op, bad);
}
