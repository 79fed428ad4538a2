/* Multicast groups. */
#include <stdlib.h>
#include <string.h>

#include "cm.h"

/* Guards the lists of groups that ids have. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void enlist(struct group *g)
{
	pthread_mutex_lock(&lock);
	g->next = g->id->groups;
	g->id->groups = g;
	pthread_mutex_unlock(&lock);
}

/* Takes a group out of the id's list: the one given, or else the one of an address. */
static struct group *unlist(struct id *id, const struct group *which, const struct sockaddr *address, int size)
{
	struct group **at, *g;

	pthread_mutex_lock(&lock);
	for (at = &id->groups; *at; at = &(*at)->next)
		if (which ? *at == which : !memcmp(&(*at)->address, address, size))
			break;
	g = *at;
	if (g)
		*at = g->next;
	pthread_mutex_unlock(&lock);
	return g;
}

static int join(struct rdma_cm_id *id, const struct sockaddr *address, uint16_t flags, void *context)
{
	struct ucma_abi_join_mcast request = { 0 };
	struct ucma_abi_create_id_resp reply;
	int size = address_size(address);
	struct group *g;

	if (!size)
		return fail(EINVAL);
	g = calloc(1, sizeof(*g));
	if (!g)
		return -1;
	g->id = id_of(id);
	g->flags = flags;
	g->context = context;
	memcpy(&g->address, address, size);
	name_enter(&g->named, KIND_GROUP);
	enlist(g);

	COMMAND(&request, JOIN_MCAST, sizeof(reply));
	request.uid = g->named.uid;
	request.id = g->id->handle;
	request.addr_size = size;
	request.join_flags = flags;
	memcpy(&request.addr, address, size);
	if (command(channel_of(id), &request, sizeof(request), &reply, sizeof(reply)) < 0) {
		int error = errno;

		unlist(g->id, g, NULL, 0);
		name_remove(&g->named);
		free(g);
		return fail(error);
	}
	g->handle = reply.id;
	return complete(id);
}

EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join(id, addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return fail(ENOTSUP);
	if ((attr->comp_mask & needed) != needed || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return fail(EINVAL);
	return join(id, attr->addr, attr->join_flags, context);
}

EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct ucma_abi_destroy_id request = { 0 };
	struct ucma_abi_destroy_id_resp reply;
	int size = address_size(addr), failed;
	struct group *g;

	if (!size)
		return fail(EINVAL);
	g = unlist(id_of(id), NULL, addr, size);
	if (!g)
		return fail(EADDRNOTAVAIL);
	if (g->attached && id->qp)
		ibv_detach_mcast(id->qp, &g->mgid, g->mlid);

	COMMAND(&request, LEAVE_MCAST, sizeof(reply));
	request.id = g->handle;
	failed = command(channel_of(id), &request, sizeof(request), &reply, sizeof(reply));
	if (!failed) {
		if (id_of(id)->sync)
			drop_event(id); /* it may be the group's */
		name_wait(&g->named, reply.events_reported);
	}
	name_remove(&g->named);
	free(g);
	return failed;
}
