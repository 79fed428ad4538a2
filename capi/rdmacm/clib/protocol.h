/*
 * How the library and the fabric's daemon talk: records over Unix
 * SOCK_SEQPACKET connections, in the machine's own byte order. ../doc.go and
 * ../protocol.go describe the same. After the hello everything is as in
 * <rdma/rdma_user_cm.h>, but for what ../doc.go says.
 */
#ifndef SOFTIB_RDMACM_PROTOCOL_H
#define SOFTIB_RDMACM_PROTOCOL_H

#include <stdint.h>

enum {
	RDMACM_MAGIC = 0x7372636d, /* 'srcm' */
	RDMACM_VERSION = 2,
	RDMACM_HOST_MAX = 256, /* with its final zero */
	RDMACM_TEXT_MAX = 512,
};

enum rdmacm_role {
	ROLE_COMMANDS = 1,
	ROLE_EVENTS = 2, /* the hello carries a descriptor of the socket that it is sent on */
};

struct rdmacm_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t role;
	uint32_t reserved;
	uint64_t channel; /* 0 makes one; else the one to join */
	char host[RDMACM_HOST_MAX];
};

/* Followed by words for the user if the status is not 0. */
struct rdmacm_welcome {
	int32_t status; /* 0 or a negative errno */
	uint32_t reserved;
	uint64_t channel;
};

/* In front of every command's response. */
struct rdmacm_answer {
	int32_t status;
	uint32_t reserved;
};

_Static_assert(sizeof(struct rdmacm_hello) == 280, "hello");
_Static_assert(sizeof(struct rdmacm_welcome) == 16, "welcome");
_Static_assert(sizeof(struct rdmacm_answer) == 8, "answer");

#endif
