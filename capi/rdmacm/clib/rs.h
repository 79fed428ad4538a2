/*
 * rsockets: sockets whose bytes travel by RDMA. What the files rs*.c share.
 *
 * A stream is a reliable connection. Each side has a ring in memory that the
 * other writes into (RDMA WRITE with immediate data, which say how much), and
 * tells now and then how far it has read and how many receives it has posted
 * again, by writing two counters into the other's memory. So a sender never
 * overruns the ring, and hardly ever the receive queue; where it does, the
 * adapters' RNR retries, which have no limit, hold it back.
 *
 * A datagram socket is one datagram queue pair. A peer's queue pair is
 * asked for once, by the service ID of its port (SIDR), and every datagram
 * begins with the sender's own address. The queue pair is made when the first
 * peer is met, for only then is it known which adapter it belongs to.
 *
 * The number of an rsocket is the descriptor of its event channel.
 */
#ifndef SOFTIB_RS_H
#define SOFTIB_RS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "cm.h"
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

enum rs_state {
	RS_FRESH,
	RS_BOUND,
	RS_LISTENING,
	RS_RESOLVING,  /* an address, then a route */
	RS_CONNECTING, /* the peer is asked */
	RS_ACCEPTING,  /* the peer is answered and has not been heard of since */
	RS_OPEN,
	RS_CLOSED, /* disconnected, or failed with rs->error */
};

/* What immediate data say: the kind in the upper bits, a length below. */
enum rs_kind {
	RS_DATA,
	RS_CREDIT, /* the counters in struct rs_control were written */
	RS_END,    /* no more data come */
	RS_DIRECT, /* data went where riomap said; nothing to read */
};

enum { RS_KIND_SHIFT = 29 };

struct rs_credit {
	uint64_t bytes;    /* read out of the ring */
	uint64_t messages; /* of data, taken off the receive queue, which is as full again */
};

/* One mapping of riomap: where a range of offsets is in the memory of the side that made it. */
struct rs_mapping {
	uint64_t offset;
	uint64_t address;
	uint64_t length; /* 0: none */
	uint32_t key;
	uint32_t reserved;
};

/* Memory that the peer writes but for outgoing, which is where its copy comes from. */
struct rs_control {
	struct rs_credit incoming;
	struct rs_credit outgoing;
	struct rs_mapping staged; /* one of ours on its way to the peer */
	struct rs_mapping mappings[];
};

/* The private data of a connection's request and of its reply: 56 bytes are what IP addressing leaves of a request. */
struct rs_hello {
	uint8_t version;
	uint8_t reserved[3];
	uint32_t messages; /* how many the peer may send before it hears of credit */
	uint64_t ring;
	uint32_t ring_key;
	uint32_t ring_size;
	uint64_t control;
	uint32_t control_key;
	uint32_t mappings;
};

enum { RS_VERSION = 1 };

_Static_assert(sizeof(struct rs_hello) <= 56, "hello");

/* One of our own mappings, whose buffer the peer may write. */
struct rs_own_mapping {
	struct ibv_mr *mr;
	uint64_t offset;
	void *buffer;
	size_t length;
	int remote; /* its place in the peer's table, -1: none */
	struct rs_own_mapping *next;
};

struct rs_options {
	int send_bytes, receive_bytes;
	int send_queue, receive_queue;
	int inline_bytes;
	int mappings;
	int nodelay, maxseg;
	int keepalive, oob_inline, reuse, v6only;
	struct linger linger;
};

struct rs_peer;
struct rs_arrival;

struct rs {
	int fd;
	int type; /* SOCK_STREAM or SOCK_DGRAM */
	int family;
	int flags; /* O_NONBLOCK or not */
	struct rs_options options;

	pthread_mutex_t lock;
	pthread_cond_t moved; /* whoever waited in poll has looked at what came */
	int waiting;          /* somebody does */

	enum rs_state state;
	int error;     /* why it is closed, until somebody was told */
	int refused;   /* what the last rconnect has failed of */
	uint64_t happened; /* events of the connection */

	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	unsigned int unacked;

	/* sending */
	char *send_ring;
	struct ibv_mr *send_mr;
	uint64_t send_put, send_done; /* bytes of the ring ever taken, and given back */
	int posted;                   /* requests that have not completed */
	uint64_t peer_ring, peer_control;
	uint32_t peer_ring_key, peer_ring_size, peer_control_key, peer_mappings;
	uint32_t peer_messages;
	uint64_t sent_bytes, sent_messages;
	int end_sent;  /* our side is shut */
	int read_shut; /* rshutdown(SHUT_RD) */

	/* receiving */
	char *ring;
	struct ibv_mr *ring_mr;
	uint64_t arrived, taken; /* bytes */
	uint64_t messages;       /* of data */
	int peer_ended;
	struct rs_control *control;
	struct ibv_mr *control_mr;
	struct rs_credit told; /* the last credit that was given */
	int credit_posted;

	/* riomap */
	struct rs_own_mapping *own_mappings;
	int staged_posted;

	/* datagrams */
	struct sockaddr_storage connected_to;
	struct rs_peer *peers;
	struct rdma_cm_id *home; /* the id that the queue pair was made on */
	uint32_t slot_bytes;     /* of a buffer for one datagram */
	uint32_t send_slots, receive_slots;
	uint32_t next_slot;            /* to send from */
	struct rs_arrival *arrivals;   /* a ring of receive_slots */
	uint32_t first, full;          /* where it begins, and how many are in it */
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* rs.c */
struct rs *rs_find(int fd);
/* Between these the thread is not cancelled, but where rs_wait sleeps. */
void rs_lock(struct rs *rs);
void rs_unlock(struct rs *rs);
extern struct rs_options rs_defaults;
int rs_spin_us(void);
void rs_fail(struct rs *rs, int error);

/* What is wrong with it, once. */
int rs_take_error(struct rs *rs);

/*
 * Waits, with the lock held before and after, until something may have
 * changed or, without waiting at all, fails with EAGAIN if the program does
 * not want to wait. Returns 0, or -1 and errno.
 */
int rs_wait(struct rs *rs, int nonblocking);

/* Looks at completions; at events of the connection too if asked. Lock held. */
void rs_progress(struct rs *rs, int events);
/* Asks for a word when the next completion comes, and looks once more. */
void rs_arm(struct rs *rs);
/* Takes the word. */
void rs_disarm(struct rs *rs);

/* rsstream.c */
int rs_stream_setup(struct rs *rs);
void rs_stream_release(struct rs *rs);
void rs_stream_hello(struct rs *rs, struct rs_hello *hello);
int rs_stream_meet(struct rs *rs, const void *private_data, size_t size);
void rs_stream_progress(struct rs *rs);
int rs_stream_wait_open(struct rs *rs, int nonblocking);
ssize_t rs_stream_send(struct rs *rs, const struct iovec *parts, int count, int flags);
ssize_t rs_stream_receive(struct rs *rs, const struct iovec *parts, int count, int flags);
int rs_stream_readable(struct rs *rs);
int rs_stream_writable(struct rs *rs);
int rs_stream_end(struct rs *rs, int nonblocking);
void rs_stream_flush(struct rs *rs);
ssize_t rs_stream_write_direct(struct rs *rs, const void *buffer, size_t length, uint64_t address, uint32_t key,
	int flags);
int rs_stream_send_mapping(struct rs *rs, uint32_t place, const struct rs_mapping *mapping);

/* rsdatagram.c */
int rs_datagram_bind(struct rs *rs, const struct sockaddr *address);
int rs_datagram_connect(struct rs *rs, const struct sockaddr *address, socklen_t size);
void rs_datagram_release(struct rs *rs);
void rs_datagram_progress(struct rs *rs);
void rs_datagram_event(struct rs *rs, struct rdma_cm_event *event);
ssize_t rs_datagram_send(struct rs *rs, const struct iovec *parts, int count, int flags, const struct sockaddr *to,
	socklen_t size);
ssize_t rs_datagram_receive(struct rs *rs, const struct iovec *parts, int count, int flags, struct sockaddr *from,
	socklen_t *size);
int rs_datagram_readable(struct rs *rs);
int rs_datagram_writable(struct rs *rs);

/* rspoll.c */
void rs_wake_pollers(void);

/* riomap.c */
void rs_mappings_release(struct rs *rs);

#endif
