/* rsockets, one property after the other, on host h1 of a fabric. The peer is a thread here, but where it says
 * otherwise. */
#include "rig.h"

#include <netinet/tcp.h>
#include <sys/mman.h>
#include <rdma/rsocket.h>

#define OWN "198.18.0.1"

enum { PORT = 5151, BIG = 3 << 20 };

static int listening(int type)
{
	int s = rsocket(AF_INET, type, 0);

	if (s < 0)
		DIE("rsocket");
	OK(rbind(s, v4("0.0.0.0", PORT), sizeof(struct sockaddr_in)));
	if (type == SOCK_STREAM)
		OK(rlisten(s, 8));
	return s;
}

static int connected(void)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	OK(rconnect(s, v4(OWN, PORT), sizeof(struct sockaddr_in)));
	return s;
}

/* A thread that accepts one connection and does something with it. */
struct peer {
	pthread_t thread;
	int listener, socket;
	void (*run)(int socket);
};

static void *peer_main(void *arg)
{
	struct peer *p = arg;

	p->socket = raccept(p->listener, NULL, NULL);
	if (p->socket < 0)
		DIE("raccept");
	p->run(p->socket);
	OK(rclose(p->socket));
	return NULL;
}

static void start(struct peer *p, void (*run)(int socket))
{
	p->listener = listening(SOCK_STREAM);
	p->run = run;
	OK(pthread_create(&p->thread, NULL, peer_main, p));
}

static void stop(struct peer *p)
{
	OK(pthread_join(p->thread, NULL));
	OK(rclose(p->listener));
}

static void await(int s, short events)
{
	struct pollfd p = { .fd = s, .events = events };

	if (rpoll(&p, 1, 30000) != 1 || !(p.revents & events))
		DIE("rpoll for %x gives %x", events, p.revents);
}

/* All of it, whether the socket waits or not. */
static void put(int s, const void *data, size_t n, int flags)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = rsend(s, (const char *)data + done, n - done, flags);

		if (k < 0 && errno == EAGAIN) {
			await(s, POLLOUT);
			continue;
		}
		if (k <= 0)
			DIE("rsend at %zu of %zu", done, n);
		done += k;
	}
}

static void get(int s, void *data, size_t n, int flags)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = rrecv(s, (char *)data + done, n - done, flags);

		if (k < 0 && errno == EAGAIN) {
			await(s, POLLIN);
			continue;
		}
		if (k <= 0)
			DIE("rrecv at %zu of %zu: %zd", done, n, k);
		done += k;
	}
}

static void fill(char *data, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (i * 2654435761u + seed) >> 13;
}

static void echo_to_the_end(int s)
{
	static char room[70000];
	ssize_t n;

	while ((n = rrecv(s, room, sizeof(room), 0)) > 0)
		put(s, room, n, 0);
	WANT(n == 0);
}

static const size_t sizes[] = { 1, 2, 63, 64, 65, 100, 1000, 4096, 4097, 65536, 131071, 131072, 131073, 300001,
	1 << 20 };

static void exchange(int flags)
{
	struct peer p;
	char *out = malloc(BIG), *in = malloc(BIG);
	int s;

	start(&p, echo_to_the_end);
	s = connected();
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(out, sizes[i], i);
		/* Of what is under way no more than both rings hold, or both would wait. */
		for (size_t at = 0; at < sizes[i];) {
			size_t n = sizes[i] - at < 100000 ? sizes[i] - at : 100000;

			put(s, out + at, n, flags);
			get(s, in + at, n, flags);
			at += n;
		}
		WANT(!memcmp(in, out, sizes[i]));
	}
	for (int i = 0; i < 2000; i++) { /* many short ones: more than there are credits */
		fill(out, 8, i);
		put(s, out, 8, flags);
		if (i >= 500)
			get(s, in, 8, flags);
	}
	for (int i = 0; i < 500; i++)
		get(s, in, 8, flags);
	WANT(!memcmp(in, out, 8));
	OK(rshutdown(s, SHUT_WR));
	WANT(rrecv(s, in, 1, 0) == 0);
	OK(rclose(s));
	stop(&p);
	free(in);
	free(out);
}

static void test_echo(void)
{
	exchange(0);
}

static void test_nonblocking(void)
{
	struct sockaddr_in who;
	socklen_t size = sizeof(who);
	int l, s, k, error = -1;
	char c;

	exchange(MSG_DONTWAIT);

	l = listening(SOCK_STREAM);
	OK(rfcntl(l, F_SETFL, O_NONBLOCK));
	WANT(rfcntl(l, F_GETFL) & O_NONBLOCK);
	REFUSED(EAGAIN, raccept(l, NULL, NULL));
	s = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	REFUSED(ENOTCONN, rsend(s, "x", 1, 0));
	REFUSED(EINPROGRESS, rconnect(s, v4(OWN, PORT), sizeof(who)));
	REFUSED(EALREADY, rconnect(s, v4(OWN, PORT), sizeof(who)));
	for (;;) { /* neither waits for the other: both are asked in turn */
		struct pollfd p[2] = { { .fd = l, .events = POLLIN }, { .fd = s, .events = POLLOUT } };

		WANT(rpoll(p, 2, 30000) > 0);
		if (p[0].revents & POLLIN)
			break;
	}
	k = raccept(l, (struct sockaddr *)&who, &size);
	WANT(k >= 0 && who.sin_family == AF_INET && size == sizeof(who));
	await(s, POLLOUT);
	size = sizeof(error);
	OK(rgetsockopt(s, SOL_SOCKET, SO_ERROR, &error, &size));
	WANT(error == 0);
	REFUSED(EISCONN, rconnect(s, v4(OWN, PORT), sizeof(who)));
	REFUSED(EAGAIN, rrecv(s, &c, 1, 0));
	put(s, "a", 1, 0);
	WANT(rrecv(k, &c, 1, 0) == 1 && c == 'a');
	OK(rclose(s));
	WANT(rrecv(k, &c, 1, 0) == 0);
	OK(rclose(k));
	OK(rclose(l));
}

static void *writer(void *arg)
{
	int s = *(int *)arg;
	char *data = malloc(BIG);

	for (int i = 0; i < 4; i++) {
		fill(data, BIG, i);
		put(s, data, BIG, 0);
	}
	free(data);
	return NULL;
}

static void *reader(void *arg)
{
	int s = *(int *)arg;
	char *data = malloc(BIG), *want = malloc(BIG);

	for (int i = 0; i < 4; i++) {
		fill(want, BIG, i);
		get(s, data, BIG, 0);
		WANT(!memcmp(data, want, BIG));
	}
	free(data);
	free(want);
	return NULL;
}

static void both_ways(int s)
{
	pthread_t r, w;

	OK(pthread_create(&r, NULL, reader, &s));
	OK(pthread_create(&w, NULL, writer, &s));
	OK(pthread_join(r, NULL));
	OK(pthread_join(w, NULL));
}

/* Two threads on each end, more than the rings hold in both directions. */
static void test_duplex(void)
{
	struct peer p;
	int s;

	start(&p, both_ways);
	s = connected();
	both_ways(s);
	OK(rclose(s));
	stop(&p);
}

static void half(int s)
{
	char word[8];

	get(s, word, 5, 0);
	WANT(!memcmp(word, "hello", 5));
	WANT(rrecv(s, word, 1, 0) == 0 && rrecv(s, word, 1, 0) == 0);
	put(s, "still", 5, 0);
}

static void test_shutdown(void)
{
	struct peer p;
	char word[8];
	int s;

	start(&p, half);
	s = connected();
	put(s, "hello", 5, 0);
	OK(rshutdown(s, SHUT_WR));
	REFUSED(EPIPE, rsend(s, "x", 1, 0));
	get(s, word, 5, 0);
	WANT(!memcmp(word, "still", 5));
	WANT(rrecv(s, word, 1, 0) == 0);
	OK(rclose(s));
	stop(&p);
	REFUSED(EBADF, rsend(s, "x", 1, 0));
	REFUSED(EBADF, rclose(s));
}

static void test_refused(void)
{
	struct sockaddr_in far = *(struct sockaddr_in *)v4("198.18.99.99", PORT);
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	REFUSED(ECONNREFUSED, rconnect(s, v4(OWN, PORT + 1), sizeof(struct sockaddr_in)));
	OK(rclose(s));
	s = rsocket(AF_INET, SOCK_STREAM, 0);
	WANT(rconnect(s, (struct sockaddr *)&far, sizeof(far)) == -1 && errno != EINPROGRESS);
	OK(rclose(s));
	REFUSED(EAFNOSUPPORT, rsocket(AF_UNIX, SOCK_STREAM, 0));
	REFUSED(ESOCKTNOSUPPORT, rsocket(AF_INET, SOCK_RAW, 0));
	REFUSED(EPROTONOSUPPORT, rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	REFUSED(EBADF, rlisten(0, 1));
}

static void test_peek(void)
{
	struct peer p;
	char a[16] = "", b[16] = "";
	struct iovec out[] = { { "one", 3 }, { "", 0 }, { "two", 3 } }, in[] = { { a, 2 }, { b, 4 } };
	struct msghdr message = { .msg_iov = in, .msg_iovlen = 2 };
	int s;

	start(&p, echo_to_the_end);
	s = connected();
	WANT(rwritev(s, out, 3) == 6);
	WANT(rrecv(s, a, 6, MSG_WAITALL | MSG_PEEK) >= 1);
	while (rrecv(s, a, 16, MSG_PEEK) < 6)
		;
	WANT(!strcmp(a, "onetwo"));
	memset(a, 0, sizeof(a));
	WANT(rrecvmsg(s, &message, 0) == 6 && !strcmp(a, "on") && !strcmp(b, "etwo"));
	WANT(rwrite(s, "0123456789", 10) == 10);
	WANT(rrecv(s, a, 10, MSG_WAITALL) == 10 && !strcmp(a, "0123456789"));
	WANT(rsendmsg(s, &(struct msghdr){ .msg_iov = out, .msg_iovlen = 3 }, 0) == 6);
	WANT(rread(s, a, 3) == 3 && rread(s, a, 3) == 3 && !memcmp(a, "two", 3));
	OK(rclose(s));
	stop(&p);
}

static void late(int s)
{
	usleep(100000); /* so that the other side sleeps when it comes */
	put(s, "late", 4, 0);
	usleep(100000);
}

static void test_poll(void)
{
	struct pollfd p[3];
	struct peer peer;
	int s, other[2];
	char word[8];

	OK(pipe(other));
	start(&peer, late);
	s = connected();
	p[0] = (struct pollfd){ .fd = s, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = other[0], .events = POLLIN };
	p[2] = (struct pollfd){ .fd = -1, .events = POLLIN, .revents = 7 };
	WANT(rpoll(p, 3, 0) == 0 && p[2].revents == 0);
	WANT(rpoll(p, 3, 10) == 0);
	WANT(rpoll(p, 3, 30000) == 1 && p[0].revents == POLLIN && !p[1].revents);
	get(s, word, 4, 0);
	WANT(write(other[1], "x", 1) == 1);
	WANT(rpoll(p, 3, 30000) == 1 && p[1].revents == POLLIN);
	WANT(read(other[0], word, 1) == 1);
	WANT(rpoll(p, 3, 30000) == 1 && p[0].revents & POLLIN); /* the end */
	WANT(rrecv(s, word, 1, 0) == 0);
	OK(rclose(s));
	stop(&peer);
	close(other[0]);
	close(other[1]);
}

static void test_select(void)
{
	struct timeval soon = { .tv_usec = 10000 };
	struct peer peer;
	fd_set r, w;
	char word[8];
	int s;

	start(&peer, late);
	s = connected();
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(s, &r);
	FD_SET(s, &w);
	WANT(rselect(s + 1, &r, &w, NULL, &soon) == 1 && FD_ISSET(s, &w) && !FD_ISSET(s, &r));
	FD_SET(s, &r);
	WANT(rselect(s + 1, &r, NULL, NULL, NULL) == 1 && FD_ISSET(s, &r));
	get(s, word, 4, 0);
	OK(rclose(s));
	stop(&peer);
}

static void *sleeps_in_receive(void *arg)
{
	char c;

	rrecv(*(int *)arg, &c, 1, 0);
	return NULL;
}

static void *sleeps_in_poll(void *arg)
{
	await(*(int *)arg, POLLIN);
	return NULL;
}

/* Threads that wait are cancelled; others go on. */
static void test_cancel(void)
{
	struct peer p;
	char word[4];
	pthread_t t;
	int s;

	start(&p, echo_to_the_end);
	s = connected();
	for (int i = 0; i < 20; i++) {
		OK(pthread_create(&t, NULL, i % 2 ? sleeps_in_poll : sleeps_in_receive, &s));
		usleep(i * 200);
		OK(pthread_cancel(t));
		OK(pthread_join(t, NULL));
		put(s, "echo", 4, 0);
		get(s, word, 4, 0);
		WANT(!memcmp(word, "echo", 4));
	}
	OK(rclose(s));
	stop(&p);
}

static void test_options(void)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0), value = 70000;
	struct sockaddr_in own;
	socklen_t size = sizeof(value);

	OK(rsetsockopt(s, SOL_SOCKET, SO_SNDBUF, &value, size));
	value = 0;
	OK(rgetsockopt(s, SOL_SOCKET, SO_SNDBUF, &value, &size));
	WANT(value == 70000);
	value = 1;
	OK(rsetsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, size));
	OK(rsetsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, size));
	value = 128;
	OK(rsetsockopt(s, SOL_RDMA, RDMA_SQSIZE, &value, size));
	OK(rgetsockopt(s, SOL_SOCKET, SO_TYPE, &value, &size));
	WANT(value == SOCK_STREAM);
	REFUSED(ENOPROTOOPT, rsetsockopt(s, SOL_SOCKET, SO_BROADCAST, &value, size));
	REFUSED(EINVAL, rsetsockopt(s, SOL_SOCKET, SO_SNDBUF, &value, 1));
	REFUSED(ENOTCONN, rgetpeername(s, (struct sockaddr *)&own, &size));
	REFUSED(ENOTCONN, rshutdown(s, SHUT_WR));
	OK(rbind(s, v4(OWN, 0), sizeof(own)));
	size = sizeof(own);
	OK(rgetsockname(s, (struct sockaddr *)&own, &size));
	WANT(own.sin_port != 0 && own.sin_addr.s_addr == inet_addr(OWN));
	REFUSED(EINVAL, rbind(s, v4(OWN, 0), sizeof(own)));
	REFUSED(EINVAL, raccept(s, NULL, NULL));
	OK(rclose(s));
}

static char window[100000];

static void maps(int s)
{
	char word[1];

	WANT(riomap(s, window, sizeof(window), PROT_WRITE, 0, 4096) == 4096);
	put(s, "m", 1, 0); /* what is sent after a mapping arrives after it */
	get(s, word, 1, 0);
	for (size_t i = 0; i < sizeof(window) - 10; i++)
		WANT(window[i + 10] == (char)(i * 7));
	OK(riounmap(s, window, sizeof(window)));
	REFUSED(EINVAL, riounmap(s, window, sizeof(window)));
	put(s, "u", 1, 0);
}

static void test_iomap(void)
{
	static char data[sizeof(window) - 10];
	int s = rsocket(AF_INET, SOCK_STREAM, 0), count = 4;
	struct peer p;
	char word[1];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = i * 7;
	OK(rsetsockopt(s, SOL_RDMA, RDMA_IOMAPSIZE, &count, sizeof(count)));
	start(&p, maps);
	OK(rconnect(s, v4(OWN, PORT), sizeof(struct sockaddr_in)));
	get(s, word, 1, 0);
	REFUSED(EINVAL, (ssize_t)riowrite(s, data, 10, 0, 0));
	WANT(riowrite(s, data, sizeof(data), 4096 + 10, 0) == sizeof(data));
	put(s, "w", 1, 0);
	get(s, word, 1, 0);
	REFUSED(EINVAL, (ssize_t)riowrite(s, data, 10, 4096, 0));
	OK(rclose(s));
	stop(&p);
}

static void *answer(void *arg)
{
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	char room[4096];
	int s = *(int *)arg;

	for (int i = 0; i < 200; i++) {
		ssize_t n = rrecvfrom(s, room, sizeof(room), 0, (struct sockaddr *)&from, &size);

		WANT(n >= 0 && size == sizeof(from));
		WANT(rsendto(s, room, n, 0, (struct sockaddr *)&from, size) == n);
	}
	return NULL;
}

static void test_datagrams(void)
{
	int l = listening(SOCK_DGRAM), s = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = *(struct sockaddr_in *)v4(OWN, PORT), from;
	socklen_t size = sizeof(from);
	static char much[5000];
	char out[4000], in[4096];
	pthread_t t;

	OK(pthread_create(&t, NULL, answer, &l));
	for (int i = 0; i < 200; i++) {
		size_t n = i * 20 + (i & 1);

		if (i == 100)
			OK(rconnect(s, (struct sockaddr *)&to, sizeof(to)));
		fill(out, n, i);
		if (i < 100)
			WANT(rsendto(s, out, n, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)n);
		else
			WANT(rsend(s, out, n, 0) == (ssize_t)n);
		WANT(rrecvfrom(s, in, sizeof(in), 0, (struct sockaddr *)&from, &size) == (ssize_t)n);
		WANT(!memcmp(in, out, n) && from.sin_port == htons(PORT) && from.sin_addr.s_addr == to.sin_addr.s_addr);
	}
	OK(pthread_join(t, NULL));
	REFUSED(EMSGSIZE, rsend(s, much, sizeof(much), 0));
	OK(rclose(s));
	OK(rclose(l));
}

static void test_datagram_errors(void)
{
	int s = rsocket(AF_INET, SOCK_DGRAM, 0), l = listening(SOCK_DGRAM);
	struct pollfd p = { .fd = s, .events = POLLIN | POLLOUT };
	char c;

	REFUSED(EDESTADDRREQ, rsend(s, "x", 1, 0));
	REFUSED(EAGAIN, rrecv(s, &c, 1, MSG_DONTWAIT));
	REFUSED(EOPNOTSUPP, rlisten(s, 1));
	WANT(rpoll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	WANT(rsendto(s, "x", 1, 0, v4(OWN, PORT + 2), sizeof(struct sockaddr_in)) == -1 && errno != EAGAIN);
	OK(rclose(s));
	OK(rclose(l));
}

/* Takes a connection, and is killed. */
static void test_victim(void)
{
	int l = listening(SOCK_STREAM), s = raccept(l, NULL, NULL);

	put(s, "here", 4, 0);
	pause();
}

/* On another host. */
static void test_survivor(void)
{
	int s = connected();
	char word[8];
	ssize_t n;

	get(s, word, 4, 0);
	puts("connected");
	fflush(stdout);
	n = rrecv(s, word, 1, 0);
	WANT(n == -1 && errno == ECONNRESET);
	WANT(rsend(s, "x", 1, 0) == -1);
	OK(rclose(s));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "options", test_options, 0 },
		{ "echo", test_echo, 0 },
		{ "nonblocking", test_nonblocking, 0 },
		{ "duplex", test_duplex, 0 },
		{ "shutdown", test_shutdown, 0 },
		{ "refused", test_refused, 0 },
		{ "peek", test_peek, 0 },
		{ "poll", test_poll, 0 },
		{ "select", test_select, 0 },
		{ "iomap", test_iomap, 0 },
		{ "datagrams", test_datagrams, 0 },
		{ "datagram_errors", test_datagram_errors, 0 },
		{ "cancel", test_cancel, 0 },
		{ "victim", test_victim, 1 },
		{ "survivor", test_survivor, 1 },
		{ 0 },
	};

	return run_tests(tests, argc, argv);
}
