/* Questions about the host's channel adapter and its ports. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "adapter.h"
#include "client.h"

enum {
	NODE_SWITCH = 2,
	STATE_ACTIVE = 4,
	PHYS_DISABLED = 3,
	PHYS_LINK_UP = 5,

	ANSWER_MAX = 1 << 17, /* more than ten ports with their partition tables take */
};

static void forget_port(struct umad_port *port)
{
	free(port->pkeys);
	port->pkeys = NULL;
	port->pkeys_size = 0;
}

static void forget_ca(struct umad_ca *ca)
{
	for (int i = 0; i < CA_PORTS_MAX; i++) {
		if (!ca->ports[i])
			continue;
		forget_port(ca->ports[i]);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
}

/* Copies a name that fills its field or ends in zeros. */
static void copy_name(char *to, size_t room, const char *from, size_t size)
{
	size_t n = strnlen(from, size);

	if (n >= room)
		n = room - 1;
	memcpy(to, from, n);
	memset(to + n, 0, room - n);
}

static int fill_port(struct umad_port *port, const char *ca_name, const struct softib_port *from, const uint16_t *pkeys)
{
	memset(port, 0, sizeof(*port));
	copy_name(port->ca_name, sizeof(port->ca_name), ca_name, CA_NAME_LEN);
	copy_name(port->link_layer, sizeof(port->link_layer), from->link_layer, sizeof(from->link_layer));
	port->portnum = from->number;
	port->base_lid = from->base_lid;
	port->lmc = from->lmc;
	port->sm_lid = from->sm_lid;
	port->sm_sl = from->sm_sl;
	port->state = from->state;
	port->phys_state = from->phys_state;
	port->rate = from->rate;
	port->capmask = from->capmask;
	port->gid_prefix = from->gid_prefix;
	port->port_guid = from->port_guid;
	port->pkeys = calloc(from->pkeys ? from->pkeys : 1, sizeof(*pkeys));
	if (!port->pkeys)
		return -ENOMEM;
	memcpy(port->pkeys, pkeys, from->pkeys * sizeof(*pkeys));
	port->pkeys_size = from->pkeys;
	return 0;
}

static int fill_ca(struct umad_ca *ca, const uint8_t *bytes, size_t size)
{
	struct softib_ca head;
	size_t at = sizeof(head);

	if (size < sizeof(head))
		return -EIO;
	memcpy(&head, bytes, sizeof(head));
	copy_name(ca->ca_name, sizeof(ca->ca_name), head.name, sizeof(head.name));
	copy_name(ca->fw_ver, sizeof(ca->fw_ver), head.fw_ver, sizeof(head.fw_ver));
	copy_name(ca->hw_ver, sizeof(ca->hw_ver), head.hw_ver, sizeof(head.hw_ver));
	copy_name(ca->ca_type, sizeof(ca->ca_type), head.ca_type, sizeof(head.ca_type));
	ca->node_type = head.node_type;
	ca->node_guid = head.node_guid;
	ca->system_guid = head.system_guid;

	for (uint32_t i = 0; i < head.ports; i++) {
		struct softib_port port;
		size_t keys;

		if (size - at < sizeof(port))
			return -EIO;
		memcpy(&port, bytes + at, sizeof(port));
		at += sizeof(port);
		keys = (size_t)port.pkeys * sizeof(uint16_t);
		keys = (keys + 7) & ~(size_t)7;
		if (port.number >= CA_PORTS_MAX || ca->ports[port.number] || size - at < keys)
			return -EIO;
		ca->ports[port.number] = calloc(1, sizeof(struct umad_port));
		if (!ca->ports[port.number] ||
		    fill_port(ca->ports[port.number], ca->ca_name, &port, (const uint16_t *)(bytes + at)) < 0)
			return -ENOMEM;
		at += keys;
		if (ca->numports < (int)port.number)
			ca->numports = port.number;
	}
	return 0;
}

/* The host's only adapter. */
static int only_ca(struct umad_ca *ca)
{
	struct softib_request request = { .op = OP_CA };
	struct softib_reply reply;
	size_t size = ANSWER_MAX;
	uint8_t *bytes;
	int error;

	memset(ca, 0, sizeof(*ca));
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	error = ask(&request, &reply, bytes, &size, NULL);
	if (!error)
		error = fill_ca(ca, bytes, size);
	if (error)
		forget_ca(ca);
	free(bytes);
	return error;
}

/*
 * The port that a program means when it says none: the first that is active,
 * or whose link is up, or that is not disabled. Returns whether it is active,
 * or -1 if there is none.
 */
static int best_port(const struct umad_ca *ca, int *portnum)
{
	int active = -1, up = -1, enabled = -1;

	if (ca->node_type == NODE_SWITCH) {
		*portnum = 0;
		return 1;
	}
	for (int i = CA_PORTS_MAX - 1; i >= 0; i--) {
		const struct umad_port *port = ca->ports[i];

		if (!port)
			continue;
		if (port->state == STATE_ACTIVE)
			active = i;
		if (port->phys_state == PHYS_LINK_UP)
			up = i;
		if (port->phys_state != PHYS_DISABLED)
			enabled = i;
	}
	if (active < 0 && up < 0 && enabled < 0)
		return -1;
	*portnum = active >= 0 ? active : up >= 0 ? up : enabled;
	return active >= 0;
}

/* A named port that is neither active nor enabled does not count when the program leaves the adapter to us. */
static int usable(const struct umad_ca *ca, int portnum)
{
	return portnum > 0 && portnum <= ca->numports && ca->ports[portnum] &&
	       (ca->ports[portnum]->state == STATE_ACTIVE || ca->ports[portnum]->phys_state != PHYS_DISABLED);
}

int find_port(const char *ca_name, int *portnum, struct umad_ca *ca)
{
	int error = only_ca(ca);

	if (error)
		return ca_name && *portnum ? -EINVAL : -ENODEV;
	if (ca_name && strcmp(ca_name, ca->ca_name))
		error = *portnum ? -EINVAL : -ENODEV;
	else if (!*portnum)
		error = best_port(ca, portnum) < 0 ? (ca_name ? -ENODEV : -EINVAL) : 0;
	else if (*portnum < 0 || *portnum >= CA_PORTS_MAX || !ca->ports[*portnum])
		error = -EINVAL;
	else if (!ca_name && !usable(ca, *portnum))
		error = -EINVAL;
	if (error)
		forget_ca(ca);
	return error;
}

int umad_get_cas_names(char cas[][CA_NAME_LEN], int max)
{
	struct umad_ca ca;

	TRACE("max %d", max);
	if (max <= 0 || only_ca(&ca) < 0)
		return 0;
	copy_name(cas[0], CA_NAME_LEN, ca.ca_name, sizeof(ca.ca_name));
	forget_ca(&ca);
	return 1;
}

int umad_get_ca(const char *ca_name, struct umad_ca *ca)
{
	int error;

	TRACE("ca_name %s", ca_name ? ca_name : "(any)");
	error = only_ca(ca);
	if (error)
		return error;
	if (ca_name && strcmp(ca_name, ca->ca_name)) {
		forget_ca(ca);
		return -ENOENT;
	}
	return 0;
}

int umad_release_ca(struct umad_ca *ca)
{
	if (!ca)
		return -ENODEV;
	TRACE("ca_name %s", ca->ca_name);
	forget_ca(ca);
	return 0;
}

int umad_get_ca_portguids(const char *ca_name, uint64_t *portguids, int max)
{
	struct umad_ca ca;
	int count = 0;

	TRACE("ca name %s max port guids %d", ca_name ? ca_name : "(any)", max);
	if (umad_get_ca(ca_name, &ca) < 0)
		return ca_name ? -1 : -ENODEV;
	if (portguids && ca.numports + 1 > max)
		count = -ENOMEM;
	else if (portguids)
		for (; count <= ca.numports; count++)
			portguids[count] = ca.ports[count] ? ca.ports[count]->port_guid : 0;
	forget_ca(&ca);
	return count;
}

int umad_get_port(const char *ca_name, int portnum, struct umad_port *port)
{
	struct umad_ca ca;
	int error;

	TRACE("ca_name %s portnum %d", ca_name ? ca_name : "(any)", portnum);
	error = find_port(ca_name, &portnum, &ca);
	if (error)
		return error == -EINVAL ? -EIO : error;
	/* The partition table changes hands. */
	*port = *ca.ports[portnum];
	ca.ports[portnum]->pkeys = NULL;
	forget_ca(&ca);
	return 0;
}

int umad_release_port(struct umad_port *port)
{
	if (!port)
		return -ENODEV;
	TRACE("port %s:%d", port->ca_name, port->portnum);
	forget_port(port);
	return 0;
}

int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	struct softib_request request = { .op = OP_ISSM };
	struct softib_reply reply;
	char answer[SOFTIB_TEXT_MAX];
	size_t size = sizeof(answer);
	struct umad_ca ca;
	int error;

	TRACE("ca %s port %d", ca_name ? ca_name : "(any)", portnum);
	error = find_port(ca_name, &portnum, &ca);
	if (error)
		return error;
	forget_ca(&ca);
	request.port = portnum;
	error = ask(&request, &reply, answer, &size, NULL);
	if (error)
		return error;
	/* A path that was cut short would name another file. */
	if (max <= 0 || size >= (size_t)max)
		return -ENAMETOOLONG;
	memcpy(path, answer, size);
	path[size] = 0;
	return 0;
}

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct umad_device_node *node;
	char name[1][CA_NAME_LEN];

	errno = 0;
	if (umad_get_cas_names(name, 1) < 1) {
		if (!errno)
			errno = ENODEV; /* programs take 0 for a machine without adapters, and carry on */
		return NULL;
	}
	node = calloc(1, sizeof(*node) + CA_NAME_LEN);
	if (!node) {
		errno = ENOMEM;
		return NULL;
	}
	node->ca_name = memcpy(node + 1, name[0], CA_NAME_LEN);
	errno = 0;
	return node;
}

void umad_free_ca_device_list(struct umad_device_node *head)
{
	while (head) {
		struct umad_device_node *next = head->next;

		free(head);
		head = next;
	}
}

static int by_name(const void *a, const void *b)
{
	const struct umad_device_node *const *x = a, *const *y = b;

	return strcmp((*x)->ca_name, (*y)->ca_name);
}

int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	struct umad_device_node **all, *node;
	size_t count = 0;

	for (node = *head; node; node = node->next)
		count++;
	if (!size)
		size = count;
	if (size <= 1)
		return 0;
	if (size != count)
		return EINVAL;
	all = calloc(count, sizeof(*all));
	if (!all)
		return ENOMEM;
	count = 0;
	for (node = *head; node; node = node->next)
		all[count++] = node;
	qsort(all, count, sizeof(*all), by_name);
	for (size_t i = 0; i < count; i++)
		all[i]->next = i + 1 < count ? all[i + 1] : NULL;
	*head = all[0];
	free(all);
	return 0;
}
