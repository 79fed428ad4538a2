/*
 * Extended queue pairs: the ibv_wr_* functions build requests here, and wr_complete posts them all with one call, or
 * none. Builders return nothing, so what is wrong with a request is kept until wr_complete, as the man page says.
 *
 * Requests are struct ibv_send_wr, whose pointers are set at the end: until then sg_list is an index into sge, and an
 * inline element's address one into bytes, because both may move as they grow.
 */
#include "softib.h"

struct softib_builder {
	struct softib_section section; /* wr_start to wr_complete */
	bool started;
	bool has_data; /* the last request got its data */
	int error; /* the first that was found */
	struct ibv_send_wr none; /* what is filled in where there is no request, because of an error */

	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	uint8_t *bytes;
	uint32_t wrs, wr_room;
	uint32_t sges, sge_room;
	uint32_t used, byte_room;
};

/* Makes room for n more of what *room counts, of which used are taken. */
static bool grow(void **array, size_t size, uint32_t used, uint32_t n, uint32_t *room)
{
	uint32_t want = *room ? *room : 16;
	void *more;

	if (n <= *room - used)
		return true;
	while (want - used < n)
		want *= 2;
	more = realloc(*array, want * size);
	if (!more)
		return false;
	*array = more;
	*room = want;
	return true;
}

static struct ibv_send_wr *fail(struct softib_builder *b, int error)
{
	if (!b->error)
		b->error = error;
	return &b->none;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct softib_builder *b = to_qp_ex(ex)->builder;

	/* Of a thread that has begun already the batch is spoilt, not hung. */
	if (softib_begin(&b->section)) {
		fail(b, EINVAL);
		return;
	}
	b->started = true;
	b->error = 0;
	b->wrs = b->sges = b->used = 0;
}

static void finish(struct softib_builder *b)
{
	b->started = false;
	b->wrs = 0;
	softib_end(&b->section);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	finish(to_qp_ex(ex)->builder);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct softib_qp *qp = to_qp_ex(ex);
	struct softib_builder *b = qp->builder;
	int error = b->started ? b->error : EINVAL;

	if (!error)
		error = softib_gone(qp->qp.context);
	if (!error && b->wrs) {
		for (uint32_t i = 0; i < b->wrs; i++) {
			struct ibv_send_wr *wr = &b->wr[i];

			wr->next = i + 1 < b->wrs ? wr + 1 : NULL;
			wr->sg_list = b->sge + (uintptr_t)wr->sg_list;
			if (wr->send_flags & IBV_SEND_INLINE)
				for (int j = 0; j < wr->num_sge; j++)
					wr->sg_list[j].addr += (uintptr_t)b->bytes;
		}
		if (!softib_stage_sends(qp, b->wr))
			error = softib_go.post_send(qp->qp.handle, b->wr, NULL);
	}
	finish(b);
	return error;
}

/* Begins a request. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct softib_qp *qp = to_qp_ex(ex);
	struct softib_builder *b = qp->builder;
	struct ibv_send_wr *wr;

	b->has_data = false;
	if (!b->started)
		return fail(b, EINVAL);
	if (b->wrs >= qp->cap.max_send_wr || !grow((void **)&b->wr, sizeof(*b->wr), b->wrs, 1, &b->wr_room))
		return fail(b, ENOMEM);
	wr = &b->wr[b->wrs++];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = ex->wr_id;
	wr->opcode = opcode;
	wr->send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE; /* the setter says that */
	wr->sg_list = (struct ibv_sge *)(uintptr_t)b->sges;
	return wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	begin(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
	wr->imm_data = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
	uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_BIND_MW);

	if (!mw || !info || mw->type != IBV_MW_TYPE_2) {
		fail(to_qp_ex(ex)->builder, EINVAL);
		return;
	}
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

/* A queue pair that would have it is not made. */
static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	(void)hdr, (void)hdr_sz, (void)mss;
	fail(to_qp_ex(ex)->builder, EOPNOTSUPP);
}

/* The request that a setter belongs to. */
static struct ibv_send_wr *last(struct softib_builder *b)
{
	return b->started && b->wrs ? &b->wr[b->wrs - 1] : fail(b, EINVAL);
}

/* The last request, if it can take data and has none yet; else NULL. */
static struct ibv_send_wr *for_data(struct softib_builder *b)
{
	struct ibv_send_wr *wr = last(b);

	if (wr == &b->none)
		return NULL;
	if (b->has_data || wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV) {
		fail(b, EINVAL);
		return NULL;
	}
	b->has_data = true;
	return wr;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct softib_qp *qp = to_qp_ex(ex);
	struct softib_builder *b = qp->builder;
	struct ibv_send_wr *wr = for_data(b);

	if (!wr)
		return;
	if (n > qp->cap.max_send_sge || (n && !list)) {
		fail(b, EINVAL);
		return;
	}
	if (!grow((void **)&b->sge, sizeof(*b->sge), b->sges, n, &b->sge_room)) {
		fail(b, ENOMEM);
		return;
	}
	if (n)
		memcpy(b->sge + b->sges, list, n * sizeof(*list));
	b->sges += n;
	wr->num_sge = n;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct softib_qp *qp = to_qp_ex(ex);
	struct softib_builder *b = qp->builder;
	struct ibv_send_wr *wr = for_data(b);
	size_t i, length = 0;

	if (!wr)
		return;
	if (n && !list) {
		fail(b, EINVAL);
		return;
	}
	for (i = 0; i < n; i++) {
		if (list[i].length > qp->cap.max_inline_data - length) {
			fail(b, EINVAL);
			return;
		}
		length += list[i].length;
	}
	if (!grow((void **)&b->sge, sizeof(*b->sge), b->sges, 1, &b->sge_room) ||
	    !grow((void **)&b->bytes, 1, b->used, length, &b->byte_room)) {
		fail(b, ENOMEM);
		return;
	}
	wr->send_flags |= IBV_SEND_INLINE;
	wr->num_sge = 1;
	b->sge[b->sges++] = (struct ibv_sge){ .addr = b->used, .length = length };
	for (i = 0; i < n; i++) {
		if (list[i].length)
			memcpy(b->bytes + b->used, list[i].addr, list[i].length);
		b->used += list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *data)
{
	wr_rdma(ex, IBV_WR_ATOMIC_WRITE, rkey, addr, 0);
	wr_set_inline_data(ex, (void *)data, 8);
}

/* Newer headers have it; it stands behind the functions that ours know. The rest is where Go looks for it. */
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	struct ibv_send_wr *wr;

	wr_rdma(ex, (enum ibv_wr_opcode)SOFTIB_WR_FLUSH, rkey, addr, 0);
	if (length > UINT32_MAX)
		fail(to_qp_ex(ex)->builder, EINVAL);
	wr = last(to_qp_ex(ex)->builder);
	memcpy(&wr->bind_mw, &(struct softib_flush){ length, type, level }, sizeof(struct softib_flush));
	to_qp_ex(ex)->builder->has_data = true;
}

/* The last request, if the queue pair is of that type. */
static struct ibv_send_wr *last_of(struct ibv_qp_ex *ex, enum ibv_qp_type type)
{
	struct softib_builder *b = to_qp_ex(ex)->builder;

	return ex->qp_base.qp_type == type ? last(b) : fail(b, EINVAL);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = last_of(ex, IBV_QPT_UD);

	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	last_of(ex, IBV_QPT_XRC_SEND)->qp_type.xrc.remote_srqn = srqn;
}

uint64_t softib_builder_ops(enum ibv_qp_type type)
{
	const uint64_t datagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t unreliable = datagram | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	const uint64_t reliable = unreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_ATOMIC_WRITE | SOFTIB_QP_EX_WITH_FLUSH;

	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return reliable;
	case IBV_QPT_UC:
		return unreliable;
	case IBV_QPT_UD:
		return datagram;
	default:
		return 0;
	}
}

#define BUILDER_FUNCTIONS(X)                                                                               \
	X(start) X(complete) X(abort) X(send) X(send_imm) X(send_inv) X(send_tso) X(rdma_write)            \
	X(rdma_write_imm) X(rdma_read) X(atomic_cmp_swp) X(atomic_fetch_add) X(atomic_write) X(bind_mw)    \
	X(local_inv) X(set_sge) X(set_sge_list) X(set_inline_data) X(set_inline_data_list) X(set_ud_addr)  \
	X(set_xrc_srqn)

int softib_give_builder(struct softib_qp *qp)
{
	struct softib_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return ENOMEM;
	softib_make_section(&b->section, softib_single_threaded(qp->qp.pd));
	qp->builder = b;
#define X(name) qp->ex.wr_##name = wr_##name;
	BUILDER_FUNCTIONS(X)
#undef X
	qp->wr_flush = wr_flush;
	return 0;
}

void softib_free_builder(struct softib_builder *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->section.lock);
	free(b->wr);
	free(b->sge);
	free(b->bytes);
	free(b);
}
