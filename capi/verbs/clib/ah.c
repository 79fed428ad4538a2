/* Address handles. */
#include "softib.h"

#include <endian.h>

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = softib_new(pd->context, sizeof(*ah));
	int error;

	if (!ah)
		return NULL;
	error = softib_go.create_ah(pd->handle, attr, &ah->handle);
	if (error)
		return softib_discard(ah, error);
	ah->context = pd->context;
	ah->pd = pd;
	return ah;
}
ALSO_1_0(ibv_create_ah);

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	int error = softib_forked ? EIO : softib_go.destroy_ah(ah->handle);

	if (!error)
		free(ah);
	return error;
}
ALSO_1_0(ibv_destroy_ah);

static int find_gid(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	union ibv_gid own;

	for (int i = 0; !ibv_query_gid(context, port, i, &own); i++)
		if (!memcmp(&own, gid, sizeof(own)))
			return i;
	return -1;
}

/* The way back to who sent what a completion tells of. */
EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
	struct ibv_ah_attr *attr)
{
	uint32_t flow;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	index = find_gid(context, port, &grh->dgid);
	if (index < 0)
		return -1;
	flow = be32toh(grh->version_tclass_flow);
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.sgid_index = index;
	attr->grh.flow_label = flow & 0xfffff;
	attr->grh.traffic_class = flow >> 20 & 0xff;
	attr->grh.hop_limit = grh->hop_limit;
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
