/* Extended shared receive queues: basic ones, and those of an XRC domain. */
#include "ext.h"

#define SUPPORTED (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ)

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	enum ibv_srq_type type;
	struct softib_srq *srq;
	uint32_t mask;

	if (!attr)
		return FAIL(EINVAL);
	mask = attr->comp_mask;
	if (mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		return FAIL(EOPNOTSUPP);
	type = mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	if (type == IBV_SRQT_TM || mask & ~(uint32_t)SUPPORTED)
		return FAIL(EOPNOTSUPP); /* tag matching */
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)
		return FAIL(EINVAL);
	if (!(mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		return FAIL(EINVAL);
	if (type == IBV_SRQT_XRC &&
	    (!(mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd || !(mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq))
		return FAIL(EINVAL);
	if ((mask & IBV_SRQ_INIT_ATTR_XRCD && attr->xrcd && attr->xrcd->context != context) ||
	    (mask & IBV_SRQ_INIT_ATTR_CQ && attr->cq && attr->cq->context != context))
		return FAIL(EINVAL);

	srq = softib_make_srq(context, attr);
	if (!srq)
		return NULL;
	softib_xrcd_use(srq->xrcd, 1);
	return &srq->srq;
}

static int get_srq_num(struct ibv_srq *plain, uint32_t *num)
{
	struct softib_srq *srq = to_srq(plain);

	/* Only those of XRC have a number that means anything to a peer. */
	if (srq->type != IBV_SRQT_XRC)
		return EINVAL;
	*num = srq->srq_num;
	return 0;
}

void softib_drop_srq_ex(struct softib_srq *srq)
{
	softib_xrcd_use(srq->xrcd, -1);
}

void softib_srq_ex_ops(struct verbs_context *v)
{
	v->create_srq_ex = create_srq_ex;
	v->get_srq_num = get_srq_num;
}
