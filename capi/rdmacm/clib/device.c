/* Adapters: each is opened once, when the first id is bound to it. */
#include <fcntl.h>
#include <stdlib.h>

#include "cm.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices;

static uint8_t at_most_255(int n)
{
	return n < 0 ? 0 : n > 255 ? 255 : n;
}

/* The device of a GUID, opened; lock held. NULL and errno. */
static struct device *open_device(struct ibv_device *which)
{
	struct ibv_device_attr attr;
	struct device *d = calloc(1, sizeof(*d));
	int error;

	if (!d)
		return NULL;
	d->guid = ibv_get_device_guid(which);
	d->verbs = ibv_open_device(which);
	if (!d->verbs) {
		error = errno ? errno : ENODEV;
		goto no_context;
	}
	error = ibv_query_device(d->verbs, &attr);
	if (error)
		goto no_attributes;
	d->initiator_depth_max = at_most_255(attr.max_qp_init_rd_atom);
	d->responder_resources_max = at_most_255(attr.max_qp_rd_atom);
	d->next = devices;
	devices = d;
	return d;

no_attributes:
	ibv_close_device(d->verbs);
no_context:
	free(d);
	errno = error;
	return NULL;
}

static struct device *find(uint64_t guid)
{
	struct device *d = devices;

	while (d && d->guid != guid)
		d = d->next;
	return d;
}

static struct device *find_or_open(uint64_t guid)
{
	struct device *d = find(guid);
	struct ibv_device **list;
	int error = ENODEV;

	if (d)
		return d;
	list = ibv_get_device_list(NULL);
	if (!list)
		return NULL;
	for (int i = 0; list[i] && !d; i++)
		if (ibv_get_device_guid(list[i]) == guid) {
			d = open_device(list[i]);
			error = errno;
		}
	ibv_free_device_list(list);
	errno = error;
	return d;
}

int device_bind(struct rdma_cm_id *id, uint64_t guid)
{
	struct device *d;
	int error = 0;

	pthread_mutex_lock(&lock);
	d = find_or_open(guid);
	if (!d)
		error = errno;
	else if (!d->pd && !(d->pd = ibv_alloc_pd(d->verbs)))
		error = errno;
	else
		d->users++;
	pthread_mutex_unlock(&lock);
	if (error)
		return fail(error);
	id_of(id)->device = d;
	id->verbs = d->verbs;
	id->pd = d->pd;
	return 0;
}

void device_release(struct device *d)
{
	pthread_mutex_lock(&lock);
	if (!--d->users) {
		/* Programs that keep what they made of these keep these too: then deallocating fails. */
		if (d->xrcd && !ibv_close_xrcd(d->xrcd))
			d->xrcd = NULL;
		if (!ibv_dealloc_pd(d->pd))
			d->pd = NULL;
	}
	pthread_mutex_unlock(&lock);
}

struct ibv_xrcd *device_xrcd(struct device *d)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	pthread_mutex_lock(&lock);
	if (!d->xrcd)
		d->xrcd = ibv_open_xrcd(d->verbs, &attr);
	xrcd = d->xrcd;
	pthread_mutex_unlock(&lock);
	return xrcd;
}

EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **out = NULL;
	struct ibv_device **list;
	int count, n = 0;

	list = ibv_get_device_list(&count);
	if (list) {
		out = calloc(count + 1, sizeof(*out));
		pthread_mutex_lock(&lock);
		for (int i = 0; out && i < count; i++) {
			struct device *d = find(ibv_get_device_guid(list[i]));

			if (!d)
				d = open_device(list[i]);
			if (d)
				out[n++] = d->verbs;
		}
		pthread_mutex_unlock(&lock);
		ibv_free_device_list(list);
		if (out && !n) {
			free(out);
			out = NULL;
			errno = ENODEV;
		}
	}
	if (num_devices)
		*num_devices = n;
	return out;
}

EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
