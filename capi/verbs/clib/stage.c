/* Receives that wait to be posted until the adapter needs them. */
#include "softib.h"

struct softib_stage *softib_new_stage(uint32_t handle, const struct ibv_qp_cap *cap)
{
	struct softib_stage *s = calloc(1, sizeof(*s) + (size_t)SOFTIB_STAGED * cap->max_recv_sge * sizeof(struct ibv_sge));

	if (s) {
		s->handle = handle;
		s->max_sge = cap->max_recv_sge;
		s->limit = cap->max_recv_wr;
	}
	return s;
}

/* Puts the stage into the list that Go takes whole. */
static void enlist(struct softib_stage *s, uint64_t *list)
{
	uint64_t first = __atomic_load_n(list, __ATOMIC_RELAXED);

	do
		s->next = first;
	while (!__atomic_compare_exchange_n(list, &first, (uintptr_t)s, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

/* Makes entries up to tail the adapter's. */
static void publish(struct softib_stage *s, uint32_t tail, uint64_t *list)
{
	if (tail == s->tail)
		return;
	__atomic_store_n(&s->tail, tail, __ATOMIC_RELEASE);
	/* Who takes the list clears the mark first and looks at the tail then. */
	if (!__atomic_exchange_n(&s->queued, 1, __ATOMIC_ACQ_REL))
		enlist(s, list);
}

static bool full(struct softib_stage *s, uint32_t tail)
{
	return tail - __atomic_load_n(&s->taken, __ATOMIC_ACQUIRE) >= SOFTIB_STAGED ||
		tail == __atomic_load_n(&s->limit, __ATOMIC_RELAXED);
}

/* What the adapter would refuse. */
static bool bad_list(const struct softib_stage *s, const struct ibv_recv_wr *wr)
{
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > s->max_sge || (wr->num_sge && !wr->sg_list))
		return true;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length > 1u << 31;
}

int softib_stage_recv(struct softib_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct softib_stage *s = q->stage;
	uint64_t *list = &to_context(q->qp.context)->hint->staged;
	int error = 0;
	uint32_t tail;

	softib_lock(&s->lock);
	tail = s->tail;
	for (; wr; wr = wr->next) {
		uint32_t at = tail % SOFTIB_STAGED;

		if (bad_list(s, wr)) {
			error = EINVAL;
			break;
		}
		if (full(s, tail)) {
			/* Nothing to post: the call takes what is staged, and says how much room there is. */
			publish(s, tail, list);
			error = softib_go.post_recv(q->qp.handle, NULL, bad);
			if (!error && full(s, tail))
				error = ENOMEM;
			if (error)
				break;
		}
		s->wr_id[at] = wr->wr_id;
		s->num_sge[at] = wr->num_sge;
		if (wr->num_sge)
			memcpy(&s->sge[at * s->max_sge], wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
		tail++;
	}
	publish(s, tail, list);
	if (error)
		*bad = wr;
	softib_unlock(&s->lock);
	return error;
}
