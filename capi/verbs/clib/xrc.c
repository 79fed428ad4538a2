/* XRC domains, and queue pairs of theirs that are opened once more. */
#include <stdlib.h>

#include "ext.h"

/* Objects are counted here and in libsoftib.so: domains that share an inode are one there, and each may go when its
 * own are gone. */
struct xrcd {
	struct softib_xrcd base;
	int users; /* atomic */
};

static struct xrcd *to_xrcd(struct ibv_xrcd *xrcd)
{
	return container_of(xrcd, struct xrcd, base.xrcd);
}

void softib_xrcd_use(struct ibv_xrcd *xrcd, int change)
{
	if (xrcd)
		__atomic_add_fetch(&to_xrcd(xrcd)->users, change, __ATOMIC_RELAXED);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct xrcd *x;
	int error = softib_gone(context);

	if (error)
		return FAIL(error);
	if (!attr)
		return FAIL(EINVAL);
	if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return FAIL(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_XRCD_INIT_ATTR_FD) || !(attr->comp_mask & IBV_XRCD_INIT_ATTR_OFLAGS))
		return FAIL(EINVAL);
	x = calloc(1, sizeof(*x));
	if (!x)
		return FAIL(ENOMEM);
	error = softib_go.open_xrcd(to_context(context)->handle, attr->fd, attr->oflags, &x->base.handle);
	if (error) {
		free(x);
		return FAIL(error);
	}
	x->base.xrcd.context = context;
	return &x->base.xrcd;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct xrcd *x = to_xrcd(xrcd);
	int error;

	if (softib_forked)
		return EIO;
	if (__atomic_load_n(&x->users, __ATOMIC_RELAXED))
		return EBUSY;
	error = softib_go.close_xrcd(x->base.handle);
	if (!error)
		free(x);
	return error;
}

#define OPEN_QP (IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE)

static struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	struct softib_made made;
	struct softib_qp *qp;
	int error = softib_gone(context);

	if (error)
		return FAIL(error);
	if (!attr)
		return FAIL(EINVAL);
	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return FAIL(EOPNOTSUPP);
	if ((attr->comp_mask & OPEN_QP) != OPEN_QP || !attr->xrcd || attr->xrcd->context != context ||
	    attr->qp_type != IBV_QPT_XRC_RECV)
		return FAIL(EINVAL);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return FAIL(ENOMEM);
	error = softib_go.open_qp(to_xrcd(attr->xrcd)->base.handle, attr->qp_num, &made);
	if (error) {
		free(qp);
		return FAIL(error);
	}
	qp->qp.context = context;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		qp->qp.qp_context = attr->qp_context;
	qp->qp.handle = made.handle;
	qp->qp.qp_num = attr->qp_num;
	qp->qp.qp_type = IBV_QPT_XRC_RECV;
	qp->qp.state = IBV_QPS_UNKNOWN;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	qp->serial = made.serial;
	qp->xrcd = attr->xrcd;
	error = softib_slot_set(SOFTIB_QP, made.handle, made.serial, qp);
	if (error) {
		softib_go.destroy_qp(made.handle);
		free(qp);
		return FAIL(error);
	}
	softib_xrcd_use(attr->xrcd, 1);
	return &qp->qp;
}

void softib_xrc_ops(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
	v->open_qp = open_qp;
}
