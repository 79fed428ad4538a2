/* Identifiers: their making, their end, their channel. */
#include <stdlib.h>

#include "cm.h"

struct id *id_make(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	if (!channel) {
		channel = rdma_create_event_channel();
		if (!channel) {
			free(id);
			return NULL;
		}
		id->sync = 1;
	}
	id->pub.channel = channel;
	id->pub.context = context;
	id->pub.ps = ps;
	id->pub.qp_type = type;
	name_enter(&id->named, KIND_ID);
	return id;
}

/* The daemon knows nothing of it any more. */
void id_free(struct id *id)
{
	while (id->groups) {
		struct group *g = id->groups;

		id->groups = g->next;
		name_remove(&g->named);
		free(g);
	}
	name_remove(&id->named);
	if (id->device)
		device_release(id->device);
	if (id->sync)
		rdma_destroy_event_channel(id->pub.channel);
	free(id->pub.route.path_rec);
	free(id->endpoint_qp);
	free(id->prefix);
	free(id);
}

int id_create(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps,
	      enum ibv_qp_type type)
{
	struct ucma_abi_create_id request = { .ps = ps, .qp_type = type };
	struct ucma_abi_create_id_resp reply;
	struct id *id;

	if (!out)
		return fail(EINVAL);
	id = id_make(channel, context, ps, type);
	if (!id)
		return -1;
	COMMAND(&request, CREATE_ID, sizeof(reply));
	request.uid = id->named.uid;
	if (command(channel_of(&id->pub), &request, sizeof(request), &reply, sizeof(reply)) < 0) {
		int error = errno;

		id_free(id);
		return fail(error);
	}
	id->handle = reply.id;
	*out = &id->pub;
	return 0;
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
	enum rdma_port_space ps)
{
	int datagrams = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;

	return id_create(channel, id, context, ps, datagrams ? IBV_QPT_UD : IBV_QPT_RC);
}

/* Returns how many of its events the program has got, or -1 and errno. */
int handle_destroy(struct channel *channel, uint32_t handle)
{
	struct ucma_abi_destroy_id request = { .id = handle };
	struct ucma_abi_destroy_id_resp reply;

	COMMAND(&request, DESTROY_ID, sizeof(reply));
	if (command(channel, &request, sizeof(request), &reply, sizeof(reply)) < 0)
		return -1;
	return reply.events_reported;
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *pub)
{
	struct id *id = id_of(pub);
	int reported = handle_destroy(channel_of(pub), id->handle);

	if (reported < 0) {
		/* With the daemon its ids went too; what is left is memory. */
		if (errno != ENODEV)
			return -1;
		reported = 0;
	}
	drop_event(pub);
	name_wait(&id->named, reported);
	id_free(id);
	return 0;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *pub, struct rdma_event_channel *channel)
{
	struct ucma_abi_migrate_id request = { 0 };
	struct ucma_abi_migrate_resp reply;
	struct id *id = id_of(pub);
	int sync = !channel;

	if (sync) {
		if (id->sync)
			return fail(EINVAL);
		channel = rdma_create_event_channel();
		if (!channel)
			return -1;
	}
	COMMAND(&request, MIGRATE_ID, sizeof(reply));
	request.id = id->handle;
	request.response = channel_of(pub)->number; /* where it comes from */
	if (command(CONTAINER(channel, struct channel, pub), &request, sizeof(request), &reply, sizeof(reply)) < 0) {
		int error = errno;

		if (sync)
			rdma_destroy_event_channel(channel);
		return fail(error);
	}
	if (id->sync) {
		drop_event(pub);
		rdma_destroy_event_channel(pub->channel);
	}
	pub->channel = channel;
	id->sync = sync;
	name_wait(&id->named, reply.events_reported);
	return 0;
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	struct ucma_abi_set_option request = { 0 };
	struct iovec parts[] = { { &request, sizeof(request) }, { optval, optlen } };

	if (!optval || !optlen)
		return fail(EINVAL);
	if (optlen > UINT16_MAX)
		return fail(EINVAL);
	COMMAND(&request, SET_OPTION, 0);
	request.in += optlen;
	request.id = id_of(id)->handle;
	request.level = level;
	request.optname = optname;
	request.optlen = optlen;
	return command_parts(channel_of(id), parts, 2, NULL, 0);
}
