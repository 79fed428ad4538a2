/* Whose memory a sender in a process of its own writes to: ahead NAME runs one test. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/ptrace.h>

#include "rig.h"

enum { BYTES = 1024, SIZE = 4096, WARM = 20, SENT = 0xAA, OTHER = 0x55 };

static int rounds = 20;

#define FIXED ((void *)0x700000000000)

/* What the two tell each other. */
static volatile struct {
	int ready, asked, written, refused, heir, over;
	uint32_t sender_qp, receiver_qp, rkey;
	uint64_t addr;
} *sh;

#define AWAIT(cond)                                    \
	do {                                           \
		double until = now() + 20;             \
		while (!(cond)) {                      \
			MUST(now() < until);           \
			usleep(50);                    \
		}                                      \
	} while (0)

static int untouched(const uint8_t *buf)
{
	for (int i = 0; i < SIZE; i++)
		if (buf[i] != OTHER) {
			fprintf(stderr, "byte %d of memory that is none of the sender's business is %#x\n", i, buf[i]);
			return 0;
		}
	return 1;
}

/* Writes to the receiver's memory and says what became of it. */
static enum ibv_wc_status write_once(struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mem, .length = BYTES, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { sh->addr, sh->rkey } }, *bad;

	MUST(ibv_post_send(qp, &wr, &bad) == 0);
	return wait_wc(cq).status;
}

static int sender(void)
{
	struct ibv_cq *cq;

	rig();
	cq = new_cq();
	for (int round = 1; round <= rounds; round++) {
		struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, cq, 0);
		enum ibv_wc_status status;

		sh->sender_qp = qp->qp_num;
		sh->ready = round;
		AWAIT(sh->asked == round);
		connect_qp(qp, sh->receiver_qp);
		memset(mem, SENT, BYTES);
		while ((status = write_once(qp, cq)) == IBV_WC_SUCCESS)
			sh->written++;
		MUST(status == IBV_WC_REM_ACCESS_ERR);
		MUST(ibv_destroy_qp(qp) == 0);
		sh->refused = round;
	}
	AWAIT(sh->over); /* strace that lets go of a process whose threads end waits for its first one for ever */
	return 0;
}

static void stopped(pid_t pid, int *signal)
{
	int status;

	MUST(waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status));
	/* Signals that are on their way to the sender have to get there. */
	*signal = status >> 16 || WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
}

/* Runs the sender to the door of the kernel, where it is about to write to our memory. */
static void stop_at_door(pid_t pid)
{
	struct __ptrace_syscall_info info;
	int signal;

	MUST(ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD) == 0);
	MUST(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0);
	stopped(pid, &signal);
	do {
		MUST(ptrace(PTRACE_SYSCALL, pid, NULL, signal) == 0);
		stopped(pid, &signal);
		MUST(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0);
	} while (info.op != PTRACE_SYSCALL_INFO_ENTRY ||
		 (info.entry.nr != SYS_pwritev && info.entry.nr != SYS_process_vm_writev));
}

/* Has strace hold the sender up at the door of the kernel, 300 ms each time. */
static pid_t hold_up(pid_t pid)
{
	char number[16];
	pid_t tracer = fork();

	if (tracer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		snprintf(number, sizeof number, "%d", pid);
		unsetenv("LD_PRELOAD"); /* strace is no program of a host */
		execlp("strace", "strace", "-f", "-o", "/dev/null", "-e", "trace=pwritev,process_vm_writev", "-e",
		       "inject=pwritev,process_vm_writev:delay_enter=300000", "-p", number, NULL);
		_exit(9);
	}
	return tracer;
}

/* A receiver takes memory back while the sender is about to write to it: it stops the sender at the door of the kernel,
 * deregisters, uses the memory for something else, and lets the sender go. Or strace delays the sender there, and the
 * receiver deregisters at any moment. */
static void test_stopped(int delayed)
{
	unsigned seed = getpid();
	struct ibv_cq *cq;
	int status;
	pid_t pid;

	if (delayed)
		rounds = 5;
	pid = fork(); /* before a device is open */
	if (pid == 0) {
		alarm(50);
		exit(sender());
	}
	rig();
	cq = new_cq();
	for (int round = 1; round <= rounds; round++) {
		struct ibv_qp *qp = new_qp(IBV_QPT_RC, cq, cq, 0);
		uint8_t *buf = aligned_alloc(4096, SIZE);
		struct ibv_mr *target;
		int written = sh->written;

		target = ibv_reg_mr(pd, buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		MUST(target);
		AWAIT(sh->ready == round);
		connect_qp(qp, sh->sender_qp);
		sh->receiver_qp = qp->qp_num;
		sh->addr = (uintptr_t)buf;
		sh->rkey = target->rkey;
		sh->asked = round;
		AWAIT(sh->written > written + WARM);
		if (delayed) {
			pid_t tracer = hold_up(pid);
			double last = now();

			/* until a write takes as long as it shall */
			for (int n = sh->written; now() < last + 0.1; usleep(50))
				if (sh->written != n) {
					n = sh->written;
					last = now();
				}
			usleep(rand_r(&seed) % 300000);
			MUST(ibv_dereg_mr(target) == 0);
			memset(buf, OTHER, SIZE);
			AWAIT(sh->refused == round);
			MUST(kill(tracer, SIGTERM) == 0 && waitpid(tracer, &status, 0) == tracer);
		} else {
			stop_at_door(pid);
			MUST(ibv_dereg_mr(target) == 0);
			memset(buf, OTHER, SIZE);
			MUST(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
			AWAIT(sh->refused == round);
		}
		MUST(untouched(buf));
		MUST(ibv_destroy_qp(qp) == 0);
		free(buf);
	}
	sh->over = 1;
	MUST(waitpid(pid, &status, 0) == pid && status == 0);
}

static void receiver(void)
{
	uint8_t *buf = mmap(FIXED, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	struct ibv_mr *target;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	pid_t heir;

	MUST(buf == FIXED);
	rig();
	cq = new_cq();
	qp = new_qp(IBV_QPT_RC, cq, cq, 0);
	target = ibv_reg_mr(pd, buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(target);
	connect_qp(qp, sh->sender_qp);
	sh->receiver_qp = qp->qp_num;
	sh->addr = (uintptr_t)buf;
	sh->rkey = target->rkey;
	heir = fork(); /* which keeps the receiver's connection to the fabric */
	if (heir == 0) {
		alarm(50);
	} else {
		sh->heir = heir;
		sh->asked = 1;
	}
	for (;;)
		pause();
}

/* A stranger has memory at the receiver's address, and says so. */
static void stranger(void)
{
	uint8_t *buf = mmap(FIXED, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	alarm(50);
	memset(buf, OTHER, SIZE);
	sh->ready = 2;
	while (!sh->refused)
		usleep(50);
	_exit(untouched(buf) ? 0 : 3);
}

/* The receiver ends, and its number is another process's. Nothing is written there, and nothing counts as written. */
static void test_reused(void)
{
	enum ibv_wc_status result;
	pid_t pid = fork(), next = 0;
	double until;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int status;

	if (pid == 0) {
		alarm(50);
		AWAIT(sh->ready == 1);
		receiver();
	}
	rig();
	cq = new_cq();
	qp = new_qp(IBV_QPT_RC, cq, cq, 0);
	sh->sender_qp = qp->qp_num;
	sh->ready = 1;
	AWAIT(sh->asked == 1);
	connect_qp(qp, sh->receiver_qp);
	for (int i = 0; i < WARM; i++)
		MUST(write_once(qp, cq) == IBV_WC_SUCCESS);
	MUST(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	for (until = now() + 20; next != pid;) { /* others start processes as well */
		int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);

		MUST(now() < until);
		if (fd < 0 || dprintf(fd, "%d", pid - 1) < 0) {
			puts("skip: this user cannot say which number the next process gets");
			kill(sh->heir, SIGKILL);
			exit(0);
		}
		close(fd);
		next = fork();
		if (next == 0 && getpid() == pid)
			stranger();
		if (next == 0)
			_exit(0);
		if (next != pid)
			MUST(waitpid(next, &status, 0) == next);
	}
	AWAIT(sh->ready == 2);
	result = write_once(qp, cq);
	sh->refused = 1;
	MUST(waitpid(pid, &status, 0) == pid);
	kill(sh->heir, SIGKILL);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(result == IBV_WC_RETRY_EXC_ERR);
}

int main(int argc, char **argv)
{
	alarm(50);
	sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(sh != MAP_FAILED && argc == 2);
	if (strcmp(argv[1], "reused") != 0)
		test_stopped(strcmp(argv[1], "delayed") == 0);
	else
		test_reused();
	puts("ok");
	return 0;
}
