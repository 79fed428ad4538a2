/* The connection to the fabric's daemon. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "client.h"

int debug_level;
_Thread_local int quiet;

/* How long the daemon may take to answer a request that waits for nothing. */
enum { REPLY_SECONDS = 10 };

void warn(const char *function, const char *format, ...)
{
	char line[SOFTIB_TEXT_MAX + 128];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fprintf(stderr, "ibwarn: [%d] %s: %s\n", getpid(), function, line);
}

/*
 * What keeps the library from reaching its fabric is said in words, but once:
 * programs try several calls in a row and would repeat it.
 */
static int complain(int error, const char *format, ...)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	va_list args;

	if (!quiet && !atomic_flag_test_and_set(&said)) {
		char line[SOFTIB_TEXT_MAX + 256];

		va_start(args, format);
		vsnprintf(line, sizeof(line), format, args);
		va_end(args);
		fprintf(stderr, "softib: %s\n", line);
	}
	errno = error;
	return -error;
}

static int dial(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = REPLY_SECONDS };
	const char *path = secure_getenv("SOFTIB_UMAD");
	int fd;

	if (!path || !*path)
		return complain(ENODEV, "SOFTIB_UMAD does not name a fabric's socket; next: softib exec HOST -- PROGRAM");
	if (strlen(path) >= sizeof(address.sun_path))
		return complain(ENAMETOOLONG, "SOFTIB_UMAD is longer than a socket's path may be (%zu bytes): %s",
				sizeof(address.sun_path) - 1, path);
	strcpy(address.sun_path, path);

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return complain(errno, "no socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;

		if (error == EINTR)
			continue;
		close(fd);
		return complain(error == ENOENT || error == ECONNREFUSED ? ENODEV : error,
				"no fabric answers at %s (%s); next: softib status", path, strerror(error));
	}
	return fd;
}

static int exchange(int fd, struct softib_request *request, struct softib_reply *reply, void *payload, size_t *size)
{
	char text[SOFTIB_TEXT_MAX + 1] = "";
	struct iovec parts[3] = {
		{ reply, sizeof(*reply) },
		{ payload, *size },
		{ text, SOFTIB_TEXT_MAX },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
	ssize_t n;

	do {
		n = send(fd, request, sizeof(*request), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return complain(EIO, "the fabric's daemon took no request: %s", strerror(errno));

	do {
		n = recvmsg(fd, &message, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return complain(EIO, "the fabric's daemon did not answer for %d s; next: softib status", REPLY_SECONDS);
	if (n < (ssize_t)sizeof(*reply) || reply->magic != SOFTIB_MAGIC)
		return complain(EIO, "what listens at SOFTIB_UMAD is not a fabric's daemon, or it refused this user");
	n -= sizeof(*reply);

	if (reply->error) {
		size_t length = (size_t)n < SOFTIB_TEXT_MAX ? (size_t)n : SOFTIB_TEXT_MAX;

		/* The words begin in the payload's room and end in text. */
		if (*size >= length) {
			memcpy(text, payload, length);
		} else {
			memmove(text + *size, text, length - *size);
			if (*size)
				memcpy(text, payload, *size);
		}
		text[length] = 0;
		TRACE("request %d: %s", request->op, text);
		if (reply->error == EPROTO || reply->error == ENODEV || reply->error == EPERM)
			return complain(reply->error, "%s", text);
		errno = reply->error;
		return -(int)reply->error;
	}
	if (reply->version != SOFTIB_VERSION)
		return complain(EPROTO,
			"the fabric's daemon speaks version %d, this library %d; next: restart the fabric with this softib",
				reply->version, SOFTIB_VERSION);
	if ((size_t)n > *size || reply->count != (size_t)n)
		return complain(EIO, "the fabric's daemon answered %zd bytes where %u were announced and %zu have room", n,
				reply->count, *size);
	*size = n;
	return 0;
}

int ask(struct softib_request *request, struct softib_reply *reply, void *payload, size_t *size, int *keep)
{
	const char *host = secure_getenv("SOFTIB_HOST");
	size_t nothing = 0;
	int fd, error;

	if (!host || !*host)
		return complain(ENODEV, "SOFTIB_HOST does not name a host; next: softib exec HOST -- PROGRAM");
	if (strlen(host) >= sizeof(request->host))
		return complain(ENODEV, "SOFTIB_HOST is longer than %zu bytes: %s", sizeof(request->host) - 1, host);
	request->magic = SOFTIB_MAGIC;
	request->version = SOFTIB_VERSION;
	strcpy(request->host, host);

	fd = dial();
	if (fd < 0)
		return fd;
	error = exchange(fd, request, reply, payload, size ? size : &nothing);
	if (error || !keep)
		close(fd);
	else
		*keep = fd;
	if (error)
		errno = -error;
	return error;
}
