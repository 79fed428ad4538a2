/*
 * The drop-in libibverbs.so.1 inside: what its objects are, and what its files offer
 * each other.
 *
 * Each object begins with the struct that programs see and goes on with ours. The struct's
 * handle field is the handle by which libsoftib.so, which has the adapter, knows the object;
 * it is loaded when the first device is opened and not before (load.c). Functions that
 * return an int return an errno as libibverbs does; those that return a pointer set errno.
 */
#ifndef SOFTIB_H
#define SOFTIB_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
	SOFTIB_CORE(X) SOFTIB_EXT(X)
#undef X
};
extern struct softib_go softib_go;

/* Loads libsoftib.so, once. 0 or an errno; says on stderr why it could not. */
int softib_load(void);
bool softib_loaded(void);

/* This process was forked from one that had opened a device: its adapter stayed behind. */
extern int softib_forked;

/* faults.c: memory that must be there as long as it is registered, for the adapter if for nobody else. */
struct range;
struct range *softib_watch(void *addr, size_t length);
void softib_unwatch(struct range *);
void softib_watch_faults(void *function_of_libsoftib);

void softib_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* device.c */

/* Whether softib exec started the program. */
bool softib_has_device(void);

#define SOFTIB_DEVICE_FILE "/dev/infiniband/uverbs0"

/* The one device. It is never freed, so that a pointer to it is always good. */
struct softib_device {
	struct ibv_device device;
	const void *driver; /* where drivers' own libraries look for themselves: none */
	__be64 guid;
};

struct softib_context {
	uint32_t handle;
	struct softib_hint *hint;
	int async_write; /* the other end of async_fd */
	struct verbs_context verbs; /* programs have its last field, context */
};

static inline struct softib_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct softib_context, verbs.context);
}

/* EIO for verbs that need a fabric when it is gone, and for all verbs in a forked child; else 0. */
static inline int softib_gone(struct ibv_context *context)
{
	if (__builtin_expect(softib_forked, 0))
		return EIO;
	return __builtin_expect(__atomic_load_n(&to_context(context)->hint->dead, __ATOMIC_RELAXED), 0) ? EIO : 0;
}

/* Fills in the functions of the extended verbs (ext.c). */
void softib_set_ext_ops(struct verbs_context *verbs);

/* Objects. */

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
};

struct softib_mw {
	struct ibv_mw mw;
};

struct softib_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t handle;
};

struct softib_channel {
	struct ibv_comp_channel channel; /* refcnt counts its queues, under context->mutex */
	int write_fd;
};

struct softib_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex; /* the same fields first */
	};
	uint32_t serial;
	uint32_t comp_events;  /* handed out by ibv_get_cq_event, under the slots' lock */
	uint32_t async_events; /* handed out by ibv_get_async_event, likewise */
	uint32_t stirs;  /* the hint's when the adapter was last asked */
	uint32_t idle;   /* polls that found nothing since then */
	uint32_t reaped; /* those that found something */
	uint64_t tight;  /* when it was last looked how quickly they follow each other */
	bool look;	 /* the adapter has to be asked: the queue was armed since it was */
	bool armed;	 /* and its event was not handed out since */

	struct softib_batch *batch; /* of an extended queue (cq_ex.c) */
	bool tapped; /* completions come to ready */
	struct softib_ready ready;
};

static inline struct softib_cq *to_cq(struct ibv_cq *cq) { return container_of(cq, struct softib_cq, cq); }
static inline struct softib_cq *to_cq_ex(struct ibv_cq_ex *cq) { return container_of(cq, struct softib_cq, ex); }

struct softib_srq {
	struct ibv_srq srq;
	uint32_t serial;
	uint32_t async_events;
	uint32_t srq_num;
	enum ibv_srq_type type;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
};

static inline struct softib_srq *to_srq(struct ibv_srq *srq) { return container_of(srq, struct softib_srq, srq); }

struct softib_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	uint32_t serial;
	uint32_t async_events;
	bool is_ex;	/* made with send_ops_flags: ibv_qp_to_qp_ex gives ex */
	struct ibv_xrcd *xrcd;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct softib_builder *builder; /* of an extended queue pair (wr.c) */
	struct softib_stage *stage;	/* of one with a receive queue of its own (stage.c) */
};

static inline struct softib_qp *to_qp(struct ibv_qp *qp) { return container_of(qp, struct softib_qp, qp); }
static inline struct softib_qp *to_qp_ex(struct ibv_qp_ex *qp) { return container_of(qp, struct softib_qp, ex); }

/*
 * The one way to make each of these, for the plain and the extended verb. NULL with errno set.
 * softib_free_qp is for a caller that made one and then failed.
 */
struct softib_cq *softib_make_cq(struct ibv_context *, uint32_t cqe, void *cq_context, struct ibv_comp_channel *,
	uint32_t comp_vector, bool tapped);
/* comp_mask says which fields count */
struct softib_srq *softib_make_srq(struct ibv_context *, struct ibv_srq_init_attr_ex *);
/* likewise; send_ops_flags and create_flags are the caller's to check */
struct softib_qp *softib_make_qp(struct ibv_context *, struct ibv_qp_init_attr_ex *);
int softib_poll_cq(struct ibv_cq *, int room, struct ibv_wc *);
/* the same past an extended queue's batch; not in a forked child */
int softib_fetch_cq(struct ibv_cq *, int room, struct ibv_wc *);
int softib_req_notify_cq(struct ibv_cq *, int solicited_only);
int softib_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
struct softib_stage *softib_new_stage(uint32_t handle, const struct ibv_qp_cap *);
int softib_stage_recv(struct softib_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
int softib_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
int softib_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);

/* Free what the extended verbs keep in an object that is destroyed. */
void softib_drop_cq_ex(struct softib_cq *);
void softib_drop_qp_ex(struct softib_qp *);
void softib_drop_srq_ex(struct softib_srq *);
void softib_drop_pd_ex(struct softib_pd *); /* a parent domain, which has no object in libsoftib.so */

/*
 * An extended queue takes completions in batches. What a program has not looked at yet goes
 * first to ibv_poll_cq (how many went to wc; only if cq->batch is set), and goes away with its
 * queue pair: for destroy_qp, and modify_qp to RESET, on both queues.
 */
int softib_take_batch(struct softib_cq *, int room, struct ibv_wc *wc);
void softib_purge_batch(struct ibv_cq *, uint32_t qp_num);
void softib_purge_ready(struct ibv_cq *, uint32_t qp_num); /* the same of what is ready */

/* events.c: objects by kind and handle, for the records in pipes. */
int softib_slot_set(enum softib_kind, uint32_t handle, uint32_t serial, void *object);
/* Takes the object out: no event of it is handed out any more. */
void softib_slot_clear(enum softib_kind, uint32_t handle, uint32_t serial);
/* Waits until programs have acknowledged what they were handed of an object that is out. */
void softib_wait_acks(pthread_mutex_t *, pthread_cond_t *, const uint32_t *acked, const uint32_t *handed);

int softib_pipe(int *read_fd, int *write_fd);

/* A function of IBVERBS_1.1 that programs from before 2007 find under IBVERBS_1.0 as well. */
#define ALSO_1_0(name)                                                                        \
	extern __typeof__(name) name##_1_0 __attribute__((alias(#name), visibility("default"))); \
	__asm__(".symver " #name "_1_0, " #name "@IBVERBS_1.0");                              \
	__asm__(".symver " #name ", " #name "@@@IBVERBS_1.1")

/* Sets errno from a function's result and gives NULL. */
#define FAIL(e) (errno = (e), NULL)

#endif
