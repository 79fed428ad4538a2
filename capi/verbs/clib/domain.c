/* Thread domains and parent domains. */
#include "softib.h"

struct softib_td {
	struct ibv_td td;
	int users; /* parent domains; atomic */
};

static struct softib_td *to_td(struct ibv_td *td)
{
	return container_of(td, struct softib_td, td);
}

struct ibv_td *softib_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
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

int softib_dealloc_td(struct ibv_td *td)
{
	struct softib_td *t = to_td(td);

	if (__atomic_load_n(&t->users, __ATOMIC_ACQUIRE))
		return EBUSY;
	free(t);
	return 0;
}

/*
 * A parent domain is its protection domain under another address: the handle is the same, so every verb takes it.
 * Allocators are not called, since no memory of this library is the adapter's.
 */
struct ibv_pd *softib_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
		SOFTIB_PARENT_DOMAIN_CC;
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

void softib_leave_domains(struct softib_pd *p)
{
	__atomic_sub_fetch(&p->inner->parents, 1, __ATOMIC_RELEASE);
	if (p->td)
		__atomic_sub_fetch(&p->td->users, 1, __ATOMIC_RELEASE);
}

void softib_make_section(struct softib_section *s, bool single)
{
	pthread_mutexattr_t checks;

	pthread_mutexattr_init(&checks);
	pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&s->lock, &checks);
	pthread_mutexattr_destroy(&checks);
	s->single = single;
}
