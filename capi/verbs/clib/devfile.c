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

/* The number of the device whose file it is; -1 if it is none's. */
static int device_of(const char *path)
{
	static const char file[] = "/dev/infiniband/uverbs";
	unsigned long n;
	char *end;

	if (!path || *path != '/' || strncmp(path, file, sizeof(file) - 1))
		return -1;
	path += sizeof(file) - 1;
	n = strtoul(path, &end, 10);
	return *path >= '0' && *path <= '9' && !*end && n < (unsigned long)softib_devices() ? (int)n : -1;
}

#define DESCRIBE(st, n)                                                \
	({                                                            \
		memset((st), 0, sizeof(*(st)));                       \
		(st)->st_mode = S_IFCHR | 0666;                       \
		(st)->st_nlink = 1;                                   \
		(st)->st_rdev = makedev(DEV_MAJOR, DEV_UVERBS + (n)); \
		0;                                                    \
	})

EXPORT int stat(const char *restrict path, struct stat *restrict st)
{
	int n = device_of(path);

	return n >= 0 ? DESCRIBE(st, n) : fstatat(AT_FDCWD, path, st, 0);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict st)
{
	int n = device_of(path);

	return n >= 0 ? DESCRIBE(st, n) : fstatat64(AT_FDCWD, path, st, 0);
}

EXPORT int access(const char *path, int mode)
{
	if (device_of(path) < 0)
		return faccessat(AT_FDCWD, path, mode, 0);
	return mode & X_OK ? FAIL_INT(EACCES) : 0;
}
