/* Asynchronous and completion events: records in pipes, and who has yet to acknowledge them. */
#include "softib.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

/* Objects by kind and handle. A record of an object that was destroyed finds another serial number, or none. */
struct slot {
	void *object;
	struct softib_tracked *tracked;
	uint32_t serial;
};

static pthread_mutex_t slots_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct slot *at;
	uint32_t size;
} slots[SOFTIB_KINDS];

/* The slot of a handle, NULL where there was never one or its object has another serial number. Under the lock. */
static struct slot *find(uint32_t kind, uint32_t handle, uint32_t serial)
{
	struct slot *s = kind < SOFTIB_KINDS && handle < slots[kind].size ? &slots[kind].at[handle] : NULL;

	return s && s->serial == serial ? s : NULL;
}

int softib_track(enum softib_kind kind, const struct softib_made *made, struct softib_tracked *tracked, void *object,
	int (*destroy)(uint32_t handle))
{
	int error = 0;

	tracked->serial = made->serial;
	pthread_mutex_lock(&slots_mutex);
	if (made->handle >= slots[kind].size) {
		uint32_t size = made->handle < 32 ? 64 : made->handle * 2;
		struct slot *more = realloc(slots[kind].at, size * sizeof(*more));

		if (more) {
			memset(more + slots[kind].size, 0, (size - slots[kind].size) * sizeof(*more));
			slots[kind].at = more;
			slots[kind].size = size;
		} else {
			error = ENOMEM;
		}
	}
	if (!error)
		slots[kind].at[made->handle] = (struct slot){ object, tracked, made->serial };
	pthread_mutex_unlock(&slots_mutex);
	if (error)
		destroy(made->handle);
	return error;
}

void softib_untrack(enum softib_kind kind, uint32_t handle, struct softib_tracked *tracked, pthread_mutex_t *mutex,
	pthread_cond_t *cond, const uint32_t *acked)
{
	struct slot *s;

	pthread_mutex_lock(&slots_mutex);
	s = find(kind, handle, tracked->serial);
	if (s)
		s->object = NULL;
	pthread_mutex_unlock(&slots_mutex);
	softib_wait_acks(mutex, cond, acked, &tracked->handed);
}

void softib_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked, const uint32_t *handed)
{
	pthread_mutex_lock(mutex);
	while (*acked != *handed)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

void softib_forget_events(void)
{
	pthread_mutex_init(&slots_mutex, NULL);
	memset(slots, 0, sizeof(slots)); /* whatever another thread was doing to them */
}

/* The object of a record, counted as handed out; NULL if it is gone. */
static void *claim(const struct softib_event *e)
{
	void *object = NULL;
	struct slot *s;

	pthread_mutex_lock(&slots_mutex);
	s = find(e->kind, e->handle, e->serial);
	if (s)
		object = s->object;
	if (object && e->type == SOFTIB_COMPLETION)
		((struct softib_cq *)object)->comp_events++;
	else if (object)
		s->tracked->handed++;
	pthread_mutex_unlock(&slots_mutex);
	return object;
}

/* One record, or -1 with errno. Records that did not fit into the pipe follow. */
static int take(struct ibv_context *context, int fd, int write_fd, struct softib_event *e)
{
	ssize_t n = softib_left(context) ? 0 : read(fd, e, sizeof(*e));

	if (n < 0)
		return -1;
	if (n != sizeof(*e))
		return FAIL_INT(EIO);
	softib_go.flush_events(write_fd);
	return 0;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct softib_event e;

	do {
		if (take(context, context->async_fd, to_context(context)->async_write, &e))
			return -1;
		event->event_type = e.type;
		if (e.kind == SOFTIB_NO_OBJECT) {
			event->element.port_num = e.handle;
			return 0;
		}
		event->element.cq = claim(&e); /* all of them are pointers */
	} while (!event->element.cq);
	return 0;
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
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ack(&qp->mutex, &qp->cond, &qp->events_completed, 1);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ack(&srq->mutex, &srq->cond, &srq->events_completed, 1);
		break;
	default: /* of a port or the device: nobody waits */
		break;
	}
}
ALSO_1_0(ibv_ack_async_event);

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct softib_channel *c = softib_new(context, sizeof(*c));
	int error;

	if (!c)
		return NULL;
	error = softib_pipe(&c->channel.fd, &c->write_fd);
	if (error)
		return softib_discard(c, error);
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

static bool any_event(struct softib_channel *c)
{
	return __atomic_load_n(&c->told, __ATOMIC_SEQ_CST) != __atomic_load_n(&c->taken, __ATOMIC_RELAXED);
}

static void up_again(void *hint)
{
	__atomic_sub_fetch(&((struct softib_hint *)hint)->sleepers, 1, __ATOMIC_RELAXED);
}

/* Sleeps at the bell. 0, or an errno. */
static int sleep_at(struct softib_channel *c, struct softib_hint *hint, uint32_t bell, const struct timespec *until)
{
	volatile int error = 0; /* it lives beside what cleaning up may jump to */
	int type;

	pthread_cleanup_push(up_again, hint);
	__atomic_add_fetch(&hint->sleepers, 1, __ATOMIC_SEQ_CST);
	if (!any_event(c)) {
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type); /* as within read */
		if (syscall(SYS_futex, hint->bell, FUTEX_WAIT_BITSET, bell, until, NULL, SOFTIB_FOR_PROGRAM))
			error = errno;
		pthread_setcanceltype(type, NULL);
	}
	pthread_cleanup_pop(1);
	return error;
}

/*
 * Waits for an event of the channel, where reading would: who sends wakes this thread, which does then what the
 * attendant would, and needs not to be woken again by that. 0, or an errno.
 */
static int await_event(struct softib_channel *c)
{
	struct ibv_context *context = c->channel.context;
	struct softib_hint *hint = to_context(context)->hint;
	struct timespec soon;
	uint32_t bell;
	int error;

	if (any_event(c) || fcntl(c->channel.fd, F_GETFL) & O_NONBLOCK)
		return 0;
	soon = softib_from_now(hint->polls.doze);
	for (bool first = true;;) {
		if (softib_gone(context) || softib_go.await(to_context(context)->handle, false, &bell) || any_event(c))
			return 0;
		if (!(bell & 1))
			continue; /* a peer has woken us already */
		/* The first sleep is short: a peer may just have found that somebody looks. */
		error = sleep_at(c, hint, bell, first ? &soon : NULL);
		if (error == EINTR && !first)
			return error;
		first = first && error != ETIMEDOUT;
	}
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct softib_channel *c = container_of(channel, struct softib_channel, channel);
	struct softib_event e;
	struct softib_cq *of;
	int error;

	do {
		error = await_event(c);
		if (error)
			return FAIL_INT(error);
		if (take(channel->context, channel->fd, c->write_fd, &e))
			return -1;
		__atomic_add_fetch(&c->taken, 1, __ATOMIC_RELAXED);
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
