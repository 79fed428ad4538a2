/* Memory that is more than a buffer: the device's own, what is there on demand, and what has a second name. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "rig.h"

static struct ibv_cq *cq;
static struct ibv_qp *a, *b;

static void pair(void)
{
	a = new_qp(IBV_QPT_RC, cq, cq, 0);
	b = new_qp(IBV_QPT_RC, cq, cq, 0);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
}

static void unpair(void)
{
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

/* How a request ends that has length bytes at both ends. What ends badly breaks the queue pairs, so there are others.
 */
static enum ibv_wc_status request(enum ibv_wr_opcode op, uint64_t at, uint32_t lkey, uint32_t length, uint64_t remote,
	uint32_t rkey)
{
	struct ibv_sge sge = { .addr = at, .length = length, .lkey = lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	MUST(ibv_post_send(a, &wr, &bad) == 0);
	wc = wait_wc(cq);
	MUST(wc.wr_id == 1);
	if (wc.status) {
		unpair();
		pair();
	}
	return wc.status;
}

static void fill(uint8_t *at, size_t n, int seed)
{
	for (size_t i = 0; i < n; i++)
		at[i] = i * 11 + seed;
}

static size_t max_dm(void)
{
	struct ibv_device_attr_ex ex;

	MUST(ibv_query_device_ex(ctx, NULL, &ex) == 0 && ex.max_dm_size >= 1 << 16);
	return ex.max_dm_size;
}

static struct ibv_dm *new_dm(size_t length, uint32_t align)
{
	struct ibv_alloc_dm_attr attr = { .length = length, .log_align_req = align };

	return ibv_alloc_dm(ctx, &attr);
}

static void test_dm(void)
{
	const int access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ;
	size_t max = max_dm(), n = 5000;
	struct ibv_dm *dm = new_dm(n, 0), *all, *other;
	struct ibv_mr *of;
	uint8_t back[5000];

	/* Nothing, too much, or asked for in a way that is not known. */
	NONE(new_dm(0, 0), EINVAL);
	NONE(new_dm(max + 1, 0), ENOMEM);
	NONE(new_dm(8, 40), EINVAL);
	NONE(ibv_alloc_dm(ctx, &(struct ibv_alloc_dm_attr){ .length = 8, .comp_mask = 1 }), EINVAL);
	MUST(dm);

	/* Copies are whole words within it. */
	fill(mem, n, 1);
	MUST(ibv_memcpy_to_dm(dm, 0, mem, n) == 0);
	MUST(ibv_memcpy_from_dm(back, dm, 0, n) == 0 && !memcmp(back, mem, n));
	MUST(ibv_memcpy_from_dm(back, dm, 8, 16) == 0 && !memcmp(back, mem + 8, 16));
	MUST(ibv_memcpy_to_dm(dm, 1, mem, 4) == EINVAL && ibv_memcpy_to_dm(dm, 4, mem, 3) == EINVAL);
	MUST(ibv_memcpy_to_dm(dm, n, mem, 4) == EINVAL && ibv_memcpy_to_dm(dm, 0, mem, n + 4) == EINVAL);
	MUST(ibv_memcpy_from_dm(back, dm, UINT64_MAX - 3, 8) == EINVAL);

	/* A region of it is addressed from its own begin, and keeps it. */
	NONE(ibv_reg_dm_mr(pd, dm, 0, n, access & ~IBV_ACCESS_ZERO_BASED), EINVAL);
	NONE(ibv_reg_dm_mr(pd, dm, 0, n + 4, access), EINVAL);
	NONE(ibv_reg_dm_mr(pd, dm, 8, n, access), EINVAL);
	of = ibv_reg_dm_mr(pd, dm, 1000, 4000, access);
	MUST(of && of->length == 4000);
	MUST(ibv_free_dm(dm) == EBUSY);
	fill(mem, HALF, 2);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 4000, 0, of->rkey) == IBV_WC_SUCCESS);
	MUST(ibv_memcpy_from_dm(back, dm, 1000, 4000) == 0 && !memcmp(back, mem, 4000));
	MUST(request(IBV_WR_RDMA_READ, (uintptr_t)mem + HALF, mr->lkey, 100, 8, of->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(mem + HALF, mem + 8, 100));
	MUST(request(IBV_WR_RDMA_WRITE, 100, of->lkey, 200, (uintptr_t)mem + HALF, mr->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(mem + HALF, mem + 100, 200));
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 8, 3996, of->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(ibv_dereg_mr(of) == 0);

	/* All of it can be had, once, and nobody sees what another one had there. */
	NONE(new_dm(max, 0), ENOMEM);
	MUST(ibv_free_dm(dm) == 0);
	all = new_dm(max, 12);
	MUST(all);
	NONE(new_dm(4, 0), ENOMEM);
	MUST(ibv_memcpy_from_dm(back, all, 0, n) == 0);
	for (size_t i = 0; i < n; i++)
		MUST(!back[i]);
	MUST(ibv_free_dm(all) == 0);
	dm = new_dm(1, 0);
	other = new_dm(4096, 12);
	MUST(dm && other && ibv_free_dm(dm) == 0 && ibv_free_dm(other) == 0);
}

/* A child has its parent's device memory, as it has its descriptor of the device. */
static void test_forkdm(void)
{
	size_t max = max_dm();
	struct ibv_dm *dm = new_dm(max / 2, 0);
	uint32_t word = 0;
	int status;
	pid_t child;

	MUST(dm);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		struct ibv_dm *own = new_dm(max / 2, 0);

		alarm(20);
		word = 42;
		MUST(own && ibv_memcpy_to_dm(dm, 8, &word, 4) == 0);
		NONE(new_dm(4, 0), ENOMEM);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(ibv_memcpy_from_dm(&word, dm, 8, 4) == 0 && word == 42);
	NONE(new_dm(4, 0), ENOMEM); /* what the child had is the context's */
	MUST(ibv_free_dm(dm) == 0);
}

static void test_import(void)
{
	struct ibv_dm *dm = new_dm(64, 0), *dm2;
	int fd = dup(ctx->cmd_fd), foreign = open("/dev/null", O_RDWR), unknown = memfd_create("x", 0);
	struct ibv_context *second = ibv_import_device(fd);
	struct ibv_pd *pd2;
	struct ibv_mr *mr2;
	uint32_t word = 7;

	MUST(second && second->device == ctx->device && second->cmd_fd == fd);
	NONE(ibv_import_device(foreign), EOPNOTSUPP);
	NONE(ibv_import_device(unknown), EOPNOTSUPP);
	NONE(ibv_import_device(-1), EOPNOTSUPP);
	NONE(ibv_import_pd(second, pd->handle + 100), ENOENT);
	pd2 = ibv_import_pd(second, pd->handle);
	MUST(pd2 && pd2->context == second);
	NONE(ibv_import_mr(pd2, mr->handle + 100), ENOENT);
	mr2 = ibv_import_mr(pd2, mr->handle);
	MUST(mr2 && mr2->lkey == mr->lkey && mr2->rkey == mr->rkey && mr2->length == mr->length && !mr2->addr);

	/* Keys open the memory whatever name it goes by. */
	fill(mem, 100, 3);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr2->lkey, 100, (uintptr_t)mem + HALF, mr2->rkey) ==
		IBV_WC_SUCCESS);
	MUST(!memcmp(mem, mem + HALF, 100));
	ibv_unimport_mr(mr2);
	ibv_unimport_pd(pd2);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 100, (uintptr_t)mem + HALF, mr->rkey) == IBV_WC_SUCCESS);

	NONE(ibv_import_dm(second, dm->handle + 1), ENOENT);
	NONE(ibv_import_dm(second, 0), ENOENT);
	dm2 = ibv_import_dm(second, dm->handle);
	MUST(dm2 && ibv_memcpy_to_dm(dm2, 60, &word, 4) == 0);
	word = 0;
	MUST(ibv_memcpy_from_dm(&word, dm, 60, 4) == 0 && word == 7);
	ibv_unimport_dm(dm2);
	MUST(ibv_free_dm(dm) == 0);
	MUST(ibv_close_device(second) == 0);
	NONE(ibv_import_device(fd), EOPNOTSUPP); /* it was closed */
	close(foreign);
	close(unknown);
}

static bool present(void *at)
{
	unsigned char is;

	MUST(mincore(at, 4096, &is) == 0);
	return is & 1;
}

static void test_paging(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND;
	const size_t n = 16 * 4096;
	/* Far from where the kernel puts what libraries map meanwhile, for there is to be nothing here. */
	uint8_t *at = mmap((void *)0x100000000000, n, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	struct ibv_sge sge;
	struct ibv_mr *of, *all;
	uint64_t far;

	/* A region may be registered before there is anything. */
	MUST(at != MAP_FAILED && munmap(at, n) == 0);
	NONE(ibv_reg_mr(pd, at, n, access & ~IBV_ACCESS_ON_DEMAND), EFAULT);
	NONE(ibv_reg_mr(pd, at, 0, access), EINVAL);
	NONE(ibv_reg_mr(pd, NULL, 4096, access), EINVAL);
	of = ibv_reg_mr(pd, at, n, access);
	MUST(of);
	far = (uintptr_t)at + 4096;
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 100, far, of->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_READ, (uintptr_t)mem, mr->lkey, 100, far, of->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_WRITE, far, of->lkey, 100, (uintptr_t)mem, mr->rkey) == IBV_WC_LOC_PROT_ERR);
	MUST(msync(at, n, MS_ASYNC) && errno == ENOMEM); /* and nothing has appeared there */

	/* What is mapped later is there, page by page, and what is gone is gone. */
	MUST(mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	fill(mem, HALF, 4);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 10000, far + 100, of->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(at + 4196, mem, 10000) && !present(at) && !present(at + 5 * 4096));
	MUST(request(IBV_WR_RDMA_READ, (uintptr_t)mem + HALF, mr->lkey, 10000, far + 100, of->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(mem + HALF, mem, 10000));
	MUST(mprotect(at + 2 * 4096, 4096, PROT_READ) == 0);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 10000, far + 100, of->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_READ, (uintptr_t)mem, mr->lkey, 10000, far + 100, of->rkey) == IBV_WC_SUCCESS);
	MUST(munmap(at + 2 * 4096, 4096) == 0);
	MUST(request(IBV_WR_RDMA_READ, (uintptr_t)mem, mr->lkey, 10000, far + 100, of->rkey) == IBV_WC_REM_ACCESS_ERR);

	/* Advice fetches pages, or says why not. */
	sge = (struct ibv_sge){ .addr = (uintptr_t)at + 8 * 4096, .length = 2 * 4096, .lkey = of->lkey };
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == 0);
	MUST(!present(at + 8 * 4096));
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == 0);
	MUST(present(at + 8 * 4096) && present(at + 9 * 4096) && !present(at + 10 * 4096));
	sge.addr = (uintptr_t)at + 4096;
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EFAULT);
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &sge, 1) == EINVAL);
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0) == EINVAL);
	MUST(ibv_advise_mr(pd, 77, 0, &sge, 1) == EOPNOTSUPP);
	sge.lkey = mr->lkey;
	sge.addr = (uintptr_t)mem;
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EINVAL);

	/* What a region is, it stays. */
	MUST(ibv_rereg_mr(of, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) && errno == EOPNOTSUPP);
	MUST(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
	MUST(ibv_rereg_mr(of, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at + 4096, 4096, 0) == 0);
	MUST(ibv_dereg_mr(of) == 0);

	/* All memory is one region, also what comes later. */
	NONE(ibv_reg_mr(pd, mem, SIZE_MAX, access), EINVAL);
	all = ibv_reg_mr(pd, NULL, SIZE_MAX, access);
	MUST(all);
	MUST(mmap(at + 2 * 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
		MAP_FAILED);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, all->lkey, 10000, far, all->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(at + 4096, mem, 10000));
	MUST(munmap(at, n) == 0);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, all->lkey, 8, far, all->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, all->lkey, 8, 0, all->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, all->lkey, 8, 4096, all->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, all->lkey, 8, UINT64_MAX - 15, all->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(request(IBV_WR_RDMA_WRITE, 1ull << 47, all->lkey, 8, (uintptr_t)mem, mr->rkey) == IBV_WC_LOC_PROT_ERR);
	MUST(ibv_dereg_mr(all) == 0);
}

static void test_dmabuf(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	const size_t n = 5 * 4096;
	int fd = memfd_create("x", 0), ends[2];
	struct ibv_mr *of;
	uint8_t *at;

	MUST(fd >= 0 && ftruncate(fd, n) == 0 && pipe(ends) == 0);
	at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(at != MAP_FAILED);
	NONE(ibv_reg_dmabuf_mr(pd, 0, n + 1, 0, fd, access), EINVAL);
	NONE(ibv_reg_dmabuf_mr(pd, n, 8, 0, fd, access), EINVAL);
	NONE(ibv_reg_dmabuf_mr(pd, 0, 0, 0, fd, access), EINVAL);
	NONE(ibv_reg_dmabuf_mr(pd, UINT64_MAX, 8, 0, fd, access), EINVAL);
	NONE(ibv_reg_dmabuf_mr(pd, 0, n, 0, fd, access | IBV_ACCESS_MW_BIND), EOPNOTSUPP);
	NONE(ibv_reg_dmabuf_mr(pd, 0, n, 0, -1, access), EBADF);
	NONE(ibv_reg_dmabuf_mr(pd, 0, n, 0, ends[0], access), EINVAL);
	of = ibv_reg_dmabuf_mr(pd, 4100, 3 * 4096, 0x5000, fd, access);
	MUST(of && of->length == 3 * 4096);
	close(fd); /* the region keeps what it is of */
	fill(mem, HALF, 5);
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 9000, 0x5000 + 8, of->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(at + 4108, mem, 9000));
	MUST(request(IBV_WR_RDMA_WRITE, 0x5000 + 8, of->lkey, 9000, (uintptr_t)mem + HALF, mr->rkey) == IBV_WC_SUCCESS);
	MUST(!memcmp(mem + HALF, mem, 9000));
	MUST(request(IBV_WR_RDMA_WRITE, (uintptr_t)mem, mr->lkey, 8, 0x4ff8, of->rkey) == IBV_WC_REM_ACCESS_ERR);
	MUST(ibv_rereg_mr(of, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem, 4096, 0) && errno == EOPNOTSUPP);
	MUST(ibv_dereg_mr(of) == 0 && munmap(at, n) == 0);
	close(ends[0]);
	close(ends[1]);
}

/* A region of nothing: zeros to send, and a place for what nobody wants. */
static void test_null(void)
{
	struct ibv_mr *none = ibv_alloc_null_mr(pd), *other;
	struct ibv_sge from[] = { { 0, 1000, 0 }, { (uintptr_t)mem, 1000, mr->lkey }, { 1, 500, 0 } };
	struct ibv_sge to[] = { { 12345, 900, 0 }, { (uintptr_t)mem + HALF, 1000, mr->lkey }, { 0, 1u << 30, 0 } };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = from, .num_sge = 3, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = 2, .sg_list = to, .num_sge = 3 };
	struct ibv_wc wc[2];

	MUST(none && none->length == SIZE_MAX && !none->addr && !none->rkey && none->pd == pd);
	from[0].lkey = from[2].lkey = to[0].lkey = to[2].lkey = none->lkey;
	memset(mem, 1, 1000);
	memset(mem + HALF, 7, 2000);
	MUST(ibv_post_recv(b, &recv, &bad_recv) == 0);
	MUST(ibv_post_send(a, &wr, &bad) == 0);
	wc[0] = wait_wc(cq);
	wc[1] = wait_wc(cq);
	MUST(wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS && wc[0].wr_id + wc[1].wr_id == 3);
	for (int i = 0; i < 1100; i++)
		MUST(mem[HALF + i] == (i < 100 ? 0 : i < 1000 ? 1 : 7));
	MUST(ibv_rereg_mr(none, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	MUST(errno == EINVAL);
	other = ibv_alloc_null_mr(pd);
	MUST(other && other->lkey != none->lkey && ibv_dereg_mr(other) == 0);
	MUST(ibv_dereg_mr(none) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = { { "dm", test_dm }, { "forkdm", test_forkdm }, { "import", test_import }, { "paging", test_paging },
	{ "dmabuf", test_dmabuf }, { "null", test_null } };

int main(int argc, char **argv)
{
	MUST(argc == 2);
	rig();
	cq = new_cq();
	pair();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(tests[i].name, argv[1])) {
			tests[i].run();
			unpair();
			MUST(ibv_destroy_cq(cq) == 0);
			unrig();
			return 0;
		}
	fprintf(stderr, "no test %s\n", argv[1]);
	return 1;
}
