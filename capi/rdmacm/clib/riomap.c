/* riomap: memory that the peer writes directly. */
#include <stdlib.h>
#include <sys/mman.h>

#include "rs.h"

void rs_mappings_release(struct rs *rs)
{
	while (rs->own_mappings) {
		struct rs_own_mapping *m = rs->own_mappings;

		rs->own_mappings = m->next;
		ibv_dereg_mr(m->mr);
		free(m);
	}
}

/* A place in the peer's table that none of ours has; -1 if it is full. */
static int free_place(struct rs *rs)
{
	for (uint32_t place = 0; place < rs->peer_mappings; place++) {
		struct rs_own_mapping *m = rs->own_mappings;

		while (m && m->remote != (int)place)
			m = m->next;
		if (!m)
			return place;
	}
	return -1;
}

static off_t map(struct rs *rs, void *buf, size_t len, int prot, off_t offset)
{
	struct rs_own_mapping *m;
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (rs_stream_wait_open(rs, 0) < 0)
		return -1;
	if (!len || prot & ~(PROT_WRITE | PROT_NONE))
		return fail(EINVAL);
	m = calloc(1, sizeof(*m));
	if (!m)
		return -1;
	m->buffer = buf;
	m->length = len;
	m->offset = offset == -1 ? (uintptr_t)buf : (uint64_t)offset;
	m->remote = -1;
	if (prot & PROT_WRITE) {
		access |= IBV_ACCESS_REMOTE_WRITE;
		m->remote = free_place(rs);
		if (m->remote < 0) {
			free(m);
			return fail(ENOBUFS);
		}
	}
	m->mr = ibv_reg_mr(rs->id->pd, buf, len, access);
	if (!m->mr) {
		free(m);
		return -1;
	}
	if (m->remote >= 0) {
		struct rs_mapping remote = { .offset = m->offset, .address = (uintptr_t)buf, .length = len,
			.key = m->mr->rkey };

		if (rs_stream_send_mapping(rs, m->remote, &remote) < 0) {
			int error = errno;

			ibv_dereg_mr(m->mr);
			free(m);
			return fail(error);
		}
	}
	m->next = rs->own_mappings;
	rs->own_mappings = m;
	return m->offset;
}

EXPORT off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rs *rs = rs_find(socket);
	off_t at;

	if (!rs)
		return -1;
	if (rs->type != SOCK_STREAM || flags)
		return fail(EINVAL);
	rs_lock(rs);
	at = map(rs, buf, len, prot, offset);
	rs_unlock(rs);
	return at;
}

static int unmap(struct rs *rs, void *buf, size_t len)
{
	struct rs_mapping none = { 0 };
	struct rs_own_mapping **at, *m;

	for (at = &rs->own_mappings; *at; at = &(*at)->next)
		if ((*at)->buffer == buf && (*at)->length == len)
			break;
	m = *at;
	if (!m)
		return fail(EINVAL);
	*at = m->next;
	if (m->remote >= 0 && rs->state == RS_OPEN)
		rs_stream_send_mapping(rs, m->remote, &none);
	ibv_dereg_mr(m->mr);
	free(m);
	return 0;
}

EXPORT int riounmap(int socket, void *buf, size_t len)
{
	struct rs *rs = rs_find(socket);
	int failed;

	if (!rs)
		return -1;
	rs_lock(rs);
	failed = unmap(rs, buf, len);
	rs_unlock(rs);
	return failed;
}

/* What the peer has mapped at an offset; NULL if nothing. */
static const struct rs_mapping *find(struct rs *rs, uint64_t offset)
{
	for (int i = 0; i < rs->options.mappings; i++) {
		const struct rs_mapping *m = &rs->control->mappings[i];

		if (m->length && offset >= m->offset && offset - m->offset < m->length)
			return m;
	}
	return NULL;
}

EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct rs *rs = rs_find(socket);
	size_t done = 0;

	if (!rs)
		return -1;
	rs_lock(rs);
	rs_progress(rs, rs->state != RS_OPEN);
	while (done < count) {
		const struct rs_mapping *m = rs->control ? find(rs, offset + done) : NULL;
		ssize_t n;

		if (!m) {
			errno = EINVAL;
			break;
		}
		n = rs_stream_write_direct(rs, (const char *)buf + done,
					   MIN(count - done, m->offset + m->length - (offset + done)),
					   m->address + (offset + done - m->offset), m->key, flags);
		if (n < 0)
			break;
		done += n;
		if (!n)
			break;
	}
	rs_unlock(rs);
	return done || !count ? done : (size_t)-1;
}
