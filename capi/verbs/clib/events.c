/* Asynchronous and completion events: records in pipes, and who has yet to acknowledge them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "softib.h"

/* Objects by handle. A record of an object that was destroyed finds another serial number, or none. */
struct slot {
	void *object;
	uint32_t serial;
};

static pthread_mutex_t slots_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct slot *at;
	uint32_t size;
} slots[SOFTIB_KINDS];

int softib_slot_set(enum softib_kind kind, uint32_t handle, uint32_t serial, void *object)
{
	int error = 0;

	pthread_mutex_lock(&slots_mutex);
	if (handle >= slots[kind].size) {
		uint32_t size = handle < 32 ? 64 : handle * 2;
		struct slot *more = realloc(slots[kind].at, size * sizeof(*more));

		if (more) {
			for (uint32_t i = slots[kind].size; i < size; i++)
				more[i] = (struct slot){ 0 };
			slots[kind].at = more;
			slots[kind].size = size;
		} else {
			error = ENOMEM;
		}
	}
	if (!error)
		slots[kind].at[handle] = (struct slot){ object, serial };
	pthread_mutex_unlock(&slots_mutex);
	return error;
}

void softib_slot_clear(enum softib_kind kind, uint32_t handle, uint32_t serial)
{
	pthread_mutex_lock(&slots_mutex);
	if (handle < slots[kind].size && slots[kind].at[handle].serial == serial)
		slots[kind].at[handle].object = NULL;
	pthread_mutex_unlock(&slots_mutex);
}

void softib_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked, const uint32_t *handed)
{
	pthread_mutex_lock(mutex);
	while (*acked != *handed)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

/* The object of a record, counted as handed out; NULL if it is gone. */
static void *claim(const struct softib_event *e)
{
	void *object = NULL;

	pthread_mutex_lock(&slots_mutex);
	if (e->kind < SOFTIB_KINDS && e->handle < slots[e->kind].size && slots[e->kind].at[e->handle].serial == e->serial)
		object = slots[e->kind].at[e->handle].object;
	if (object) {
		switch (e->kind) {
		case SOFTIB_CQ:
			if (e->type == SOFTIB_COMPLETION)
				((struct softib_cq *)object)->comp_events++;
			else
				((struct softib_cq *)object)->async_events++;
			break;
		case SOFTIB_QP:
			((struct softib_qp *)object)->async_events++;
			break;
		case SOFTIB_SRQ:
			((struct softib_srq *)object)->async_events++;
			break;
		}
	}
	pthread_mutex_unlock(&slots_mutex);
	return object;
}

/* One record, or -1 with errno. Records that did not fit into the pipe follow. */
static int take(int fd, int write_fd, struct softib_event *e)
{
	ssize_t n = read(fd, e, sizeof(*e));

	if (n < 0)
		return -1;
	if (n != sizeof(*e)) {
		errno = EIO;
		return -1;
	}
	softib_go.flush_events(write_fd);
	return 0;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct softib_event e;

	for (;;) {
		if (softib_forked) {
			errno = EIO;
			return -1;
		}
		if (take(context->async_fd, to_context(context)->async_write, &e))
			return -1;
		event->event_type = e.type;
		if (e.kind == SOFTIB_NO_OBJECT) {
			event->element.port_num = e.handle;
			return 0;
		}
		event->element.cq = claim(&e); /* all of them are pointers */
		if (event->element.cq)
			return 0;
	}
}
ALSO_1_0(ibv_get_async_event);

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *acked, uint32_t count)
{
	pthread_mutex_lock(mutex);
	*acked += count;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(mutex);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;

		ack(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
		break;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;

		ack(&qp->mutex, &qp->cond, &qp->events_completed, 1);
		break;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;

		ack(&srq->mutex, &srq->cond, &srq->events_completed, 1);
		break;
	}
	default: /* of a port or the device: nobody waits */
		break;
	}
}
ALSO_1_0(ibv_ack_async_event);

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct softib_channel *c;
	int error = softib_gone(context);

	if (error)
		return FAIL(error);
	c = calloc(1, sizeof(*c));
	if (!c)
		return FAIL(ENOMEM);
	error = softib_pipe(&c->channel.fd, &c->write_fd);
	if (error) {
		free(c);
		return FAIL(error);
	}
	c->channel.context = context;
	return &c->channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct softib_channel *c = container_of(channel, struct softib_channel, channel);
	struct ibv_context *context = channel->context;
	int refs;

	pthread_mutex_lock(&context->mutex);
	refs = channel->refcnt;
	pthread_mutex_unlock(&context->mutex);
	if (refs)
		return EBUSY;
	close(channel->fd);
	close(c->write_fd);
	free(c);
	return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct softib_channel *c = container_of(channel, struct softib_channel, channel);
	struct softib_event e;
	struct softib_cq *of;

	do {
		if (softib_forked) {
			errno = EIO;
			return -1;
		}
		if (take(channel->fd, c->write_fd, &e))
			return -1;
		of = claim(&e);
	} while (!of);
	of->armed = false;
	*cq = &of->cq;
	*cq_context = of->cq.cq_context;
	return 0;
}
ALSO_1_0(ibv_get_cq_event);

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	ack(&cq->mutex, &cq->cond, &cq->comp_events_completed, count);
}
ALSO_1_0(ibv_ack_cq_events);
