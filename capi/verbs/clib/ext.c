/*
 * Verbs that this adapter does not have: Ethernet's (flows, receive hashing,
 * pacing, segmentation), memory on the device, paging on demand, counters, tag
 * matching. libibverbs gives a provider that lacks them functions which say so;
 * programs call through the table, hence so do we.
 */
#include "ext.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSES(name, ...)                    \
	static int name(__VA_ARGS__)          \
	{                                     \
		return EOPNOTSUPP;            \
	}

#define MAKES_NONE(type, name, ...)           \
	static struct type *name(__VA_ARGS__) \
	{                                     \
		errno = EOPNOTSUPP;           \
		return NULL;                  \
	}

REFUSES(advise_mr, struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
	uint32_t n)
MAKES_NONE(ibv_mr, alloc_null_mr, struct ibv_pd *pd)

MAKES_NONE(ibv_counters, create_counters, struct ibv_context *context, struct ibv_counters_init_attr *attr)
REFUSES(destroy_counters, struct ibv_counters *counters)
REFUSES(attach_counters, struct ibv_counters *counters, struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
REFUSES(read_counters, struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags)

MAKES_NONE(ibv_dm, alloc_dm, struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
MAKES_NONE(ibv_mr, reg_dm_mr, struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
REFUSES(free_dm, struct ibv_dm *dm)

MAKES_NONE(ibv_flow, create_flow, struct ibv_qp *qp, struct ibv_flow_attr *attr)
REFUSES(destroy_flow, struct ibv_flow *flow)
MAKES_NONE(ibv_flow_action, create_flow_action, struct ibv_context *context, struct ibv_flow_action_esp_attr *attr)
REFUSES(modify_flow_action, struct ibv_flow_action *action, struct ibv_flow_action_esp_attr *attr)
REFUSES(destroy_flow_action, struct ibv_flow_action *action)

MAKES_NONE(ibv_wq, create_wq, struct ibv_context *context, struct ibv_wq_init_attr *attr)
REFUSES(modify_wq, struct ibv_wq *wq, struct ibv_wq_attr *attr)
REFUSES(destroy_wq, struct ibv_wq *wq)
MAKES_NONE(ibv_rwq_ind_table, create_rwq_table, struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *attr)
REFUSES(destroy_rwq_table, struct ibv_rwq_ind_table *table)

REFUSES(modify_rate_limit, struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	*bad = op;
	return EOPNOTSUPP;
}

void softib_set_ext_ops(struct verbs_context *v)
{
	v->advise_mr = advise_mr;
	v->alloc_null_mr = alloc_null_mr;

	v->create_counters = create_counters;
	v->destroy_counters = destroy_counters;
	v->attach_counters_point_flow = attach_counters;
	v->read_counters = read_counters;

	v->alloc_dm = alloc_dm;
	v->reg_dm_mr = reg_dm_mr;
	v->free_dm = free_dm;

	v->ibv_create_flow = create_flow;
	v->ibv_destroy_flow = destroy_flow;
	v->create_flow_action_esp = create_flow_action;
	v->modify_flow_action_esp = modify_flow_action;
	v->destroy_flow_action = destroy_flow_action;

	v->create_wq = create_wq;
	v->modify_wq = modify_wq;
	v->destroy_wq = destroy_wq;
	v->create_rwq_ind_table = create_rwq_table;
	v->destroy_rwq_ind_table = destroy_rwq_table;

	v->modify_qp_rate_limit = modify_rate_limit;
	v->post_srq_ops = post_srq_ops;

	softib_device_ex_ops(v);
	softib_cq_ex_ops(v);
	softib_qp_ex_ops(v);
	softib_srq_ex_ops(v);
	softib_xrc_ops(v);
	softib_domain_ops(v);
	softib_mw_ops(v);
}
