/*
 * rdma-core's librspreload puts rsockets under programs that know sockets alone: what it gives them is for the kernel
 * another kind of file. That of rdma-core 44 stands in front of accept and fcntl, but not of accept4 and fcntl64, which
 * many call (netcat, Python, redis); later ones do. So what is no socket for the kernel, and one by its word, goes to
 * the former.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cm.h"

int is_put_under(int fd)
{
	struct stat st;
	int value, was = errno, is;
	socklen_t size = sizeof(value);

	is = fstat(fd, &st) == 0 && !S_ISSOCK(st.st_mode) &&
	     getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, &size) == 0;
	errno = was;
	return is;
}

EXPORT int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags)
{
	static int (*next)(int, struct sockaddr *, socklen_t *, int);
	int made;

	if (!next && !(next = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4")))
		return fail(ENOSYS);
	made = next(fd, address, size, flags);
	if (made >= 0 || errno != ENOTSOCK || !is_put_under(fd))
		return made;
	made = accept(fd, address, size);
	if (made < 0)
		return made;
	if (flags & SOCK_NONBLOCK)
		fcntl(made, F_SETFL, fcntl(made, F_GETFL) | O_NONBLOCK);
	if (flags & SOCK_CLOEXEC)
		fcntl(made, F_SETFD, FD_CLOEXEC);
	return made;
}

EXPORT int fcntl64(int fd, int command, ...)
{
	static int (*next)(int, int, ...);
	va_list args;
	void *value;

	va_start(args, command);
	value = va_arg(args, void *); /* or a number, which is passed alike */
	va_end(args);
	if ((command == F_GETFL || command == F_SETFL) && is_put_under(fd))
		return fcntl(fd, command, value);
	if (!next && !(next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64")))
		return fail(ENOSYS);
	return next(fd, command, value);
}
