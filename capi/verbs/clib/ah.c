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
	int error = softib_left(ah->context) ? EIO : softib_go.destroy_ah(ah->handle);

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

/* The addresses of IPv4's header, which on Ethernet takes the second half of GRH's place, as GIDs. */
static void from_ipv4(struct ibv_grh *grh)
{
	const uint8_t *ip = (const uint8_t *)grh + sizeof(*grh) - 20;
	struct ibv_grh out = {
		.version_tclass_flow = htobe32(6u << 28 | (uint32_t)ip[1] << 20),
		.hop_limit = ip[8],
		.sgid.raw = { [10] = 0xff, 0xff, ip[12], ip[13], ip[14], ip[15] },
		.dgid.raw = { [10] = 0xff, 0xff, ip[16], ip[17], ip[18], ip[19] },
	};

	*grh = out;
}

/* The way back to who sent what a completion tells of. */
EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *area,
	struct ibv_ah_attr *attr)
{
	struct ibv_grh *grh = area, ipv4;
	uint32_t flow;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	if (softib_ethernet() && be32toh(area->version_tclass_flow) >> 28 != 6) {
		ipv4 = *area;
		from_ipv4(&ipv4);
		grh = &ipv4;
	}
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
