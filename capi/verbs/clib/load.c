/* libsoftib.so, and what becomes of it when the process forks. */
#include "softib.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

struct softib_go softib_go;

static pthread_mutex_t load_mutex = PTHREAD_MUTEX_INITIALIZER;
static int loaded;
static bool forked; /* from a process that had loaded it */

void softib_warn(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fprintf(stderr, "softib: %s\n", line);
}

/*
 * The threads that drive the adapter are not in the child, and its runtime does not start again. The child may load
 * another copy of it, and open devices as any process does.
 */
static void in_child(void)
{
	if (!loaded)
		return;
	forked = true;
	loaded = 0;
	pthread_mutex_init(&load_mutex, NULL);
	softib_leave_contexts();
	softib_forget_events();
	softib_forget_ranges();
}

/*
 * A copy of the library as the loader wants it that has the first one: with another name and another inode. The name
 * has the process's number, so that a child's child has yet another one.
 */
static void *load_copy(const char *path)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("libsoftib.so", MFD_CLOEXEC);
	void *library = NULL;
	char name[64];
	ssize_t n = -1;

	if (from >= 0 && to >= 0)
		do
			n = sendfile(to, from, NULL, 1 << 24);
		while (n > 0);
	snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), to);
	if (!n)
		library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
	return library;
}

static const struct {
	const char *name;
	size_t at;
} functions[] = {
#define X(name, args) { "softib_" #name, offsetof(struct softib_go, name) },
	SOFTIB_CALLS(X)
#undef X
};

static int load(void)
{
	const char *folder = getenv("SOFTIB_LIB");
	char path[PATH_MAX];
	sigset_t all, before;
	void *library;

	if (!folder)
		return ENODEV;
	if (snprintf(path, sizeof(path), "%s/libsoftib.so", folder) >= (int)sizeof(path))
		return ENAMETOOLONG;
	/*
	 * It has threads, so it is never unloaded. They inherit what is blocked here: the program's signals are for the
	 * program's threads, whose stacks are large enough for its handlers.
	 */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (forked) {
		softib_return_handlers();
		library = load_copy(path);
	} else {
		softib_keep_handlers();
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!library && forked) {
		softib_warn("a process that was forked after its parent opened a device cannot open one here; "
			"next: fork first, or exec");
		return EIO;
	}
	if (!library) {
		softib_warn("%s; next: start the program with softib exec", dlerror());
		return ENOENT;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *f = dlsym(library, functions[i].name);

		if (!f) {
			softib_warn("%s has no %s: it belongs to another softib; next: start the program again with softib exec",
				path, functions[i].name);
			return ENOSYS;
		}
		memcpy((char *)&softib_go + functions[i].at, &f, sizeof(f));
	}
	softib_watch_faults(dlsym(library, "softib_open"));
	return forked ? 0 : pthread_atfork(NULL, NULL, in_child);
}

bool softib_loaded(void)
{
	return __atomic_load_n(&loaded, __ATOMIC_RELAXED);
}

int softib_load(void)
{
	int error = 0;

	pthread_mutex_lock(&load_mutex);
	if (!loaded) {
		error = load();
		__atomic_store_n(&loaded, !error, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&load_mutex);
	return error;
}

/* An adapter of silicon would have sent its last acknowledgements long ago. */
static __attribute__((destructor)) void at_exit(void)
{
	if (softib_loaded())
		softib_go.settle();
}
