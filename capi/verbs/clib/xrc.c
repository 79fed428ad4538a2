/* XRC domains, and queue pairs of theirs that are opened once more. */
#include "softib.h"

struct ibv_xrcd *softib_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct softib_xrcd *x = softib_new(context, sizeof(*x));
	int error;

	if (!x)
		return NULL;
	if (!attr)
		return softib_discard(x, EINVAL);
	if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return softib_discard(x, EOPNOTSUPP);
	if ((attr->comp_mask & needed) != needed)
		return softib_discard(x, EINVAL);
	error = softib_go.open_xrcd(to_context(context)->handle, attr->fd, attr->oflags, &x->handle);
	if (error)
		return softib_discard(x, error);
	x->xrcd.context = context;
	return &x->xrcd;
}

int softib_close_xrcd(struct ibv_xrcd *xrcd)
{
	struct softib_xrcd *x = to_xrcd(xrcd);
	int error;

	if (softib_left(xrcd->context))
		return EIO;
	if (__atomic_load_n(&x->users, __ATOMIC_RELAXED))
		return EBUSY;
	error = softib_go.close_xrcd(x->handle);
	if (!error)
		free(x);
	return error;
}

struct ibv_qp *softib_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct softib_qp *q = softib_new(context, sizeof(*q));
	struct softib_made made;
	int error;

	if (!q)
		return NULL;
	if (!attr)
		return softib_discard(q, EINVAL);
	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return softib_discard(q, EOPNOTSUPP);
	if ((attr->comp_mask & needed) != needed || !attr->xrcd || attr->xrcd->context != context ||
	    attr->qp_type != IBV_QPT_XRC_RECV)
		return softib_discard(q, EINVAL);
	q->xrcd = attr->xrcd;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		q->qp.qp_context = attr->qp_context;
	q->qp.state = IBV_QPS_UNKNOWN;
	error = softib_go.open_qp(to_xrcd(attr->xrcd)->handle, attr->qp_num, &made);
	if (!error)
		error = softib_begin_qp(q, context, &made, attr->qp_num, IBV_QPT_XRC_RECV);
	return error ? softib_discard(q, error) : &q->qp;
}
