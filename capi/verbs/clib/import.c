/*
 * Objects under a second name: those of a device that is open in this process, named by a copy of its descriptor. The
 * adapter of another process is inside that process, and what its descriptor names is not found here.
 */
#include "softib.h"

#include <sys/stat.h>

static struct softib_context *contexts;
static pthread_mutex_t contexts_mutex = PTHREAD_MUTEX_INITIALIZER;

void softib_list(struct softib_context *c)
{
	pthread_mutex_lock(&contexts_mutex);
	c->next = contexts;
	contexts = c;
	pthread_mutex_unlock(&contexts_mutex);
}

void softib_unlist(struct softib_context *c)
{
	pthread_mutex_lock(&contexts_mutex);
	for (struct softib_context **at = &contexts; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	pthread_mutex_unlock(&contexts_mutex);
}

/* What they look at from now on says that the device is gone. */
void softib_leave_contexts(void)
{
	static struct softib_hint gone = { .dead = 1 };

	pthread_mutex_init(&contexts_mutex, NULL);
	for (struct softib_context *c = contexts; c; c = c->next) {
		c->left = true;
		c->hint = &gone;
	}
}

/* Whether two descriptors are of one file, which no other context has. */
static bool same(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A context like the one that the descriptor is of. It takes the descriptor, which is closed with it. */
EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct softib_context *from, *c = NULL;
	int error = EOPNOTSUPP;

	pthread_mutex_lock(&contexts_mutex);
	for (from = contexts; from; from = from->next)
		if (!from->left && same(cmd_fd, from->verbs.context.cmd_fd))
			break;
	if (from) {
		c = softib_open(from->verbs.context.device);
		error = errno;
	}
	if (c)
		c->pool = softib_share_pool(from->pool);
	pthread_mutex_unlock(&contexts_mutex);
	if (!c)
		return FAIL(error);
	close(c->verbs.context.cmd_fd);
	c->verbs.context.cmd_fd = cmd_fd;
	softib_list(c);
	return &c->verbs.context;
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct softib_pd *p = softib_new(context, sizeof(*p));
	int error;

	if (!p)
		return NULL;
	error = softib_go.find_pd(to_context(context)->handle, handle);
	if (error)
		return softib_discard(p, error);
	p->pd.context = context;
	p->pd.handle = handle;
	return &p->pd;
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	free(to_pd(pd));
}

/* The region's address is the business of who registered it. */
EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct softib_mr_args args = { .handle = handle };
	struct softib_mr *m = softib_new(pd->context, sizeof(*m));
	int error;

	if (!m)
		return NULL;
	error = softib_go.find_mr(pd->handle, &args);
	if (error)
		return softib_discard(m, error);
	m->access = args.access;
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.length = args.length;
	m->mr.handle = handle;
	m->mr.lkey = args.lkey;
	m->mr.rkey = args.rkey;
	return &m->mr;
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	free(container_of(mr, struct softib_mr, mr));
}
