/* Addresses and routes. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

int address_size(const struct sockaddr *address)
{
	if (!address)
		return 0;
	switch (address->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case AF_IB:
		return sizeof(struct sockaddr_ib);
	default:
		return 0;
	}
}

static __be16 port_of(const struct sockaddr *address)
{
	switch (address->sa_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)address)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)address)->sin6_port;
	case AF_IB:
		return htobe16(be64toh(((const struct sockaddr_ib *)address)->sib_sid) & RDMA_IB_IP_PORT_MASK);
	default:
		return 0;
	}
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_addr);
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_addr);
}

static int query(struct rdma_cm_id *id, uint32_t option, void *reply, size_t room)
{
	struct ucma_abi_query request = { 0 };

	COMMAND(&request, QUERY, room);
	request.id = id_of(id)->handle;
	request.option = option;
	return command(channel_of(id), &request, sizeof(request), reply, room);
}

static void take_address(struct sockaddr_storage *to, const struct sockaddr_storage *from, size_t size)
{
	memcpy(to, from, size < sizeof(*to) ? size : sizeof(*to));
}

int query_addr(struct rdma_cm_id *id)
{
	struct ucma_abi_query_addr_resp reply;

	if (query(id, UCMA_QUERY_ADDR, &reply, sizeof(reply)) < 0)
		return -1;
	take_address(&id->route.addr.src_storage, &reply.src_addr, reply.src_size);
	take_address(&id->route.addr.dst_storage, &reply.dst_addr, reply.dst_size);
	if (!id_of(id)->device && reply.node_guid) {
		if (device_bind(id, reply.node_guid) < 0)
			return -1;
		id->port_num = reply.port_num;
		id->route.addr.addr.ibaddr.pkey = reply.pkey;
	}
	return 0;
}

int query_gid(struct rdma_cm_id *id)
{
	struct ucma_abi_query_addr_resp reply;

	if (query(id, UCMA_QUERY_GID, &reply, sizeof(reply)) < 0)
		return -1;
	memcpy(&id->route.addr.addr.ibaddr.sgid, &((struct sockaddr_ib *)&reply.src_addr)->sib_addr, sizeof(union ibv_gid));
	memcpy(&id->route.addr.addr.ibaddr.dgid, &((struct sockaddr_ib *)&reply.dst_addr)->sib_addr, sizeof(union ibv_gid));
	return 0;
}

/* The selector of a path's MTU, rate and life time: exactly this much. IBA 15.2.5.16 */
enum { EXACTLY = 2 };

static void unpack_path(struct ibv_sa_path_rec *to, const struct ibv_path_data *from)
{
	const struct ibv_path_record *p = &from->path;
	uint32_t flow = be32toh(p->flowlabel_hoplimit);

	*to = (struct ibv_sa_path_rec){
		.dgid = p->dgid,
		.sgid = p->sgid,
		.dlid = p->dlid,
		.slid = p->slid,
		.flow_label = htobe32(flow >> 8 & 0xfffff),
		.hop_limit = flow & 0xff,
		.traffic_class = p->tclass,
		.reversible = p->reversible_numpath >> 7,
		.numb_path = 1,
		.pkey = p->pkey,
		.sl = be16toh(p->qosclass_sl) & 0xf,
		.mtu_selector = EXACTLY,
		.mtu = p->mtu & 0x3f,
		.rate_selector = EXACTLY,
		.rate = p->rate & 0x3f,
		.packet_life_time_selector = EXACTLY,
		.packet_life_time = p->packetlifetime & 0x3f,
		.preference = from->flags,
	};
}

int query_path(struct rdma_cm_id *id)
{
	enum { PATHS_MAX = 6 };
	union {
		struct ucma_abi_query_path_resp head;
		char room[sizeof(struct ucma_abi_query_path_resp) + PATHS_MAX * sizeof(struct ibv_path_data)];
	} reply;
	struct ibv_sa_path_rec *records;
	uint32_t count;

	if (query(id, UCMA_QUERY_PATH, &reply, sizeof(reply)) < 0)
		return -1;
	count = reply.head.num_paths;
	if (!count)
		return 0;
	if (count > PATHS_MAX)
		count = PATHS_MAX;
	records = calloc(count, sizeof(*records));
	if (!records)
		return -1;
	for (uint32_t i = 0; i < count; i++)
		unpack_path(&records[i], &reply.head.path_data[i]);
	free(id->route.path_rec);
	id->route.path_rec = records;
	id->route.num_paths = count;
	return 0;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct ucma_abi_bind request = { 0 };
	int size = address_size(addr);

	if (!size)
		return fail(EINVAL);
	COMMAND(&request, BIND, 0);
	request.id = id_of(id)->handle;
	request.addr_size = size;
	memcpy(&request.addr, addr, size);
	if (command(channel_of(id), &request, sizeof(request), NULL, 0) < 0 || query_addr(id) < 0)
		return -1;
	return query_gid(id);
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
	int timeout_ms)
{
	struct ucma_abi_resolve_addr request = { 0 };
	int from = address_size(src_addr), to = address_size(dst_addr);

	if (!to || (src_addr && !from))
		return fail(EINVAL);
	COMMAND(&request, RESOLVE_ADDR, 0);
	request.id = id_of(id)->handle;
	request.timeout_ms = timeout_ms;
	request.src_size = from;
	request.dst_size = to;
	if (from)
		memcpy(&request.src_addr, src_addr, from);
	memcpy(&request.dst_addr, dst_addr, to);
	if (command(channel_of(id), &request, sizeof(request), NULL, 0) < 0)
		return -1;
	memmove(&id->route.addr.dst_storage, dst_addr, to); /* the program may have passed the id's own */
	return complete(id);
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct ucma_abi_resolve_route request = { 0 };

	COMMAND(&request, RESOLVE_ROUTE, 0);
	request.id = id_of(id)->handle;
	request.timeout_ms = timeout_ms;
	if (command(channel_of(id), &request, sizeof(request), NULL, 0) < 0)
		return -1;
	return complete(id);
}
