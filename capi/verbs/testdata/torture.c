/*
 * Calls verbs in random order with random arguments. Usage: torture SEED STEPS [THREADS [mortal]]
 * A mortal one goes on until its fabric ends, and for as many steps after that.
 *
 * Each thread has a context, objects and a random stream of its own. What a call may answer is checked against
 * what the man pages say, and where objects depend on each other, exactly: a model counts who uses whom. Nothing
 * that was destroyed is used again; that is the one thing the interface does not promise to survive.
 */
#include "torture.h"

/* Queue pairs and shared receive queues. */

static void create_srq(void)
{
	struct pd *p = ANY(pd);
	struct xrcd *x = ANY(xrcd);
	struct cq *c = ANY(cq);
	uint32_t max_wr = about(60), max_sge = about(8);
	struct ibv_srq_init_attr_ex a = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge, .srq_limit = one_in(4) ? odd() : 0 },
		.pd = p ? p->o : NULL,
		.xrcd = x ? x->o : NULL,
		.cq = c ? c->o : NULL,
		.srq_type = one_in(8) ? odd() : rnd(2),
		.comp_mask = one_in(8) ? bits() : 15,
	};
	struct ibv_srq *o;
	bool xrc, with_cq;

	if (!ROOM(srq) || (max_wr > 10000 && max_wr < 1u << 30))
		return;
	if (one_in(3))
		a.comp_mask = IBV_SRQ_INIT_ATTR_PD;
	if (!p && a.comp_mask == IBV_SRQ_INIT_ATTR_PD)
		return; /* the header looks into it */
	o = MADE(ibv_create_srq_ex(me->ctx, &a), EINVAL, EOPNOTSUPP, ENOMEM);
	if (!o)
		return;
	if (a.attr.max_wr < max_wr || a.attr.max_sge < max_sge)
		die("%u requests of %u elements for %u of %u", a.attr.max_wr, a.attr.max_sge, max_wr, max_sge);
	xrc = a.comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a.srq_type == IBV_SRQT_XRC;
	/* A plain one has no use for a completion queue, and the kernel does not look at it. */
	with_cq = a.comp_mask & IBV_SRQ_INIT_ATTR_CQ && a.comp_mask & IBV_SRQ_INIT_ATTR_TYPE &&
		a.srq_type != IBV_SRQT_BASIC;
	ADD(srq,
		{ .o = o, .pd = base(p), .xrcd = a.comp_mask & IBV_SRQ_INIT_ATTR_XRCD ? x : NULL, .cq = with_cq ? c : NULL });
	base(p)->users++;
	if (a.comp_mask & IBV_SRQ_INIT_ATTR_XRCD && x)
		x->users++;
	if (with_cq && c)
		c->users++;
	is(ibv_get_srq_num(o, &max_wr), xrc ? 0 : EINVAL);
}

static void end_srq(struct srq *s)
{
	int error = ibv_destroy_srq(s->o);

	is(error, s->users ? EBUSY : 0);
	if (error)
		return;
	s->pd->users--;
	if (s->xrcd)
		s->xrcd->users--;
	if (s->cq)
		s->cq->users--;
	REMOVE(srq, s);
}

static void modify_srq(void)
{
	struct srq *s = ANY(srq);
	struct ibv_srq_attr a = { .max_wr = about(60), .srq_limit = about(60) };

	if (!s)
		return;
	MAY(ibv_modify_srq(s->o, &a, one_in(6) ? (int)bits() : 2), EINVAL, EOPNOTSUPP);
	works(ibv_query_srq(s->o, &a));
}

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
	IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER };

static void create_qp(void)
{
	struct pd *p = ANY(pd);
	struct cq *scq = one_in(12) ? NULL : ANY(cq), *rcq = one_in(12) ? NULL : ANY(cq);
	struct srq *s = one_in(3) ? ANY(srq) : NULL;
	struct xrcd *x = ANY(xrcd);
	struct ibv_qp_cap cap = { about(40), about(40), about(6), about(6), one_in(2) ? rnd(128) : about(400) };
	struct ibv_qp_init_attr_ex a = {
		.send_cq = scq ? scq->o : NULL,
		.recv_cq = rcq ? rcq->o : NULL,
		.srq = s ? s->o : NULL,
		.cap = cap,
		.qp_type = one_in(12) ? odd() : types[rnd(sizeof(types) / sizeof(types[0]))],
		.sq_sig_all = one_in(2),
		.pd = p ? p->o : NULL,
		.xrcd = x ? x->o : NULL,
		.create_flags = one_in(4) ? bits() : 2,
		.send_ops_flags = one_in(3) ? bits() : IBV_QP_EX_WITH_SEND,
		.comp_mask = one_in(8) ? bits() : IBV_QP_INIT_ATTR_PD,
	};
	struct ibv_qp *o;
	struct qp *q;

	if (!ROOM(qp))
		return;
	if (one_in(2))
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (a.qp_type == IBV_QPT_XRC_RECV && !one_in(6))
		a.comp_mask = IBV_QP_INIT_ATTR_XRCD | (p && one_in(2) ? IBV_QP_INIT_ATTR_PD : 0);
	if (!p && a.comp_mask == IBV_QP_INIT_ATTR_PD)
		return; /* the header looks into it */
	o = MADE(ibv_create_qp_ex(me->ctx, &a), EINVAL, EOPNOTSUPP, ENOMEM);
	if (!o)
		return;
	if (a.qp_type != IBV_QPT_XRC_RECV &&
		(a.cap.max_send_wr < cap.max_send_wr || a.cap.max_send_sge < cap.max_send_sge ||
			a.cap.max_inline_data < cap.max_inline_data))
		die("less than was asked for");
	q = ADD(qp, { .o = o, .cap = a.cap, .ex = ibv_qp_to_qp_ex(o) });
	if (!!q->ex != (a.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && a.qp_type != IBV_QPT_XRC_RECV))
		die("an extended queue pair that was not asked for, or the other way round");
	/* What such a queue pair has no use for is not kept. */
	if (a.comp_mask & IBV_QP_INIT_ATTR_PD && p) {
		q->pd = base(p);
		q->pd->users++;
	}
	if (a.qp_type == IBV_QPT_XRC_RECV) {
		scq = rcq = NULL;
		s = NULL;
	}
	if (a.qp_type == IBV_QPT_XRC_SEND) {
		rcq = NULL;
		s = NULL;
	}
	if ((q->scq = scq))
		scq->users++;
	if ((q->rcq = rcq))
		rcq->users++;
	if ((q->srq = s))
		s->users++;
	if (a.comp_mask & IBV_QP_INIT_ATTR_XRCD && (q->xrcd = x))
		x->users++;
}

static void open_qp(void)
{
	struct xrcd *x = ANY(xrcd);
	struct qp *q = ANY(qp);
	struct ibv_qp_open_attr a = {
		.comp_mask = one_in(6) ? bits() : 15, .qp_num = q && !one_in(6) ? q->o->qp_num : odd(), .xrcd = x ? x->o : NULL,
		.qp_type = one_in(6) ? odd() : IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *o;

	if (!ROOM(qp))
		return;
	o = MADE(ibv_open_qp(me->ctx, &a), EINVAL, EOPNOTSUPP, ENOMEM);
	if (!o)
		return;
	x->users++;
	ADD(qp, { .o = o, .xrcd = x });
}

static void end_qp(struct qp *q)
{
	uint32_t num = q->o->qp_num;
	int error = ibv_destroy_qp(q->o);

	is(error, q->groups ? EBUSY : 0);
	if (error)
		return;
	if (q->scq)
		q->scq->users--;
	if (q->rcq)
		q->rcq->users--;
	if (q->srq)
		q->srq->users--;
	if (q->xrcd)
		q->xrcd->users--;
	/* A target that was opened once more stays in its protection domain. */
	for (int i = 0; q->pd && i < me->n_qp; i++)
		if (me->qp[i] != q && me->qp[i]->o->qp_num == num) {
			me->qp[i]->pd = q->pd;
			q->pd = NULL;
		}
	if (q->pd)
		q->pd->users--;
	if (q->peer)
		q->peer->peer = NULL;
	REMOVE(qp, q);
}

/* Two queue pairs that are connected as programs do it. */
static void pair(void)
{
	struct pd *p = ANY(pd);
	struct cq *c[2] = { ANY(cq), ANY(cq) };
	enum ibv_qp_type type = one_in(4) ? IBV_QPT_UC : one_in(4) ? IBV_QPT_UD : IBV_QPT_RC;
	uint64_t ops = type == IBV_QPT_UD ? IBV_QP_EX_WITH_SEND : IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	struct qp *q[2];

	if (!p || !c[0] || me->n_qp + 2 > MAX)
		return;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr_ex a = {
			.send_cq = c[i]->o,
			.recv_cq = c[i]->o,
			.qp_type = type,
			.pd = p->o,
			.cap = { 30, 30, 4, 4, 100 },
			.send_ops_flags = ops,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.sq_sig_all = one_in(2),
		};

		struct ibv_qp *o = ibv_create_qp_ex(me->ctx, &a);

		if (!o) {
			works(errno);
			return; /* the other one stays alone */
		}
		q[i] = ADD(qp, { .o = o, .ex = ibv_qp_to_qp_ex(o), .cap = a.cap, .pd = base(p), .scq = c[i], .rcq = c[i] });
		base(p)->users++;
		c[i]->users += 2;
	}
	q[0]->peer = q[1];
	q[1]->peer = q[0];
}

/* What sane programs do: a pair is connected, or connected again after it failed, and sends. */
static void traffic(void)
{
	struct qp *q = ANY(qp), *both[2];
	struct mr *m = NULL;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	bool up = true;

	if (!q || !q->peer)
		return;
	both[0] = q;
	both[1] = q->peer;
	for (int i = 0; i < 2; i++) {
		if (!works(ibv_query_qp(both[i]->o, &a, IBV_QP_STATE, &init)))
			return;
		up = up && a.qp_state == IBV_QPS_RTS;
	}
	if (!up) {
		a.qp_state = IBV_QPS_RESET;
		for (int i = 0; i < 2; i++)
			if (!works(ibv_modify_qp(both[i]->o, &a, IBV_QP_STATE)))
				return;
		for (int i = 0; i < 2; i++)
			/* what was on its way may break it again */
			MAY(connect_to(both[i]->o, both[!i]->o->qp_num, me->port.lid), EINVAL);
	}
	for (int i = 0; i < me->n_mr; i++)
		if (me->mr[i]->pd == q->pd && (me->mr[i]->access & 15) == 15 &&
			!(me->mr[i]->access & IBV_ACCESS_ZERO_BASED) && me->mr[i]->o->length >= 4096)
			m = me->mr[i];
	if (!m) {
		struct ibv_mr *o;

		for (int i = 0; i < me->n_pd; i++)
			if (me->pd[i] == q->pd && ROOM(mr)) {
				o = ibv_reg_mr(q->pd->o, me->arena + 4096 * rnd(ARENA / 8192), ARENA / 2, 31);
				if (!o) {
					works(errno);
					return;
				}
				m = ADD(mr, { .o = o, .pd = q->pd, .access = 31 });
				m->pd->users++;
			}
		if (!m)
			return;
	}
	for (int n = 1 + rnd(4); n > 0; n--) {
		struct ibv_sge s = { .addr = (uintptr_t)m->o->addr + rnd(1000),
			.length = one_in(3) ? 8 : rnd(3000),
			.lkey = m->o->lkey };
		struct ibv_send_wr *bad,
			w = { .wr_id = n,
				.sg_list = &s,
				.num_sge = 1,
				.send_flags = IBV_SEND_SIGNALED | (one_in(3) ? IBV_SEND_FENCE : 0) };
		struct ibv_sge into = { .addr = (uintptr_t)m->o->addr, .length = 4096, .lkey = m->o->lkey };
		struct ibv_recv_wr *bad_recv, r = { .wr_id = 100 + n, .sg_list = &into, .num_sge = 1 };
		struct ah *h = ANY(ah);

		w.opcode = q->o->qp_type == IBV_QPT_RC ? rnd(7) : q->o->qp_type == IBV_QPT_UC ? rnd(4) : IBV_WR_SEND;
		w.wr.rdma.remote_addr = (uintptr_t)m->o->addr + 8 * rnd(100);
		w.wr.rdma.rkey = m->o->rkey;
		if (w.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			w.wr.atomic.rkey = m->o->rkey;
			s.length = 8;
		}
		if (q->o->qp_type == IBV_QPT_UD) {
			if (!h || h->pd != q->pd)
				return;
			w.wr.ud.ah = h->o;
			w.wr.ud.remote_qpn = q->peer->o->qp_num;
			w.wr.ud.remote_qkey = 0x1234;
			s.length %= 1000;
		}
		if (w.opcode == IBV_WR_SEND || w.opcode == IBV_WR_SEND_WITH_IMM || w.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			MAY(ibv_post_recv(q->peer->o, &r, &bad_recv), ENOMEM, EINVAL);
		MAY(ibv_post_send(q->o, &w, &bad), ENOMEM, EINVAL);
	}
}

static uint32_t some_qpn(void)
{
	struct qp *q = ANY(qp);

	return !q || one_in(6) ? odd() : q->o->qp_num;
}

/* One step towards RTS, as a program does it. */
static void drive_qp(void)
{
	static const int next[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPS_RESET,
		IBV_QPS_RESET };
	struct qp *q = ANY(qp);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	int mask = IBV_QP_STATE;

	if (!q || (q->peer && !one_in(10)))
		return;
	if (!works(ibv_query_qp(q->o, &a, odd(), &init)))
		return;
	if ((unsigned int)a.qp_state > IBV_QPS_ERR || init.qp_type != q->o->qp_type)
		die("state %d, type %d", a.qp_state, init.qp_type);
	if (a.qp_state == IBV_QPS_RTS && !one_in(4))
		return;
	a.qp_state = next[a.qp_state];
	switch ((int)a.qp_state) {
	case IBV_QPS_INIT:
		a.port_num = 1;
		a.pkey_index = 0;
		a.qkey = 0x1234;
		a.qp_access_flags = rnd(16);
		mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX | (q->o->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
		break;
	case IBV_QPS_RTR:
		a.path_mtu = 1 + rnd(5);
		a.dest_qp_num = some_qpn() & 0xffffff;
		a.rq_psn = a.sq_psn = 0;
		memset(&a.ah_attr, 0, sizeof(a.ah_attr));
		a.ah_attr.dlid = one_in(4) ? 1 + rnd(6) : me->port.lid;
		a.ah_attr.port_num = 1;
		a.max_dest_rd_atomic = rnd(8);
		a.min_rnr_timer = 1;
		if (q->o->qp_type != IBV_QPT_UD)
			mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		if (q->o->qp_type == IBV_QPT_RC || q->o->qp_type == IBV_QPT_XRC_RECV)
			mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		if (a.cur_qp_state != IBV_QPS_RTR)
			break;
		a.timeout = 8;
		a.retry_cnt = rnd(3);
		a.rnr_retry = rnd(3);
		a.max_rd_atomic = rnd(8);
		mask |= IBV_QP_SQ_PSN;
		if (q->o->qp_type != IBV_QPT_UD && q->o->qp_type != IBV_QPT_UC)
			mask |= IBV_QP_TIMEOUT;
		if (q->o->qp_type == IBV_QPT_RC || q->o->qp_type == IBV_QPT_XRC_SEND)
			mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	MAY(ibv_modify_qp(q->o, &a, mask), EINVAL); /* it may have failed in between */
}

static void modify_qp(void)
{
	struct qp *q = ANY(qp);
	struct ibv_qp_attr a;

	if (!q)
		return;
	for (size_t i = 0; i < sizeof(a); i += 4) {
		uint32_t v = odd();

		memcpy((char *)&a + i, &v, 4);
	}
	a.qp_state = one_in(4) ? odd() : rnd(8);
	MAY(ibv_modify_qp(q->o, &a, (one_in(2) ? IBV_QP_STATE : 0) | (one_in(3) ? bits() : rnd(1 << 21))), EINVAL,
		EOPNOTSUPP);
}

static void multicast(void)
{
	struct qp *q = ANY(qp);
	unsigned int i = rnd(GROUPS);
	union ibv_gid g = { .raw = GROUP(i) };
	bool ok;

	if (!q)
		return;
	ok = q->o->qp_type == IBV_QPT_UD;
	if (one_in(2)) {
		if (!MAY(ibv_attach_mcast(q->o, &g, 0xc000 + i), EINVAL, ENOMEM, EOPNOTSUPP)) {
			if (!ok)
				die("a queue pair of type %d in a group", q->o->qp_type);
			q->groups |= 1 << i;
		}
	} else {
		int error = ibv_detach_mcast(q->o, &g, 0xc000 + i);

		if (q->groups & 1 << i) {
			if (!works(error))
				return;
		} else if (!MAY(error, EINVAL, EADDRNOTAVAIL))
			die("detached from where it was not");
		q->groups &= ~(1u << i);
	}
}

/* A region that a queue pair may use, likely. */
static struct mr *region(struct qp *q)
{
	struct mr *m = NULL;

	for (int i = 0; i < 4; i++) {
		m = ANY(mr);
		if (m && q && m->pd == q->pd)
			break;
	}
	return m;
}

static struct ibv_sge sge(struct qp *q)
{
	struct mr *m = region(q);
	struct ibv_sge s = { .addr = (uintptr_t)me->arena + rnd(ARENA), .length = rnd(64), .lkey = odd() };

	if (m && !one_in(8)) {
		s.lkey = m->o->lkey;
		s.addr = (uintptr_t)m->o->addr;
		s.length = one_in(3) ? 8 : one_in(2) ? rnd(200) : rnd(m->o->length + 1);
	}
	if (one_in(60))
		s.length = odd();
	return s;
}

/* The region whose key some_rkey gave last, for an address in it. */
static _Thread_local struct mr *keyed;

static uint32_t some_rkey(void)
{
	struct mr *m = keyed = ANY(mr);
	struct mw *w = ANY(mw);

	if (w && one_in(3))
		return w->o->rkey;
	return m && !one_in(8) ? m->o->rkey : odd();
}

static uint64_t some_addr(void)
{
	struct mr *m = keyed && !one_in(4) ? keyed : ANY(mr);
	uint64_t at;

	if (!m || one_in(12))
		return (uintptr_t)me->arena + rnd(ARENA);
	at = (uintptr_t)m->o->addr + rnd(m->o->length / 2 + 1);
	return one_in(4) ? at : at & ~7ull;
}

enum { CHAIN = 6, SGES = 4 };

static void post_send(void)
{
	struct qp *q = ANY(qp);
	struct ibv_send_wr wr[CHAIN], *bad = NULL;
	struct ibv_sge list[CHAIN][SGES];
	int n = 1 + rnd(CHAIN), i, j, error;

	if (!q || (q->peer && !one_in(10)))
		return;
	memset(wr, 0, sizeof(wr));
	for (i = 0; i < n; i++) {
		struct ibv_send_wr *w = &wr[i];
		struct ah *a = ANY(ah);
		struct mw *m = ANY(mw);

		w->wr_id = i;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->opcode = one_in(60) ? odd() : rnd(10);
		w->send_flags = one_in(60) ? bits() : one_in(3) ? rnd(16) : rnd(8);
		w->num_sge = one_in(60) ? (int)odd() : one_in(2) ? 1 : (int)rnd(SGES + 1);
		w->sg_list = one_in(60) ? NULL : list[i];
		for (j = 0; j < SGES; j++)
			list[i][j] = sge(q);
		if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			w->num_sge = 1;
			list[i][0].length = 8;
		}
		if (w->send_flags & IBV_SEND_INLINE) /* is read without a key, hence must be there */
			for (j = 0; j < SGES; j++)
				list[i][j] = (struct ibv_sge){ .addr = (uintptr_t)me->arena + rnd(ARENA - 64), .length = rnd(40) };
		if (w->num_sge > SGES && (unsigned int)w->num_sge <= q->cap.max_send_sge)
			w->num_sge = SGES;
		w->imm_data = odd();
		if (q->o->qp_type == IBV_QPT_UD) {
			w->wr.ud.ah = a ? a->o : NULL;
			w->wr.ud.remote_qpn = some_qpn();
			w->wr.ud.remote_qkey = 0x1234;
			if (w->opcode != IBV_WR_SEND_WITH_IMM && !one_in(10))
				w->opcode = IBV_WR_SEND;
		} else if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			w->wr.atomic.rkey = some_rkey();
			w->wr.atomic.remote_addr = some_addr();
			w->wr.atomic.compare_add = odd();
		} else {
			w->wr.rdma.rkey = some_rkey();
			w->wr.rdma.remote_addr = some_addr();
		}
		if (w->opcode == IBV_WR_SEND_WITH_INV || w->opcode == IBV_WR_LOCAL_INV)
			w->invalidate_rkey = some_rkey();
		w->qp_type.xrc.remote_srqn = one_in(6) ? odd() : rnd(8);
		if (w->opcode == IBV_WR_BIND_MW) {
			w->bind_mw.mw = m ? m->o : NULL;
			w->bind_mw.rkey = m && !one_in(6) ? ibv_inc_rkey(m->o->rkey) : odd();
			w->bind_mw.bind_info = bind_info();
			me->bound = true;
		}
	}
	error = MAY(ibv_post_send(q->o, wr, &bad), EINVAL, ENOMEM, EOPNOTSUPP);
	if (error && (bad < wr || bad >= wr + n))
		die("bad_wr is none of the list");
}

static void post_recv_any(void)
{
	struct qp *q = ANY(qp);
	struct srq *s = one_in(2) ? ANY(srq) : NULL;
	struct ibv_recv_wr wr[CHAIN], *bad = NULL;
	struct ibv_sge list[CHAIN][SGES];
	struct ibv_srq_attr sa = { 0 };
	int n = 1 + rnd(CHAIN), error;
	uint32_t limit;

	if (!q && !s)
		return;
	if (s && !works(ibv_query_srq(s->o, &sa)))
		return;
	limit = s ? sa.max_sge : q->cap.max_recv_sge;
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < SGES; j++)
			list[i][j] = sge(q);
		wr[i] = (struct ibv_recv_wr){ .wr_id = i,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = one_in(30) ? NULL : list[i],
			.num_sge = one_in(20) ? (int)odd() : (int)rnd(SGES + 1) };
		if (wr[i].num_sge > SGES && (unsigned int)wr[i].num_sge <= limit)
			wr[i].num_sge = SGES;
	}
	error = s ? ibv_post_srq_recv(s->o, wr, &bad) : ibv_post_recv(q->o, wr, &bad);
	MAY(error, EINVAL, ENOMEM, EOPNOTSUPP);
	if (error && (bad < wr || bad >= wr + n))
		die("bad_wr is none of the list");
}

static void build(void)
{
	struct qp *q = ANY(qp);
	struct ibv_data_buf bufs[3];
	struct ibv_sge list[SGES];
	struct ibv_mw_bind_info info;
	struct ibv_qp_ex *x;
	struct ah *a;
	struct mw *m;

	if (!q || !q->ex || (q->peer && !one_in(10)))
		return;
	x = q->ex;
	if (!one_in(30))
		ibv_wr_start(x);
	for (int n = rnd(10); n > 0; n--) {
		x->wr_id = odd();
		x->wr_flags = one_in(10) ? bits() : rnd(16);
		switch (rnd(12)) {
		case 0: ibv_wr_send(x); break;
		case 1: ibv_wr_send_imm(x, odd()); break;
		case 2: ibv_wr_send_inv(x, some_rkey()); break;
		case 3: ibv_wr_rdma_write(x, some_rkey(), some_addr()); break;
		case 4: ibv_wr_rdma_write_imm(x, some_rkey(), some_addr(), odd()); break;
		case 5: ibv_wr_rdma_read(x, some_rkey(), some_addr()); break;
		case 6: ibv_wr_atomic_cmp_swp(x, some_rkey(), some_addr(), odd(), odd()); break;
		case 7: ibv_wr_atomic_fetch_add(x, some_rkey(), some_addr(), odd()); break;
		case 8:
			m = ANY(mw);
			info = bind_info();
			ibv_wr_bind_mw(x, m ? m->o : NULL, m ? ibv_inc_rkey(m->o->rkey) : 0, one_in(10) ? NULL : &info);
			me->bound = true;
			break;
		case 9: ibv_wr_local_inv(x, some_rkey()); break;
		case 10:
			if (one_in(5))
				ibv_wr_send_tso(x, me->arena, 4, 4);
			break;
		case 11:
			if (one_in(5))
				ibv_wr_atomic_write(x, some_rkey(), some_addr(), me->arena);
		}
		if (q->o->qp_type == IBV_QPT_UD ? !one_in(10) : one_in(30)) {
			a = ANY(ah);
			ibv_wr_set_ud_addr(x, a ? a->o : NULL, some_qpn(), 0x1234);
		}
		if (q->o->qp_type == IBV_QPT_XRC_SEND ? !one_in(10) : one_in(30))
			ibv_wr_set_xrc_srqn(x, one_in(10) ? odd() : rnd(8));
		switch (rnd(6)) {
		case 0:
			ibv_wr_set_inline_data(x, me->arena, one_in(10) ? odd() : rnd(64));
			break;
		case 1:
			for (int i = 0; i < 3; i++)
				bufs[i] = (struct ibv_data_buf){ me->arena + rnd(1000), one_in(30) ? (size_t)-1 - rnd(9) : rnd(30) };
			ibv_wr_set_inline_data_list(x, rnd(4), bufs);
			break;
		case 2:
			for (int i = 0; i < SGES; i++)
				list[i] = sge(q);
			ibv_wr_set_sge_list(x, one_in(30) && q->cap.max_send_sge < 1000 ? 1000 + odd() : rnd(SGES + 1), list);
			break;
		case 3:
		case 4:
			list[0] = sge(q);
			ibv_wr_set_sge(x, list[0].lkey, list[0].addr, list[0].length);
		}
	}
	if (one_in(10))
		ibv_wr_abort(x);
	else
		MAY(ibv_wr_complete(x), EINVAL, ENOMEM, EOPNOTSUPP);
}

#define ENDS(type, name)                      \
	static void name(void)                \
	{                                     \
		struct type *x = ANY(type);   \
                                              \
		if (x)                        \
			end_##type(x);        \
	}
ENDS(pd, dealloc_pd)
ENDS(td, dealloc_td)
ENDS(xrcd, close_xrcd)
ENDS(mr, dereg_mr)
ENDS(mw, dealloc_mw)
ENDS(ah, destroy_ah)
ENDS(channel, destroy_channel)
ENDS(cq, destroy_cq)
ENDS(srq, destroy_srq)
ENDS(qp, destroy_qp)

/* The device. */

static void query(void)
{
	struct ibv_device_attr_ex d;
	struct ibv_query_device_ex_input in = { .comp_mask = one_in(2) ? odd() : 0 };
	struct ibv_port_attr p;
	struct ibv_gid_entry e, table[4];
	struct ibv_values_ex v = { .comp_mask = odd() };
	union ibv_gid g;
	__be16 key;
	ssize_t n;

	switch (rnd(8)) {
	case 0:
		MAY(ibv_query_device_ex(me->ctx, &in, &d), EINVAL);
		break;
	case 1:
		MAY(ibv_query_port(me->ctx, one_in(2) ? 1 : odd(), &p), EINVAL);
		break;
	case 2:
		if (ibv_query_gid(me->ctx, one_in(2) ? 1 : odd(), one_in(2) ? 0 : (int)odd(), &g))
			MAY(errno, EINVAL);
		break;
	case 3:
		if (ibv_query_pkey(me->ctx, one_in(2) ? 1 : odd(), one_in(2) ? 0 : (int)odd(), &key))
			MAY(errno, EINVAL);
		break;
	case 4:
		MAY(ibv_query_gid_ex(me->ctx, one_in(2) ? 1 : odd(), one_in(2) ? 0 : odd(), &e, one_in(6) ? odd() : 0),
			EINVAL, ENODATA, EOPNOTSUPP);
		break;
	case 5:
		n = ibv_query_gid_table(me->ctx, table, rnd(5), one_in(6) ? odd() : 0);
		if (n < 0)
			MAY(-n, EINVAL, EOPNOTSUPP);
		break;
	case 6:
		MAY(ibv_query_rt_values_ex(me->ctx, &v), EINVAL);
		break;
	case 7:
		ibv_get_pkey_index(me->ctx, one_in(2) ? 1 : odd(), htons(one_in(2) ? 0xffff : odd()));
	}
}

static const struct {
	const char *name;
	void (*call)(void);
	int weight;
} ops[] = {
	{ "alloc_pd", alloc_pd, 4 },
	{ "dealloc_pd", dealloc_pd, 3 },
	{ "alloc_td", alloc_td, 2 },
	{ "dealloc_td", dealloc_td, 2 },
	{ "alloc_parent_domain", alloc_parent, 2 },
	{ "open_xrcd", open_xrcd, 4 },
	{ "close_xrcd", close_xrcd, 2 },
	{ "reg_mr", reg_mr, 8 },
	{ "rereg_mr", rereg_mr, 3 },
	{ "dereg_mr", dereg_mr, 3 },
	{ "alloc_mw", alloc_mw, 4 },
	{ "dealloc_mw", dealloc_mw, 2 },
	{ "bind_mw", bind_mw, 6 },
	{ "create_ah", create_ah, 4 },
	{ "destroy_ah", destroy_ah, 2 },
	{ "create_comp_channel", create_channel, 2 },
	{ "destroy_comp_channel", destroy_channel, 2 },
	{ "create_cq", create_cq, 6 },
	{ "destroy_cq", destroy_cq, 3 },
	{ "resize_cq", resize_cq, 2 },
	{ "modify_cq", modify_cq, 2 },
	{ "poll_cq", poll_cq, 30 },
	{ "start_poll", poll_cq_ex, 20 },
	{ "req_notify_cq", notify, 8 },
	{ "get_cq_event", take_cq_event, 8 },
	{ "get_async_event", take_async_event, 20 },
	{ "create_srq", create_srq, 5 },
	{ "destroy_srq", destroy_srq, 2 },
	{ "modify_srq", modify_srq, 3 },
	{ "create_qp", create_qp, 12 },
	{ "open_qp", open_qp, 3 },
	{ "destroy_qp", destroy_qp, 6 },
	{ "pair", pair, 10 },
	{ "traffic", traffic, 60 },
	{ "drive_qp", drive_qp, 40 },
	{ "modify_qp", modify_qp, 3 },
	{ "multicast", multicast, 4 },
	{ "post_send", post_send, 60 },
	{ "post_recv", post_recv_any, 40 },
	{ "ibv_wr", build, 40 },
	{ "query", query, 6 },
};
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

/* In the end everything can be destroyed, users first; the functions check that it is. */
#define ALL_END(type)                                            \
	while (me->n_##type) {                                   \
		int n = me->n_##type;                            \
                                                                 \
		end_##type(me->type[0]);                         \
		if (me->n_##type == n)                           \
			die("a " #type " that nobody uses stays"); \
	}

static void clean_up(void)
{
	me->op = "clean up";
	for (int i = 0; i < me->n_qp; i++)
		for (unsigned int g = 0; g < GROUPS; g++)
			if (me->qp[i]->groups & 1u << g) {
				if (!works(ibv_detach_mcast(me->qp[i]->o, &(union ibv_gid){ .raw = GROUP(g) }, 0xc000 + g)))
					continue;
				me->qp[i]->groups &= ~(1u << g);
			}
	ALL_END(qp);
	ALL_END(srq);
	ALL_END(mw);
	ALL_END(mr);
	ALL_END(ah);
	ALL_END(cq);
	ALL_END(channel);
	ALL_END(xrcd);
	for (int i = me->n_pd - 1; i >= 0; i--)
		if (me->pd[i]->inner) {
			end_pd(me->pd[i]);
			i = me->n_pd;
		}
	ALL_END(pd);
	ALL_END(td);
}

/* The device still does what it is for, whatever was done to it. */
static void still_works(void)
{
	uint8_t *buf = me->arena + ARENA - 4096;

	me->op = "a write after all";
	ctx = me->ctx;
	port = me->port;
	MUST(pd = ibv_alloc_pd(ctx));
	MUST(mr = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	struct ibv_cq *cq = new_cq();
	struct ibv_qp *a = new_qp(IBV_QPT_RC, cq, cq, 0), *b = new_qp(IBV_QPT_RC, cq, cq, 0);
	struct ibv_sge s = { .addr = (uintptr_t)buf, .length = 2000, .lkey = mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = 1,
			.sg_list = &s,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED };

	for (int i = 0; i < 2000; i++)
		buf[i] = rnd(256);
	wr.wr.rdma.remote_addr = (uintptr_t)buf + 2048;
	wr.wr.rdma.rkey = mr->rkey;
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	MUST(ibv_post_send(a, &wr, &bad) == 0);
	wait_done(cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	MUST(!memcmp(buf, buf + 2048, 2000));
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
}

static int steps;
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;

static void *run(void *arg)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int total = 0, before = 0;

	me = arg;
	me->random = me->seed * 0x9e3779b97f4a7c15ull + 1;
	me->op = "open_device";
	MUST(list && list[0]);
	me->ctx = ibv_open_device(list[0]);
	if (!me->ctx && mortal)
		return NULL; /* the other thread has seen the fabric's life */
	MUST(me->ctx);
	ibv_free_device_list(list);
	fcntl(me->ctx->async_fd, F_SETFL, O_NONBLOCK);
	MUST(ibv_query_port(me->ctx, 1, &me->port) == 0 || mortal);
	/* A page that is not there follows. */
	me->arena = mmap(NULL, ARENA + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(me->arena != MAP_FAILED && munmap(me->arena + ARENA, 4096) == 0);
	for (int i = 0; i < OPS; i++)
		total += ops[i].weight;
	for (me->step = 0; me->step < steps; me->step++) {
		int i = 0;

		/* Of one that ends, the steps count from there. */
		if (mortal && !me->gone)
			me->step = 0;
		if (mortal && one_in(100))
			usleep(1000);
		if (mortal && ++before == steps) {
			puts("under way");
			fflush(stdout);
		}

		for (int w = rnd(total); w >= ops[i].weight; i++)
			w -= ops[i].weight;
		me->op = ops[i].name;
		keyed = NULL;
		ops[i].call();
	}
	/* Every other one leaves its objects to ibv_close_device. */
	if (me->seed % 2 == 0)
		clean_up();
	if (mortal) {
		if (!me->fatal)
			die("no IBV_EVENT_DEVICE_FATAL");
	} else {
		pthread_mutex_lock(&alone);
		still_works();
		pthread_mutex_unlock(&alone);
	}
	me->op = "close_device";
	MUST(ibv_close_device(me->ctx) == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	struct world *worlds = calloc(threads, sizeof(*worlds));
	pthread_t *t = calloc(threads, sizeof(*t));
	struct world sum = { 0 };

	MUST(argc > 2 && threads > 0);
	steps = atoi(argv[2]);
	mortal = argc > 4 && !strcmp(argv[4], "mortal");
	signal(SIGSEGV, on_signal);
	signal(SIGBUS, on_signal);
	signal(SIGABRT, on_signal);
	for (int i = 0; i < 2; i++) {
		strcpy(files[i], "/tmp/softib-torture-XXXXXX");
		close(mkstemp(files[i]));
	}
	for (int i = 0; i < threads; i++) {
		worlds[i].seed = strtoull(argv[1], NULL, 0) + i;
		MUST(pthread_create(&t[i], NULL, run, &worlds[i]) == 0);
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		sum.calls += worlds[i].calls;
		sum.refused += worlds[i].refused;
		sum.completions += worlds[i].completions;
		sum.good += worlds[i].good;
		sum.events += worlds[i].events;
	}
	unlink(files[0]);
	unlink(files[1]);
	free(worlds);
	free(t);
	printf("%llu calls, %llu refused, %llu completions of which %llu good, %llu events\n",
		(unsigned long long)sum.calls, (unsigned long long)sum.refused, (unsigned long long)sum.completions,
		(unsigned long long)sum.good, (unsigned long long)sum.events);
	return 0;
}
