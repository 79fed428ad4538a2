/* What waits to be posted until the adapter needs it: receives, and requests behind others. */
#include "softib.h"

struct softib_stage *softib_new_stage(uint32_t handle, const struct ibv_qp_cap *cap)
{
	struct softib_stage *s = calloc(1, sizeof(*s) + (size_t)SOFTIB_STAGED * cap->max_recv_sge * sizeof(struct ibv_sge));

	if (s) {
		s->is.handle = handle;
		s->max_sge = cap->max_recv_sge;
		s->limit = cap->max_recv_wr;
	}
	return s;
}

static void enlist(struct softib_staged *s, uint64_t *list)
{
	uint64_t first;

	if (__atomic_exchange_n(&s->queued, 1, __ATOMIC_SEQ_CST))
		return;
	first = __atomic_load_n(list, __ATOMIC_RELAXED);
	do
		s->next = first;
	while (!__atomic_compare_exchange_n(list, &first, (uintptr_t)s, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

/*
 * Makes entries up to end the adapter's, and puts the stage into the list that Go takes whole. Who takes the list
 * clears the mark first and looks at the tail then.
 */
static void publish(struct softib_staged *s, uint32_t end, uint64_t *list)
{
	if (end == s->tail)
		return;
	__atomic_store_n(&s->tail, end, __ATOMIC_RELEASE);
	enlist(s, list);
}

static bool full(struct softib_stage *s, uint32_t tail)
{
	return tail - __atomic_load_n(&s->is.taken, __ATOMIC_ACQUIRE) >= SOFTIB_STAGED ||
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

	softib_lock(&s->is.lock);
	tail = s->is.tail;
	for (; wr; wr = wr->next) {
		uint32_t at = tail % SOFTIB_STAGED;

		if (bad_list(s, wr)) {
			error = EINVAL;
			break;
		}
		if (full(s, tail)) {
			/* Nothing to post: the call takes what is staged, and says how much room there is. */
			publish(&s->is, tail, list);
			enlist(&s->is, list); /* also where all is taken: receives may have gone since, or the queue grown */
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
	publish(&s->is, tail, list);
	if (error)
		*bad = wr;
	softib_unlock(&s->is.lock);
	return error;
}

/* Whether a request is one whose faults, if it has any, the adapter finds only when its turn comes. */
static bool plain(const struct softib_qp *q, const struct ibv_send_wr *wr)
{
	const unsigned int flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
	const struct ibv_sge *sge = wr->sg_list;

	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		if (wr->send_flags & IBV_SEND_INLINE)
			return false;
		/* fall through */
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		break;
	default:
		return false;
	}
	if (wr->send_flags & ~flags || wr->num_sge < 0 || wr->num_sge > 1 || (uint32_t)wr->num_sge > q->cap.max_send_sge)
		return false;
	if (!wr->num_sge)
		return true;
	if (!sge)
		return false;
	if (!(wr->send_flags & IBV_SEND_INLINE))
		return sge->length < 1u << 31;
	return sge->length <= SOFTIB_SEND_DATA && sge->length <= q->cap.max_inline_data && (sge->addr || !sge->length);
}

static void fill(struct softib_send *to, const struct ibv_send_wr *wr)
{
	to->wr = *wr;
	to->wr.next = NULL;
	to->wr.sg_list = &to->sge;
	if (!wr->num_sge)
		return;
	to->sge = *wr->sg_list;
	if (wr->send_flags & IBV_SEND_INLINE) {
		memcpy(to->data, (void *)(uintptr_t)to->sge.addr, to->sge.length);
		to->sge.addr = (uintptr_t)to->data;
	}
}

bool softib_stage_sends(struct softib_qp *q, const struct ibv_send_wr *wr)
{
	struct softib_sends *s = &q->sends;
	struct softib_hint *hint = to_context(q->qp.context)->hint;
	const struct ibv_send_wr *w;
	struct ibv_send_wr *none;
	uint32_t tail, end, staged, under = __atomic_load_n(&s->under, __ATOMIC_RELAXED);

	/*
	 * To a queue with little to do requests go at once. When they waited behind a single one, rstream -T b lost its
	 * connection once in some hundred runs on a busy machine; why was not shown.
	 */
	if (under < hint->polls.batch)
		return false;
	softib_lock(&s->is.lock);
	/* In this order: what was taken meanwhile counts twice, and not not at all. */
	end = tail = s->is.tail;
	staged = tail - __atomic_load_n(&s->is.taken, __ATOMIC_ACQUIRE);
	under = __atomic_load_n(&s->under, __ATOMIC_RELAXED);
	for (w = wr; w; w = w->next, staged++)
		if (!plain(q, w) || staged >= SOFTIB_SENDS || staged + under >= q->cap.max_send_wr)
			goto no;
	if (__builtin_expect(!s->at, 0)) {
		s->at = malloc(SOFTIB_SENDS * sizeof(*s->at));
		if (!s->at)
			goto no;
	}
	for (; wr; wr = wr->next)
		fill(&s->at[end++ % SOFTIB_SENDS], wr);
	publish(&s->is, end, &hint->sends);
	softib_unlock(&s->is.lock);
	/* Who has ended the last of the others may not have seen these. */
	if (staged >= hint->polls.batch || !__atomic_load_n(&s->under, __ATOMIC_SEQ_CST))
		softib_go.post_send(q->qp.handle, NULL, &none);
	return true;
no:
	softib_unlock(&s->is.lock);
	return false;
}
