/*
 * Extended completion queues. Completions are fetched a batch at a time and read from
 * there: start_poll and next_poll move a cursor, the readers look at what it points to.
 *
 * The man page makes start_poll to end_poll a critical section. Its lock checks for
 * errors, so that a program which starts twice is told instead of hanging.
 */
#include <stdlib.h>
#include <string.h>

#include "ext.h"

enum { BATCH = 16 };

#define STAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define SUPPORTED_WC_FLAGS (IBV_WC_STANDARD_FLAGS | STAMPS)

struct softib_batch {
	pthread_mutex_t lock; /* the critical section, unless the program promised to be alone */
	bool single;
	bool stamped;
	pthread_mutex_t fields; /* of the rest, against ibv_poll_cq and the end of a queue pair */
	uint32_t at, len; /* entries [at, len) have not been handed out */
	struct ibv_wc current; /* what the readers read */
	uint64_t current_ns, last_ns;
	int64_t wall;
	struct ibv_wc wc[BATCH];
	uint64_t ns[BATCH];
};

static int lock_out(struct softib_batch *b)
{
	return b->single ? 0 : pthread_mutex_lock(&b->lock);
}

static void let_in(struct softib_batch *b)
{
	if (!b->single)
		pthread_mutex_unlock(&b->lock);
}

/* Fetches a batch. 0, ENOENT if there is nothing, or another errno. */
static int fetch(struct softib_cq *cq, struct softib_batch *b)
{
	int n;

	if (b->stamped)
		n = softib_go.poll_stamped(cq->cq.handle, BATCH, b->wc, b->ns, &b->wall);
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
	if (softib_forked)
		return EIO; /* where the fabric is gone there are still completions of what it left */
	error = lock_out(cq->batch);
	if (error)
		return error;
	error = advance(cq);
	if (error)
		let_in(cq->batch);
	return error;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return softib_forked ? EIO : advance(to_cq_ex(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
	let_in(to_cq_ex(ex)->batch);
}

#define READER(type, name, value)                                     \
	static type name(struct ibv_cq_ex *ex)                        \
	{                                                             \
		const struct softib_batch *b = to_cq_ex(ex)->batch;   \
                                                                      \
		return value;                                         \
	}

READER(enum ibv_wc_opcode, read_opcode, b->current.opcode)
READER(uint32_t, read_vendor_err, b->current.vendor_err)
READER(uint32_t, read_byte_len, b->current.byte_len)
READER(__be32, read_imm_data, b->current.imm_data)
READER(uint32_t, read_qp_num, b->current.qp_num)
READER(uint32_t, read_src_qp, b->current.src_qp)
READER(unsigned int, read_wc_flags, b->current.wc_flags)
READER(uint32_t, read_slid, b->current.slid)
READER(uint8_t, read_sl, b->current.sl)
READER(uint8_t, read_dlid_path_bits, b->current.dlid_path_bits)
READER(uint64_t, read_completion_ts, b->current_ns)
READER(uint64_t, read_wallclock, b->current_ns + (uint64_t)b->wall)

/* Queues that would have these are not made; the entries are there for programs that call them all the same. */
static uint16_t read_cvlan(struct ibv_cq_ex *ex __attribute__((unused)))
{
	return 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex __attribute__((unused)))
{
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *ex __attribute__((unused)), struct ibv_wc_tm_info *info)
{
	memset(info, 0, sizeof(*info));
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

void softib_purge_batch(struct ibv_cq *plain, uint32_t qp_num)
{
	struct softib_batch *b = plain ? to_cq(plain)->batch : NULL;
	uint32_t i, kept;

	if (!b)
		return;
	pthread_mutex_lock(&b->fields);
	for (i = kept = b->at; i < b->len; i++) {
		if (b->wc[i].qp_num == qp_num)
			continue;
		b->wc[kept] = b->wc[i];
		b->ns[kept] = b->ns[i];
		kept++;
	}
	b->len = kept;
	pthread_mutex_unlock(&b->fields);
}

static void free_batch(struct softib_batch *b)
{
	pthread_mutex_destroy(&b->lock);
	pthread_mutex_destroy(&b->fields);
	free(b);
}

void softib_drop_cq_ex(struct softib_cq *cq)
{
	if (cq->batch)
		free_batch(cq->batch);
	cq->batch = NULL;
}

static struct softib_batch *make_batch(struct ibv_cq_init_attr_ex *attr)
{
	struct softib_batch *b = calloc(1, sizeof(*b));
	pthread_mutexattr_t checks;

	if (!b)
		return NULL;
	pthread_mutexattr_init(&checks);
	pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&b->lock, &checks);
	pthread_mutexattr_destroy(&checks);
	pthread_mutex_init(&b->fields, NULL);
	b->stamped = attr->wc_flags & STAMPS;
	b->single = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) ||
		    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && softib_single_threaded(attr->parent_domain));
	return b;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct softib_batch *batch;
	struct softib_cq *cq;

	if (!attr || attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return FAIL(EINVAL);
	if (attr->wc_flags & ~(uint64_t)SUPPORTED_WC_FLAGS)
		return FAIL(EOPNOTSUPP);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return FAIL(EOPNOTSUPP); /* IGNORE_OVERRUN: an overrun breaks the queue, as IBA has it */
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && (!attr->parent_domain || !to_pd(attr->parent_domain)->inner))
		return FAIL(EINVAL);

	batch = make_batch(attr);
	if (!batch)
		return FAIL(ENOMEM);
	cq = softib_make_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector, !batch->stamped);
	if (!cq) {
		int error = errno;

		free_batch(batch);
		return FAIL(error);
	}
	cq->batch = batch;
	cq->ex.comp_mask = 0;
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = next_poll;
	cq->ex.end_poll = end_poll;
	cq->ex.read_opcode = read_opcode;
	cq->ex.read_vendor_err = read_vendor_err;
	cq->ex.read_byte_len = read_byte_len;
	cq->ex.read_imm_data = read_imm_data;
	cq->ex.read_qp_num = read_qp_num;
	cq->ex.read_src_qp = read_src_qp;
	cq->ex.read_wc_flags = read_wc_flags;
	cq->ex.read_slid = read_slid;
	cq->ex.read_sl = read_sl;
	cq->ex.read_dlid_path_bits = read_dlid_path_bits;
	cq->ex.read_completion_ts = read_completion_ts;
	cq->ex.read_cvlan = read_cvlan;
	cq->ex.read_flow_tag = read_flow_tag;
	cq->ex.read_tm_info = read_tm_info;
	cq->ex.read_completion_wallclock_ns = read_wallclock;
	return &cq->ex;
}

static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
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

void softib_cq_ex_ops(struct verbs_context *v)
{
	v->create_cq_ex = create_cq_ex;
	v->modify_cq = modify_cq;
}
