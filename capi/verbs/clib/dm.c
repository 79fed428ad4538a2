/*
 * Device memory: a pool that a context has when it is opened, before anything can fork, in memory that children share
 * with their parent as they share the device. Who has allocated what stands in the pool itself, so that a child may
 * allocate without the adapter, which stayed with its parent.
 */
#include "softib.h"

#include <sys/mman.h>

enum { BLOCK = 64, BLOCKS = SOFTIB_DM_SIZE / BLOCK, ALIGN_MAX = 12 };

struct softib_pool {
	pthread_mutex_t lock; /* of all processes that have the pool */
	int contexts;	      /* of this process's, which may be imported ones; atomic */
	uint64_t length[BLOCKS]; /* of the allocation that begins here, or 0 */
	uint8_t taken[BLOCKS];
	uint8_t memory[SOFTIB_DM_SIZE] __attribute__((aligned(1 << ALIGN_MAX)));
};

struct softib_dm {
	struct ibv_dm dm; /* handle: the first block, counted from 1 */
	struct softib_pool *pool;
	uint64_t length;
	int regions; /* atomic */
	bool imported;
};

static struct softib_dm *to_dm(struct ibv_dm *dm)
{
	return container_of(dm, struct softib_dm, dm);
}

struct softib_pool *softib_new_pool(void)
{
	const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
	struct softib_pool *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, flags, -1, 0);
	pthread_mutexattr_t attr;

	if (p == MAP_FAILED)
		return NULL;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&p->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	p->contexts = 1;
	return p;
}

struct softib_pool *softib_share_pool(struct softib_pool *p)
{
	if (p)
		__atomic_add_fetch(&p->contexts, 1, __ATOMIC_RELAXED);
	return p;
}

void softib_leave_pool(struct softib_pool *p)
{
	if (p && !__atomic_sub_fetch(&p->contexts, 1, __ATOMIC_ACQ_REL))
		munmap(p, sizeof(*p));
}

static void lock(struct softib_pool *p)
{
	/* Whoever has died with it has left a map that is whole: an allocation becomes one by its length, written last. */
	if (pthread_mutex_lock(&p->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&p->lock);
}

/* The first of n free blocks in a row, at a multiple of step; BLOCKS if there are none. */
static size_t find(const struct softib_pool *p, size_t n, size_t step)
{
	for (size_t at = 0, i; at + n <= BLOCKS; at += step) {
		for (i = 0; i < n && !p->taken[at + i]; i++)
			;
		if (i == n)
			return at;
	}
	return BLOCKS;
}

static size_t blocks(uint64_t length)
{
	return (length + BLOCK - 1) / BLOCK;
}

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length);
static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length);

static struct ibv_dm *make_dm(struct ibv_context *context, struct softib_pool *pool, uint32_t handle, uint64_t length)
{
	struct softib_dm *d = calloc(1, sizeof(*d));

	if (!d)
		return FAIL(ENOMEM);
	d->pool = pool;
	d->length = length;
	d->dm.context = context;
	d->dm.memcpy_to_dm = copy_to;
	d->dm.memcpy_from_dm = copy_from;
	d->dm.handle = handle;
	return &d->dm;
}

static void give_up(struct softib_pool *p, uint32_t handle)
{
	size_t at = handle - 1;

	lock(p);
	memset(p->taken + at, 0, blocks(p->length[at]));
	p->length[at] = 0;
	pthread_mutex_unlock(&p->lock);
}

struct ibv_dm *softib_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct softib_pool *p = to_context(context)->pool;
	struct ibv_dm *dm;
	size_t n, step, at;

	if (!attr || attr->comp_mask || !attr->length || attr->log_align_req > ALIGN_MAX)
		return FAIL(EINVAL);
	if (!p || attr->length > SOFTIB_DM_SIZE)
		return FAIL(ENOMEM);
	n = blocks(attr->length);
	step = (1ul << attr->log_align_req) > BLOCK ? (1ul << attr->log_align_req) / BLOCK : 1;
	lock(p);
	at = find(p, n, step);
	if (at < BLOCKS) {
		memset(p->memory + at * BLOCK, 0, n * BLOCK); /* what others have left there is not for this one */
		memset(p->taken + at, 1, n);
		p->length[at] = attr->length;
	}
	pthread_mutex_unlock(&p->lock);
	if (at == BLOCKS)
		return FAIL(ENOMEM);
	dm = make_dm(context, p, at + 1, attr->length);
	if (!dm)
		give_up(p, at + 1);
	return dm;
}

int softib_free_dm(struct ibv_dm *dm)
{
	struct softib_dm *d = to_dm(dm);

	if (__atomic_load_n(&d->regions, __ATOMIC_ACQUIRE))
		return EBUSY;
	if (!d->imported)
		give_up(d->pool, dm->handle);
	free(d);
	return 0;
}

/* Where a piece lies; NULL if it is not in the allocation, or not in whole words as adapters want it. */
static uint8_t *piece(struct ibv_dm *dm, uint64_t offset, size_t length)
{
	struct softib_dm *d = to_dm(dm);

	if (offset % 4 || length % 4 || offset > d->length || length > d->length - offset)
		return NULL;
	return d->pool->memory + (size_t)(dm->handle - 1) * BLOCK + offset;
}

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	uint8_t *at = piece(dm, offset, length);

	if (!at)
		return EINVAL;
	memcpy(at, from, length);
	return 0;
}

static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	uint8_t *at = piece(dm, offset, length);

	if (!at)
		return EINVAL;
	memcpy(to, at, length);
	return 0;
}

struct ibv_mr *softib_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
	unsigned int access)
{
	uint8_t *at = dm ? piece(dm, offset, length) : NULL;
	struct softib_dm *d;
	struct ibv_mr *mr;

	/* The memory has no address of the program's: peers and requests count from its begin. */
	if (!pd || !at || !(access & IBV_ACCESS_ZERO_BASED) ||
	    to_context(dm->context)->pool != to_context(pd->context)->pool)
		return FAIL(EINVAL);
	d = to_dm(dm);
	mr = softib_reg_at(pd, at, length, 0, access);
	if (!mr)
		return NULL;
	mr->addr = NULL;
	softib_region_of(mr, &d->regions);
	return mr;
}

/* The second handle of an allocation goes without it. */
EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct softib_pool *p = to_context(context)->pool;
	struct ibv_dm *dm;
	uint64_t length = 0;

	if (p && handle && handle <= BLOCKS) {
		lock(p);
		length = p->length[handle - 1];
		pthread_mutex_unlock(&p->lock);
	}
	if (!length)
		return FAIL(ENOENT);
	dm = make_dm(context, p, handle, length);
	if (dm)
		to_dm(dm)->imported = true;
	return dm;
}

EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	free(to_dm(dm));
}
