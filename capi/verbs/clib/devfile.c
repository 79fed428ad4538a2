/*
 * Some programs ask whether the device's file is there and may be used before they open the device through this library
 * (UCX does). softib exec shows them one, where the kernel gives it a mount namespace; containers seldom do. So they
 * are told yes in any case: what they would do with the file, this library does without.
 */
#include "softib.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Numbers of Linux's devices: Documentation/admin-guide/devices.txt. */
enum { DEV_MAJOR = 231, DEV_UVERBS = 192 };

static bool is_device(const char *path)
{
	return path && *path == '/' && !strcmp(path, "/dev/infiniband/uverbs0") && softib_find_device();
}

#define DESCRIBE(st)                                                  \
	({                                                            \
		memset((st), 0, sizeof(*(st)));                       \
		(st)->st_mode = S_IFCHR | 0666;                       \
		(st)->st_nlink = 1;                                   \
		(st)->st_rdev = makedev(DEV_MAJOR, DEV_UVERBS);       \
		0;                                                    \
	})

EXPORT int stat(const char *restrict path, struct stat *restrict st)
{
	return is_device(path) ? DESCRIBE(st) : fstatat(AT_FDCWD, path, st, 0);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return is_device(path) ? DESCRIBE(st) : fstatat64(AT_FDCWD, path, st, 0);
}

EXPORT int access(const char *path, int mode)
{
	if (!is_device(path))
		return faccessat(AT_FDCWD, path, mode, 0);
	return mode & X_OK ? FAIL_INT(EACCES) : 0;
}
