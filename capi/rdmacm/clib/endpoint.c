/* Endpoints: addresses to connected ids in few calls. */
#include <stdlib.h>
#include <string.h>

#include "cm.h"
#include <rdma/rdma_verbs.h>

enum { RESOLVE_MS = 2000 };

static int make_passive(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
	struct ibv_qp_init_attr *attr)
{
	struct id *own = id_of(id);

	if (rdma_bind_addr(id, res->ai_src_addr) < 0)
		return -1;
	if (pd)
		id->pd = pd;
	if (attr) {
		own->endpoint_qp = malloc(sizeof(*attr));
		if (!own->endpoint_qp)
			return -1;
		*own->endpoint_qp = *attr;
		own->endpoint_qp->qp_type = res->ai_qp_type;
	}
	return 0;
}

static int set_route(struct rdma_cm_id *id, struct rdma_addrinfo *res)
{
	if (!res->ai_route_len)
		return rdma_resolve_route(id, RESOLVE_MS);
	if (rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route, res->ai_route_len) < 0)
		return -1;
	return complete(id);
}

static int make_active(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
	struct ibv_qp_init_attr *attr)
{
	struct id *own = id_of(id);

	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS) < 0 || set_route(id, res) < 0)
		return -1;
	if (attr) {
		attr->qp_type = res->ai_qp_type;
		if (rdma_create_qp(id, pd, attr) < 0)
			return -1;
	}
	if (res->ai_connect_len) {
		own->prefix = malloc(res->ai_connect_len);
		if (!own->prefix)
			return -1;
		memcpy(own->prefix, res->ai_connect, res->ai_connect_len);
		own->prefix_size = res->ai_connect_len;
	}
	return 0;
}

EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
	struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;

	if (!out || !res)
		return fail(EINVAL);
	if (id_create(NULL, &id, NULL, res->ai_port_space, res->ai_qp_type) < 0)
		return -1;
	if ((res->ai_flags & RAI_PASSIVE ? make_passive : make_active)(id, res, pd, attr) < 0) {
		int error = errno;

		rdma_destroy_ep(id);
		return fail(error);
	}
	*out = id;
	return 0;
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct id *own = id_of(listen);
	struct rdma_cm_event *event;

	if (!own->sync || !id)
		return fail(EINVAL);
	drop_event(listen);
	if (rdma_get_cm_event(listen->channel, &event) < 0)
		return -1;
	listen->event = event;
	if (event->status)
		return fail(abs(event->status));
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return fail(EINVAL);
	if (own->endpoint_qp) {
		struct ibv_qp_init_attr attr = *own->endpoint_qp;

		if (rdma_create_qp(event->id, listen->pd, &attr) < 0) {
			int error = errno;

			rdma_destroy_id(event->id);
			return fail(error);
		}
	}
	listen->event = NULL;
	event->id->event = event;
	*id = event->id;
	return 0;
}
