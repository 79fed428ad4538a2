/*
 * What torture.c knows of the objects that it made, and the calls about domains, memory and
 * completion queues. The rest of the calls is there.
 */
#include <execinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "rig.h"

#define GROUP(i) { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = (i) }

enum { ARENA = 1 << 17, MAX = 12, GROUPS = 4, GOOD = 6 };

/* Objects and who uses them. */
struct pd { struct ibv_pd *o; int users; struct pd *inner; struct td *td; };
struct td { struct ibv_td *o; int users; };
struct channel { struct ibv_comp_channel *o; int users; };
struct cq { struct ibv_cq *o; struct ibv_cq_ex *ex; struct channel *channel; int users; bool single; };
struct xrcd { struct ibv_xrcd *o; int users; };
struct srq { struct ibv_srq *o; struct pd *pd; struct xrcd *xrcd; struct cq *cq; int users; };
struct mr { struct ibv_mr *o; struct pd *pd; int access; };
struct mw { struct ibv_mw *o; struct pd *pd; };
struct ah { struct ibv_ah *o; struct pd *pd; };
struct qp {
	struct ibv_qp *o;
	struct ibv_qp_ex *ex;
	struct pd *pd;
	struct cq *scq, *rcq;
	struct srq *srq;
	struct xrcd *xrcd;
	struct ibv_qp_cap cap;
	unsigned int groups; /* bits */
	struct qp *peer; /* that it was connected with */
};

#define LIST(type) struct type *type[MAX]; int n_##type
struct world {
	uint64_t random;
	uint64_t seed;
	int step;
	const char *op;
	struct ibv_context *ctx;
	struct ibv_port_attr port;
	uint8_t *arena; /* what is registered lies here: peers may write anywhere in it */
	bool bound; /* a window may be bound to some region */
	bool gone;  /* the fabric ended, a call said */
	bool fatal; /* and an event */
	LIST(pd); LIST(td); LIST(channel); LIST(cq); LIST(xrcd); LIST(srq); LIST(mr); LIST(mw); LIST(ah); LIST(qp);
	uint64_t calls, refused, completions, good, events;
};

static _Thread_local struct world *me;
static char files[2][32];
static bool mortal; /* the fabric will end */

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "torture: seed %llu, step %d, %s: ", (unsigned long long)me->seed, me->step, me->op);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(1);
}

static void on_signal(int number)
{
	void *frames[32];

	if (me)
		fprintf(stderr, "torture: seed %llu, step %d, %s: signal %d\n", (unsigned long long)me->seed, me->step,
			me->op, number);
	backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
	_exit(2);
}

static uint32_t rnd(uint32_t n)
{
	me->random ^= me->random << 13;
	me->random ^= me->random >> 7;
	me->random ^= me->random << 17;
	return n ? (uint32_t)((me->random * 0x2545f4914f6cdd1dull) >> 33) % n : 0;
}

static bool one_in(uint32_t n) { return rnd(n) == 0; }

/* A number that programs get wrong. */
static uint32_t odd(void)
{
	static const uint32_t some[] = { 0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 1023, 4096, 65535, 65536, 1 << 20, 1 << 24,
		1u << 31, ~0u, ~0u - 1 };

	return one_in(4) ? rnd(0x7fffffff) * 2u + rnd(2) : some[rnd(sizeof(some) / sizeof(some[0]))];
}

/* A sensible number up to n, mostly. */
static uint32_t about(uint32_t n) { return one_in(12) ? odd() : 1 + rnd(n); }

static uint32_t bits(void) { return one_in(8) ? odd() : 1u << rnd(32) | (one_in(2) ? 1u << rnd(8) : 0); }

/* The answer must be 0 or one of the list, which ends in 0. */
#define MAY(got, ...) may((got), (const int[]){ __VA_ARGS__, 0 })
static int may(int got, const int *list)
{
	me->calls++;
	if (got)
		me->refused++;
	else
		return 0;
	if (mortal && got == EIO) {
		me->gone = true;
		return got;
	}
	for (; *list; list++)
		if (*list == got)
			return got;
	die("answered %d (%s)", got, strerror(got < 0 ? -got : got));
	return got;
}

/* It must be this answer. */
static void is(int got, int want)
{
	me->calls++;
	if (got != want)
		die("answered %d (%s), want %d (%s)", got, strerror(got), want, strerror(want));
}

/* It must work, as long as there is a fabric. */
static bool works(int got)
{
	return may(got, (const int[]){ 0 }) == 0;
}

/* The object, or errno is one of the list. */
#define MADE(call, ...)                                                                                                \
	({                                                                                                             \
		errno = 0;                                                                                             \
		__typeof__(call) _o = (call);                                                                          \
		may(_o ? 0 : errno ? errno : -1, (const int[]){ __VA_ARGS__, 0 });                                     \
		_o;                                                                                                    \
	})

#define ADD(type, ...)                                                        \
	({                                                                    \
		struct type *_n = malloc(sizeof(*_n));                        \
		*_n = (struct type)__VA_ARGS__;                               \
		me->type[me->n_##type++] = _n;                                \
		_n;                                                           \
	})
#define ROOM(type) (me->n_##type < MAX)
/* A random one, or NULL. */
#define ANY(type) (me->n_##type ? me->type[rnd(me->n_##type)] : NULL)

#define REMOVE(type, x)                                                       \
	do {                                                                  \
		for (int _i = 0; _i < me->n_##type; _i++)                     \
			if (me->type[_i] == (x)) {                            \
				me->type[_i] = me->type[--me->n_##type];      \
				break;                                        \
			}                                                     \
		free(x);                                                      \
	} while (0)

static struct pd *base(struct pd *p) { return p->inner ? p->inner : p; }

/* Domains. */

static void alloc_pd(void)
{
	struct ibv_pd *o;

	if (!ROOM(pd))
		return;
	o = MADE(ibv_alloc_pd(me->ctx), ENOMEM);
	if (o)
		ADD(pd, { .o = o });
}

static void end_pd(struct pd *p)
{
	int error = ibv_dealloc_pd(p->o);

	if (p->inner) { /* its objects are the inner one's */
		is(error, 0);
		p->inner->users--;
		if (p->td)
			p->td->users--;
	} else {
		is(error, p->users ? EBUSY : 0);
		if (error)
			return;
	}
	REMOVE(pd, p);
}

static void alloc_td(void)
{
	struct ibv_td_init_attr a = { .comp_mask = one_in(5) ? odd() : 0 };
	struct ibv_td *o;

	if (!ROOM(td))
		return;
	o = MADE(ibv_alloc_td(me->ctx, &a), EINVAL);
	if (o)
		ADD(td, { .o = o });
}

static void end_td(struct td *t)
{
	int error = ibv_dealloc_td(t->o);

	is(error, t->users ? EBUSY : 0);
	if (!error)
		REMOVE(td, t);
}

static void alloc_parent(void)
{
	struct pd *p = ANY(pd);
	struct td *t = one_in(2) ? ANY(td) : NULL;
	struct ibv_parent_domain_init_attr a = {
		.pd = p ? p->o : NULL, .td = t ? t->o : NULL, .comp_mask = one_in(6) ? bits() : 0
	};
	struct ibv_pd *o;

	if (!ROOM(pd))
		return;
	o = MADE(ibv_alloc_parent_domain(me->ctx, &a), EINVAL);
	if (!o)
		return;
	if (!p || p->inner)
		die("made a parent domain of %s", p ? "another" : "nothing");
	ADD(pd, { .o = o, .inner = p, .td = t });
	p->users++;
	if (t)
		t->users++;
}

static void open_xrcd(void)
{
	struct ibv_xrcd_init_attr a = { .comp_mask = one_in(6) ? bits() : 3,
		.fd = -1,
		.oflags = (one_in(2) ? O_CREAT : 0) | (one_in(4) ? O_EXCL : 0) };
	struct ibv_xrcd *o;
	int fd = -1;

	if (!ROOM(xrcd))
		return;
	switch (rnd(4)) {
	case 0:
		fd = a.fd = open(files[rnd(2)], O_RDWR);
		break;
	case 1:
		a.fd = one_in(4) ? (int)odd() : -1;
	}
	o = MADE(ibv_open_xrcd(me->ctx, &a), EINVAL, EOPNOTSUPP, EBADF, EAGAIN);
	if (fd >= 0)
		close(fd);
	if (o)
		ADD(xrcd, { .o = o });
}

static void end_xrcd(struct xrcd *x)
{
	int error = ibv_close_xrcd(x->o);

	is(error, x->users ? EBUSY : 0);
	if (!error)
		REMOVE(xrcd, x);
}

/* Memory. */

static void *address(void)
{
	switch (rnd(10)) {
	case 0:
		return (void *)(uintptr_t)odd();
	case 1:
		return (void *)(uintptr_t)((uint64_t)odd() << 32 | odd());
	case 2:
		return me->arena + ARENA - rnd(64);
	default:
		return me->arena + rnd(ARENA);
	}
}

static void reg_mr(void)
{
	struct pd *p = ANY(pd);
	int access = one_in(6)
		? (int)bits()
		: (int)rnd(1 << GOOD) | (one_in(4) ? 0 : 15) | (one_in(8) ? IBV_ACCESS_RELAXED_ORDERING : 0);
	uint8_t *addr = address();
	size_t length = one_in(8) ? odd() : rnd(ARENA / 2);
	struct ibv_mr *o;

	if (!p || !ROOM(mr))
		return;
	if (one_in(20))
		length = (size_t)odd() << 32 | odd();
	/* Mapped memory that is not the arena must not be written to by peers. */
	if (addr < me->arena || addr > me->arena + ARENA || length > (size_t)(me->arena + ARENA + 4096 - addr))
		access &= IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
	switch (rnd(4)) {
	case 0:
		o = MADE(ibv_reg_mr_iova(p->o, addr, length, (uint64_t)odd() << rnd(32), access), EINVAL, EFAULT, ENOMEM,
			EOPNOTSUPP);
		break;
	case 1:
		o = MADE(ibv_reg_dmabuf_mr(p->o, odd(), length, odd(), -1 - (int)rnd(9), access), EOPNOTSUPP, EINVAL, EBADF);
		break;
	default:
		o = MADE(ibv_reg_mr(p->o, addr, length, access), EINVAL, EFAULT, ENOMEM, EOPNOTSUPP);
	}
	if (!o)
		return;
	if (o->pd != p->o || o->context != me->ctx || !o->lkey)
		die("a region of another domain");
	ADD(mr, { .o = o, .pd = base(p), .access = access })->pd->users++;
}

static void rereg_mr(void)
{
	struct mr *m = ANY(mr);
	struct pd *p = ANY(pd);
	int flags = one_in(8) ? (int)bits() : (int)rnd(8), access = one_in(2) ? 0 : (int)rnd(1 << GOOD);
	int got;

	if (!m || !p)
		return;
	got = ibv_rereg_mr(m->o, flags, p->o, me->arena + rnd(ARENA), rnd(ARENA), access);
	me->calls++;
	if (got > 0 || got < IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW)
		die("answered %d", got);
	if (!got && flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->access = access;
	if (!got && flags & IBV_REREG_MR_CHANGE_PD) {
		m->pd->users--;
		m->pd = base(p);
		m->pd->users++;
	}
}

static void end_mr(struct mr *m)
{
	int error = ibv_dereg_mr(m->o);

	if (me->bound && me->n_mw)
		MAY(error, EBUSY);
	else
		is(error, 0);
	if (!error) {
		m->pd->users--;
		REMOVE(mr, m);
	}
}

static void alloc_mw(void)
{
	struct pd *p = ANY(pd);
	struct ibv_mw *o;

	if (!p || !ROOM(mw))
		return;
	o = MADE(ibv_alloc_mw(p->o, one_in(8) ? odd() : 1 + rnd(2)), EINVAL, ENOMEM);
	if (o)
		ADD(mw, { .o = o, .pd = base(p) })->pd->users++;
}

static void end_mw(struct mw *m)
{
	is(ibv_dealloc_mw(m->o), 0);
	m->pd->users--;
	REMOVE(mw, m);
}

static struct ibv_mw_bind_info bind_info(void)
{
	struct mr *m = one_in(6) ? NULL : ANY(mr);
	struct ibv_mw_bind_info i = { .mr = m ? m->o : NULL, .mw_access_flags = one_in(6) ? bits() : rnd(8) << 1 };

	if (m && !one_in(6)) {
		i.addr = (uintptr_t)m->o->addr + rnd(m->o->length + 1);
		i.length = rnd(m->o->length + 8);
	} else if (one_in(2)) {
		i.addr = odd();
		i.length = odd();
	}
	return i;
}

static void bind_mw(void)
{
	struct mw *m = ANY(mw);
	struct qp *q = ANY(qp);
	struct ibv_mw_bind b = { .wr_id = odd(), .send_flags = one_in(6) ? bits() : rnd(4), .bind_info = bind_info() };

	if (!m || !q)
		return;
	if (!MAY(ibv_bind_mw(q->o, m->o, &b), EINVAL, EPERM, ENOMEM))
		me->bound = true;
}

static void create_ah(void)
{
	struct pd *p = ANY(pd);
	struct ibv_ah_attr a = { .dlid = one_in(6) ? odd() : 1 + rnd(6), .port_num = one_in(8) ? odd() : 1 };
	struct ibv_ah *o;

	if (!p || !ROOM(ah))
		return;
	if (one_in(3)) {
		a.is_global = one_in(2) ? 1 : odd();
		ibv_query_gid(me->ctx, 1, 0, &a.grh.dgid);
		a.grh.sgid_index = one_in(4) ? odd() : 0;
		a.grh.flow_label = odd();
	}
	if (one_in(5)) {
		a.sl = odd();
		a.src_path_bits = one_in(2) ? odd() : 0;
		a.static_rate = odd();
	}
	o = MADE(ibv_create_ah(p->o, &a), EINVAL, ENOMEM);
	if (o)
		ADD(ah, { .o = o, .pd = base(p) })->pd->users++;
}

static void end_ah(struct ah *a)
{
	is(ibv_destroy_ah(a->o), 0);
	a->pd->users--;
	REMOVE(ah, a);
}

/* Completion queues. */

static void create_channel(void)
{
	struct ibv_comp_channel *o;

	if (me->n_channel >= 4)
		return;
	o = MADE(ibv_create_comp_channel(me->ctx), EMFILE, ENFILE, ENOMEM);
	if (!o)
		return;
	fcntl(o->fd, F_SETFL, O_NONBLOCK);
	ADD(channel, { .o = o });
}

static void end_channel(struct channel *c)
{
	int error = ibv_destroy_comp_channel(c->o);

	is(error, c->users ? EBUSY : 0);
	if (!error)
		REMOVE(channel, c);
}

static void create_cq(void)
{
	struct channel *c = one_in(2) ? ANY(channel) : NULL;
	struct pd *p = one_in(4) ? ANY(pd) : NULL;
	struct ibv_cq_init_attr_ex a = {
		.cqe = about(100),
		.channel = c ? c->o : NULL,
		.cq_context = c,
		.comp_vector = one_in(10) ? odd() : 0,
		.wc_flags = one_in(6) ? bits() : (IBV_WC_STANDARD_FLAGS | (one_in(3) ? 0x880 : 0)),
		.flags = one_in(4) ? bits() : rnd(2),
		.comp_mask = one_in(8) ? bits() : rnd(2),
		.parent_domain = p ? p->o : NULL,
	};
	struct ibv_cq_ex *ex = NULL;
	struct ibv_cq *o;

	if (p && p->inner)
		a.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
	if (!ROOM(cq))
		return;
	if (a.cqe > 10000 && a.cqe < 1u << 30)
		a.cqe = 10000; /* what may be granted takes memory */
	if (one_in(2)) {
		ex = MADE(ibv_create_cq_ex(me->ctx, &a), EINVAL, EOPNOTSUPP, ENOMEM);
		o = ex ? ibv_cq_ex_to_cq(ex) : NULL;
	} else {
		o = MADE(ibv_create_cq(me->ctx, a.cqe, c, a.channel, a.comp_vector), EINVAL, ENOMEM);
	}
	if (!o)
		return;
	if (o->cqe < (int)a.cqe || o->channel != a.channel || o->cq_context != c)
		die("a queue of %d for %u", o->cqe, a.cqe);
	ADD(cq,
		{ .o = o,
			.ex = ex,
			.channel = c,
			.single = (a.comp_mask & 1 && a.flags & 1) || (a.comp_mask & 2 && p && p->td) });
	if (c)
		c->users++;
}

static void end_cq(struct cq *c)
{
	int error = ibv_destroy_cq(c->o);

	is(error, c->users ? EBUSY : 0);
	if (error)
		return;
	if (c->channel)
		c->channel->users--;
	REMOVE(cq, c);
}

static void resize_cq(void)
{
	struct cq *c = ANY(cq);
	uint32_t n = about(200);

	if (c && (n <= 10000 || n >= 1u << 30))
		MAY(ibv_resize_cq(c->o, n), EINVAL, ENOMEM, EOPNOTSUPP);
}

static void modify_cq(void)
{
	struct cq *c = ANY(cq);
	struct ibv_modify_cq_attr a = { .attr_mask = one_in(4) ? bits() : 1, .moderate = { odd(), odd() } };

	if (c)
		MAY(ibv_modify_cq(c->o, &a), EINVAL);
}

static void check_wc(uint64_t status, uint32_t opcode)
{
	me->completions++;
	me->good += !status;
	if (status > IBV_WC_TM_RNDV_INCOMPLETE || !*ibv_wc_status_str(status))
		die("status %llu", (unsigned long long)status);
	if (!status && opcode > IBV_WC_LOCAL_INV && opcode != IBV_WC_RECV && opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		die("opcode %u", opcode);
}

static void poll_cq(void)
{
	struct cq *c = ANY(cq);
	struct ibv_wc wc[33];
	int room = rnd(33), n;

	if (!c)
		return;
	wc[room].wr_id = 0xfeedfeedfeed;
	n = ibv_poll_cq(c->o, room, wc);
	me->calls++;
	if (n < 0 || n > room || wc[room].wr_id != 0xfeedfeedfeed)
		die("%d completions for %d", n, room);
	while (n-- > 0)
		check_wc(wc[n].status, wc[n].opcode);
}

static void poll_cq_ex(void)
{
	struct cq *c = ANY(cq);
	struct ibv_poll_cq_attr a = { .comp_mask = one_in(10) ? odd() : 0 };
	struct ibv_wc_tm_info tm;
	struct ibv_cq_ex *x;

	if (!c || !c->ex)
		return;
	x = c->ex;
	if (one_in(20))
		ibv_end_poll(x); /* of nothing */
	if (MAY(ibv_start_poll(x, &a), ENOENT, EINVAL))
		return;
	do {
		check_wc(x->status, ibv_wc_read_opcode(x));
		ibv_wc_read_byte_len(x), ibv_wc_read_imm_data(x), ibv_wc_read_qp_num(x), ibv_wc_read_src_qp(x);
		ibv_wc_read_slid(x), ibv_wc_read_sl(x), ibv_wc_read_dlid_path_bits(x), ibv_wc_read_vendor_err(x);
		ibv_wc_read_wc_flags(x), ibv_wc_read_completion_ts(x), ibv_wc_read_completion_wallclock_ns(x);
		ibv_wc_read_cvlan(x), ibv_wc_read_flow_tag(x), ibv_wc_read_tm_info(x, &tm);
		if (one_in(20) && !c->single)
			is(ibv_start_poll(x, &(struct ibv_poll_cq_attr){ 0 }), EDEADLK);
	} while (!one_in(6) && !MAY(ibv_next_poll(x), ENOENT));
	ibv_end_poll(x);
}

static void notify(void)
{
	struct cq *c = ANY(cq);

	if (c)
		MAY(ibv_req_notify_cq(c->o, one_in(2) ? 0 : odd()), EINVAL);
}

static void take_cq_event(void)
{
	struct channel *c = ANY(channel);
	struct ibv_cq *cq;
	void *context;

	if (!c)
		return;
	if (ibv_get_cq_event(c->o, &cq, &context)) {
		MAY(errno, EAGAIN);
		return;
	}
	me->events++;
	if (context != c || cq->channel != c->o)
		die("an event of another channel's queue");
	ibv_ack_cq_events(cq, 1);
}

static void take_async_event(void)
{
	struct ibv_async_event e;

	if (ibv_get_async_event(me->ctx, &e)) {
		MAY(errno, EAGAIN);
		return;
	}
	me->events++;
	if (!*ibv_event_type_str(e.event_type))
		die("event %d", e.event_type);
	me->fatal = me->fatal || e.event_type == IBV_EVENT_DEVICE_FATAL;
	ibv_ack_async_event(&e);
}
