/* Protection domains and memory regions. */
#include "softib.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct softib_pd *pd = softib_new(context, sizeof(*pd));
	int error;

	if (!pd)
		return NULL;
	error = softib_go.alloc_pd(to_context(context)->handle, &pd->pd.handle);
	if (error)
		return softib_discard(pd, error);
	pd->pd.context = context;
	return &pd->pd;
}
ALSO_1_0(ibv_alloc_pd);

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct softib_pd *p = to_pd(pd);
	int error;

	if (softib_left(pd->context))
		return EIO;
	if (p->inner) { /* a parent domain is nothing but memory */
		softib_leave_domains(p);
		free(p);
		return 0;
	}
	if (__atomic_load_n(&p->parents, __ATOMIC_ACQUIRE))
		return EBUSY;
	error = softib_go.dealloc_pd(pd->handle);
	if (!error)
		free(p);
	return error;
}
ALSO_1_0(ibv_dealloc_pd);

/*
 * Whether all of [start, end) is mapped with these rights, by the kernel's list of what is. That costs as much as there
 * are mappings, whatever the size of the range, and touches none of its pages.
 */
static int check_maps(uintptr_t start, uintptr_t end, bool write)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t from, to;
	char rights[5];

	if (!maps) /* then only whether there is something */
		return msync((void *)start, end - start, MS_ASYNC) ? EFAULT : 0;
	while (start < end && fscanf(maps, "%" SCNxPTR "-%" SCNxPTR " %4s%*[^\n]", &from, &to, rights) == 3) {
		if (to <= start)
			continue;
		if (from > start || rights[0] != 'r' || (write && rights[1] != 'w'))
			break;
		start = to;
	}
	fclose(maps);
	return start < end ? EFAULT : 0;
}

/*
 * As pinning does: what is not mapped, or not as access wants it, is EFAULT. The pages of a small region are made
 * present, which is the fastest way to know; those of a large one may be more than the machine has.
 */
static int check_range(void *addr, size_t length, unsigned int access)
{
	const size_t small = 128 << 10;
	size_t page = sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + length;
	bool write = access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

	if (!length || end < (uintptr_t)addr || end > UINTPTR_MAX - page)
		return EINVAL;
	end = (end + page - 1) & ~(page - 1);
	if (length <= small) {
		if (!madvise((void *)start, end - start, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
			return 0;
		if (errno == EFAULT || errno == ENOMEM)
			return EFAULT;
	}
	return check_maps(start, end, write); /* also where the kernel does not know how, or was interrupted */
}

enum {
	ACCESS_PASSED = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
		SOFTIB_ACCESS_FLUSH_GLOBAL,
	/* The others ask for nothing that an adapter in software could do better. */
	ACCESS_KNOWN = ACCESS_PASSED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE,
};

/* Whether the kernel can be asked for pages without a signal where there are none: from 5.14 on. */
bool softib_pages_on_demand(void)
{
	static int can; /* 1 it can, 2 it cannot */
	static uint8_t probe;
	int known = __atomic_load_n(&can, __ATOMIC_RELAXED);

	if (!known) {
		size_t page = sysconf(_SC_PAGESIZE);

		known = madvise((void *)((uintptr_t)&probe & ~(page - 1)), page, MADV_POPULATE_WRITE) ? 2 : 1;
		__atomic_store_n(&can, known, __ATOMIC_RELAXED);
	}
	return known == 1;
}

static int check_access(unsigned int access)
{
	if (access & IBV_ACCESS_ON_DEMAND && !softib_pages_on_demand())
		return EOPNOTSUPP;
	return access & ~ACCESS_KNOWN ? EINVAL : 0;
}

/* Whether the range can be registered: on demand it need not be there, and with SIZE_MAX it is all that there is. */
static int check_memory(void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (!(access & IBV_ACCESS_ON_DEMAND))
		return check_range(addr, length, access);
	if (length == SIZE_MAX)
		return addr || iova ? EINVAL : 0;
	return !addr || !length || (uintptr_t)addr + length < (uintptr_t)addr ? EINVAL : 0;
}

struct ibv_mr *softib_reg_at(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct softib_mr_args args = { .addr = addr, .length = length, .iova = iova, .access = access & ACCESS_PASSED };
	struct softib_mr *m = softib_new(pd->context, sizeof(*m));
	int error;

	if (!m)
		return NULL;
	args.pd = pd->handle;
	error = check_access(access) ?: softib_go.reg_mr(&args);
	if (error)
		return softib_discard(m, error);
	m->access = access;
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.addr = addr;
	m->mr.length = length;
	m->mr.handle = args.handle;
	m->mr.lkey = args.lkey;
	m->mr.rkey = args.rkey;
	return &m->mr;
}

void softib_region_of(struct ibv_mr *mr, int *regions)
{
	container_of(mr, struct softib_mr, mr)->regions = regions;
	__atomic_add_fetch(regions, 1, __ATOMIC_RELAXED);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	int error = check_access(access) ?: check_memory(addr, length, iova, access);
	struct ibv_mr *mr = error ? FAIL(error) : softib_reg_at(pd, addr, length, iova, access);

	/* Pages on demand are asked for before they are touched. They may still go in between. */
	if (mr)
		container_of(mr, struct softib_mr, mr)->range = softib_watch(addr, length);
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}
ALSO_1_0(ibv_reg_mr);

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

/*
 * A dma-buf, where who exports it lets processors map it (udmabuf, heaps; a memfd does as well). The region is what is
 * mapped, so it is there as long as the region is, whatever becomes of the descriptor.
 */
EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
	int access)
{
	const int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE;
	const bool write = access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t start = offset & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	size_t mapped = length + (offset - start);
	off_t size = lseek(fd, 0, SEEK_END);
	struct softib_mr *m;
	struct ibv_mr *mr;
	void *map;

	if (access & ~known)
		return FAIL(EOPNOTSUPP);
	if (size < 0)
		return FAIL(errno == ESPIPE ? EINVAL : errno); /* it is nothing with a length */
	if (!length || offset > (uint64_t)size || length > (uint64_t)size - offset)
		return FAIL(EINVAL);
	map = mmap(NULL, mapped, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, fd, start);
	if (map == MAP_FAILED)
		return FAIL(errno == ENODEV ? EOPNOTSUPP : errno);
	mr = softib_reg_at(pd, (uint8_t *)map + (offset - start), length, iova, access);
	if (!mr) {
		int error = errno;

		munmap(map, mapped);
		return FAIL(error);
	}
	m = container_of(mr, struct softib_mr, mr);
	m->map = map;
	m->mapped = mapped;
	m->range = softib_watch(map, mapped); /* a file may become shorter */
	mr->addr = NULL;
	return mr;
}

/* As much as an element of a list may have. */
#define NULL_SIZE (1ull << 31)

/*
 * A region of nothing: zeros, of which the kernel has a page for everybody, and what is written is dropped. It has no
 * key for peers, as libibverbs has it.
 */
struct ibv_mr *softib_alloc_null_mr(struct ibv_pd *pd)
{
	struct softib_mr_args args = { .pd = pd->handle, .length = NULL_SIZE };
	struct softib_mr *m = softib_new(pd->context, sizeof(*m));
	int error;

	if (!m)
		return NULL;
	args.addr = mmap(NULL, NULL_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (args.addr == MAP_FAILED)
		return softib_discard(m, errno);
	error = softib_go.alloc_null_mr(&args);
	if (error) {
		munmap(args.addr, NULL_SIZE);
		return softib_discard(m, error);
	}
	m->map = args.addr;
	m->mapped = NULL_SIZE;
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.length = SIZE_MAX;
	m->mr.handle = args.handle;
	m->mr.lkey = args.lkey;
	return &m->mr;
}

/* Why a region cannot be changed in that way, or 0. */
static int check_rereg(const struct softib_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION, new_access = flags & IBV_REREG_MR_CHANGE_ACCESS;
	int error;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (moves && (!addr || !length)) || (access && !new_access) ||
	    (flags & IBV_REREG_MR_CHANGE_PD && !pd))
		return EINVAL;
	error = new_access ? check_access(access) : 0;
	if (error || !(moves || new_access))
		return error;
	/* Whether pages are asked for is settled, and memory that is not the program's own stays where it is. */
	if ((new_access && (access ^ m->access) & IBV_ACCESS_ON_DEMAND) ||
	    (moves && (m->regions || m->map || length == SIZE_MAX)))
		return EOPNOTSUPP;
	if (m->regions || m->map)
		return 0;
	return check_memory(moves ? addr : m->mr.addr, moves ? length : m->mr.length, 0,
		new_access ? (unsigned int)access : m->access);
}

/* Whatever fails, the region stays as it was. */
EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct softib_mr *m = container_of(mr, struct softib_mr, mr);
	struct softib_mr_args args = { .handle = mr->handle, .flags = flags, .addr = addr, .length = length,
		.iova = (uintptr_t)addr, .access = access & ACCESS_PASSED };
	int error = softib_gone(mr->context) ?: check_rereg(m, flags, pd, addr, length, access);

	if (!error && flags & IBV_REREG_MR_CHANGE_PD)
		args.pd = pd->handle;
	if (!error)
		error = softib_go.rereg_mr(&args);
	if (error) {
		errno = error;
		return IBV_REREG_MR_ERR_INPUT;
	}
	mr->lkey = args.lkey;
	mr->rkey = args.rkey;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
		softib_unwatch(m->range);
		m->range = softib_watch(addr, length);
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->access = access;
	return 0;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct softib_mr *m = container_of(mr, struct softib_mr, mr);
	int error = softib_left(mr->context) ? EIO : softib_go.dereg_mr(mr->handle);

	if (error)
		return error;
	softib_unwatch(m->range);
	if (m->regions)
		__atomic_sub_fetch(m->regions, 1, __ATOMIC_RELEASE);
	if (m->map)
		munmap(m->map, m->mapped);
	free(m);
	return 0;
}
ALSO_1_0(ibv_dereg_mr);

int softib_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
	uint32_t n)
{
	int error = softib_gone(pd->context);

	if (error)
		return error;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	/* It is done when this returns, also where the program would not have waited for it. */
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !n || !list)
		return EINVAL;
	return softib_go.advise_mr(pd->handle, advice, list, n);
}
