/* Extended queue pairs: how they are made, and what a device says of them. */
#include "ext.h"

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

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
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
	softib_xrcd_use(qp->xrcd, 1);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && qp->qp.qp_type != IBV_QPT_XRC_RECV) {
		error = softib_give_builder(qp);
		if (error) {
			ibv_destroy_qp(&qp->qp);
			return FAIL(error);
		}
	}
	return &qp->qp;
}

/* A receiver may see the pieces of a message in any order but for its last bytes. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

/*
 * Enhanced connection establishment lets adapters of one vendor agree on more than InfiniBand
 * has. This one has nothing to agree on, and says what libibverbs says for such a provider.
 */
EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

void softib_qp_ex_ops(struct verbs_context *v)
{
	v->create_qp_ex = create_qp_ex;
}
