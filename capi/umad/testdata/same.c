/*
 * Holds the drop-in against the system's libibumad: structures, and every word that it has for classes, methods,
 * attributes and statuses.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/umad.h>
#include <infiniband/umad_str.h>

/* The drop-in's own names for the same, out of the header's way. */
#define umad_port own_port
#define umad_ca own_ca
#define umad_device_node own_device_node
#define umad_reg_attr own_reg_attr
#define SOFTIB_ABI_TYPES_ONLY
#include "abi.h"
#undef umad_port
#undef umad_ca
#undef umad_device_node
#undef umad_reg_attr

#define SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b), #a)
#define FIELD(a, b, f) \
	_Static_assert(offsetof(a, f) == offsetof(b, f) && sizeof(((a *)0)->f) == sizeof(((b *)0)->f), #a " " #f)

SIZE(struct mad_addr, ib_mad_addr_t);
FIELD(struct mad_addr, ib_mad_addr_t, qpn);
FIELD(struct mad_addr, ib_mad_addr_t, qkey);
FIELD(struct mad_addr, ib_mad_addr_t, lid);
FIELD(struct mad_addr, ib_mad_addr_t, sl);
FIELD(struct mad_addr, ib_mad_addr_t, path_bits);
FIELD(struct mad_addr, ib_mad_addr_t, grh_present);
FIELD(struct mad_addr, ib_mad_addr_t, gid_index);
FIELD(struct mad_addr, ib_mad_addr_t, hop_limit);
FIELD(struct mad_addr, ib_mad_addr_t, traffic_class);
FIELD(struct mad_addr, ib_mad_addr_t, gid);
FIELD(struct mad_addr, ib_mad_addr_t, flow_label);
FIELD(struct mad_addr, ib_mad_addr_t, pkey_index);
SIZE(struct user_mad, ib_user_mad_t);
FIELD(struct user_mad, ib_user_mad_t, agent_id);
FIELD(struct user_mad, ib_user_mad_t, status);
FIELD(struct user_mad, ib_user_mad_t, timeout_ms);
FIELD(struct user_mad, ib_user_mad_t, retries);
FIELD(struct user_mad, ib_user_mad_t, length);
FIELD(struct user_mad, ib_user_mad_t, addr);
SIZE(struct own_port, umad_port_t);
FIELD(struct own_port, umad_port_t, ca_name);
FIELD(struct own_port, umad_port_t, portnum);
FIELD(struct own_port, umad_port_t, base_lid);
FIELD(struct own_port, umad_port_t, lmc);
FIELD(struct own_port, umad_port_t, sm_lid);
FIELD(struct own_port, umad_port_t, sm_sl);
FIELD(struct own_port, umad_port_t, state);
FIELD(struct own_port, umad_port_t, phys_state);
FIELD(struct own_port, umad_port_t, rate);
FIELD(struct own_port, umad_port_t, capmask);
FIELD(struct own_port, umad_port_t, gid_prefix);
FIELD(struct own_port, umad_port_t, port_guid);
FIELD(struct own_port, umad_port_t, pkeys_size);
FIELD(struct own_port, umad_port_t, pkeys);
FIELD(struct own_port, umad_port_t, link_layer);
SIZE(struct own_ca, umad_ca_t);
FIELD(struct own_ca, umad_ca_t, ca_name);
FIELD(struct own_ca, umad_ca_t, node_type);
FIELD(struct own_ca, umad_ca_t, numports);
FIELD(struct own_ca, umad_ca_t, fw_ver);
FIELD(struct own_ca, umad_ca_t, ca_type);
FIELD(struct own_ca, umad_ca_t, hw_ver);
FIELD(struct own_ca, umad_ca_t, node_guid);
FIELD(struct own_ca, umad_ca_t, system_guid);
FIELD(struct own_ca, umad_ca_t, ports);
SIZE(struct own_device_node, struct umad_device_node);
FIELD(struct own_device_node, struct umad_device_node, next);
FIELD(struct own_device_node, struct umad_device_node, ca_name);
SIZE(struct own_reg_attr, struct umad_reg_attr);
FIELD(struct own_reg_attr, struct umad_reg_attr, mgmt_class);
FIELD(struct own_reg_attr, struct umad_reg_attr, mgmt_class_version);
FIELD(struct own_reg_attr, struct umad_reg_attr, flags);
FIELD(struct own_reg_attr, struct umad_reg_attr, method_mask);
FIELD(struct own_reg_attr, struct umad_reg_attr, oui);
FIELD(struct own_reg_attr, struct umad_reg_attr, rmpp_version);
_Static_assert((int)CA_NAME_LEN == UMAD_CA_NAME_LEN && (int)CA_PORTS_MAX == UMAD_CA_MAX_PORTS &&
		(int)AGENTS_MAX == UMAD_CA_MAX_AGENTS,
	"limits");

struct library {
	const char *(*class)(uint8_t);
	const char *(*method)(uint8_t, uint8_t);
	const char *(*attribute)(uint8_t, __be16);
	const char *(*status)(__be16);
	const char *(*sa_status)(__be16);
	int (*sort)(struct umad_device_node **, size_t);
};

static int load(const char *path, struct library *l)
{
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!h) {
		fprintf(stderr, "%s\n", dlerror());
		return 0;
	}
	l->class = dlvsym(h, "umad_class_str", "IBUMAD_1.0");
	l->method = dlvsym(h, "umad_method_str", "IBUMAD_1.0");
	l->attribute = dlvsym(h, "umad_attribute_str", "IBUMAD_1.0");
	l->status = dlvsym(h, "umad_common_mad_status_str", "IBUMAD_1.0");
	l->sa_status = dlvsym(h, "umad_sa_mad_status_str", "IBUMAD_1.0");
	l->sort = dlvsym(h, "umad_sort_ca_device_list", "IBUMAD_1.2");
	return l->class && l->method && l->attribute && l->status && l->sa_status && l->sort;
}

/* Sorts a list of three and returns the result and the order as text. */
static const char *sorted(const struct library *l, size_t size, char *text)
{
	struct umad_device_node n[3] = { { &n[1], "mlx5_1" }, { &n[2], "mlx4_0" }, { NULL, "mlx5_0" } }, *head = n;
	int result = l->sort(&head, size);

	sprintf(text, "%d", result);
	for (; head; head = head->next)
		sprintf(text + strlen(text), " %s", head->ca_name);
	return text;
}

int main(int argc, char **argv)
{
	struct library own, system;
	int differences = 0;

	if (argc != 3 || !load(argv[1], &own) || !load(argv[2], &system) || own.class == system.class)
		return 2;
#define COMPARE(call, ...)                                                       \
	do {                                                                         \
		if (strcmp(own.call, system.call) && differences++ < 20) {               \
			fprintf(stderr, __VA_ARGS__);                                        \
			fprintf(stderr, ": '%s', the system's '%s'\n", own.call, system.call); \
		}                                                                        \
	} while (0)
	for (int i = 0; i < 256; i++) {
		COMPARE(class(i), "class 0x%x", i);
		for (int j = 0; j < 256; j++)
			COMPARE(method(i, j), "class 0x%x method 0x%x", i, j);
	}
	for (int i = 0; i < 65536; i++) {
		static const uint8_t classes[] = { 0, 1, 3, 4, 7, 0x32, 0x81 };

		COMPARE(status(i), "status 0x%x", i);
		COMPARE(sa_status(i), "SA status 0x%x", i);
		for (size_t c = 0; c < sizeof(classes); c++)
			COMPARE(attribute(classes[c], i), "class 0x%x attribute 0x%x", classes[c], i);
	}
	for (size_t size = 0; size < 5; size++) {
		char a[80], b[80];

		if (strcmp(sorted(&own, size, a), sorted(&system, size, b))) {
			fprintf(stderr, "sort %zu: %s, the system's %s\n", size, a, b);
			differences++;
		}
	}
	return differences != 0;
}
