/* What programs share with the kernel: files in /sys, and structs in its layout. */
#include "softib.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

/* Public, but in no header. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from);

static char sysfs[PATH_MAX] = "/sys";
static pthread_once_t sysfs_once = PTHREAD_ONCE_INIT;

static void find_sysfs(void)
{
	const char *other = getenv("SYSFS_PATH");

	if (other && getuid() == geteuid() && strlen(other) < sizeof(sysfs)) {
		strcpy(sysfs, other);
		for (size_t n = strlen(sysfs); n > 1 && sysfs[n - 1] == '/'; n--)
			sysfs[n - 1] = 0;
	}
}

EXPORT const char *ibv_get_sysfs_path(void)
{
	pthread_once(&sysfs_once, find_sysfs);
	return sysfs;
}

EXPORT int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (!size || snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, size);
	close(fd);
	if (n <= 0)
		return n;
	if (text[n - 1] == '\n')
		text[--n] = 0;
	else if ((size_t)n < size)
		text[n] = 0;
	else
		return -1;
	return n;
}

/* The fields that have the same name and meaning on both sides. */
#define AH_FIELDS(X)                                                                                        \
	X(grh.flow_label) X(grh.sgid_index) X(grh.hop_limit) X(grh.traffic_class) X(dlid) X(sl)             \
	X(src_path_bits) X(static_rate) X(is_global) X(port_num)
#define QP_FIELDS(X)                                                                                        \
	X(cur_qp_state) X(path_mtu) X(path_mig_state) X(qkey) X(rq_psn) X(sq_psn) X(dest_qp_num)            \
	X(qp_access_flags) X(pkey_index) X(alt_pkey_index) X(en_sqd_async_notify) X(sq_draining)            \
	X(max_rd_atomic) X(max_dest_rd_atomic) X(min_rnr_timer) X(port_num) X(timeout) X(retry_cnt)         \
	X(rnr_retry) X(alt_port_num) X(alt_timeout)
#define PATH_FIELDS(X)                                                                                      \
	X(dlid) X(slid) X(raw_traffic) X(flow_label) X(hop_limit) X(traffic_class) X(reversible)            \
	X(numb_path) X(pkey) X(sl) X(mtu_selector) X(mtu) X(rate_selector) X(rate)                          \
	X(packet_life_time_selector) X(packet_life_time) X(preference)

#define COPY(field) to->field = from->field;

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from)
{
	memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof(to->grh.dgid));
	AH_FIELDS(COPY)
}

EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from)
{
	QP_FIELDS(COPY)
	to->cap.max_send_wr = from->max_send_wr;
	to->cap.max_recv_wr = from->max_recv_wr;
	to->cap.max_send_sge = from->max_send_sge;
	to->cap.max_recv_sge = from->max_recv_sge;
	to->cap.max_inline_data = from->max_inline_data;
	ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
	ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
}

EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from)
{
	memcpy(to->dgid.raw, from->dgid, sizeof(to->dgid));
	memcpy(to->sgid.raw, from->sgid, sizeof(to->sgid));
	PATH_FIELDS(COPY)
}

EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to->dgid, from->dgid.raw, sizeof(to->dgid));
	memcpy(to->sgid, from->sgid.raw, sizeof(to->sgid));
	PATH_FIELDS(COPY)
}
