/* Completion queues. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "softib.h"

enum {
	/* Empty polls that are answered here before the adapter is asked again: it has timers, and may want to yield. */
	IDLE_POLLS = 256,
};

struct softib_cq *softib_make_cq(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel, uint32_t comp_vector)
{
	struct softib_cq_args args = { .context = to_context(context)->handle, .cqe = cqe, .event_fd = -1 };
	struct softib_cq *c;
	int error = softib_gone(context);

	if (!error && (comp_vector >= (uint32_t)context->num_comp_vectors || (channel && channel->context != context)))
		error = EINVAL;
	if (error)
		return FAIL(error);
	c = calloc(1, sizeof(*c));
	if (!c)
		return FAIL(ENOMEM);
	args.ready = &c->ready;
	if (channel)
		args.event_fd = container_of(channel, struct softib_channel, channel)->write_fd;
	error = softib_go.create_cq(&args);
	if (!error) {
		error = softib_slot_set(SOFTIB_CQ, args.made.handle, args.made.serial, c);
		if (error)
			softib_go.destroy_cq(args.made.handle);
	}
	if (error) {
		free(c);
		return FAIL(error);
	}
	c->serial = args.made.serial;
	c->cq.context = context;
	c->cq.channel = channel;
	c->cq.cq_context = cq_context;
	c->cq.handle = args.made.handle;
	c->cq.cqe = args.cqe;
	pthread_mutex_init(&c->cq.mutex, NULL);
	pthread_cond_init(&c->cq.cond, NULL);
	if (channel) {
		pthread_mutex_lock(&context->mutex);
		channel->refcnt++;
		pthread_mutex_unlock(&context->mutex);
	}
	return c;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
{
	struct softib_cq *c;

	if (cqe < 1 || comp_vector < 0)
		return FAIL(EINVAL);
	c = softib_make_cq(context, cqe, cq_context, channel, comp_vector);
	if (!c)
		return NULL;
	__atomic_store_n(&c->ready.on, 1, __ATOMIC_RELEASE);
	return &c->cq;
}
ALSO_1_0(ibv_create_cq);

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	uint32_t size = cqe;
	int error = softib_gone(cq->context);

	if (!error && cqe < 1)
		error = EINVAL;
	if (!error)
		error = softib_go.resize_cq(cq->handle, &size);
	if (!error)
		cq->cqe = size;
	return error;
}
ALSO_1_0(ibv_resize_cq);

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct softib_cq *c = to_cq(cq);
	struct ibv_context *context = cq->context;
	int error = softib_forked ? EIO : softib_go.destroy_cq(cq->handle);

	if (error)
		return error;
	softib_slot_clear(SOFTIB_CQ, cq->handle, c->serial);
	softib_wait_acks(&cq->mutex, &cq->cond, &cq->comp_events_completed, &c->comp_events);
	softib_wait_acks(&cq->mutex, &cq->cond, &cq->async_events_completed, &c->async_events);
	if (cq->channel) {
		pthread_mutex_lock(&context->mutex);
		cq->channel->refcnt--;
		pthread_mutex_unlock(&context->mutex);
	}
	softib_drop_cq_ex(c);
	pthread_cond_destroy(&cq->cond);
	pthread_mutex_destroy(&cq->mutex);
	free(c);
	return 0;
}
ALSO_1_0(ibv_destroy_cq);

int softib_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int error = softib_gone(cq->context);

	if (error)
		return error;
	/* The look that a careful program takes after arming must be a real one. */
	to_cq(cq)->empty = 0;
	return softib_go.req_notify(cq->handle, solicited_only);
}

/* Whether a packet waits to be taken in. */
static bool packet_waits(const struct softib_hint *hint)
{
	uint32_t n = __atomic_load_n(&hint->nrings, __ATOMIC_ACQUIRE);

	if (n > sizeof(hint->ring) / sizeof(hint->ring[0]))
		return true;
	for (uint32_t i = 0; i < n; i++)
		if (*hint->ring[i].seq == hint->ring[i].want)
			return true;
	return false;
}

static void lock_ready(struct softib_ready *r)
{
	for (int i = 0; __atomic_exchange_n(&r->locked, 1, __ATOMIC_ACQUIRE); i++)
		if (i > 100)
			sched_yield();
}

static void unlock_ready(struct softib_ready *r)
{
	__atomic_store_n(&r->locked, 0, __ATOMIC_RELEASE);
}

/* Completions that are here already. */
static int take_ready(struct softib_cq *c, int room, struct ibv_wc *wc)
{
	struct softib_ready *r = &c->ready;
	int n = 0;

	lock_ready(r);
	for (; n < room && r->head != r->tail; n++)
		wc[n] = r->wc[r->head++ % SOFTIB_READY];
	if (r->head == r->tail) {
		c->empty_at = r->empty_at;
		c->empty = r->empty;
	}
	unlock_ready(r);
	if (n)
		to_context(c->cq.context)->hint->reaped++; /* advice, like all of the hint */
	return n;
}

void softib_purge_ready(struct ibv_cq *cq, uint32_t qp_num)
{
	struct softib_ready *r = &to_cq(cq)->ready;
	uint32_t kept;

	lock_ready(r);
	kept = r->head;
	for (uint32_t i = r->head; i != r->tail; i++)
		if (r->wc[i % SOFTIB_READY].qp_num != qp_num)
			r->wc[kept++ % SOFTIB_READY] = r->wc[i % SOFTIB_READY];
	r->tail = kept;
	unlock_ready(r);
}

/* Completions from the adapter itself. */
static int fetch(struct softib_cq *c, int room, struct ibv_wc *wc)
{
	const struct softib_hint *hint = to_context(c->cq.context)->hint;
	int32_t empty;
	int n;

	/*
	 * Polling an empty queue is what programs do most, and calling Go costs a hundred times as
	 * much as looking here. A count of commits at which the queue was seen empty stays good
	 * while the count is the same, whichever thread saw it.
	 */
	if (c->empty && __atomic_load_n(&hint->commits, __ATOMIC_ACQUIRE) == c->empty_at && ++c->idle < IDLE_POLLS && !packet_waits(hint))
		return 0;
	if (__builtin_expect(softib_forked, 0))
		return -EIO;
	c->idle = 0;
	n = softib_go.poll_cq(c->cq.handle, room, wc, &c->empty_at, &empty);
	c->empty = empty;
	return n;
}

int softib_fetch_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	struct softib_cq *c = to_cq(cq);
	int taken, n;

	if (__builtin_expect(__atomic_load_n(&c->ready.head, __ATOMIC_RELAXED) == __atomic_load_n(&c->ready.tail, __ATOMIC_RELAXED), 1))
		return fetch(c, room, wc);
	taken = take_ready(c, room, wc);
	if (taken == room)
		return taken;
	/* Fewer than there is room for would mean that the queue is empty. */
	n = fetch(c, room - taken, wc + taken);
	return n < 0 && taken ? taken : n + taken;
}

int softib_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int taken, n;

	if (__builtin_expect(!to_cq(cq)->batch, 1))
		return softib_fetch_cq(cq, room, wc);
	taken = softib_take_batch(to_cq(cq), room, wc);
	if (taken == room)
		return taken;
	n = softib_fetch_cq(cq, room - taken, wc + taken);
	return n < 0 && taken ? taken : n + taken;
}
