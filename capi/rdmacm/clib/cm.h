/* What the files of this library share. The public half is in <rdma/rdma_cma.h>. */
#ifndef SOFTIB_RDMACM_H
#define SOFTIB_RDMACM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <sys/uio.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_cma_abi.h>
#include <infiniband/ib.h>

#define EXPORT __attribute__((visibility("default")))

#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* Fails as this library's functions do: -1, and errno says why. */
static inline int fail(int error)
{
	errno = error;
	return -1;
}

/* For verbs, which return the error's number. */
static inline int fail_if(int error)
{
	return error ? fail(error) : 0;
}

/*
 * Threads of programs are cancelled (rping does it). Between these two they are
 * not: a lock would stay closed.
 */
static inline int keep_going(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void may_cancel(int before)
{
	pthread_setcancelstate(before, NULL);
}

/* channel.c: an event channel is two connections to the fabric's daemon. */
struct channel {
	struct rdma_event_channel pub; /* fd: where events come, one record each */
	int commands;                  /* the other connection: requests and their replies */
	uint64_t number;               /* the daemon's name for both */
	pthread_mutex_t asking;        /* between a request and its reply */
	int dead;                      /* a reply did not come; nobody knows which one comes next */
	struct channel *next;          /* of all that there are */
};

/*
 * Called where a channel's events have ended. Returns if the daemon is gone.
 * If the program has destroyed the channel, the calling thread stays here: it
 * would wait for ever in the kernel too, and programs do not expect it to come
 * back, let alone with an error.
 */
void channel_ended(uint64_t number);

static inline struct channel *channel_of(const struct rdma_cm_id *id)
{
	return CONTAINER(id->channel, struct channel, pub);
}

/*
 * Fills the head that every command has. The structures are the kernel's,
 * head included; what they call response is unused here, for the reply comes
 * on the connection.
 */
#define COMMAND(structure, operation, reply_size)                     \
	((structure)->cmd = UCMA_CMD_##operation,                     \
	 (structure)->in = sizeof(*(structure)) - sizeof(struct ucma_abi_cmd_hdr), \
	 (structure)->out = (reply_size))

/*
 * Sends a command of size bytes and takes its reply, room bytes at most; what
 * the reply does not fill is zero. Returns 0, or -1 and errno.
 */
int command(struct channel *channel, const void *request, size_t size, void *reply, size_t room);
int command_parts(struct channel *channel, const struct iovec *request, int parts, void *reply, size_t room);

/*
 * What a uid names. The daemon puts the uid of an id or of a joined group
 * into events. It is a number that is never used again and no address: an
 * event may still be under way when what it is about is gone.
 */
enum kind { KIND_ID, KIND_GROUP };

struct named {
	uint64_t uid;
	enum kind kind;
	uint32_t completed; /* events that the program, or this library for it, is done with */
	pthread_cond_t done;
	struct named *next;
};

/* gaps.c: whether what is no socket for the kernel is one all the same, by the word of whoever made it one. */
int is_put_under(int fd);

/* names.c */
void name_enter(struct named *named, enum kind kind);
/* A name stays valid until name_remove; whoever destroys waits for events that others still handle. */
struct named *name_find(uint64_t uid);
void name_complete(struct named *named);
/* Waits until as many events are completed as the daemon says were read. */
void name_wait(struct named *named, uint32_t reported);
void name_remove(struct named *named);

/* device.c */
struct device {
	uint64_t guid;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	int users;
	uint8_t initiator_depth_max;
	uint8_t responder_resources_max;
	struct device *next;
};

int device_bind(struct rdma_cm_id *id, uint64_t guid);
void device_release(struct device *device);
struct ibv_xrcd *device_xrcd(struct device *device);

/* id.c */
struct id {
	struct rdma_cm_id pub;
	struct named named;
	uint32_t handle; /* the daemon's name for it */
	int sync;        /* it has a channel of its own, and calls wait */
	struct device *device;
	struct group *groups;
	uint8_t initiator_depth;
	uint8_t responder_resources;
	int connect_error; /* the program was told that connecting failed; what follows is noise */
	struct ibv_qp_init_attr *endpoint_qp; /* what rdma_get_request gives to new ids */
	void *prefix;      /* private data that rdma_connect puts in front */
	size_t prefix_size;
	struct ibv_ece local_ece;
	struct ibv_ece remote_ece;
};

static inline struct id *id_of(const struct rdma_cm_id *pub)
{
	return CONTAINER(pub, struct id, pub);
}

static inline int is_datagram(const struct rdma_cm_id *id)
{
	return id->qp_type == IBV_QPT_UD;
}

struct id *id_make(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
void id_free(struct id *id);
int id_create(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps,
	      enum ibv_qp_type type);
int handle_destroy(struct channel *channel, uint32_t handle);

/* A joined multicast group. */
struct group {
	struct named named;
	struct id *id;
	uint32_t handle;
	uint16_t flags;
	void *context;
	union ibv_gid mgid;
	uint16_t mlid;
	int attached;
	struct sockaddr_storage address;
	struct group *next;
};

/*
 * event.c: where an id has no channel of the program's, waits for what an
 * operation led to and keeps it in id->event. Does nothing else.
 */
int complete(struct rdma_cm_id *id);
void drop_event(struct rdma_cm_id *id);

/* query.c */
int address_size(const struct sockaddr *address); /* 0: of a family that rdma_cm does not know */
int query_addr(struct rdma_cm_id *id);
int query_gid(struct rdma_cm_id *id);
int query_path(struct rdma_cm_id *id);

/* qp.c */
void unpack_ah(struct ibv_ah_attr *to, const struct ib_uverbs_ah_attr *from);
int qp_ready(struct rdma_cm_id *id, uint8_t responder_resources, uint8_t initiator_depth);
int qp_fail(struct rdma_cm_id *id);

/* connect.c */
int finish_connect(struct id *id);

#endif
