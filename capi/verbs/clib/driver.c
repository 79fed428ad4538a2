/*
 * What drivers for real adapters ask of libibverbs. Some are linked into programs (UCX into libmlx5, libfabric into
 * libefa) and must load; but this library has one device, and it is nobody's.
 */
#include "softib.h"

/* A driver that offers itself finds no device of its own, as on a machine without its hardware. */
EXPORT void verbs_register_driver_34(const void *ops);
EXPORT void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

EXPORT void ibv_register_driver_1_1(const char *name, void *init)
	__attribute__((symver("ibv_register_driver@IBVERBS_1.1")));
EXPORT void ibv_register_driver_1_1(const char *name, void *init)
{
	(void)init;
	softib_warn("the driver %s is older than this libibverbs and is not used", name ? name : "(no name)");
}

EXPORT bool verbs_allow_disassociate_destroy;

EXPORT void __verbs_log(void *context, uint32_t level, const char *format, ...);
EXPORT void __verbs_log(void *context, uint32_t level, const char *format, ...)
{
	(void)context, (void)level, (void)format;
}

static int refused(const char *function)
{
	static int said;

	if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		softib_warn("a driver called %s, but there is no hardware under this libibverbs; next: use the device softib0",
			function);
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

#define NO_POINTER(name)                      \
	EXPORT void *name(void);              \
	EXPORT void *name(void)               \
	{                                     \
		refused(#name);               \
		return NULL;                  \
	}
#define NO_INT(name)                          \
	EXPORT int name(void);                \
	EXPORT int name(void)                 \
	{                                     \
		return refused(#name);        \
	}

NO_POINTER(_verbs_init_and_alloc_context)
NO_POINTER(verbs_open_device)
NO_INT(__ioctl_final_num_attrs)
NO_INT(execute_ioctl)
NO_INT(ibv_read_ibdev_sysfs_file)
NO_INT(verbs_init_cq)
NO_INT(verbs_set_ops)
NO_INT(verbs_uninit_context)

/* What drivers have the kernel do. */
#define COMMANDS(X)                                                                                           \
	X(advise_mr) X(alloc_dm) X(alloc_mw) X(alloc_pd) X(attach_mcast) X(close_xrcd) X(create_ah)           \
	X(create_counters) X(create_cq) X(create_cq_ex) X(create_flow) X(create_flow_action_esp)              \
	X(create_qp) X(create_qp_ex) X(create_qp_ex2) X(create_rwq_ind_table) X(create_srq) X(create_srq_ex)  \
	X(create_wq) X(dealloc_mw) X(dealloc_pd) X(dereg_mr) X(destroy_ah) X(destroy_counters) X(destroy_cq)  \
	X(destroy_flow) X(destroy_flow_action) X(destroy_qp) X(destroy_rwq_ind_table) X(destroy_srq)          \
	X(destroy_wq) X(detach_mcast) X(free_dm) X(get_context) X(modify_cq) X(modify_flow_action_esp)        \
	X(modify_qp) X(modify_qp_ex) X(modify_srq) X(modify_wq) X(open_qp) X(open_xrcd) X(poll_cq)            \
	X(post_recv) X(post_send) X(post_srq_recv) X(query_context) X(query_device_any) X(query_mr)           \
	X(query_port) X(query_qp) X(query_srq) X(read_counters) X(reg_dm_mr) X(reg_dmabuf_mr) X(reg_mr)       \
	X(req_notify_cq) X(rereg_mr) X(resize_cq)

#define X(command) NO_INT(ibv_cmd_##command)
COMMANDS(X)
#undef X
