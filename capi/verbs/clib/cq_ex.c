/*
 * Extended completion queues. Completions are fetched a batch at a time and read from there: start_poll and next_poll
 * move a cursor, the readers look at what it points to.
 */
#include "softib.h"

enum { BATCH = 16 };

#define STAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define SUPPORTED_WC_FLAGS (IBV_WC_STANDARD_FLAGS | STAMPS | IBV_WC_EX_WITH_TM_INFO)

struct softib_batch {
	struct softib_section section; /* start_poll to end_poll, as the man page has it */
	bool stamped;
	pthread_mutex_t fields; /* of the rest, against ibv_poll_cq and the end of a queue pair */
	uint32_t at, len; /* entries [at, len) have not been handed out */
	struct ibv_wc current; /* what the readers read */
	uint64_t current_ns, last_ns;
	int64_t wall;
	struct ibv_wc wc[BATCH];
	uint64_t ns[BATCH];
};

/* Fetches a batch. 0, ENOENT if there is nothing, or another errno. */
static int fetch(struct softib_cq *cq, struct softib_batch *b)
{
	int n;

	if (b->stamped)
		n = softib_go.poll_cq(cq->cq.handle, BATCH, b->wc, b->ns, &b->wall);
	else
		n = softib_fetch_cq(&cq->cq, BATCH, b->wc);
	if (n <= 0)
		return n ? EIO : ENOENT;
	b->at = 0;
	b->len = n;
	return 0;
}

static int advance(struct softib_cq *cq)
{
	struct softib_batch *b = cq->batch;
	int error = 0;

	pthread_mutex_lock(&b->fields);
	if (b->at == b->len)
		error = fetch(cq, b);
	if (!error) {
		b->current = b->wc[b->at];
		/* The device reads its clock now and then and guesses in between; time does not go back. */
		if (b->ns[b->at] > b->last_ns)
			b->last_ns = b->ns[b->at];
		b->current_ns = b->last_ns;
		b->at++;
		cq->ex.wr_id = b->current.wr_id;
		cq->ex.status = b->current.status;
	}
	pthread_mutex_unlock(&b->fields);
	return error;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct softib_cq *cq = to_cq_ex(ex);
	int error;

	if (!attr || attr->comp_mask)
		return EINVAL;
	if (softib_left(ex->context))
		return EIO; /* where the fabric is gone there are still completions of what it left */
	error = softib_begin(&cq->batch->section);
	if (error)
		return error;
	error = advance(cq);
	if (error)
		softib_end(&cq->batch->section);
	return error;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return softib_left(ex->context) ? EIO : advance(to_cq_ex(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
	softib_end(&to_cq_ex(ex)->batch->section);
}

/* What can be read, and where it is. Queues that would have the last two are not made; they are there for programs that
 * call them all the same. */
#define READERS(X)                                                           \
	X(enum ibv_wc_opcode, opcode, b->current.opcode)                     \
	X(uint32_t, vendor_err, b->current.vendor_err)                       \
	X(uint32_t, byte_len, b->current.byte_len)                           \
	X(__be32, imm_data, b->current.imm_data)                             \
	X(uint32_t, qp_num, b->current.qp_num)                               \
	X(uint32_t, src_qp, b->current.src_qp)                               \
	X(unsigned int, wc_flags, b->current.wc_flags)                       \
	X(uint32_t, slid, b->current.slid)                                   \
	X(uint8_t, sl, b->current.sl)                                        \
	X(uint8_t, dlid_path_bits, b->current.dlid_path_bits)                \
	X(uint64_t, completion_ts, b->current_ns)                            \
	X(uint64_t, completion_wallclock_ns, b->current_ns + (uint64_t)b->wall) \
	X(uint16_t, cvlan, 0)                                                \
	X(uint32_t, flow_tag, 0)

#define X(type, name, value)                                                                   \
	static type read_##name(struct ibv_cq_ex *ex)                                          \
	{                                                                                      \
		__attribute__((unused)) const struct softib_batch *b = to_cq_ex(ex)->batch;    \
                                                                                               \
		return value;                                                                  \
	}
READERS(X)
#undef X

/* Go has it in fields that a receive of RC has no use for (hca.WC.SetTag). */
static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct ibv_wc *wc = &to_cq_ex(ex)->batch->current;

	memset(info, 0, sizeof(*info));
	if (wc->opcode != IBV_WC_TM_RECV || !(wc->wc_flags & IBV_WC_TM_MATCH))
		return;
	info->tag = (uint64_t)wc->vendor_err << 32 | wc->src_qp;
	info->priv = (uint32_t)wc->pkey_index << 16 | wc->slid;
}

int softib_take_batch(struct softib_cq *cq, int room, struct ibv_wc *wc)
{
	struct softib_batch *b = cq->batch;
	int n = 0;

	pthread_mutex_lock(&b->fields);
	while (n < room && b->at < b->len)
		wc[n++] = b->wc[b->at++];
	pthread_mutex_unlock(&b->fields);
	return n;
}

void softib_purge_batch(struct ibv_cq *cq, uint32_t qp_num, uint32_t srq_num)
{
	struct softib_batch *b = to_cq(cq)->batch;
	uint32_t i, kept;

	if (!b)
		return;
	pthread_mutex_lock(&b->fields);
	for (i = kept = b->at; i < b->len; i++) {
		if (softib_goes(&b->wc[i], qp_num, srq_num))
			continue;
		b->wc[kept] = b->wc[i];
		b->ns[kept] = b->ns[i];
		kept++;
	}
	b->len = kept;
	pthread_mutex_unlock(&b->fields);
}

void softib_free_batch(struct softib_batch *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->section.lock);
	pthread_mutex_destroy(&b->fields);
	free(b);
}

static struct softib_batch *make_batch(struct ibv_cq_init_attr_ex *attr, uint32_t flags)
{
	struct softib_batch *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	softib_make_section(&b->section,
		flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED ||
		(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && softib_single_threaded(attr->parent_domain)));
	pthread_mutex_init(&b->fields, NULL);
	b->stamped = attr->wc_flags & STAMPS;
	return b;
}

struct ibv_cq_ex *softib_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t flags = attr && attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	bool wraps = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	struct softib_batch *batch;
	struct softib_cq *cq;

	if (!attr || attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return FAIL(EINVAL);
	if (attr->wc_flags & ~(uint64_t)SUPPORTED_WC_FLAGS)
		return FAIL(EOPNOTSUPP);
	if (flags & ~(uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		return FAIL(EOPNOTSUPP);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && (!attr->parent_domain || !to_pd(attr->parent_domain)->inner))
		return FAIL(EINVAL);

	batch = make_batch(attr, flags);
	if (!batch)
		return FAIL(ENOMEM);
	cq = softib_make_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector, !batch->stamped, wraps);
	if (!cq) {
		int error = errno;

		softib_free_batch(batch);
		return FAIL(error);
	}
	cq->batch = batch;
	cq->ex.comp_mask = 0;
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = next_poll;
	cq->ex.end_poll = end_poll;
	cq->ex.read_tm_info = read_tm_info;
#define X(type, name, value) cq->ex.read_##name = read_##name;
	READERS(X)
#undef X
	return &cq->ex;
}

int softib_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	int error = softib_gone(cq->context);

	if (error)
		return error;
	if (!attr || attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	if (!(attr->attr_mask & IBV_CQ_ATTR_MODERATE))
		return 0;
	return softib_go.modify_cq(cq->handle, attr->moderate.cq_count, attr->moderate.cq_period);
}
