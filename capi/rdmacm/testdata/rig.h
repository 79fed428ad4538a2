/* What the C tests share: each is a list of cases, and a program runs those that it is told, or all. */
#ifndef RIG_H
#define RIG_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define DIE(...)                                                        \
	do {                                                            \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);         \
		fprintf(stderr, __VA_ARGS__);                           \
		fprintf(stderr, " (errno %d: %s)\n", errno, strerror(errno)); \
		exit(1);                                                \
	} while (0)

#define OK(call)                                \
	do {                                    \
		if ((call) != 0)                \
			DIE("%s fails", #call); \
	} while (0)

#define WANT(condition)                                \
	do {                                           \
		if (!(condition))                      \
			DIE("not so: %s", #condition); \
	} while (0)

/* The call returns -1 with this error. */
#define REFUSED(error, call)                                                        \
	do {                                                                        \
		errno = 0;                                                          \
		if ((call) != -1 || errno != (error))                               \
			DIE("%s: want -1 and %s", #call, strerror(error));          \
	} while (0)

struct test {
	const char *name;
	void (*run)(void);
	int apart; /* only if it is named */
};

static inline int run_tests(const struct test *tests, int argc, char **argv)
{
	for (const struct test *t = tests; t->name; t++) {
		int wanted = argc == 1 && !t->apart;

		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], t->name);
		if (wanted) {
			t->run();
			printf("%s holds\n", t->name);
			fflush(stdout);
		}
	}
	return 0;
}

static inline struct sockaddr *v4(const char *text, int port)
{
	static _Thread_local struct sockaddr_in ring[4];
	static _Thread_local unsigned int next;
	struct sockaddr_in *a = &ring[next++ % 4];

	*a = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, text, &a->sin_addr);
	return (struct sockaddr *)a;
}

#endif
