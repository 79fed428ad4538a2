/*
 * What librdmacm has had since the headers that this is built with, so that programs of newer systems load: names that
 * are resolved by services of InfiniBand, events that programs write themselves, epoll for rsockets. All are refused.
 */
#include "cm.h"

#define REFUSED(X) \
	X(rdma_query_addrinfo) X(rdma_resolve_addrinfo) X(rdma_write_cm_event) X(repoll_create) X(repoll_ctl) X(repoll_wait)

#define X(name)                          \
	EXPORT int name(void);           \
	EXPORT int name(void)            \
	{                                \
		return fail(EOPNOTSUPP); \
	}
REFUSED(X)
#undef X
