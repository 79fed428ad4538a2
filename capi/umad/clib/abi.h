/*
 * The binary interface of libibumad.so.3: structures that programs share with
 * the library, and the functions they call. Names of structures are our own,
 * layouts are those that programs were compiled with; the tests hold them
 * against the system's header.
 */
#ifndef SOFTIB_ABI_H
#define SOFTIB_ABI_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum {
	CA_NAME_LEN = 20,
	CA_PORTS_MAX = 10,   /* ports 0 to 9 */
	AGENTS_MAX = 32,     /* on one open port */
	MAD_SIZE = 256,      /* a datagram, and the first segment of a long one */
	MAD_HEADER = 24,
	TID_OWN = 12,        /* of a transaction ID, the half that is the program's */
	METHOD_RESPONSE = 0x80,
	METHOD_TRAP_REPRESS = 7,
	MAD_RMPP_HEADER = 36, /* the least that can be sent */
	FLAG_USER_RMPP = 1,
};

/* Where a datagram goes or came from. Multi-byte fields are big-endian, but for pkey_index. */
struct mad_addr {
	uint32_t qpn;
	uint32_t qkey;
	uint16_t lid;
	uint8_t sl;
	uint8_t path_bits;
	uint8_t grh_present;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t gid[16];
	uint32_t flow_label;
	uint16_t pkey_index;
	uint8_t reserved[6];
};

/* The buffer of umad_send and umad_recv: this, and the datagram behind it. */
struct user_mad {
	uint32_t agent_id;
	uint32_t status;
	uint32_t timeout_ms;
	uint32_t retries;
	uint32_t length;
	struct mad_addr addr;
	uint8_t data[];
};

struct umad_port {
	char ca_name[CA_NAME_LEN];
	int portnum;
	unsigned base_lid;
	unsigned lmc;
	unsigned sm_lid;
	unsigned sm_sl;
	unsigned state;
	unsigned phys_state;
	unsigned rate;
	uint32_t capmask;    /* big-endian */
	uint64_t gid_prefix; /* big-endian */
	uint64_t port_guid;  /* big-endian */
	unsigned pkeys_size;
	uint16_t *pkeys;
	char link_layer[CA_NAME_LEN];
};

struct umad_ca {
	char ca_name[CA_NAME_LEN];
	unsigned node_type;
	int numports;
	char fw_ver[20];
	char ca_type[40];
	char hw_ver[20];
	uint64_t node_guid;   /* big-endian */
	uint64_t system_guid; /* big-endian */
	struct umad_port *ports[CA_PORTS_MAX];
};

struct umad_device_node {
	struct umad_device_node *next;
	const char *ca_name;
};

struct umad_reg_attr {
	uint8_t mgmt_class;
	uint8_t mgmt_class_version;
	uint32_t flags;
	uint64_t method_mask[2];
	uint32_t oui;
	uint8_t rmpp_version;
};

_Static_assert(sizeof(struct mad_addr) == 44, "address");
_Static_assert(sizeof(struct user_mad) == 64, "buffer head");

#ifndef SOFTIB_ABI_TYPES_ONLY

EXPORT int umad_init(void);
EXPORT int umad_done(void);
EXPORT int umad_debug(int level);

EXPORT int umad_get_cas_names(char cas[][CA_NAME_LEN], int max);
EXPORT int umad_get_ca_portguids(const char *ca_name, uint64_t *portguids, int max);
EXPORT int umad_get_ca(const char *ca_name, struct umad_ca *ca);
EXPORT int umad_release_ca(struct umad_ca *ca);
EXPORT int umad_get_port(const char *ca_name, int portnum, struct umad_port *port);
EXPORT int umad_release_port(struct umad_port *port);
EXPORT int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max);
EXPORT struct umad_device_node *umad_get_ca_device_list(void);
EXPORT int umad_sort_ca_device_list(struct umad_device_node **head, size_t size);
EXPORT void umad_free_ca_device_list(struct umad_device_node *head);

EXPORT int umad_open_port(const char *ca_name, int portnum);
EXPORT int umad_close_port(int fd);
EXPORT int umad_get_fd(int fd);
EXPORT int umad_register(int fd, int mgmt_class, int mgmt_version, uint8_t rmpp_version, long method_mask[]);
EXPORT int umad_register_oui(int fd, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3], long method_mask[]);
EXPORT int umad_register2(int fd, struct umad_reg_attr *attr, uint32_t *agent_id);
EXPORT int umad_unregister(int fd, int agentid);
EXPORT int umad_send(int fd, int agentid, void *umad, int length, int timeout_ms, int retries);
EXPORT int umad_recv(int fd, void *umad, int *length, int timeout_ms);
EXPORT int umad_poll(int fd, int timeout_ms);

EXPORT void *umad_get_mad(void *umad);
EXPORT size_t umad_size(void);
EXPORT int umad_status(void *umad);
EXPORT struct mad_addr *umad_get_mad_addr(void *umad);
EXPORT int umad_set_grh(void *umad, void *mad_addr);
EXPORT int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey);
EXPORT int umad_set_addr_net(void *umad, uint16_t dlid, uint32_t dqp, int sl, uint32_t qkey);
EXPORT int umad_set_pkey(void *umad, int pkey_index);
EXPORT int umad_get_pkey(void *umad);
EXPORT void umad_addr_dump(struct mad_addr *addr);
EXPORT void umad_dump(void *umad);

EXPORT const char *umad_class_str(uint8_t mgmt_class);
EXPORT const char *umad_method_str(uint8_t mgmt_class, uint8_t method);
EXPORT const char *umad_attribute_str(uint8_t mgmt_class, uint16_t attr_id);
EXPORT const char *umad_common_mad_status_str(uint16_t status);
EXPORT const char *umad_sa_mad_status_str(uint16_t status);

#endif
#endif
