/* Extended queue pairs: how they are made, and what a device says of them. */
#include "softib.h"

#define ETHERNET_ATTRS (IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)
#define OUR_ATTRS \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

/* Why such a queue pair cannot be made, or 0. */
static int check(const struct ibv_qp_init_attr_ex *attr)
{
	uint32_t mask = attr->comp_mask;

	if (mask & ~(uint32_t)(OUR_ATTRS | ETHERNET_ATTRS))
		return EINVAL;
	if (mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH))
		return EOPNOTSUPP;
	if (mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER && attr->max_tso_header)
		return EOPNOTSUPP;
	if (mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
		return EOPNOTSUPP;
	if (attr->qp_type == IBV_QPT_XRC_RECV) {
		if (!(mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd)
			return EINVAL;
	} else if (!(mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		return EINVAL;
	}
	if (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && attr->send_ops_flags & ~softib_builder_ops(attr->qp_type))
		return EOPNOTSUPP;
	return 0;
}

struct ibv_qp *softib_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct softib_qp *qp;
	int error = attr ? check(attr) : EINVAL;

	if (error)
		return FAIL(error);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && attr->xrcd && attr->xrcd->context != context)
		return FAIL(EINVAL);
	qp = softib_make_qp(context, attr);
	if (!qp)
		return NULL;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && qp->qp.qp_type != IBV_QPT_XRC_RECV) {
		error = softib_give_builder(qp);
		if (error) {
			ibv_destroy_qp(&qp->qp);
			return FAIL(error);
		}
	}
	return &qp->qp;
}
