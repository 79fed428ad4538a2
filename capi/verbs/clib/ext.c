/*
 * Verbs that this adapter does not have: Ethernet's (flows, receive hashing, segmentation) and counters.
 * libibverbs gives a provider that lacks them functions which say so; programs call through the table, hence
 * so do we.
 */
#include "softib.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Whatever they are given, they do not look at it. */
static int refuse(void)
{
	return EOPNOTSUPP;
}

static void *make_none(void)
{
	return FAIL(EOPNOTSUPP);
}

#define REFUSED(X)                                                                                                   \
	X(destroy_counters) X(attach_counters_point_flow) X(read_counters)                   \
	X(ibv_destroy_flow) X(modify_flow_action_esp) X(destroy_flow_action) X(modify_wq) X(destroy_wq)              \
	X(destroy_rwq_ind_table)
#define NOT_MADE(X)                                                                                                  \
	X(create_counters) X(ibv_create_flow) X(create_flow_action_esp)    \
	X(create_wq) X(create_rwq_ind_table)

void softib_refuse_others(struct verbs_context *v)
{
#define X(verb) v->verb = (__typeof__(v->verb))(void (*)(void))refuse;
	REFUSED(X)
#undef X
#define X(verb) v->verb = (__typeof__(v->verb))(void (*)(void))make_none;
	NOT_MADE(X)
#undef X
}

/* Those that are functions of the library. */
#define GIVES(value, name, ...)                   \
	EXPORT int name(__VA_ARGS__)              \
	{                                         \
		return value;                     \
	}
/* Enhanced connection establishment lets adapters of one vendor agree on more than InfiniBand has. This one has nothing
 * to agree on, and says what libibverbs says for such a provider. */
GIVES((errno = EOPNOTSUPP), ibv_query_ece, struct ibv_qp *qp, struct ibv_ece *ece)
GIVES((errno = EOPNOTSUPP), ibv_set_ece, struct ibv_qp *qp, struct ibv_ece *ece)

/* Only on Ethernet does a way need a MAC address. */
GIVES(-(errno = EOPNOTSUPP), ibv_resolve_eth_l2_from_gid, struct ibv_context *context, struct ibv_ah_attr *attr,
	uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)

/* A receiver may see the pieces of a message in any order but for its last bytes. */
GIVES(0, ibv_query_qp_data_in_order, struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)

GIVES(0, ibv_get_device_index, struct ibv_device *device)

/* Nothing has to be done for a fork: the adapter copies, it never has pages of the parent. */
GIVES(0, ibv_dontfork_range, void *base, size_t size)
GIVES(0, ibv_dofork_range, void *base, size_t size)
