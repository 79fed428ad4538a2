/* Listening, connecting and the end of it. */
#include <stdlib.h>
#include <string.h>

#include "cm.h"

/* Retries when the program leaves them to the library: as often as the field can say. */
enum { RETRIES_MAX = 7 };

/* Why IBA says a peer was refused: an option of its vendor is not understood. IBA 12.6.7.2 */
enum { REJECT_CONSUMER = 28, REJECT_VENDOR_OPTION = 35 };

static int depths_fit(const struct id *id, const struct rdma_conn_param *param)
{
	if (id->pub.ps != RDMA_PS_TCP)
		return 1;
	if (!param)
		return id->pub.qp != NULL;
	if (!id->device)
		return 1;
	return (param->responder_resources == RDMA_MAX_RESP_RES ||
		param->responder_resources <= id->device->responder_resources_max) &&
	       (param->initiator_depth == RDMA_MAX_INIT_DEPTH || param->initiator_depth <= id->device->initiator_depth_max);
}

/* Fills what the peer is told. -1: the private data are too many. */
static int pack(struct id *id, struct ucma_abi_conn_param *to, const struct rdma_conn_param *from)
{
	size_t more = from && from->private_data ? from->private_data_len : 0;

	if (id->pub.qp) {
		to->qp_num = id->pub.qp->qp_num;
		to->srq = id->pub.qp->srq != NULL;
	} else if (from) {
		to->qp_num = from->qp_num;
		to->srq = from->srq;
	}
	to->responder_resources = id->responder_resources;
	to->initiator_depth = id->initiator_depth;
	to->flow_control = from ? from->flow_control : 0;
	to->retry_count = from ? from->retry_count : RETRIES_MAX;
	to->rnr_retry_count = from ? from->rnr_retry_count : RETRIES_MAX;
	to->valid = 1;

	if (id->prefix_size + more > UINT8_MAX)
		return fail(EINVAL);
	if (id->prefix_size)
		memcpy(to->private_data, id->prefix, id->prefix_size);
	if (more)
		memcpy(to->private_data + id->prefix_size, from->private_data, more);
	to->private_data_len = id->prefix_size + more;
	return 0;
}

/* Options of a vendor: the queue pair's own where the id has one, else what the program set. */
static void pack_ece(struct id *id, struct ucma_abi_ece *to)
{
	struct ibv_ece ece = id->local_ece;

	if (id->pub.qp && ibv_query_ece(id->pub.qp, &ece))
		ece = (struct ibv_ece){ 0 };
	to->vendor_id = ece.vendor_id;
	to->attr_mod = ece.options;
}

static void adopt_ece(struct id *id)
{
	/* An adapter that does not know the vendor's options does without them. */
	if (id->pub.qp && id->remote_ece.vendor_id)
		ibv_set_ece(id->pub.qp, &id->remote_ece);
}

/* As complete, for operations that end in a connection. */
static int complete_connection(struct rdma_cm_id *id)
{
	if (complete(id) < 0)
		return -1;
	if (id->event && id->event->event == RDMA_CM_EVENT_DISCONNECTED)
		return fail(ECONNRESET);
	return 0;
}

EXPORT int rdma_connect(struct rdma_cm_id *pub, struct rdma_conn_param *param)
{
	struct ucma_abi_connect request = { 0 };
	struct id *id = id_of(pub);

	if (!depths_fit(id, param))
		return fail(EINVAL);
	if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = param->initiator_depth;
	else
		id->initiator_depth = id->device ? id->device->initiator_depth_max : 0;
	if (param && param->responder_resources != RDMA_MAX_RESP_RES)
		id->responder_resources = param->responder_resources;
	else
		id->responder_resources = id->device ? id->device->responder_resources_max : 0;

	COMMAND(&request, CONNECT, 0);
	request.id = id->handle;
	pack_ece(id, &request.ece);
	if (pack(id, &request.conn_param, param) < 0 || command(channel_of(pub), &request, sizeof(request), NULL, 0) < 0)
		return -1;
	free(id->prefix);
	id->prefix = NULL;
	id->prefix_size = 0;
	return complete_connection(pub);
}

/* The last step of the side that connects: its queue pair is made ready, and the peer is told. */
int finish_connect(struct id *id)
{
	struct ucma_abi_accept request = { 0 };

	adopt_ece(id);
	COMMAND(&request, ACCEPT, 0);
	request.id = id->handle;
	if (qp_ready(&id->pub, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH) < 0 ||
	    command(channel_of(&id->pub), &request, sizeof(request), NULL, 0) < 0) {
		int error = errno;

		qp_fail(&id->pub);
		return fail(error);
	}
	return 0;
}

EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	if (id->qp)
		return fail(EINVAL);
	return finish_connect(id_of(id));
}

EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct ucma_abi_listen request = { 0 };

	COMMAND(&request, LISTEN, 0);
	request.id = id_of(id)->handle;
	request.backlog = backlog;
	if (command(channel_of(id), &request, sizeof(request), NULL, 0) < 0)
		return -1;
	return query_addr(id); /* an unbound id has got a port */
}

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

EXPORT int rdma_accept(struct rdma_cm_id *pub, struct rdma_conn_param *param)
{
	struct ucma_abi_accept request = { 0 };
	struct id *id = id_of(pub);

	if ((!pub->qp && !param) || !depths_fit(id, param))
		return fail(EINVAL);
	if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = param->initiator_depth;
	else if (id->device)
		id->initiator_depth = least(id->initiator_depth, id->device->initiator_depth_max);
	if (param && param->responder_resources != RDMA_MAX_RESP_RES)
		id->responder_resources = param->responder_resources;
	else if (id->device)
		id->responder_resources = least(id->responder_resources, id->device->responder_resources_max);

	COMMAND(&request, ACCEPT, 0);
	request.id = id->handle;
	request.uid = id->named.uid;
	if (pack(id, &request.conn_param, param) < 0)
		return -1;
	if (!is_datagram(pub)) {
		adopt_ece(id);
		if (qp_ready(pub, id->responder_resources, id->initiator_depth) < 0)
			return -1;
	}
	pack_ece(id, &request.ece);
	if (command(channel_of(pub), &request, sizeof(request), NULL, 0) < 0) {
		int error = errno;

		if (!is_datagram(pub))
			qp_fail(pub);
		return fail(error);
	}
	if (is_datagram(pub)) {
		/* The peer has its answer; no event follows. */
		if (id->sync)
			drop_event(pub);
		return 0;
	}
	return complete_connection(pub);
}

static int reject(struct rdma_cm_id *id, const void *private_data, uint8_t size, uint8_t reason)
{
	struct ucma_abi_reject request = { 0 };

	COMMAND(&request, REJECT, 0);
	request.id = id_of(id)->handle;
	request.reason = reason;
	if (private_data) {
		memcpy(request.private_data, private_data, size);
		request.private_data_len = size;
	}
	return command(channel_of(id), &request, sizeof(request), NULL, 0);
}

EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, private_data, private_data_len, REJECT_CONSUMER);
}

EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, private_data, private_data_len, REJECT_VENDOR_OPTION);
}

EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	struct ucma_abi_notify request = { 0 };

	COMMAND(&request, NOTIFY, 0);
	request.id = id_of(id)->handle;
	request.event = event;
	return command(channel_of(id), &request, sizeof(request), NULL, 0);
}

EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	struct ucma_abi_disconnect request = { 0 };

	if (!id->verbs)
		return fail(EINVAL);
	if (qp_fail(id) < 0)
		return -1;
	COMMAND(&request, DISCONNECT, 0);
	request.id = id_of(id)->handle;
	if (command(channel_of(id), &request, sizeof(request), NULL, 0) < 0)
		return -1;
	return complete(id);
}

EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (id->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return fail(EINVAL);
	id_of(id)->local_ece = *ece;
	return 0;
}

EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (id->qp || !ece)
		return fail(EINVAL);
	*ece = id_of(id)->remote_ece;
	return 0;
}
