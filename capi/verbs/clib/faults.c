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
	struct range *unused; /* the next of those */
};

static struct range *ranges, *unused;
static pthread_mutex_t ranges_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction programs[2], librarys[2]; /* whose handlers those are, of SIGSEGV and SIGBUS */
static struct sigaction urgent; /* the program's, of SIGURG */
static uintptr_t code_start, code_end; /* the adapter's instructions */
static uintptr_t page_mask;

struct range *softib_watch(void *addr, size_t length)
{
	struct range *r;

	pthread_mutex_lock(&ranges_mutex);
	r = unused;
	if (r) {
		unused = r->unused;
	} else {
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
	r->unused = unused;
	unused = r;
	pthread_mutex_unlock(&ranges_mutex);
}

void softib_forget_ranges(void)
{
	pthread_mutex_init(&ranges_mutex, NULL);
	ranges = unused = NULL;
}

static bool registered(uintptr_t at)
{
	for (struct range *r = __atomic_load_n(&ranges, __ATOMIC_ACQUIRE); r; r = r->next)
		if (at >= __atomic_load_n(&r->start, __ATOMIC_RELAXED) && at < __atomic_load_n(&r->end, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

/* Whether it was the adapter that was stopped. */
static bool in_adapter(const ucontext_t *context)
{
	uintptr_t pc;

#if defined(__x86_64__)
	pc = context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	pc = context->uc_mcontext.pc;
#else
	(void)context;
	return true; /* Go's handler passes on what is not Go's */
#endif
	return pc >= code_start && pc < code_end;
}

/* Whether it was stopped at registered memory that is not there, and can go on now. */
static bool mended(int sig, const siginfo_t *info)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (!registered(at) || (sig == SIGSEGV && info->si_code != SEGV_MAPERR))
		return false;
	/* Of a file that has become shorter the page is mapped; another thread may have mapped one that was not. */
	flags |= sig == SIGBUS ? MAP_FIXED : MAP_FIXED_NOREPLACE;
	return mmap((void *)(at & page_mask), ~page_mask + 1, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED ||
		errno == EEXIST;
}

/* Faults of the adapter go on, or end with what Go says of them; those of the program go to its handler. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct sigaction next = programs[sig == SIGBUS];
	int saved = errno;

	if (in_adapter(context)) {
		if (!mended(sig, info))
			librarys[sig == SIGBUS].sa_sigaction(sig, info, context);
		errno = saved;
		return;
	}
	if (next.sa_handler == SIG_DFL || next.sa_handler == SIG_IGN) {
		sigaction(sig, &next, NULL); /* and the instruction faults again */
		return;
	}
	/* The handler runs as the kernel would have run it. */
	if (next.sa_flags & SA_RESETHAND)
		programs[sig == SIGBUS] = (struct sigaction){ .sa_handler = SIG_DFL };
	if (!(next.sa_flags & SA_NODEFER))
		sigaddset(&next.sa_mask, sig);
	pthread_sigmask(SIG_BLOCK, &next.sa_mask, NULL); /* until we return */
	if (next.sa_flags & SA_SIGINFO)
		next.sa_sigaction(sig, info, context);
	else
		next.sa_handler(sig);
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

/* Called once, before libsoftib.so sets handlers of its own. */
void softib_keep_handlers(void)
{
	sigaction(SIGSEGV, NULL, &programs[0]);
	sigaction(SIGBUS, NULL, &programs[1]);
	sigaction(SIGURG, NULL, &urgent);
}

void softib_return_handlers(void)
{
	sigaction(SIGSEGV, &programs[0], NULL);
	sigaction(SIGBUS, &programs[1], NULL);
	sigaction(SIGURG, &urgent, NULL);
}

/* Called once, after it has. */
void softib_watch_faults(void *function)
{
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER };
	Dl_info info;

	/*
	 * Go can interrupt threads by SIGURG, also the program's. The adapter is built so that it does not (dropin.sh), and
	 * the signal is the program's: qperf has one sent when its peer is done. Its handler must not run on our stacks.
	 */
	if (urgent.sa_handler != SIG_DFL && urgent.sa_handler != SIG_IGN)
		urgent.sa_flags |= SA_ONSTACK;
	sigaction(SIGURG, &urgent, NULL);
	page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	if (!dladdr(function, &info))
		return;
	dl_iterate_phdr(find_code, info.dli_fbase);
	sigemptyset(&act.sa_mask);
	sigaction(SIGSEGV, &act, &librarys[0]);
	sigaction(SIGBUS, &act, &librarys[1]);
}
