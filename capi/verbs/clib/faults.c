/*
 * Registered memory that the program has unmapped. An adapter of silicon goes on with the pages that were pinned, which
 * nobody else sees any more. Ours would end the process, so it gets new pages there.
 */
#include "softib.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Registered ranges. A handler walks the list at any moment: nodes are used again and never freed. */
struct range {
	uintptr_t start, end;
	struct range *next;
};

static struct range *ranges;
static pthread_mutex_t ranges_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before[2]; /* of SIGSEGV and SIGBUS */
static uintptr_t code_start, code_end; /* the adapter's instructions */
static uintptr_t page_mask;

struct range *softib_watch(void *addr, size_t length)
{
	struct range *r;

	pthread_mutex_lock(&ranges_mutex);
	for (r = ranges; r && r->end; r = r->next)
		;
	if (!r) {
		r = calloc(1, sizeof(*r));
		if (r) {
			r->next = ranges;
			__atomic_store_n(&ranges, r, __ATOMIC_RELEASE);
		}
	}
	if (r) {
		__atomic_store_n(&r->start, (uintptr_t)addr, __ATOMIC_RELAXED);
		__atomic_store_n(&r->end, (uintptr_t)addr + length, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&ranges_mutex);
	return r;
}

void softib_unwatch(struct range *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&ranges_mutex);
	__atomic_store_n(&r->end, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&ranges_mutex);
}

static bool registered(uintptr_t at)
{
	for (struct range *r = __atomic_load_n(&ranges, __ATOMIC_ACQUIRE); r; r = r->next)
		if (at >= __atomic_load_n(&r->start, __ATOMIC_RELAXED) && at < __atomic_load_n(&r->end, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

/* Whether the adapter was stopped at registered memory that is not there, and can go on now. */
static bool mended(int sig, const siginfo_t *info, const ucontext_t *context)
{
	uintptr_t at = (uintptr_t)info->si_addr, pc;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

#if defined(__x86_64__)
	pc = context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	pc = context->uc_mcontext.pc;
#else
	(void)context;
	return false;
#endif
	if (pc < code_start || pc >= code_end || !registered(at))
		return false;
	if (sig == SIGSEGV && info->si_code != SEGV_MAPERR)
		return false;
	/* Of a file that has become shorter the page is mapped; another thread may have mapped one that was not. */
	flags |= sig == SIGBUS ? MAP_FIXED : MAP_FIXED_NOREPLACE;
	return mmap((void *)(at & page_mask), ~page_mask + 1, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED ||
		errno == EEXIST;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *next = &before[sig == SIGBUS];
	int saved = errno;
	bool goes_on = mended(sig, info, context);

	errno = saved;
	if (goes_on)
		return;
	if (next->sa_flags & SA_SIGINFO) {
		next->sa_sigaction(sig, info, context);
	} else if (next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN) {
		next->sa_handler(sig);
	} else {
		sigaction(sig, next, NULL); /* and the instruction faults again */
	}
}

static int find_code(struct dl_phdr_info *info, size_t size, void *start)
{
	(void)size;
	if ((void *)info->dlpi_addr != start)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			code_start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			code_end = code_start + info->dlpi_phdr[i].p_memsz;
		}
	return 1;
}

/* Called once, after libsoftib.so has set handlers of its own. */
void softib_watch_faults(void *function)
{
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER };
	Dl_info info;

	page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	if (!dladdr(function, &info))
		return;
	dl_iterate_phdr(find_code, info.dli_fbase);
	sigemptyset(&act.sa_mask);
	if (!sigaction(SIGSEGV, NULL, &before[0]) && !sigaction(SIGBUS, NULL, &before[1])) {
		sigaction(SIGSEGV, &act, NULL);
		sigaction(SIGBUS, &act, NULL);
	}
}
