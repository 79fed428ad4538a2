/* What the files of the extended verbs offer each other. */
#ifndef SOFTIB_EXT_H
#define SOFTIB_EXT_H

#include "softib.h"

/* One call a file: its entries in the tables of functions. */
void softib_device_ex_ops(struct verbs_context *);
void softib_cq_ex_ops(struct verbs_context *);
void softib_qp_ex_ops(struct verbs_context *);
void softib_srq_ex_ops(struct verbs_context *);
void softib_xrc_ops(struct verbs_context *);
void softib_domain_ops(struct verbs_context *);
void softib_mw_ops(struct verbs_context *);

/* wr.c: makes qp's builder of work requests. 0 or an errno. */
int softib_give_builder(struct softib_qp *);
/* The operations that the builder of such a queue pair has. */
uint64_t softib_builder_ops(enum ibv_qp_type);

struct softib_td {
	struct ibv_td td;
	int users; /* parent domains; atomic */
};

/* Whether one thread at a time uses what is made in this domain: nothing is locked then. */
static inline bool softib_single_threaded(struct ibv_pd *pd)
{
	return pd && to_pd(pd)->td;
}

/* xrc.c: an object is in the domain, or leaves it. The domain may be NULL. */
void softib_xrcd_use(struct ibv_xrcd *, int change);

#endif
