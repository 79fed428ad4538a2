/*
 * What drivers for real adapters ask of libibverbs. Some are linked into programs (UCX into libmlx5,
 * libfabric into libefa) and must load; but this library has one device, and it is nobody's.
 */
#define _GNU_SOURCE
#include <stdlib.h>

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
NO_INT(ibv_cmd_advise_mr)
NO_INT(ibv_cmd_alloc_dm)
NO_INT(ibv_cmd_alloc_mw)
NO_INT(ibv_cmd_alloc_pd)
NO_INT(ibv_cmd_attach_mcast)
NO_INT(ibv_cmd_close_xrcd)
NO_INT(ibv_cmd_create_ah)
NO_INT(ibv_cmd_create_counters)
NO_INT(ibv_cmd_create_cq)
NO_INT(ibv_cmd_create_cq_ex)
NO_INT(ibv_cmd_create_flow)
NO_INT(ibv_cmd_create_flow_action_esp)
NO_INT(ibv_cmd_create_qp)
NO_INT(ibv_cmd_create_qp_ex)
NO_INT(ibv_cmd_create_qp_ex2)
NO_INT(ibv_cmd_create_rwq_ind_table)
NO_INT(ibv_cmd_create_srq)
NO_INT(ibv_cmd_create_srq_ex)
NO_INT(ibv_cmd_create_wq)
NO_INT(ibv_cmd_dealloc_mw)
NO_INT(ibv_cmd_dealloc_pd)
NO_INT(ibv_cmd_dereg_mr)
NO_INT(ibv_cmd_destroy_ah)
NO_INT(ibv_cmd_destroy_counters)
NO_INT(ibv_cmd_destroy_cq)
NO_INT(ibv_cmd_destroy_flow)
NO_INT(ibv_cmd_destroy_flow_action)
NO_INT(ibv_cmd_destroy_qp)
NO_INT(ibv_cmd_destroy_rwq_ind_table)
NO_INT(ibv_cmd_destroy_srq)
NO_INT(ibv_cmd_destroy_wq)
NO_INT(ibv_cmd_detach_mcast)
NO_INT(ibv_cmd_free_dm)
NO_INT(ibv_cmd_get_context)
NO_INT(ibv_cmd_modify_cq)
NO_INT(ibv_cmd_modify_flow_action_esp)
NO_INT(ibv_cmd_modify_qp)
NO_INT(ibv_cmd_modify_qp_ex)
NO_INT(ibv_cmd_modify_srq)
NO_INT(ibv_cmd_modify_wq)
NO_INT(ibv_cmd_open_qp)
NO_INT(ibv_cmd_open_xrcd)
NO_INT(ibv_cmd_poll_cq)
NO_INT(ibv_cmd_post_recv)
NO_INT(ibv_cmd_post_send)
NO_INT(ibv_cmd_post_srq_recv)
NO_INT(ibv_cmd_query_context)
NO_INT(ibv_cmd_query_device_any)
NO_INT(ibv_cmd_query_mr)
NO_INT(ibv_cmd_query_port)
NO_INT(ibv_cmd_query_qp)
NO_INT(ibv_cmd_query_srq)
NO_INT(ibv_cmd_read_counters)
NO_INT(ibv_cmd_reg_dm_mr)
NO_INT(ibv_cmd_reg_dmabuf_mr)
NO_INT(ibv_cmd_reg_mr)
NO_INT(ibv_cmd_req_notify_cq)
NO_INT(ibv_cmd_rereg_mr)
NO_INT(ibv_cmd_resize_cq)
