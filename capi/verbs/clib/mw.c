/* Memory windows. */
#include <stdlib.h>

#include "ext.h"

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct softib_mw *w;
	int error;

	if (!pd)
		return FAIL(EINVAL);
	error = softib_gone(pd->context);
	if (error)
		return FAIL(error);
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return FAIL(EINVAL);
	w = calloc(1, sizeof(*w));
	if (!w)
		return FAIL(ENOMEM);
	error = softib_go.alloc_mw(pd->handle, type, &w->mw.handle, &w->mw.rkey);
	if (error) {
		free(w);
		return FAIL(error);
	}
	w->mw.context = pd->context;
	w->mw.pd = pd;
	w->mw.type = type;
	return &w->mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	int error;

	if (softib_forked)
		return EIO;
	error = softib_go.dealloc_mw(mw->handle);
	if (!error)
		free(container_of(mw, struct softib_mw, mw));
	return error;
}

/*
 * Binds a window of type 1: a work request like any other. The key that the window will have is
 * known when the request is posted, since programs send it to a peer right behind it.
 */
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
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

void softib_mw_ops(struct verbs_context *v)
{
	v->context.ops.alloc_mw = alloc_mw;
	v->context.ops.dealloc_mw = dealloc_mw;
	v->context.ops.bind_mw = bind_mw;
}
