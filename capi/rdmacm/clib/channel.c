/* The connections to the fabric's daemon, and event channels, which are made of them. */
#define _GNU_SOURCE
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

#include "cm.h"
#include "protocol.h"

/* How long the daemon may take to answer; it never waits for the fabric before it does. */
enum { REPLY_SECONDS = 30 };

/*
 * What keeps the library from its fabric is said in words, but once: programs
 * try several calls in a row and would repeat it.
 */
static int complain(int error, const char *format, ...)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	va_list args;

	if (!atomic_flag_test_and_set(&said)) {
		char line[RDMACM_TEXT_MAX + 256];

		va_start(args, format);
		vsnprintf(line, sizeof(line), format, args);
		va_end(args);
		fprintf(stderr, "softib: %s\n", line);
	}
	return fail(error);
}

static int open_connection(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = REPLY_SECONDS };
	const char *path = secure_getenv("SOFTIB_RDMACM");
	int fd;

	/* As on a machine without the module: not worth a word. */
	if (!path || !*path)
		return fail(ENODEV);
	if (strlen(path) >= sizeof(address.sun_path))
		return complain(ENODEV, "SOFTIB_RDMACM is longer than a socket's path may be (%zu bytes): %s",
				sizeof(address.sun_path) - 1, path);
	strcpy(address.sun_path, path);

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
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

/* The hello of an event connection brings a descriptor of the connection itself: see ../doc.go. */
static ssize_t send_hello(int fd, struct rdmacm_hello *hello)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec part = { hello, sizeof(*hello) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	if (hello->role == ROLE_EVENTS) {
		struct cmsghdr *c;

		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do {
		n = sendmsg(fd, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n;
}

static int greet(int fd, enum rdmacm_role role, uint64_t *number)
{
	struct rdmacm_hello hello = {
		.magic = RDMACM_MAGIC,
		.version = RDMACM_VERSION,
		.role = role,
		.channel = *number,
	};
	struct {
		struct rdmacm_welcome head;
		char text[RDMACM_TEXT_MAX + 1];
	} welcome;
	const char *host = secure_getenv("SOFTIB_HOST");
	ssize_t n;

	if (!host || !*host || strlen(host) >= sizeof(hello.host))
		return complain(ENODEV, "SOFTIB_HOST does not name a host; next: softib exec HOST -- PROGRAM");
	strcpy(hello.host, host);
	if (send_hello(fd, &hello) < 0)
		return complain(ENODEV, "the fabric's daemon took no request: %s", strerror(errno));
	do {
		n = recv(fd, &welcome, sizeof(welcome) - 1, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return complain(ENODEV, "the fabric's daemon did not answer for %d s; next: softib status", REPLY_SECONDS);
	if (n < (ssize_t)sizeof(welcome.head))
		return complain(ENODEV, "what listens at SOFTIB_RDMACM is not a fabric's daemon, or it refused this user");
	if (welcome.head.status) {
		((char *)&welcome)[n] = 0;
		return complain(-welcome.head.status, "%s", welcome.text);
	}
	*number = welcome.head.channel;
	return 0;
}

static int dial(enum rdmacm_role role, uint64_t *number)
{
	int fd = open_connection();

	if (fd >= 0 && greet(fd, role, number) < 0) {
		int error = errno;

		close(fd);
		return fail(error);
	}
	return fd;
}

/* All channels. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct channel *channels;

static void enlist(struct channel *c)
{
	pthread_mutex_lock(&lock);
	c->next = channels;
	channels = c;
	pthread_mutex_unlock(&lock);
}

static void unlist(struct channel *c)
{
	struct channel **at;

	pthread_mutex_lock(&lock);
	for (at = &channels; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&lock);
}

void channel_ended(uint64_t number)
{
	struct channel *c;

	pthread_mutex_lock(&lock);
	for (c = channels; c && c->number != number; c = c->next)
		;
	pthread_mutex_unlock(&lock);
	while (!c)
		pause();
}

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct timeval for_ever = { 0 };
	struct channel *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->commands = dial(ROLE_COMMANDS, &c->number);
	if (c->commands < 0)
		goto no_commands;
	c->pub.fd = dial(ROLE_EVENTS, &c->number);
	if (c->pub.fd < 0)
		goto no_events;
	/* Programs wait for events as long as it takes. */
	setsockopt(c->pub.fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
	pthread_mutex_init(&c->asking, NULL);
	enlist(c);
	return &c->pub;

no_events:
	close(c->commands);
no_commands:
	free(c);
	return NULL;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct channel *c = CONTAINER(channel, struct channel, pub);

	unlist(c);
	close(c->commands);
	close(c->pub.fd);
	pthread_mutex_destroy(&c->asking);
	free(c);
}

/* Returns the reply's length, or -1 and errno. */
static ssize_t exchange(struct channel *c, const struct iovec *request, int parts, struct rdmacm_answer *answer,
	void *reply, size_t room)
{
	struct iovec places[] = { { answer, sizeof(*answer) }, { reply, room } };
	struct msghdr out = { .msg_iov = (struct iovec *)request, .msg_iovlen = parts };
	struct msghdr in = { .msg_iov = places, .msg_iovlen = 2 };
	ssize_t n;

	do {
		n = sendmsg(c->commands, &out, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return n;
	do {
		n = recvmsg(c->commands, &in, 0);
	} while (n < 0 && errno == EINTR);
	return n;
}

int command_parts(struct channel *c, const struct iovec *request, int parts, void *reply, size_t room)
{
	struct rdmacm_answer answer;
	size_t got;
	ssize_t n = -1;
	int before = keep_going();

	pthread_mutex_lock(&c->asking);
	if (!c->dead) {
		n = exchange(c, request, parts, &answer, reply, room);
		if (n < (ssize_t)sizeof(answer))
			c->dead = 1;
	}
	pthread_mutex_unlock(&c->asking);
	may_cancel(before);
	if (n < (ssize_t)sizeof(answer))
		return complain(ENODEV, "the fabric's daemon is gone; next: softib up");
	if (answer.status)
		return fail(-answer.status);
	got = n - sizeof(answer);
	if (got < room)
		memset((char *)reply + got, 0, room - got);
	return 0;
}

int command(struct channel *c, const void *request, size_t size, void *reply, size_t room)
{
	struct iovec part = { (void *)request, size };

	return command_parts(c, &part, 1, reply, room);
}
