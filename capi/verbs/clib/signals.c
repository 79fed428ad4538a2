/*
 * The adapter runs on small stacks of its own, inside the program's threads. A handler that a program sets must not run
 * on them: it gets the thread's signal stack, which every thread that has called the adapter has. Handlers that were
 * there when the adapter was loaded are its own care.
 */
#include "softib.h"

#include <dlfcn.h>
#include <signal.h>

sighandler_t __sysv_signal(int sig, sighandler_t handler);
sighandler_t bsd_signal(int sig, sighandler_t handler);
int own_sigaction(int sig, const struct sigaction *act, struct sigaction *old);

#define NEXT(name)                                                                              \
	({                                                                                      \
		static __typeof__(name) *next;                                                  \
		__typeof__(name) *f = __atomic_load_n(&next, __ATOMIC_RELAXED);                 \
		if (!f) {                                                                       \
			f = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);                        \
			__atomic_store_n(&next, f, __ATOMIC_RELAXED);                           \
		}                                                                               \
		f;                                                                              \
	})

static bool handled(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

/*
 * The functions have the C library's version, so that programs find them here first, but not as its default, so
 * that what is linked with this library does not come to need them from it.
 */
#define INSTEAD_OF(name) __asm__(".symver own_" #name ", " #name "@GLIBC_2.2.5")

EXPORT int own_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction own;

	if (act && softib_loaded() && handled(act)) {
		own = *act;
		own.sa_flags |= SA_ONSTACK;
		act = &own;
	}
	return NEXT(sigaction)(sig, act, old);
}
INSTEAD_OF(sigaction);

/* The older functions, each with its own idea of flags. */
static sighandler_t set(sighandler_t (*next)(int, sighandler_t), int sig, sighandler_t handler)
{
	sighandler_t old = next(sig, handler);
	struct sigaction act;

	if (softib_loaded() && old != SIG_ERR && !NEXT(sigaction)(sig, NULL, &act) && handled(&act) &&
	    !(act.sa_flags & SA_ONSTACK)) {
		act.sa_flags |= SA_ONSTACK;
		NEXT(sigaction)(sig, &act, NULL);
	}
	return old;
}

#define OLDER(name)                                                       \
	EXPORT sighandler_t own_##name(int sig, sighandler_t handler);    \
	EXPORT sighandler_t own_##name(int sig, sighandler_t handler)     \
	{                                                                 \
		return set(NEXT(name), sig, handler);                     \
	}                                                                 \
	INSTEAD_OF(name)

OLDER(signal);
OLDER(ssignal);
OLDER(sysv_signal);
OLDER(__sysv_signal);
OLDER(bsd_signal);
