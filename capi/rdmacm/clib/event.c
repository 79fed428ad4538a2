/* Events, and what the library does for a program when one comes. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cm.h"

struct event {
	struct rdma_cm_event pub;
	struct id *id; /* whose event it is; of a connection request the listener's */
	struct group *group;
	uint8_t private_data[RDMA_MAX_PRIVATE_DATA];
};

static void done_with(struct event *e)
{
	if (e->group)
		name_complete(&e->group->named);
	name_complete(&e->id->named);
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct event *e;

	if (!event)
		return fail(EINVAL);
	e = CONTAINER(event, struct event, pub);
	done_with(e);
	free(e);
	return 0;
}

static const void *keep_private(struct event *e, const void *data, size_t size)
{
	if (!size)
		return NULL;
	memcpy(e->private_data, data, size); /* a length of 8 bits fits */
	return e->private_data;
}

static void take_connection(struct event *e, const struct ucma_abi_conn_param *from)
{
	e->pub.param.conn = (struct rdma_conn_param){
		.private_data = keep_private(e, from->private_data, from->private_data_len),
		.private_data_len = from->private_data_len,
		.responder_resources = from->responder_resources,
		.initiator_depth = from->initiator_depth,
		.flow_control = from->flow_control,
		.retry_count = from->retry_count,
		.rnr_retry_count = from->rnr_retry_count,
		.srq = from->srq,
		.qp_num = from->qp_num,
	};
}

static void take_datagram(struct event *e, const struct ucma_abi_ud_param *from)
{
	e->pub.param.ud = (struct rdma_ud_param){
		.private_data = keep_private(e, from->private_data, from->private_data_len),
		.private_data_len = from->private_data_len,
		.qp_num = from->qp_num,
		.qkey = from->qkey,
	};
	unpack_ah(&e->pub.param.ud.ah_attr, &from->ah_attr);
}

static void take_parameters(struct event *e, const struct ucma_abi_event_resp *record)
{
	if (is_datagram(&e->id->pub))
		take_datagram(e, &record->param.ud);
	else
		take_connection(e, &record->param.conn);
}

static void take_ece(struct id *id, const struct ucma_abi_event_resp *record)
{
	id->remote_ece.vendor_id = record->ece.vendor_id;
	id->remote_ece.options = record->ece.attr_mod;
	id->remote_ece.comp_mask = 0;
}

/* The event tells of an error of this library's own, which errno says. */
static void turn_into(struct event *e, enum rdma_cm_event_type type)
{
	e->pub.event = type;
	e->pub.status = errno ? -errno : -EIO;
}

static void on_address(struct event *e)
{
	if (query_addr(e->pub.id) < 0 || query_gid(e->pub.id) < 0)
		turn_into(e, RDMA_CM_EVENT_ADDR_ERROR);
}

static void on_route(struct event *e)
{
	if (query_path(e->pub.id) < 0)
		turn_into(e, RDMA_CM_EVENT_ROUTE_ERROR);
}

/* Makes the id of a new connection. -1: it could not be, and the connection is given up. */
static int on_request(struct event *e, const struct ucma_abi_event_resp *record)
{
	struct id *listener = e->id;
	struct id *id = id_make(listener->pub.channel, listener->pub.context, listener->pub.ps, listener->pub.qp_type);

	if (!id) {
		handle_destroy(channel_of(&listener->pub), record->id);
		return -1;
	}
	take_parameters(e, record);
	id->handle = record->id;
	take_ece(id, record);
	if (!is_datagram(&id->pub)) {
		id->initiator_depth = e->pub.param.conn.initiator_depth;
		id->responder_resources = e->pub.param.conn.responder_resources;
	}
	e->pub.listen_id = &listener->pub;
	e->pub.id = &id->pub;
	if ((listener->sync && rdma_migrate_id(&id->pub, NULL) < 0) || query_addr(&id->pub) < 0 ||
	    query_gid(&id->pub) < 0 || query_path(&id->pub) < 0) {
		rdma_destroy_id(&id->pub);
		return -1;
	}
	return 0;
}

/* The peer accepted. With a queue pair the library finishes; without one the program does (rdma_establish). */
static void on_response(struct event *e)
{
	if (!e->pub.id->qp)
		return;
	if (finish_connect(e->id) < 0) {
		turn_into(e, RDMA_CM_EVENT_CONNECT_ERROR);
		e->id->connect_error = 1;
		return;
	}
	e->pub.event = RDMA_CM_EVENT_ESTABLISHED;
}

static void on_joined(struct event *e)
{
	struct group *g = e->group;
	int error;

	g->mgid = e->pub.param.ud.ah_attr.grh.dgid;
	g->mlid = e->pub.param.ud.ah_attr.dlid;
	if (!e->pub.id->qp || g->flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
		return;
	error = ibv_attach_mcast(e->pub.id->qp, &g->mgid, g->mlid);
	if (error) {
		errno = error;
		turn_into(e, RDMA_CM_EVENT_MULTICAST_ERROR);
		return;
	}
	g->attached = 1;
}

/* Fills in the event of a record. 0: it is not for the program. */
static int deliver(struct event *e, const struct ucma_abi_event_resp *record)
{
	switch (record->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		on_address(e);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		on_route(e);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return on_request(e, record) == 0;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		take_connection(e, &record->param.conn);
		take_ece(e->id, record);
		on_response(e);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (e->id->connect_error)
			return 0;
		take_connection(e, &record->param.conn);
		take_ece(e->id, record);
		qp_fail(e->pub.id);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (e->id->connect_error)
			return 0;
		take_connection(e, &record->param.conn);
		break;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		take_datagram(e, &record->param.ud);
		e->pub.param.ud.private_data = e->group->context;
		on_joined(e);
		break;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		e->pub.param.ud.private_data = e->group->context;
		break;
	default:
		take_parameters(e, record);
		break;
	}
	return 1;
}

/* Whose event a record is. 0: of something that is gone. */
static int address_event(struct event *e, const struct ucma_abi_event_resp *record)
{
	struct named *named = name_find(record->uid);
	int of_group = record->event == RDMA_CM_EVENT_MULTICAST_JOIN || record->event == RDMA_CM_EVENT_MULTICAST_ERROR;

	if (!named || (named->kind == KIND_GROUP) != of_group)
		return 0;
	if (of_group) {
		e->group = CONTAINER(named, struct group, named);
		e->id = e->group->id;
	} else {
		e->id = CONTAINER(named, struct id, named);
	}
	e->pub.id = &e->id->pub;
	e->pub.event = record->event;
	e->pub.status = record->status;
	return 1;
}

/* Waits for the next record. -1 and errno. */
static int receive(struct rdma_event_channel *channel, struct ucma_abi_event_resp *record, struct event *e)
{
	ssize_t n;

	pthread_cleanup_push(free, e);
	n = recv(channel->fd, record, sizeof(*record), 0);
	pthread_cleanup_pop(0);
	if (n < 0)
		return -1;
	return n == sizeof(*record) ? 0 : fail(ENODEV); /* no more events: the daemon is gone */
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct ucma_abi_event_resp record;
	struct event *e;
	uint64_t number;

	if (!channel || !event)
		return fail(EINVAL);
	e = malloc(sizeof(*e));
	if (!e)
		return -1;
	number = CONTAINER(channel, struct channel, pub)->number;
	while (receive(channel, &record, e) == 0) {
		int before = keep_going(), done = 0; /* an event is handled whole */

		memset(e, 0, sizeof(*e));
		if (address_event(e, &record)) {
			done = deliver(e, &record);
			if (!done)
				done_with(e);
		} else if (record.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			handle_destroy(CONTAINER(channel, struct channel, pub), record.id);
		}
		may_cancel(before);
		if (done) {
			*event = &e->pub;
			return 0;
		}
	}
	free(e);
	if (errno == ENODEV) {
		channel_ended(number);
		errno = ENODEV;
	}
	return -1;
}

void drop_event(struct rdma_cm_id *id)
{
	if (id->event)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
}

int complete(struct rdma_cm_id *id)
{
	if (!id_of(id)->sync)
		return 0;
	drop_event(id);
	if (rdma_get_cm_event(id->channel, &id->event) < 0)
		return -1;
	if (!id->event->status)
		return 0;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		return fail(ECONNREFUSED);
	return fail(abs(id->event->status));
}

EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
#define NAME(event) [event] = #event
	static const char *const names[] = {
		NAME(RDMA_CM_EVENT_ADDR_RESOLVED),
		NAME(RDMA_CM_EVENT_ADDR_ERROR),
		NAME(RDMA_CM_EVENT_ROUTE_RESOLVED),
		NAME(RDMA_CM_EVENT_ROUTE_ERROR),
		NAME(RDMA_CM_EVENT_CONNECT_REQUEST),
		NAME(RDMA_CM_EVENT_CONNECT_RESPONSE),
		NAME(RDMA_CM_EVENT_CONNECT_ERROR),
		NAME(RDMA_CM_EVENT_UNREACHABLE),
		NAME(RDMA_CM_EVENT_REJECTED),
		NAME(RDMA_CM_EVENT_ESTABLISHED),
		NAME(RDMA_CM_EVENT_DISCONNECTED),
		NAME(RDMA_CM_EVENT_DEVICE_REMOVAL),
		NAME(RDMA_CM_EVENT_MULTICAST_JOIN),
		NAME(RDMA_CM_EVENT_MULTICAST_ERROR),
		NAME(RDMA_CM_EVENT_ADDR_CHANGE),
		NAME(RDMA_CM_EVENT_TIMEWAIT_EXIT),
	};

	if ((unsigned int)event >= sizeof(names) / sizeof(names[0]))
		return "UNKNOWN EVENT";
	return names[event];
#undef NAME
}
