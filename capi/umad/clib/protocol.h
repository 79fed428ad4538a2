/*
 * How the library and the fabric's daemon talk: records over a Unix
 * SOCK_SEQPACKET socket, in the machine's own byte order but where libibumad's
 * structures say big-endian. ../doc.go describes the same in words; the tests
 * hold the two sides' layouts against each other.
 *
 * A connection begins with one request and its reply. After any op but
 * OP_OPEN it is then closed. After OP_OPEN it carries datagrams, one record each, both ways:
 * struct user_mad, then the datagram or its first 256 bytes. What is
 * beyond 256 bytes is the contents of a file whose descriptor comes
 * with the record; user_mad.length counts all of it.
 */
#ifndef SOFTIB_PROTOCOL_H
#define SOFTIB_PROTOCOL_H

#include <stdint.h>

#define SOFTIB_MAGIC 0x534f4655u

enum {
	SOFTIB_VERSION = 1,
	SOFTIB_HOST_MAX = 128,
	SOFTIB_TEXT_MAX = 512,
};

enum softib_op {
	OP_CA = 1,     /* the host's channel adapter: struct softib_ca and its ports */
	OP_OPEN,       /* port: this connection carries its datagrams from here on; token names it */
	OP_REGISTER,   /* token, class to oui: agent */
	OP_UNREGISTER, /* token, agent */
	OP_ISSM,       /* port: the path that sets IsSM while it is open */
	OP_CLOSED,     /* token: answered once the daemon has noticed that the port is closed, if it is */
};

/* The first 8 bytes stay as they are in every version. */
struct softib_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint64_t token;
	uint32_t port;
	uint32_t agent;
	uint8_t mgmt_class;
	uint8_t class_version;
	uint8_t rmpp_version;
	uint8_t reserved;
	uint32_t flags;
	uint64_t methods[2];
	uint32_t oui;
	uint32_t reserved2;
	char host[SOFTIB_HOST_MAX];
};

/* Followed by count bytes: what the op gives, or the words of an error. The head stays as it is in every version. */
struct softib_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint32_t error; /* an errno, 0 if all is well */
	uint32_t count;
	uint64_t token;
	uint32_t agent;
	uint32_t reserved;
};

struct softib_ca {
	char name[20];
	char fw_ver[20];
	char hw_ver[20];
	char ca_type[40];
	uint32_t node_type;
	uint64_t node_guid;   /* big-endian */
	uint64_t system_guid; /* big-endian */
	uint32_t ports;       /* that many struct softib_port follow */
	uint32_t reserved;
};

struct softib_port {
	uint32_t number;
	uint32_t base_lid;
	uint32_t lmc;
	uint32_t sm_lid;
	uint32_t sm_sl;
	uint32_t state;
	uint32_t phys_state;
	uint32_t rate;       /* in Gb/s, rounded down */
	uint32_t capmask;    /* big-endian */
	uint32_t pkeys;      /* that many uint16_t follow the port, padded to 8 bytes */
	uint64_t gid_prefix; /* big-endian */
	uint64_t port_guid;  /* big-endian */
	char link_layer[24];
};

_Static_assert(sizeof(struct softib_request) == 184, "request");
_Static_assert(sizeof(struct softib_reply) == 32, "reply");
_Static_assert(sizeof(struct softib_ca) == 128, "adapter");
_Static_assert(sizeof(struct softib_port) == 80, "port");

#endif
