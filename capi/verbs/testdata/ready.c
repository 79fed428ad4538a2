/* Tests of completions on their way from the adapter to the program: ready NAME runs one. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#include "rig.h"
#include "../clib/softib.h" /* for one of them */

static int readable(int fd, int ms)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, ms);
}

/* A queue pair that has failed: what is posted to it completes at once. */
static struct ibv_qp *failed_qp(struct ibv_cq *cq)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, cq, 0);

	connect_qp(qp, qp->qp_num);
	MUST(ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0);
	return qp;
}

/* Has the adapter complete what was posted, without a poll. */
static void settle(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
}

static void take(struct ibv_cq *cq, uint64_t id)
{
	wait_done(cq, id, IBV_WC_WR_FLUSH_ERR, 0);
}

/* Completions that went with their queue pair leave their room to others, wherever they were. */
static void test_room(void)
{
	enum { SIZE = 8 };
	struct ibv_qp *a, *b, *c;
	struct ibv_async_event e;
	struct ibv_cq *cq;
	struct ibv_wc wc;

	rig();
	MUST(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	cq = ibv_create_cq(ctx, SIZE, NULL, NULL, 0);
	MUST(cq && cq->cqe == SIZE);
	a = failed_qp(cq);
	b = failed_qp(cq);
	c = failed_qp(cq);
	for (int i = 0; i < SIZE; i++) {
		post_recv(i % 4 ? b : a, i, HALF, 8);
		settle(a);
	}
	MUST(ibv_destroy_qp(b) == 0);
	for (int i = 1; i < SIZE; i++)
		if (i % 4) {
			post_recv(c, 100 + i, HALF, 8);
			settle(c);
		}
	MUST(ibv_get_async_event(ctx, &e) == -1 && errno == EAGAIN);
	MUST(ibv_resize_cq(cq, SIZE - 1) == EINVAL && ibv_resize_cq(cq, SIZE) == 0);
	take(cq, 0);
	take(cq, 4);
	for (int i = 1; i < SIZE; i++)
		if (i % 4)
			take(cq, 100 + i);
	MUST(ibv_poll_cq(cq, 1, &wc) == 0);
	MUST(ibv_resize_cq(cq, 1) == 0);
	MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(c) == 0 && ibv_destroy_cq(cq) == 0);
	unrig();
}

/* A receive that is posted to a failed queue pair completes at once, also for a program that sleeps. */
static void test_drain(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq, *of;
	struct ibv_qp *qp;
	void *cookie;

	rig();
	ch = ibv_create_comp_channel(ctx);
	MUST(ch);
	cq = ibv_create_cq(ctx, 64, NULL, ch, 0);
	MUST(cq);
	qp = failed_qp(cq);
	post_recv(qp, 1, HALF, 8);
	MUST(ibv_req_notify_cq(cq, 0) == 0);
	MUST(readable(ch->fd, 5000) == 1 && "posted, then armed");
	MUST(ibv_get_cq_event(ch, &of, &cookie) == 0);
	take(cq, 1);
	MUST(ibv_req_notify_cq(cq, 0) == 0);
	post_recv(qp, 2, HALF, 8);
	MUST(readable(ch->fd, 5000) == 1 && "armed, then posted");
	MUST(ibv_get_cq_event(ch, &of, &cookie) == 0);
	take(cq, 2);
	ibv_ack_cq_events(cq, 2);
	MUST(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(ch) == 0);
	unrig();
}

/* A forked child has no part in its parent's completions. */
static void test_fork(void)
{
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex;
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_qp *qp, *qx;
	struct ibv_wc wc;
	int status;
	pid_t child;

	rig();
	cq = new_cq();
	ex = new_cq_ex(0);
	qp = failed_qp(cq);
	qx = failed_qp(ibv_cq_ex_to_cq(ex));
	post_recv(qp, 1, HALF, 8);
	settle(qp);
	for (int i = 2; i < 5; i++)
		post_recv(qx, i, HALF, 8);
	settle(qx);
	wait_start(ex);
	MUST(ex->wr_id == 2);
	ibv_end_poll(ex);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		alarm(20);
		MUST(ibv_poll_cq(cq, 1, &wc) < 0);
		MUST(ibv_poll_cq(ibv_cq_ex_to_cq(ex), 1, &wc) < 0);
		MUST(ibv_start_poll(ex, &none) == EIO);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	take(cq, 1);
	take(ibv_cq_ex_to_cq(ex), 3);
	take(ibv_cq_ex_to_cq(ex), 4);
	MUST(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(qx) == 0 && ibv_destroy_cq(cq) == 0 &&
		ibv_destroy_cq(ibv_cq_ex_to_cq(ex)) == 0);
	unrig();
}

/* As many completions as a queue holds, not one more, taken in pieces of any size and by several threads: each comes
 * once, in order. */
enum { MANY = 1000 };
static struct ibv_cq *many_cq;
static int many_seen[MANY], many_count;

static void *reap(void *arg)
{
	int room = (intptr_t)arg;
	double deadline = now() + 20;
	uint64_t last = 0;
	struct ibv_wc wc[100];

	while (__atomic_load_n(&many_count, __ATOMIC_RELAXED) < MANY) {
		int n = ibv_poll_cq(many_cq, room, wc);

		MUST(n >= 0 && n <= room && now() < deadline);
		for (int i = 0; i < n; i++) {
			MUST(wc[i].wr_id > last && wc[i].wr_id <= MANY);
			last = wc[i].wr_id;
			MUST(__atomic_fetch_add(&many_seen[last - 1], 1, __ATOMIC_RELAXED) == 0);
		}
		__atomic_fetch_add(&many_count, n, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void test_many(void)
{
	pthread_t t[3];
	struct ibv_async_event e;
	struct ibv_qp *qp;

	rig();
	MUST(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	many_cq = ibv_create_cq(ctx, MANY, NULL, NULL, 0);
	MUST(many_cq && many_cq->cqe == MANY);
	qp = failed_qp(many_cq);
	for (int round = 0; round < 3; round++) {
		many_count = 0;
		memset(many_seen, 0, sizeof(many_seen));
		for (int i = 1; i <= MANY; i++)
			post_recv(qp, i, HALF, 8);
		settle(qp);
		MUST(ibv_get_async_event(ctx, &e) == -1 && errno == EAGAIN);
		for (intptr_t i = 0; i < 3; i++)
			MUST(pthread_create(&t[i], NULL, reap, (void *)(1 + 33 * i)) == 0);
		for (int i = 0; i < 3; i++)
			MUST(pthread_join(t[i], NULL) == 0);
	}
	/* In one call, past what is ready; then one too many. */
	for (int i = 1; i <= MANY; i++)
		post_recv(qp, i, HALF, 8);
	settle(qp);
	struct ibv_wc wc[MANY + 1];
	MUST(ibv_poll_cq(many_cq, MANY + 1, wc) == MANY);
	for (int i = 0; i < MANY; i++)
		MUST(wc[i].wr_id == (uint64_t)i + 1);
	MUST(ibv_get_async_event(ctx, &e) == -1 && errno == EAGAIN);
	for (int i = 1; i <= MANY + 1; i++)
		post_recv(qp, i, HALF, 8);
	settle(qp);
	MUST(ibv_get_async_event(ctx, &e) == 0 && e.event_type == IBV_EVENT_CQ_ERR);
	ibv_ack_async_event(&e);
	MUST(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(many_cq) == 0);
	unrig();
}

/* Queue pairs come and go while another thread polls, by either way: nothing of one that is gone is seen. */
static struct ibv_cq_ex *churn_cq;
static uint32_t gone;
static int churning = 1;

static void *churn_poll(void *arg)
{
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_wc wc[5];

	while (__atomic_load_n(&churning, __ATOMIC_RELAXED)) {
		uint32_t dead = __atomic_load_n(&gone, __ATOMIC_ACQUIRE);

		if (arg) {
			for (int n = ibv_poll_cq(ibv_cq_ex_to_cq(churn_cq), 5, wc); n > 0; n--)
				MUST(wc[n - 1].qp_num > dead);
		} else if (!ibv_start_poll(churn_cq, &none)) {
			do {
				if (ibv_wc_read_qp_num(churn_cq) <= dead) {
					fprintf(stderr, "a completion of %x, which is gone\n", ibv_wc_read_qp_num(churn_cq));
					exit(1);
				}
				sched_yield();
				dead = __atomic_load_n(&gone, __ATOMIC_ACQUIRE);
			} while (!ibv_next_poll(churn_cq));
			ibv_end_poll(churn_cq);
		}
	}
	return NULL;
}

static void churn(uint64_t flags)
{
	pthread_t t[2];

	rig();
	churning = 1;
	churn_cq = new_cq_ex(flags);
	gone = 0;
	for (intptr_t i = 0; i < 2; i++)
		MUST(pthread_create(&t[i], NULL, churn_poll, (void *)i) == 0);
	for (int i = 0; i < 60; i++) { /* then numbers come again */
		struct ibv_qp *qp = failed_qp(ibv_cq_ex_to_cq(churn_cq));
		uint32_t num = qp->qp_num;

		MUST(num > gone);
		for (int k = 0; k < 30; k++)
			post_recv(qp, k, HALF, 8);
		settle(qp);
		if (i % 3 == 0)
			sched_yield();
		MUST(ibv_destroy_qp(qp) == 0);
		__atomic_store_n(&gone, num, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&churning, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(t[i], NULL) == 0);
	MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(churn_cq)) == 0);
	unrig();
}

static void test_churn(void)
{
	churn(0);
	churn(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	MUST(clock_gettime(clock, &t) == 0);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *poll_tightly(void *cq)
{
	double began = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_THREAD_CPUTIME_ID);
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	MUST(n == 1 && wc.wr_id == 5);
	MUST(seconds(CLOCK_THREAD_CPUTIME_ID) - used < (seconds(CLOCK_MONOTONIC) - began) / 3);
	return NULL;
}

/* Who polls sleeps where others keep its core for long while the fabric has a packet of its, and misses nothing. */
static void test_naps(void)
{
	struct softib_hint *hint;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	pthread_t t;

	rig();
	cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	MUST(cq);
	qp = failed_qp(cq);
	hint = to_context(ctx)->hint;
	hint->switched = 1;
	hint->polls.kept = 0; /* every yield seems long */
	MUST(pthread_create(&t, NULL, poll_tightly, cq) == 0);
	usleep(300000);
	post_recv(qp, 5, HALF, 8);
	MUST(pthread_join(t, NULL) == 0);
	MUST(hint->sleepers == 0 && hint->naps == 0);
	MUST(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	unrig();
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = { { "room", test_room }, { "drain", test_drain }, { "fork", test_fork }, { "many", test_many },
	{ "churn", test_churn }, { "naps", test_naps } };

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(argv[1], tests[i].name)) {
			tests[i].run();
			return 0;
		}
	fprintf(stderr, "usage: ready NAME\n");
	return 2;
}
