/* Thread domains and parent domains. */
#include <stdlib.h>

#include "ext.h"

static struct softib_td *to_td(struct ibv_td *td)
{
	return container_of(td, struct softib_td, td);
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct softib_td *t;

	if (!attr || attr->comp_mask)
		return FAIL(EINVAL);
	t = calloc(1, sizeof(*t));
	if (!t)
		return FAIL(ENOMEM);
	t->td.context = context;
	return &t->td;
}

static int dealloc_td(struct ibv_td *td)
{
	struct softib_td *t = to_td(td);

	if (__atomic_load_n(&t->users, __ATOMIC_ACQUIRE))
		return EBUSY;
	free(t);
	return 0;
}

/*
 * A parent domain is its protection domain under another address: the handle is the same, so
 * every verb takes it. Allocators are not called, since no memory of this library is the adapter's.
 */
static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct softib_pd *p, *inner;

	if (!attr || !attr->pd || attr->comp_mask & ~known)
		return FAIL(EINVAL);
	inner = to_pd(attr->pd);
	if (inner->inner || inner->pd.context != context || (attr->td && attr->td->context != context))
		return FAIL(EINVAL);
	p = calloc(1, sizeof(*p));
	if (!p)
		return FAIL(ENOMEM);
	p->pd.context = context;
	p->pd.handle = inner->pd.handle;
	p->inner = inner;
	__atomic_add_fetch(&inner->parents, 1, __ATOMIC_RELAXED);
	if (attr->td) {
		p->td = to_td(attr->td);
		__atomic_add_fetch(&p->td->users, 1, __ATOMIC_RELAXED);
	}
	return &p->pd;
}

void softib_drop_pd_ex(struct softib_pd *p)
{
	__atomic_sub_fetch(&p->inner->parents, 1, __ATOMIC_RELEASE);
	if (p->td)
		__atomic_sub_fetch(&p->td->users, 1, __ATOMIC_RELEASE);
}

void softib_domain_ops(struct verbs_context *v)
{
	v->alloc_td = alloc_td;
	v->dealloc_td = dealloc_td;
	v->alloc_parent_domain = alloc_parent_domain;
}
