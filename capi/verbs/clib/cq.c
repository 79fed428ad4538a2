/* Completion queues. */
#include "softib.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

struct softib_cq *softib_make_cq(struct ibv_context *context, uint32_t cqe, void *cq_context,
	struct ibv_comp_channel *channel, uint32_t comp_vector, bool ready_list, bool wraps)
{
	struct softib_cq_args args = { .context = to_context(context)->handle, .cqe = cqe, .event_fd = -1 };
	struct softib_cq *c = softib_new(context, sizeof(*c));
	int error;

	if (!c)
		return NULL;
	if (comp_vector >= (uint32_t)context->num_comp_vectors || (channel && channel->context != context))
		return softib_discard(c, EINVAL);
	ready_list &= !wraps; /* what is ready could not be overwritten */
	args.wraps = wraps;
	args.ready = ready_list ? &c->ready : NULL;
	if (channel) {
		args.event_fd = container_of(channel, struct softib_channel, channel)->write_fd;
		args.told = &container_of(channel, struct softib_channel, channel)->told;
	}
	error = softib_go.create_cq(&args);
	if (!error)
		error = softib_track(SOFTIB_CQ, &args.made, &c->tracked, c, softib_go.destroy_cq);
	if (error)
		return softib_discard(c, error);
	c->ready_list = ready_list;
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

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	struct ibv_comp_channel *channel, int comp_vector)
{
	struct softib_cq *c;

	if (cqe < 1 || comp_vector < 0)
		return FAIL(EINVAL);
	c = softib_make_cq(context, cqe, cq_context, channel, comp_vector, true, false);
	return c ? &c->cq : NULL;
}
ALSO_1_0(ibv_create_cq);

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	uint32_t size = cqe;
	int error = softib_gone(cq->context) ?: cqe < 1 ? EINVAL : softib_go.resize_cq(cq->handle, &size);

	if (!error)
		cq->cqe = size;
	return error;
}
ALSO_1_0(ibv_resize_cq);

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct softib_cq *c = to_cq(cq);
	struct ibv_context *context = cq->context;
	int error = softib_left(cq->context) ? EIO : softib_go.destroy_cq(cq->handle);

	if (error)
		return error;
	softib_untrack(SOFTIB_CQ, cq->handle, &c->tracked, &cq->mutex, &cq->cond, &cq->async_events_completed);
	softib_wait_acks(&cq->mutex, &cq->cond, &cq->comp_events_completed, &c->comp_events);
	if (cq->channel) {
		pthread_mutex_lock(&context->mutex);
		cq->channel->refcnt--;
		pthread_mutex_unlock(&context->mutex);
	}
	softib_free_batch(c->batch);
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
	to_cq(cq)->armed = true; /* before anybody can be handed the event */
	error = softib_go.req_notify(cq->handle, solicited_only);
	to_cq(cq)->look = true;
	return error;
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

/* Whether the adapter has to be told of requests. */
static bool any_sends(const struct softib_hint *hint)
{
	return __atomic_load_n(&hint->sends, __ATOMIC_RELAXED) != 0;
}

static bool any_ready(struct softib_ready *r)
{
	return __atomic_load_n(&r->tail, __ATOMIC_RELAXED) != __atomic_load_n(&r->head, __ATOMIC_RELAXED);
}

/* Completions that are ready. */
static int take_ready(struct softib_cq *c, int room, struct ibv_wc *wc)
{
	struct softib_ready *r = &c->ready;
	uint32_t head, tail;
	int n = 0;

	softib_lock(&r->lock);
	head = r->head;
	tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
	for (; n < room && head != tail; head++)
		wc[n++] = r->wc[head % SOFTIB_READY];
	__atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
	softib_unlock(&r->lock);
	return n;
}

void softib_purge_ready(struct ibv_cq *cq, uint32_t qp_num, uint32_t srq_num)
{
	struct softib_ready *r = &to_cq(cq)->ready;
	uint32_t i, kept;

	softib_lock(&r->lock);
	/* The others move up to tail, which is Go's: room is what is behind head, and gone ones must not take any. */
	for (i = kept = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE); i != r->head; i--)
		if (!softib_goes(&r->wc[(i - 1) % SOFTIB_READY], qp_num, srq_num))
			r->wc[--kept % SOFTIB_READY] = r->wc[(i - 1) % SOFTIB_READY];
	__atomic_store_n(&r->head, kept, __ATOMIC_RELEASE);
	softib_unlock(&r->lock);
}

/*
 * Whether the adapter has to be asked. Polling an empty queue is what programs do most, and calling Go costs a hundred
 * times as much as looking here. The look that a careful program takes after arming is a real one.
 */
static bool must_ask(struct softib_cq *c, const struct softib_hint *hint)
{
	return __atomic_load_n(&c->ready.more, __ATOMIC_RELAXED) || c->look || any_sends(hint) ||
		__atomic_load_n(&hint->stirs, __ATOMIC_ACQUIRE) != c->stirs || packet_waits(hint);
}

static int ask(struct softib_cq *c, struct softib_hint *hint, enum softib_how how)
{
	c->reaped = 0;
	c->look = false;
	c->stirs = __atomic_load_n(&hint->stirs, __ATOMIC_ACQUIRE);
	return softib_go.advance_cq(c->cq.handle, how);
}

#ifdef __x86_64__
static uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }

/* Whether the program does nothing but poll: that many polls one after the other. */
static bool only_polls(struct softib_cq *c, const struct softib_polls *polls)
{
	uint64_t now, last = c->tight;

	if (!c->crowd && c->idle & (polls->tight - 1))
		return false;
	now = ticks();
	c->tight = now;
	if (!c->ready.away)
		return now - last < polls->ticks;
	c->ready.away--;
	return false;
}

/* Sleeps until a peer sends, or something completes, for a moment at most. */
static void nap(struct softib_cq *c, struct softib_hint *hint)
{
	struct timespec until;
	uint32_t bell;

	if (softib_go.await(to_context(c->cq.context)->handle, true, &bell) || !(bell & 1))
		return;
	until = softib_from_now(hint->polls.doze);
	__atomic_add_fetch(&hint->naps, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&hint->sleepers, 1, __ATOMIC_SEQ_CST);
	if (!any_ready(&c->ready))
		syscall(SYS_futex, hint->bell, FUTEX_WAIT_BITSET, bell, &until, NULL, SOFTIB_FOR_PROGRAM);
	__atomic_sub_fetch(&hint->sleepers, 1, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&hint->naps, 1, __ATOMIC_RELAXED);
}

/*
 * Lets others have this core, because the fabric, which has to carry a packet, may wait for one. Where only such as
 * this want it, it comes back within microseconds, and the next polls yield at once. Threads that compute keep it for
 * a slice, which is milliseconds: beside them this one sleeps, because the kernel soon lets those run who have slept
 * and are woken. Peers that are reached without the fabric are not worth this: they poll, and two that poll at the same
 * time get more done than four that take turns.
 */
static void give_way(struct softib_cq *c, struct softib_hint *hint)
{
	const struct softib_polls *polls = &hint->polls;
	uint64_t began = ticks(), took;

	if (began < c->naps) {
		c->idle = 0; /* the adapter was asked */
		nap(c, hint);
		return;
	}
	sched_yield();
	took = ticks() - began;
	if (took > polls->shared)
		c->crowd = polls->crowd;
	else if (c->crowd)
		c->crowd--;
	if (took > polls->kept && c->kept)
		c->naps = began + took + polls->nap;
	c->kept = took > polls->kept;
}

/* For a program that does nothing but poll. An errno, or 0. */
static int wait_for_more(struct softib_cq *c, struct softib_hint *hint)
{
	int error = 0;

	c->idle += hint->polls.linger;
	if (!hint->switched)
		c->crowd = 0;
	if (!c->crowd)
		error = ask(c, hint, SOFTIB_LINGER);
	if (hint->switched && !any_ready(&c->ready))
		give_way(c, hint);
	c->tight = ticks();
	return error;
}
#else
static bool only_polls(struct softib_cq *c, const struct softib_polls *polls) { return (void)c, (void)polls, false; }
static int wait_for_more(struct softib_cq *c, struct softib_hint *hint) { return (void)c, (void)hint, 0; }
#endif

/* Asks the adapter if there is a reason to. An errno, or 0. */
static int advance(struct softib_cq *c, struct softib_hint *hint)
{
	enum softib_how how;

	if (must_ask(c, hint)) {
		how = c->idle >= hint->polls.gap ? SOFTIB_SOON : SOFTIB_AGAIN;
		c->idle = 0;
		return ask(c, hint, how);
	}
	if (++c->idle >= hint->polls.idle) {
		c->idle = 0;
		return ask(c, hint, SOFTIB_SPUN);
	}
	return only_polls(c, &hint->polls) ? wait_for_more(c, hint) : 0;
}

int softib_fetch_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	struct softib_cq *c = to_cq(cq);
	struct softib_hint *hint = to_context(cq->context)->hint;
	int n, error;

	if (__builtin_expect(!c->ready_list, 0))
		return softib_go.poll_cq(cq->handle, room, wc, NULL, NULL);
	if (any_ready(&c->ready)) {
		n = take_ready(c, room, wc);
		hint->reaped++; /* advice, like all of the hint */
		if (__builtin_expect((++c->reaped >= hint->polls.reap && packet_waits(hint)) || any_sends(hint), 0))
			ask(c, hint, SOFTIB_AGAIN);
		/* Fewer than there is room for would mean that there are no more. */
		while (n < room && __atomic_load_n(&c->ready.more, __ATOMIC_RELAXED) && !ask(c, hint, SOFTIB_AGAIN)) {
			int more = take_ready(c, room - n, wc + n);

			if (!more)
				break; /* another thread had them, or their queue pair is gone */
			n += more;
		}
		if (n)
			return n;
	}
	error = advance(c, hint);
	if (__builtin_expect(error, 0))
		return -error;
	return any_ready(&c->ready) ? take_ready(c, room, wc) : 0;
}

int softib_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int taken, n;

	/* What is here is the parent's, and a thread that it has left behind may hold the lock. */
	if (softib_left(cq->context))
		return -EIO;
	if (__builtin_expect(!to_cq(cq)->batch, 1))
		return softib_fetch_cq(cq, room, wc);
	taken = softib_take_batch(to_cq(cq), room, wc);
	if (taken == room)
		return taken;
	n = softib_fetch_cq(cq, room - taken, wc + taken);
	return n < 0 && taken ? taken : n + taken;
}
