/* The buffers that programs hand to umad_send and umad_recv, and the library's switches. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "client.h"

int umad_init(void)
{
	TRACE("softib");
	return 0;
}

int umad_done(void)
{
	TRACE("softib");
	return 0;
}

int umad_debug(int level)
{
	if (level >= 0)
		debug_level = level;
	return debug_level;
}

size_t umad_size(void)
{
	return sizeof(struct user_mad);
}

void *umad_get_mad(void *umad)
{
	return ((struct user_mad *)umad)->data;
}

int umad_status(void *umad)
{
	return ((struct user_mad *)umad)->status;
}

struct mad_addr *umad_get_mad_addr(void *umad)
{
	return &((struct user_mad *)umad)->addr;
}

int umad_set_grh(void *umad, void *mad_addr)
{
	struct mad_addr *to = umad_get_mad_addr(umad);
	const struct mad_addr *from = mad_addr;

	to->grh_present = from != NULL;
	if (from) {
		memcpy(to->gid, from->gid, sizeof(to->gid));
		to->flow_label = htobe32(from->flow_label); /* the one field that comes in host order */
		to->hop_limit = from->hop_limit;
		to->traffic_class = from->traffic_class;
	}
	return 0;
}

int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16(dlid), htobe32(dqp), sl, htobe32(qkey));
}

int umad_set_addr_net(void *umad, uint16_t dlid, uint32_t dqp, int sl, uint32_t qkey)
{
	struct mad_addr *to = umad_get_mad_addr(umad);

	TRACE("umad %p dlid %u dqp %u sl %d qkey %x", umad, be16toh(dlid), be32toh(dqp), sl, be32toh(qkey));
	to->qpn = dqp;
	to->lid = dlid;
	to->qkey = qkey;
	to->sl = sl;
	return 0;
}

int umad_set_pkey(void *umad, int pkey_index)
{
	umad_get_mad_addr(umad)->pkey_index = pkey_index;
	return 0;
}

int umad_get_pkey(void *umad)
{
	return umad_get_mad_addr(umad)->pkey_index;
}

void umad_addr_dump(struct mad_addr *addr)
{
	char gid[2 * sizeof(addr->gid) + 1];

	for (size_t i = 0; i < sizeof(addr->gid); i++)
		sprintf(gid + 2 * i, "%02x", addr->gid[i]);
	warn(__func__,
	     "qpn %u qkey 0x%x lid %u sl %d\n"
	     "grh_present %d gid_index %d hop_limit %d traffic_class %d flow_label 0x%x pkey_index 0x%x\n"
	     "Gid 0x%s",
	     be32toh(addr->qpn), be32toh(addr->qkey), be16toh(addr->lid), addr->sl, addr->grh_present, addr->gid_index,
	     addr->hop_limit, addr->traffic_class, addr->flow_label, addr->pkey_index, gid);
}

void umad_dump(void *umad)
{
	struct user_mad *mad = umad;

	warn(__func__, "agent id %u status %x timeout %u", mad->agent_id, mad->status, mad->timeout_ms);
	umad_addr_dump(&mad->addr);
}
