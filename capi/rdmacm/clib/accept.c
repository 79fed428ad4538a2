/*
 * rdma-core's librspreload puts rsockets under programs that know sockets alone: it stands in front of accept, but not
 * of accept4, which many call (netcat, Python). They would be told that what they listen on is no socket. So what is
 * none for the kernel is tried by accept, whoever stands in front of that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "cm.h"

EXPORT int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags)
{
	static int (*next)(int, struct sockaddr *, socklen_t *, int);
	int made;

	if (!next && !(next = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4")))
		return fail(ENOSYS);
	made = next(fd, address, size, flags);
	if (made >= 0 || errno != ENOTSOCK)
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
