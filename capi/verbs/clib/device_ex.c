/* What a device says of itself beyond ibv_query_device: its clock, and its GID table entry by entry. */
#include "softib.h"

#include <net/if.h>

/* The device's clock counts nanoseconds; hca_core_clock is in kHz. */
enum { CLOCK_KHZ = 1000000 };

enum {
	ON_DEMAND_UD = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV,
	ON_DEMAND_UC = ON_DEMAND_UD | IBV_ODP_SUPPORT_WRITE,
	ON_DEMAND_RC = ON_DEMAND_UC | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | SOFTIB_ODP_SUPPORT_PLACEMENT,
};

static const struct ibv_odp_caps on_demand = {
	.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
	.per_transport_caps = { .rc_odp_caps = ON_DEMAND_RC, .uc_odp_caps = ON_DEMAND_UC, .ud_odp_caps = ON_DEMAND_UD },
};

int softib_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t size)
{
	/* Fields that are not named are those of things that this adapter does not have: none, 0. */
	struct ibv_device_attr_ex all = {
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = CLOCK_KHZ,
		.packet_pacing_caps = { .qp_rate_limit_min = SOFTIB_RATE_MIN, .qp_rate_limit_max = UINT32_MAX,
			.supported_qpts = 1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD | 1 << IBV_QPT_XRC_SEND },
		.cq_mod_caps = { .max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX },
		.tm_caps = { .max_rndv_hdr_size = SOFTIB_RNDV_MAX, .max_num_tags = SOFTIB_TAGS_MAX, .flags = IBV_TM_CAP_RC,
			.max_ops = SOFTIB_TAGS_MAX },
		.max_dm_size = to_context(context)->pool ? SOFTIB_DM_SIZE : 0,
	};
	int error;

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(all.orig_attr))
		return EOPNOTSUPP;
	error = ibv_query_device(context, &all.orig_attr);
	if (error)
		return error;
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags | SOFTIB_DEVICE_ATOMIC_WRITE | SOFTIB_DEVICE_FLUSH_GLOBAL;
	if (softib_pages_on_demand()) {
		all.odp_caps = on_demand;
		all.xrc_odp_caps = ON_DEMAND_RC & ~(uint32_t)IBV_ODP_SUPPORT_RECV;
	}
	all.tm_caps.max_sge = all.orig_attr.max_sge;
	all.phys_port_cnt_ex = all.orig_attr.phys_port_cnt;
	/* A program of another version has a shorter or a longer struct. */
	memset(attr, 0, size);
	memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

/* The clock's count is in tv_nsec whole, as other providers have it. */
int softib_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint64_t now;
	int64_t wall;
	int error = softib_gone(context);

	if (error)
		return error;
	if (!values)
		return EINVAL;
	if (!(values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)) {
		values->comp_mask = 0;
		return 0;
	}
	error = softib_go.clock(to_context(context)->handle, &now, &wall);
	if (error)
		return error;
	values->raw_clock.tv_sec = 0;
	values->raw_clock.tv_nsec = now;
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

/* Entry index of a port's table; ENODATA if there is nothing at it. */
static int gid_entry(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	static const union ibv_gid nothing;
	int error;

	if (port > UINT8_MAX || index > INT32_MAX)
		return EINVAL;
	*entry = (struct ibv_gid_entry){ .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_IB };
	if (softib_ethernet()) {
		entry->gid_type = IBV_GID_TYPE_ROCE_V2;
		entry->ndev_ifindex = if_nametoindex(softib_interface(context->device));
	}
	error = softib_go.query_gid(to_context(context)->handle, port, index, entry->gid.raw);
	return error ?: memcmp(&entry->gid, &nothing, sizeof(nothing)) ? 0 : ENODATA;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *out,
	uint32_t flags, size_t size)
{
	struct ibv_gid_entry entry;
	int error = softib_gone(context);

	if (!error && (flags || !out || size < sizeof(entry)))
		error = EINVAL;
	if (!error)
		error = gid_entry(context, port, index, &entry);
	if (error)
		return error;
	memset(out, 0, size);
	memcpy(out, &entry, sizeof(entry));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *out, size_t room, uint32_t flags,
	size_t size)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	uint8_t *at = (uint8_t *)out;
	size_t n = 0;
	int error = softib_gone(context);

	if (error)
		return -error;
	if (flags || !out || !room || size < sizeof(entry))
		return -EINVAL;
	error = ibv_query_device(context, &device);
	for (uint32_t p = 1; !error && p <= device.phys_port_cnt; p++) {
		error = softib_go.query_port(to_context(context)->handle, p, &port);
		for (int i = 0; !error && i < port.gid_tbl_len; i++) {
			error = gid_entry(context, p, i, &entry);
			if (error == ENODATA) {
				error = 0;
				continue;
			}
			if (error)
				break;
			if (n == room)
				return -EINVAL;
			memset(at + n * size, 0, size);
			memcpy(at + n * size, &entry, sizeof(entry));
			n++;
		}
	}
	return error ? -error : (ssize_t)n;
}

/* Only providers call it; its type is that of sysfs, where 0 is IB and RoCE v1, and 1 RoCE v2. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	struct ibv_gid_entry entry;
	int error = softib_gone(context) ?: gid_entry(context, port, index, &entry);

	if (error && error != ENODATA)
		return FAIL_INT(error);
	*type = softib_ethernet();
	return 0;
}
