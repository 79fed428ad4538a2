/*
 * The drop-in libibverbs.so.1 inside: what its objects are, and what its files offer each other. It is included first.
 *
 * Each object begins with the struct that programs see and goes on with ours. The struct's handle field is the handle
 * by which libsoftib.so, which has the adapter, knows the object; it is loaded when the first device is opened and not
 * before (load.c). Functions that return an int return an errno as libibverbs does; those that return a pointer set
 * errno.
 */
#ifndef SOFTIB_H
#define SOFTIB_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "exports.h"

/* The header turns these into macros for programs; here they are the functions. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* libsoftib.so's functions; all set once a device was opened. */
struct softib_go {
#define X(name, args) int (*name) args;
	SOFTIB_CALLS(X)
#undef X
};
extern struct softib_go softib_go;

/* Loads libsoftib.so, once. 0 or an errno; says on stderr why it could not. */
int softib_load(void);
bool softib_loaded(void);

/* faults.c: memory that must be there as long as it is registered, for the adapter if for nobody else. */
struct range;
struct range *softib_watch(void *addr, size_t length);
void softib_unwatch(struct range *);
void softib_keep_handlers(void);
void softib_return_handlers(void); /* the program's, in a child that is to load libsoftib.so anew */
void softib_watch_faults(void *function_of_libsoftib);

void softib_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* device.c */

/* How many devices the environment names: none where softib exec did not start the program. */
int softib_devices(void);

/* ifaddrs.c: the program has looked for adapters. */
void softib_was_listed(void);
/* Whether they are at Ethernet, and at which interface one is. */
bool softib_ethernet(void);
const char *softib_interface(struct ibv_device *device);

/* A device. It is never freed, so that a pointer to it is always good. */
struct softib_device {
	struct ibv_device device;
	const void *driver; /* where drivers' own libraries look for themselves: none */
	__be64 guid;
	char *host; /* of a fabric, or the interface at Ethernet */
};

struct softib_context {
	uint32_t handle;
	bool left; /* this process was forked from the one that opened it, and the adapter stayed there */
	struct softib_hint *hint;
	int async_write; /* the other end of async_fd */
	struct ibv_device_attr attr;
	struct softib_pool *pool; /* device memory; NULL where there is none */
	struct softib_context *next; /* of those that are open */
	struct verbs_context verbs; /* programs have its last field, context */
};

static inline struct softib_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct softib_context, verbs.context);
}

/* What newer headers have than those that this is built with. */
enum { SOFTIB_WR_FLUSH = 14, SOFTIB_QP_EX_WITH_FLUSH = 1 << 11 };
#define SOFTIB_ACCESS_FLUSH_GLOBAL (1 << 8)
#define SOFTIB_PARENT_DOMAIN_CC (1 << 2) /* memory that others see will do; all that we have is such */
#define SOFTIB_ODP_SUPPORT_PLACEMENT (1 << 6 | 1 << 7) /* FLUSH, atomic write */
#define SOFTIB_DEVICE_ATOMIC_WRITE (1ull << 40)
#define SOFTIB_DEVICE_FLUSH_GLOBAL (1ull << 38)

/* What a FLUSH is to see to, as it goes to Go in ibv_send_wr.bind_mw. */
struct softib_flush {
	uint32_t length, type, level;
};

/* Opens a device. NULL with errno set. The context has no device memory yet and is in no list. */
struct softib_context *softib_open(struct ibv_device *);
/* import.c: contexts that are open, for those who name one by its descriptor. */
void softib_list(struct softib_context *);
void softib_unlist(struct softib_context *);
/* In a child that was forked: contexts have been left behind, and nobody but this thread is there to hold locks. */
void softib_leave_contexts(void);
void softib_forget_events(void);
void softib_forget_ranges(void);

static inline bool softib_left(struct ibv_context *context)
{
	return __builtin_expect(to_context(context)->left, 0);
}

/* EIO for verbs that need a fabric when it is gone, and for all verbs of a context that was left behind; else 0. */
static inline int softib_gone(struct ibv_context *context)
{
	return __builtin_expect(__atomic_load_n(&to_context(context)->hint->dead, __ATOMIC_RELAXED), 0) ? EIO : 0;
}

/* Sets errno from a function's result and gives NULL, or -1. */
#define FAIL(e) (errno = (e), NULL)
#define FAIL_INT(e) (errno = (e), -1)

/* Room for an object of a verb that needs a fabric. NULL with errno set. */
static inline void *softib_new(struct ibv_context *context, size_t size)
{
	int error = softib_gone(context);

	return error ? FAIL(error) : calloc(1, size);
}

/* Gives it back: the object could not be made. */
static inline void *softib_discard(void *object, int error)
{
	free(object);
	return FAIL(error);
}

/* Verbs that programs find in the tables of a context, by their names there: here they have softib_ before it. */
#define SOFTIB_CONTEXT_OPS(X) \
	X(poll_cq) X(req_notify_cq) X(post_send) X(post_recv) X(post_srq_recv) X(alloc_mw) X(dealloc_mw) X(bind_mw)
#define SOFTIB_VERBS_OPS(X)                                                                               \
	X(query_port) X(query_device_ex) X(query_rt_values) X(create_cq_ex) X(modify_cq) X(create_qp_ex)  \
	X(create_srq_ex) X(get_srq_num) X(open_xrcd) X(close_xrcd) X(open_qp) X(alloc_td) X(dealloc_td)   \
	X(alloc_parent_domain) X(alloc_null_mr) X(alloc_dm) X(free_dm) X(reg_dm_mr) X(advise_mr) \
	X(post_srq_ops) X(modify_qp_rate_limit)

#define X(verb) extern __typeof__(*((struct ibv_context_ops *)0)->verb) softib_##verb;
SOFTIB_CONTEXT_OPS(X)
#undef X
#define X(verb) extern __typeof__(*((struct verbs_context *)0)->verb) softib_##verb;
SOFTIB_VERBS_OPS(X)
#undef X

/* Fills in the functions of the verbs that this adapter does not have (ext.c). */
void softib_refuse_others(struct verbs_context *verbs);

/* A lock of one word, for moments. */
static inline void softib_lock(uint32_t *lock)
{
	for (int i = 0; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); i++)
		if (i > 100)
			sched_yield();
}

static inline void softib_unlock(uint32_t *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/*
 * A critical section that verbs begin and others end. Its lock checks for errors, so that a program which begins twice
 * is told instead of hanging; there is none where the program has promised to be alone.
 */
struct softib_section {
	pthread_mutex_t lock;
	bool single;
};

void softib_make_section(struct softib_section *, bool single);

static inline int softib_begin(struct softib_section *s)
{
	return s->single ? 0 : pthread_mutex_lock(&s->lock);
}

static inline void softib_end(struct softib_section *s)
{
	if (!s->single)
		pthread_mutex_unlock(&s->lock);
}

/* Objects. */

/* What events need of an object. */
struct softib_tracked {
	uint32_t serial;
	uint32_t handed; /* by ibv_get_async_event, under the slots' lock */
};

struct softib_pd {
	struct ibv_pd pd; /* handle: of the protection domain, also in a parent domain */
	struct softib_pd *inner; /* in a parent domain: its protection domain */
	int parents; /* parent domains on it; atomic */
	struct softib_td *td; /* of a parent domain, or NULL */
};

static inline struct softib_pd *to_pd(struct ibv_pd *pd) { return container_of(pd, struct softib_pd, pd); }

struct softib_mr {
	struct ibv_mr mr;
	unsigned int access;
	struct range *range;
	int *regions; /* where what it is in counts its regions, or NULL; atomic */
	void *map;    /* of a region that was mapped for it, or NULL */
	size_t mapped;
};

bool softib_pages_on_demand(void);

/* Registers memory that is known to be there. NULL with errno set. */
struct ibv_mr *softib_reg_at(struct ibv_pd *, void *addr, size_t length, uint64_t iova, unsigned int access);
/* Counts a region among those of a thing that must not go before it. */
void softib_region_of(struct ibv_mr *, int *regions);

/* dm.c: the device memory of a context and of those that were imported from it. */
#define SOFTIB_DM_SIZE (1 << 20)

struct softib_pool;
struct softib_pool *softib_new_pool(void); /* or NULL */
struct softib_pool *softib_share_pool(struct softib_pool *);
void softib_leave_pool(struct softib_pool *);

/* Objects are counted here and in libsoftib.so: domains that share an inode are one there, and each may go when its
 * own are gone. */
struct softib_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t handle;
	int users; /* atomic */
};

static inline struct softib_xrcd *to_xrcd(struct ibv_xrcd *xrcd)
{
	return container_of(xrcd, struct softib_xrcd, xrcd);
}

/* An object is in the domain, or leaves it. The domain may be NULL. */
static inline void softib_xrcd_use(struct ibv_xrcd *xrcd, int change)
{
	if (xrcd)
		__atomic_add_fetch(&to_xrcd(xrcd)->users, change, __ATOMIC_RELAXED);
}

struct softib_channel {
	struct ibv_comp_channel channel; /* refcnt counts its queues, under context->mutex */
	int write_fd;
	uint32_t told;  /* events that were written there, and */
	uint32_t taken; /* those that were read */
};

struct softib_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex; /* the same fields first */
	};
	struct softib_tracked tracked;
	uint32_t comp_events; /* handed out by ibv_get_cq_event, under the slots' lock */
	uint32_t stirs;  /* the hint's when the adapter was last asked */
	uint32_t idle;   /* polls that found nothing since then */
	uint32_t reaped; /* those that found something */
	uint64_t tight;  /* when it was last looked how quickly they follow each other */
	uint64_t naps;   /* until when the thread sleeps instead of yielding */
	uint32_t crowd;  /* polls that yield at once */
	bool kept;       /* the last yield lasted long */
	bool look;	 /* the adapter has to be asked: the queue was armed since it was */
	bool armed;	 /* and its event was not handed out since */

	struct softib_batch *batch; /* of an extended queue (cq_ex.c) */
	bool ready_list; /* completions come to ready */
	struct softib_ready ready;
};

/* A time from now, at most a second, as futexes have it. */
static inline struct timespec softib_from_now(uint32_t ns)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ns;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static inline struct softib_cq *to_cq(struct ibv_cq *cq) { return container_of(cq, struct softib_cq, cq); }
static inline struct softib_cq *to_cq_ex(struct ibv_cq_ex *cq) { return container_of(cq, struct softib_cq, ex); }

struct softib_srq {
	struct ibv_srq srq;
	struct softib_tracked tracked;
	uint32_t srq_num;
	enum ibv_srq_type type;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq; /* of one of XRC */
};

static inline struct softib_srq *to_srq(struct ibv_srq *srq) { return container_of(srq, struct softib_srq, srq); }

struct softib_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	/* Where struct ibv_qp_ex goes on in newer headers. */
	void (*wr_flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level);
	struct softib_tracked tracked;
	struct ibv_xrcd *xrcd;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct softib_builder *builder; /* of an extended queue pair (wr.c) */
	struct softib_stage *stage;	/* of one with a receive queue of its own (stage.c) */
	struct softib_sends sends;
};

static inline struct softib_qp *to_qp(struct ibv_qp *qp) { return container_of(qp, struct softib_qp, qp); }
static inline struct softib_qp *to_qp_ex(struct ibv_qp_ex *qp) { return container_of(qp, struct softib_qp, ex); }

/* The one way to make each of these, for the plain and the extended verb. NULL with errno set. */
struct softib_cq *softib_make_cq(struct ibv_context *, uint32_t cqe, void *cq_context, struct ibv_comp_channel *,
	uint32_t comp_vector, bool ready_list, bool wraps);
/* comp_mask says which fields count; send_ops_flags and create_flags are the caller's to check */
struct softib_qp *softib_make_qp(struct ibv_context *, struct ibv_qp_init_attr_ex *);
/* Begins one that the adapter has made or opened. 0 or an errno. */
int softib_begin_qp(struct softib_qp *, struct ibv_context *, const struct softib_made *, uint32_t qp_num,
	enum ibv_qp_type);

/* ibv_poll_cq past an extended queue's batch; not in a forked child */
int softib_fetch_cq(struct ibv_cq *, int room, struct ibv_wc *);
struct softib_stage *softib_new_stage(uint32_t handle, const struct ibv_qp_cap *);
int softib_stage_recv(struct softib_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
/* Stages a list of requests, or nothing of it: false says that they have to be posted by call. */
bool softib_stage_sends(struct softib_qp *, const struct ibv_send_wr *);

/* wr.c: makes qp's builder of work requests. 0 or an errno. */
int softib_give_builder(struct softib_qp *);
/* The operations that the builder of such a queue pair has. */
uint64_t softib_builder_ops(enum ibv_qp_type);

/* Whether one thread at a time uses what is made in this domain: nothing is locked then. */
static inline bool softib_single_threaded(struct ibv_pd *pd)
{
	return pd && to_pd(pd)->td;
}

/* What the extended verbs keep in an object goes with it. */
void softib_free_batch(struct softib_batch *); /* or NULL */
void softib_free_builder(struct softib_builder *); /* likewise */
void softib_leave_domains(struct softib_pd *); /* a parent domain, which has no object in libsoftib.so */

/*
 * An extended queue takes completions in batches. What a program has not looked at yet goes first to ibv_poll_cq (how
 * many went to wc; only if cq->batch is set), and goes away with its queue pair: for destroy_qp, and modify_qp to
 * RESET, on both queues. What an XRC target has received goes with the shared queue instead (qp_num is 0 then).
 */
int softib_take_batch(struct softib_cq *, int room, struct ibv_wc *wc);
void softib_purge_batch(struct ibv_cq *, uint32_t qp_num, uint32_t srq_num);
void softib_purge_ready(struct ibv_cq *, uint32_t qp_num, uint32_t srq_num); /* the same of what is ready */

static inline void softib_purge_cq(struct ibv_cq *cq, uint32_t qp_num, uint32_t srq_num)
{
	/* In the order in which another thread that polls moves them. */
	softib_purge_ready(cq, qp_num, srq_num);
	softib_purge_batch(cq, qp_num, srq_num);
}

/* Whether a completion goes; Go says where an XRC shared queue's number is (hca.WC.xrcSRQ). */
static inline bool softib_goes(const struct ibv_wc *wc, uint32_t qp_num, uint32_t srq_num)
{
	bool receive = wc->opcode == IBV_WC_RECV || wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;

	return receive && wc->vendor_err ? wc->vendor_err == srq_num : wc->qp_num == qp_num;
}

/* events.c: an object that the adapter has made is found by its events from now on. If it cannot be, it is destroyed
 * there. */
int softib_track(enum softib_kind, const struct softib_made *, struct softib_tracked *, void *object,
	int (*destroy)(uint32_t handle));
/* No event of it is handed out any more, and programs have acknowledged what they were handed. */
void softib_untrack(enum softib_kind, uint32_t handle, struct softib_tracked *, pthread_mutex_t *, pthread_cond_t *,
	const uint32_t *acked);
void softib_wait_acks(pthread_mutex_t *, pthread_cond_t *, const uint32_t *acked, const uint32_t *handed);

int softib_pipe(int *read_fd, int *write_fd);

/* A function of IBVERBS_1.1 that programs from before 2007 find under IBVERBS_1.0 as well. */
#define ALSO_1_0(name)                                                                        \
	extern __typeof__(name) name##_1_0 __attribute__((alias(#name), visibility("default"))); \
	__asm__(".symver " #name "_1_0, " #name "@IBVERBS_1.0");                              \
	__asm__(".symver " #name ", " #name "@@@IBVERBS_1.1")

#endif
