/*
 * What each function of libibumad does at its edges, on host h1 of the tests' cable: port 1 leads to h2 and is
 * active, port 2
 * leads nowhere. Every line that fails is printed; the status says whether any did.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/umad.h>
#include <infiniband/umad_sa.h>
#include <infiniband/umad_types.h>

static int failures;

#define CHECK(condition)                                                                      \
	do {                                                                                      \
		if (!(condition)) {                                                                   \
			__atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);                               \
			fprintf(stderr, "edges.c:%d: %s (errno %d)\n", __LINE__, #condition, errno);      \
		}                                                                                     \
	} while (0)

#define EQUAL(got, want)                                                                      \
	do {                                                                                      \
		long g_ = (got), w_ = (want);                                                         \
		if (g_ != w_) {                                                                       \
			__atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);                               \
			fprintf(stderr, "edges.c:%d: %s is %ld, want %ld (errno %d)\n", __LINE__, #got, g_, w_, errno); \
		}                                                                                     \
	} while (0)

enum { DIRECT = UMAD_CLASS_SUBN_DIRECTED_ROUTE, PATIENCE_MS = 20000 };

/* A directed-route SubnGet(NodeInfo); hop 0 is this node. */
static void node_info(void *umad, uint64_t tid, int hop)
{
	uint8_t *mad = umad_get_mad(umad);
	uint64_t id = htobe64(tid);

	memset(umad, 0, umad_size() + 256);
	mad[0] = 1;
	mad[1] = DIRECT;
	mad[2] = 1;
	mad[3] = UMAD_METHOD_GET;
	mad[7] = hop ? 1 : 0;
	memcpy(mad + 8, &id, sizeof(id));
	mad[17] = 0x11;
	memset(mad + 32, 0xff, 4);
	mad[129] = hop;
	umad_set_addr(umad, 0xffff, 0, 0, 0);
}

static uint32_t low_tid(void *umad)
{
	uint32_t id;

	memcpy(&id, (uint8_t *)umad_get_mad(umad) + 12, sizeof(id));
	return be32toh(id);
}

static void adapters(void)
{
	char names[4][UMAD_CA_NAME_LEN];
	struct umad_device_node *list;
	__be64 guids[8];
	umad_port_t port;
	umad_ca_t ca;
	char path[256];

	EQUAL(umad_get_cas_names(names, 0), 0);
	EQUAL(umad_get_cas_names(names, 4), 1);
	CHECK(!strcmp(names[0], "softib0"));

	EQUAL(umad_get_ca("mlx5_0", &ca), -ENOENT);
	EQUAL(umad_get_ca(NULL, &ca), 0);
	CHECK(!strcmp(ca.ca_name, "softib0") && !strcmp(ca.fw_ver, "1.2.3") && !strcmp(ca.hw_ver, "0") &&
		!strcmp(ca.ca_type, "softib"));
	EQUAL(ca.node_type, 1);
	EQUAL(ca.numports, 2);
	CHECK(ca.ports[0] == NULL && ca.ports[1] && ca.ports[2] && !ca.ports[3]);
	EQUAL(be64toh(ca.node_guid), 0x0002c90300000100);
	EQUAL(be64toh(ca.system_guid), 0x0002c90300000100);
	EQUAL(umad_release_ca(&ca), 0);
	CHECK(ca.ports[1] == NULL);

	EQUAL(umad_get_ca_portguids("softib0", guids, 8), 3);
	CHECK(guids[0] == 0);
	EQUAL(be64toh(guids[1]), 0x0002c90300000101);
	EQUAL(be64toh(guids[2]), 0x0002c90300000102);
	EQUAL(umad_get_ca_portguids(NULL, guids, 2), -ENOMEM);
	EQUAL(umad_get_ca_portguids(NULL, NULL, 0), 0);
	EQUAL(umad_get_ca_portguids("nothing", guids, 8), -1);

	EQUAL(umad_get_port(NULL, 0, &port), 0);
	EQUAL(port.portnum, 1);
	EQUAL(port.base_lid, 1);
	EQUAL(port.lmc, 0);
	EQUAL(port.sm_lid, 1);
	EQUAL(port.sm_sl, 0);
	EQUAL(port.state, 4);
	EQUAL(port.phys_state, 5);
	EQUAL(port.rate, 100);
	CHECK(be32toh(port.capmask) & 1 << 14);
	EQUAL(be64toh(port.gid_prefix), (long)0xfe80000000000000);
	EQUAL(be64toh(port.port_guid), 0x0002c90300000101);
	EQUAL(port.pkeys_size, 3);
	CHECK(port.pkeys[0] == 0xffff && port.pkeys[1] == 0x8001 && port.pkeys[2] == 0);
	CHECK(!strcmp(port.link_layer, "InfiniBand") && !strcmp(port.ca_name, "softib0"));
	EQUAL(umad_release_port(&port), 0);
	CHECK(port.pkeys == NULL && port.pkeys_size == 0);
	EQUAL(umad_get_port("softib0", 2, &port), 0);
	EQUAL(port.state, 1);
	EQUAL(umad_release_port(&port), 0);
	EQUAL(umad_get_port("softib0", 3, &port), -EIO);
	EQUAL(umad_get_port("softib0", -1, &port), -EIO);
	EQUAL(umad_get_port("softib0", 99, &port), -EIO);
	EQUAL(umad_get_port("nothing", 1, &port), -EIO);
	EQUAL(umad_get_port("nothing", 0, &port), -ENODEV);

	EQUAL(umad_get_issm_path("softib0", 1, path, 4), -ENAMETOOLONG);
	EQUAL(umad_get_issm_path("softib0", 7, path, sizeof(path)), -EINVAL);
	EQUAL(umad_get_issm_path("nothing", 0, path, sizeof(path)), -ENODEV);

	list = umad_get_ca_device_list();
	CHECK(list && !strcmp(list->ca_name, "softib0") && !list->next);
	EQUAL(umad_sort_ca_device_list(&list, 0), 0);
	EQUAL(umad_sort_ca_device_list(&list, 2), EINVAL);
	umad_free_ca_device_list(list);
	umad_free_ca_device_list(NULL);
}

static void agents(void)
{
	long everything[16 / sizeof(long)];
	uint8_t oui[3] = { 0, 0x14, 5 };
	struct umad_reg_attr attr = { .mgmt_class = UMAD_CLASS_PERF_MGMT, .mgmt_class_version = 1 };
	uint32_t id;
	int fd, other, file, i;

	memset(everything, 0xff, sizeof(everything));
	EQUAL(umad_open_port("nothing", 1), -EINVAL);
	EQUAL(umad_open_port("nothing", 0), -ENODEV);
	EQUAL(umad_open_port("softib0", 9), -EINVAL);
	EQUAL(umad_open_port(NULL, 9), -EINVAL);
	fd = umad_open_port(NULL, 0);
	CHECK(fd >= 0);
	EQUAL(umad_get_fd(fd), fd);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	file = open("/dev/null", O_RDWR);

	/* what is no port */
	EQUAL(umad_register(-1, DIRECT, 1, 0, NULL), -EPERM);
	EQUAL(errno, EBADF);
	EQUAL(umad_register(file, DIRECT, 1, 0, NULL), -EPERM);
	EQUAL(errno, ENOTTY);
	EQUAL(umad_unregister(-1, 0), -1);
	EQUAL(errno, EBADF);
	EQUAL(umad_close_port(-1), 0);

	/* what contradicts itself */
	EQUAL(umad_register_oui(fd, 0x29, 0, oui, NULL), -EINVAL);
	EQUAL(umad_register_oui(fd, 0x50, 0, oui, NULL), -EINVAL);
	EQUAL(umad_register(fd, DIRECT, 1, 1, NULL), -EPERM);
	EQUAL(umad_register(fd, UMAD_CLASS_SUBN_ADM, 2, 2, NULL), -EPERM);
	EQUAL(umad_register(fd, 0x90, 1, 0, NULL), -EPERM);
	EQUAL(umad_register(fd, UMAD_CLASS_PERF_MGMT, 0x83, 0, NULL), -EPERM);
	EQUAL(umad_register2(fd, NULL, &id), EINVAL);
	EQUAL(umad_register2(fd, &attr, NULL), EINVAL);
	attr.flags = 0x80000000u;
	EQUAL(umad_register2(fd, &attr, &id), EINVAL);
	EQUAL(attr.flags, 0);
	attr.mgmt_class = 0x32;
	EQUAL(umad_register2(fd, &attr, &id), EINVAL);
	attr.oui = 0x1000000;
	EQUAL(umad_register2(fd, &attr, &id), EINVAL);

	/* numbers, and who has a class */
	attr.oui = 0x001405;
	attr.flags = UMAD_USER_RMPP;
	attr.rmpp_version = 1;
	id = 99;
	EQUAL(umad_register2(fd, &attr, &id), 0);
	EQUAL(id, 0);
	EQUAL(umad_register(fd, 0x07, 2, 0, everything), 1);
	EQUAL(umad_register(fd, 0x07, 2, 0, everything), -EPERM);
	EQUAL(umad_register(fd, 0x07, 1, 0, everything), 2); /* another version is another class */
	EQUAL(umad_register(fd, 0x07, 2, 0, NULL), 3);       /* who only sends is not in the way */
	EQUAL(umad_register(fd, 0, 0, 0, everything), 4);
	other = umad_open_port("softib0", 1);
	CHECK(other >= 0 && other != fd);
	EQUAL(umad_register(other, 0x07, 2, 0, everything), -EPERM);
	EQUAL(umad_register_oui(other, 0x32, 0, oui, everything), 0);
	EQUAL(umad_unregister(fd, 1), 0);
	EQUAL(umad_register(other, 0x07, 2, 0, everything), 1);
	EQUAL(umad_unregister(fd, 1), -1);
	EQUAL(errno, EINVAL);
	EQUAL(umad_unregister(fd, 32), -1);
	EQUAL(errno, EINVAL);
	EQUAL(umad_unregister(fd, -1), -1);
	EQUAL(umad_close_port(other), 0);
	EQUAL(umad_register(fd, 0x07, 2, 0, everything), 1); /* free as soon as close has returned */
	for (i = 5; i < 32; i++)
		EQUAL(umad_register(fd, DIRECT, 1, 0, NULL), i);
	EQUAL(umad_register(fd, DIRECT, 1, 0, NULL), -EPERM);
	EQUAL(errno, ENOMEM);
	EQUAL(umad_unregister(fd, 17), 0);
	EQUAL(umad_register(fd, DIRECT, 1, 0, NULL), 17);
	close(file);
	EQUAL(umad_close_port(fd), 0);
}

static void datagrams(void)
{
	void *umad = umad_alloc(1, umad_size() + 256);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, DIRECT, 1, 0, NULL), length, none;
	struct timeval soon = { .tv_sec = PATIENCE_MS / 1000 };
	fd_set set;

	EQUAL(umad_size(), 64);
	EQUAL(umad_recv(fd, NULL, &length, 0), -EINVAL);
	EQUAL(umad_recv(fd, umad, NULL, 0), -EINVAL);
	length = 256;
	EQUAL(umad_recv(fd, umad, &length, 0), -EAGAIN);
	EQUAL(errno, EAGAIN);
	length = 256;
	EQUAL(umad_recv(fd, umad, &length, 20), -ETIMEDOUT);
	EQUAL(errno, ETIMEDOUT);
	EQUAL(umad_poll(fd, 20), -ETIMEDOUT);
	EQUAL(umad_poll(fd, 0), -ETIMEDOUT);
	length = 256;
	EQUAL(umad_recv(-1, umad, &length, 0), -EBADF);

	node_info(umad, 7, 0);
	EQUAL(umad_send(fd, agent + 1, umad, 256, 1000, 0), -EIO);
	EQUAL(errno, EIO);
	EQUAL(umad_send(fd, 77, umad, 256, 1000, 0), -EIO);
	EQUAL(errno, EINVAL);
	EQUAL(umad_send(fd, agent, umad, 35, 1000, 0), -EIO);
	EQUAL(errno, EINVAL);
	EQUAL(umad_send(-1, agent, umad, 256, 1000, 0), -EIO);
	EQUAL(errno, EBADF);

	/* a request and its answer */
	node_info(umad, 0x1122334455667788, 0);
	EQUAL(umad_send(fd, agent, umad, 256, PATIENCE_MS, 0), 0);
	EQUAL(errno, 0);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	EQUAL(select(fd + 1, &set, NULL, NULL, &soon), 1);
	EQUAL(umad_poll(fd, PATIENCE_MS), 0);

	/* a buffer that is too short leaves it where it is */
	length = 100;
	EQUAL(umad_recv(fd, umad, &length, PATIENCE_MS), -EINVAL);
	EQUAL(length, 256);
	length = 0;
	EQUAL(umad_recv(fd, umad, &length, 0), -EINVAL);
	memset(umad, 0xee, umad_size() + 256);
	length = 256;
	EQUAL(umad_recv(fd, umad, &length, PATIENCE_MS), agent);
	EQUAL(length, 256);
	EQUAL(umad_status(umad), 0);
	EQUAL(low_tid(umad), 0x55667788);
	EQUAL(((uint8_t *)umad_get_mad(umad))[3], UMAD_METHOD_GET_RESP);
	EQUAL(umad_get_mad_addr(umad)->lid, htobe16(0xffff));
	EQUAL(umad_get_mad_addr(umad)->grh_present, 0);
	EQUAL(((ib_user_mad_t *)umad)->length, 64 + 256);
	EQUAL(umad_recv(fd, umad, &length, 0), -EAGAIN);

	/* nobody answers: twice 20 ms, then its header comes back. A transaction that goes on cannot begin again. */
	node_info(umad, 9, 2);
	EQUAL(umad_send(fd, agent, umad, 256, 20, 1), 0);
	none = umad_open_port(NULL, 2);
	EQUAL(umad_register(none, DIRECT, 1, 0, NULL), 0);
	EQUAL(umad_send(none, 0, umad, 256, 300, 0), 0);
	EQUAL(umad_send(none, 0, umad, 256, 300, 0), 0);
	length = 256;
	EQUAL(umad_recv(none, umad, &length, PATIENCE_MS), 0);
	EQUAL(umad_status(umad), EINVAL);
	EQUAL(length, 24);
	length = 24;
	EQUAL(umad_recv(none, umad, &length, PATIENCE_MS), 0);
	EQUAL(umad_status(umad), ETIMEDOUT);
	EQUAL(length, 24);
	EQUAL(low_tid(umad), 9);
	length = 256;
	EQUAL(umad_recv(fd, umad, &length, PATIENCE_MS), agent);
	EQUAL(umad_status(umad), ETIMEDOUT);
	EQUAL(((uint8_t *)umad_get_mad(umad))[1], DIRECT);

	/* what an agent awaits ends with it */
	node_info(umad, 10, 2);
	EQUAL(umad_send(none, 0, umad, 256, 50, 0), 0);
	EQUAL(umad_unregister(none, 0), 0);
	EQUAL(umad_poll(none, 150), -ETIMEDOUT);
	EQUAL(umad_send(none, 0, umad, 256, 50, 0), -EIO);
	EQUAL(errno, EIO);
	EQUAL(umad_close_port(none), 0);
	EQUAL(umad_close_port(fd), 0);
	umad_free(umad);
}

/* A message of subnet administration that RMPP carries. */
static void table(uint8_t *mad, int method, uint32_t tid, int length)
{
	uint32_t id = htobe32(tid);

	memset(mad, 0, 56);
	mad[0] = 1;
	mad[1] = UMAD_CLASS_SUBN_ADM;
	mad[2] = UMAD_SA_CLASS_VERSION;
	mad[3] = method;
	memcpy(mad + 12, &id, sizeof(id));
	mad[17] = 0x11;
	mad[24] = 1; /* RMPP version, type DATA, active */
	mad[25] = 1;
	mad[26] = 1;
	for (int i = 56; i < length; i++)
		mad[i] = i * 7 + (i >> 8);
}

static int intact(const uint8_t *mad, int length)
{
	for (int i = 56; i < length; i++)
		if (mad[i] != (uint8_t)(i * 7 + (i >> 8)))
			return 0;
	return 1;
}

static void long_messages(void)
{
	enum { ROOM = 4 << 20 };
	static const int sizes[] = { 57, 200, 256, 257, 456, 457, 10000, 300000, 3000000 };
	void *umad = umad_alloc(1, umad_size() + ROOM), *small = umad_alloc(1, umad_size() + 256);
	long tables[16 / sizeof(long)] = { 1 << UMAD_SA_METHOD_GET_TABLE };
	int fd = umad_open_port(NULL, 1);
	int server = umad_register(fd, UMAD_CLASS_SUBN_ADM, UMAD_SA_CLASS_VERSION, 1, tables);
	int client = umad_register(fd, UMAD_CLASS_SUBN_ADM, UMAD_SA_CLASS_VERSION, 1, NULL), length;
	uint8_t *mad = umad_get_mad(umad);
	uint64_t tid;

	CHECK(server >= 0 && client >= 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		/* The request is as long as the response. A last segment's length says how much of it counts. */
		memset(umad, 0, umad_size());
		table(mad, UMAD_SA_METHOD_GET_TABLE, 100 + i, sizes[i]);
		umad_set_addr(umad, 1, 1, 0, 0x80010000);
		EQUAL(umad_send(fd, client, umad, sizes[i], PATIENCE_MS, 0), 0);
		memset(mad, 0, ROOM);
		length = ROOM;
		EQUAL(umad_recv(fd, umad, &length, PATIENCE_MS), server);
		EQUAL(umad_status(umad), 0);
		EQUAL(length, sizes[i]);
		CHECK(intact(mad, sizes[i]));

		memcpy(&tid, mad + 8, sizeof(tid));
		table(mad, UMAD_SA_METHOD_GET_TABLE_RESP, 0, sizes[i]);
		memcpy(mad + 8, &tid, sizeof(tid));
		umad_set_addr(umad, be16toh(umad_get_mad_addr(umad)->lid), 1, 0, 0x80010000);
		EQUAL(umad_send(fd, server, umad, sizes[i], 0, 0), 0);
		if (sizes[i] > 256) {
			/* The first segment comes, twice, and what room the rest needs. */
			for (int again = 0; again < 2; again++) {
				length = 256;
				EQUAL(umad_recv(fd, small, &length, PATIENCE_MS), -ENOSPC);
				EQUAL(errno, ENOSPC);
				EQUAL(length, sizes[i]);
				EQUAL(((uint8_t *)umad_get_mad(small))[3], UMAD_SA_METHOD_GET_TABLE_RESP);
				CHECK(intact(umad_get_mad(small), 256));
			}
			length = 255;
			EQUAL(umad_recv(fd, small, &length, PATIENCE_MS), -EINVAL);
		}
		memset(mad, 0, ROOM);
		length = sizes[i] > 256 ? sizes[i] : 256;
		EQUAL(umad_recv(fd, umad, &length, PATIENCE_MS), client);
		EQUAL(length, sizes[i]);
		CHECK(intact(mad, sizes[i]));
		EQUAL(low_tid(umad), 100 + i);
	}
	EQUAL(umad_send(fd, client, umad, (64 << 20) + 1, 0, 0), -EIO);
	EQUAL(errno, EINVAL);
	EQUAL(umad_close_port(fd), 0);
	umad_free(umad);
	umad_free(small);
}

static void round_trips(int fd, int agent, uint32_t first, int count)
{
	void *umad = umad_alloc(1, umad_size() + 256);

	for (int i = 0; i < count; i++) {
		int length = 256;

		node_info(umad, first + i, i & 1);
		EQUAL(umad_send(fd, agent, umad, 256, PATIENCE_MS, 0), 0);
		EQUAL(umad_recv(fd, umad, &length, PATIENCE_MS), agent);
		EQUAL(low_tid(umad), first + i);
		EQUAL(umad_status(umad), 0);
	}
	umad_free(umad);
}

static void *own_port(void *arg)
{
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, DIRECT, 1, 0, NULL);

	round_trips(fd, agent, (uintptr_t)arg, 200);
	umad_close_port(fd);
	return NULL;
}

struct shared {
	int fd, agent, received;
};

/* Several threads take answers from one port; each is taken once. */
static void *take_shared(void *arg)
{
	struct shared *s = arg;
	void *umad = umad_alloc(1, umad_size() + 256);
	int length = 256, n;

	while ((n = umad_recv(s->fd, umad, &length, 500)) != -ETIMEDOUT) {
		if (n == -EAGAIN)
			continue; /* another thread was faster */
		EQUAL(n, s->agent);
		__atomic_add_fetch(&s->received, 1, __ATOMIC_SEQ_CST);
		length = 256;
	}
	umad_free(umad);
	return NULL;
}

static void threads(void)
{
	struct shared shared = { .fd = umad_open_port(NULL, 1) };
	void *umad = umad_alloc(1, umad_size() + 256);
	pthread_t t[4];

	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, own_port, (void *)(i << 16)));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);

	shared.agent = umad_register(shared.fd, DIRECT, 1, 0, NULL);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, take_shared, &shared));
	for (int i = 0; i < 1000; i++) {
		node_info(umad, i, 0);
		EQUAL(umad_send(shared.fd, shared.agent, umad, 256, PATIENCE_MS, 0), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	EQUAL(shared.received, 1000);
	umad_close_port(shared.fd);
	umad_free(umad);
}

/* The port stays open in a child, as in a daemon that sends its parent away. */
static void forks(void)
{
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, DIRECT, 1, 0, NULL), status;
	pid_t child = fork();

	if (child == 0) {
		round_trips(fd, agent, 1, 10);
		EQUAL(umad_register(fd, DIRECT, 1, 0, NULL), 1);
		round_trips(fd, 1, 50, 10);
		umad_close_port(fd);
		_exit(failures != 0);
	}
	EQUAL(waitpid(child, &status, 0), child);
	EQUAL(status, 0);
	round_trips(fd, agent, 100, 10);
	umad_close_port(fd);
}

static void many_opens(void)
{
	enum { MANY = 200 };
	int fds[MANY];

	for (int i = 0; i < MANY; i++) {
		fds[i] = umad_open_port(NULL, 1 + i % 2);
		CHECK(fds[i] >= 0);
		EQUAL(umad_register(fds[i], DIRECT, 1, 0, NULL), 0);
	}
	for (int i = 0; i < MANY; i += 2)
		round_trips(fds[i], 0, i * 16, 2);
	for (int i = 0; i < MANY; i++)
		EQUAL(umad_close_port(fds[i]), 0);

	/* A program that closes the descriptor itself leaves nothing behind that is in the way. */
	for (int i = 0; i < 10; i++) {
		int fd = umad_open_port(NULL, 1);

		EQUAL(umad_register(fd, DIRECT, 1, 0, NULL), 0);
		round_trips(fd, 0, i, 1);
		close(fd);
	}
}

static void buffers(void)
{
	void *umad = umad_alloc(1, umad_size() + 256);
	ib_mad_addr_t *addr = umad_get_mad_addr(umad), grh = {
		.hop_limit = 3, .traffic_class = 4, .flow_label = (__be32)0x12345, .gid_index = 9,
	};

	CHECK((char *)umad_get_mad(umad) == (char *)umad + 64 && (char *)addr == (char *)umad + 20);
	memset(grh.gid, 0xab, sizeof(grh.gid));
	EQUAL(umad_set_grh(umad, &grh), 0);
	CHECK(addr->grh_present == 1 && addr->hop_limit == 3 && addr->traffic_class == 4 && addr->gid_index == 0);
	CHECK(addr->flow_label == htobe32(0x12345) && !memcmp(addr->gid, grh.gid, 16));
	EQUAL(umad_set_grh(umad, NULL), 0);
	EQUAL(addr->grh_present, 0);
	EQUAL(umad_set_addr(umad, 0x1234, 0x56789a, 5, 0x80010000), 0);
	CHECK(addr->lid == htobe16(0x1234) && addr->qpn == htobe32(0x56789a) && addr->sl == 5 &&
		addr->qkey == htobe32(0x80010000));
	EQUAL(umad_set_addr_net(umad, htobe16(7), htobe32(8), 9, htobe32(10)), 0);
	CHECK(addr->lid == htobe16(7) && addr->qpn == htobe32(8) && addr->sl == 9 && addr->qkey == htobe32(10));
	EQUAL(umad_set_pkey(umad, 17), 0);
	EQUAL(umad_get_pkey(umad), 17);
	EQUAL(umad_debug(-1), 0);
	EQUAL(umad_debug(2), 2);
	EQUAL(umad_debug(0), 0);
	umad_free(umad);
}

int main(void)
{
	EQUAL(umad_init(), 0);
	buffers();
	adapters();
	agents();
	datagrams();
	long_messages();
	threads();
	forks();
	many_opens();
	EQUAL(umad_done(), 0);
	if (!failures)
		puts("all edges hold");
	return failures != 0;
}
