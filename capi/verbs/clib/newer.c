/*
 * What libibverbs has had since the headers that this is built with, so that programs of newer systems load: regions
 * from a struct, buffers that the library allocates, the speed of a port. Counters of completions, hints for caches and
 * what is exported as a dma-buf are refused.
 */
#include "softib.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { MASK_IOVA = 1, MASK_ADDR = 2, MASK_FD = 4, MASK_FD_OFFSET = 8, MASK_DMAH = 16, MASK_BUF = 32 };

struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf; /* where addr comes from */
};

/* A buffer of whole pages, for regions of its domain. */
struct ibv_buf {
	struct ibv_pd *pd;
	void *at;
	size_t length;
};

static bool within(struct ibv_pd *pd, const struct ibv_buf *buf, void *addr, size_t length)
{
	return buf && buf->pd == pd && addr >= buf->at && length <= buf->length &&
		(uintptr_t)addr - (uintptr_t)buf->at <= buf->length - length;
}

EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *attr);
EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *attr)
{
	const uint64_t known = MASK_IOVA | MASK_ADDR | MASK_FD | MASK_FD_OFFSET | MASK_BUF;
	uint64_t mask = attr->comp_mask, iova;

	if (mask & MASK_DMAH)
		return FAIL(EOPNOTSUPP);
	if (mask & ~known)
		return FAIL(EINVAL);
	if (mask & MASK_FD) {
		if (mask & (MASK_ADDR | MASK_BUF) || !(mask & MASK_IOVA) || !(mask & MASK_FD_OFFSET))
			return FAIL(EINVAL);
		return ibv_reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd, attr->access);
	}
	if (!(mask & MASK_ADDR) || mask & MASK_FD_OFFSET ||
	    (mask & MASK_BUF && !within(pd, attr->buf, attr->addr, attr->length)))
		return FAIL(EINVAL);
	iova = mask & MASK_IOVA ? attr->iova : (uintptr_t)attr->addr;
	return ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, attr->access);
}

EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct ibv_buf *b;

	if (!pd || !buf || !size || size > SIZE_MAX - page)
		return FAIL(EINVAL);
	b = malloc(sizeof(*b));
	if (!b)
		return FAIL(ENOMEM);
	b->pd = pd;
	b->length = (size + page - 1) & ~(page - 1);
	b->at = mmap(NULL, b->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->at == MAP_FAILED)
		return softib_discard(b, errno);
	*buf = b;
	return b->at;
}

EXPORT void ibv_free_buf(struct ibv_buf *buf);
EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
	munmap(buf->at, buf->length);
	free(buf);
}

EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);
EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access)
{
	if (!within(pd, buf, addr, length))
		return FAIL(EINVAL);
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

/* Speeds by their bit in active_speed, SDR to NDR, of one lane; widths likewise, 1x to 2x. In 100 Mb/s. */
EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	static const uint16_t lane[] = { 25, 50, 100, 103, 141, 258, 531, 1062 }, lanes[] = { 1, 4, 8, 12, 2 };
	struct ibv_port_attr attr;
	unsigned int s, w;
	int error;

	if (port > UINT8_MAX)
		return EINVAL;
	error = softib_query_port(context, port, &attr, sizeof(attr));
	if (error)
		return error;
	s = __builtin_ctz(attr.active_speed | 1 << 8);
	w = __builtin_ctz(attr.active_width | 1 << 5);
	if (s >= sizeof(lane) / sizeof(lane[0]) || w >= sizeof(lanes) / sizeof(lanes[0]))
		return EINVAL;
	*speed = (uint64_t)lane[s] * lanes[w];
	return 0;
}

/* A driver of any version asks for it by that version's name. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
EXPORT int softib_gid_type_65(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
	__attribute__((symver("ibv_query_gid_type@IBVERBS_PRIVATE_65")));
EXPORT int softib_gid_type_65(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	return ibv_query_gid_type(context, port, index, type);
}

#define REFUSED_INT(X) \
	X(ibv_dealloc_dmah) X(_ibv_query_comp_cntr_caps) X(ibv_destroy_comp_cntr) X(ibv_set_comp_cntr) \
	X(ibv_set_err_comp_cntr) X(ibv_inc_comp_cntr) X(ibv_inc_err_comp_cntr) X(ibv_read_comp_cntr) \
	X(ibv_read_err_comp_cntr) X(ibv_qp_attach_comp_cntr)
#define REFUSED_POINTER(X) X(ibv_alloc_dmah) X(ibv_create_comp_cntr)
#define REFUSED_FD(X) X(ibv_dm_export_dmabuf_fd, EOPNOTSUPP) X(ibv_export_buf_dmabuf_fd, ENODATA)

#define X(name)                                      \
	EXPORT int name(void);                       \
	EXPORT int name(void)                        \
	{                                            \
		errno = EOPNOTSUPP;                  \
		return EOPNOTSUPP;                   \
	}
REFUSED_INT(X)
#undef X
#define X(name)                                      \
	EXPORT void *name(void);                     \
	EXPORT void *name(void)                      \
	{                                            \
		return FAIL(EOPNOTSUPP);             \
	}
REFUSED_POINTER(X)
#undef X
#define X(name, why)                                 \
	EXPORT int name(void);                       \
	EXPORT int name(void)                        \
	{                                            \
		return FAIL_INT(why);                \
	}
REFUSED_FD(X)
#undef X
