/* Memory windows. */
#include "softib.h"

struct ibv_mw *softib_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;
	int error;

	if (!pd)
		return FAIL(EINVAL);
	mw = softib_new(pd->context, sizeof(*mw));
	if (!mw)
		return NULL;
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return softib_discard(mw, EINVAL);
	error = softib_go.alloc_mw(pd->handle, type, &mw->handle, &mw->rkey);
	if (error)
		return softib_discard(mw, error);
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	return mw;
}

int softib_dealloc_mw(struct ibv_mw *mw)
{
	int error = softib_left(mw->context) ? EIO : softib_go.dealloc_mw(mw->handle);

	if (!error)
		free(mw);
	return error;
}

/*
 * Binds a window of type 1: a work request like any other. The key that the window will have is known when the request
 * is posted, since programs send it to a peer right behind it.
 */
int softib_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info },
	};
	struct ibv_send_wr *bad;
	int error;

	if (bind->send_flags & ~(unsigned int)(IBV_SEND_FENCE | IBV_SEND_SIGNALED))
		return EINVAL;
	error = softib_post_send(qp, &wr, &bad);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}
