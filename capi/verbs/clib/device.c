/* Devices: the list of them, opening and closing, and what they say of themselves. */
#include "softib.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* As many as an environment may name; further ones are not seen. */
enum { DEVICES_MAX = 64 };

static struct softib_device devices[DEVICES_MAX];
static int device_count;
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;

bool softib_ethernet(void)
{
	static const char kind[] = "roce:";
	const char *at = getenv("SOFTIB_VERBS");

	return at && !strncmp(at, kind, sizeof(kind) - 1);
}

const char *softib_interface(struct ibv_device *device)
{
	return container_of(device, struct softib_device, device)->host;
}

/* The host of a fabric, or the interfaces at Ethernet, with commas between them as between their adapters' GUIDs. */
static void find_devices(void)
{
	const char *hosts = getenv("SOFTIB_HOST"), *guids = getenv("SOFTIB_NODE_GUID"), *socket = getenv("SOFTIB_VERBS");
	const char *separator = softib_ethernet() ? "," : "";

	if (!hosts || !*hosts || !socket || !*socket)
		return;
	for (int i = 0; *hosts && i < DEVICES_MAX; i++) {
		struct softib_device *d = &devices[i];
		size_t length = *separator ? strcspn(hosts, separator) : strlen(hosts);
		char *end;

		d->host = strndup(hosts, length);
		if (!d->host)
			return;
		hosts += length + (hosts[length] != 0);
		d->device.node_type = IBV_NODE_CA;
		d->device.transport_type = IBV_TRANSPORT_IB;
		snprintf(d->device.name, sizeof(d->device.name), "softib%d", i);
		snprintf(d->device.dev_name, sizeof(d->device.dev_name), "uverbs%d", i);
		snprintf(d->device.dev_path, sizeof(d->device.dev_path), "/sys/class/infiniband_verbs/uverbs%d", i);
		snprintf(d->device.ibdev_path, sizeof(d->device.ibdev_path), "/sys/class/infiniband/softib%d", i);
		if (guids) {
			d->guid = htobe64(strtoull(guids, &end, 16));
			guids = *end ? end + 1 : NULL;
		}
		device_count = i + 1;
	}
}

int softib_devices(void)
{
	pthread_once(&devices_once, find_devices);
	return device_count;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	int n = softib_devices();
	struct ibv_device **list = calloc(n + 1, sizeof(*list));

	softib_was_listed();
	if (num_devices)
		*num_devices = list ? n : 0;
	if (!list)
		return FAIL(ENOMEM);
	for (int i = 0; i < n; i++)
		list[i] = &devices[i].device;
	return list;
}
ALSO_1_0(ibv_get_device_list);

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}
ALSO_1_0(ibv_free_device_list);

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}
ALSO_1_0(ibv_get_device_name);

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return container_of(device, struct softib_device, device)->guid;
}
ALSO_1_0(ibv_get_device_guid);

int softib_pipe(int *read_fd, int *write_fd)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return errno;
	/* Only the writer must not wait; whether the reader does is the program's choice. */
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	*read_fd = fds[0];
	*write_fd = fds[1];
	return 0;
}

int softib_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr all = { 0 };
	int error = softib_gone(context) ?: softib_go.query_port(to_context(context)->handle, port, &all);

	if (error)
		return error;
	/* Programs built with newer headers have more fields. */
	memset(attr, 0, size);
	memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

/* Programs of before port_cap_flags2. */
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return softib_query_port(context, port, (struct ibv_port_attr *)attr,
		offsetof(struct ibv_port_attr, port_cap_flags2));
}
ALSO_1_0(ibv_query_port);

static void set_ops(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = ibv_query_port;
#define X(verb) ops->verb = softib_##verb;
	SOFTIB_CONTEXT_OPS(X)
#undef X
#define X(verb) verbs->verb = softib_##verb;
	SOFTIB_VERBS_OPS(X)
#undef X
	softib_refuse_others(verbs);
}

struct softib_context *softib_open(struct ibv_device *device)
{
	struct softib_device *d = container_of(device, struct softib_device, device);
	struct softib_open_args args = { .socket = getenv("SOFTIB_VERBS") };
	struct softib_context *c;
	int error;

	if (d < devices || d >= devices + softib_devices() || !args.socket)
		return FAIL(ENODEV);
	args.host = d->host;
	error = softib_load();
	if (error)
		return FAIL(error);
	c = calloc(1, sizeof(*c));
	if (!c)
		return FAIL(ENOMEM);
	error = softib_pipe(&c->verbs.context.async_fd, &c->async_write);
	if (error)
		return softib_discard(c, error);
	/* Peers read the payloads of large messages where they lie. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	args.async_fd = c->async_write;
	error = softib_go.open(&args);
	if (error) {
		softib_warn("%s", args.error);
		close(c->verbs.context.async_fd);
		close(c->async_write);
		return softib_discard(c, error);
	}
	c->handle = args.handle;
	c->hint = args.hint;
	softib_go.query_device(c->handle, &c->attr);
	c->verbs.sz = sizeof(c->verbs);
	c->verbs.context.device = device;
	/* Nothing is said over it, but programs duplicate it, set flags on it, and import the device by it (import.c). */
	c->verbs.context.cmd_fd = memfd_create("softib", MFD_CLOEXEC);
	if (c->verbs.context.cmd_fd < 0)
		c->verbs.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	c->verbs.context.num_comp_vectors = 1;
	c->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	set_ops(&c->verbs);
	return c;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct softib_context *c = softib_open(device);

	if (!c)
		return NULL;
	c->pool = softib_new_pool();
	softib_list(c);
	return &c->verbs.context;
}
ALSO_1_0(ibv_open_device);

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct softib_context *c = to_context(context);

	softib_unlist(c);
	/* Of a context that was left behind there are only copies of the descriptors to give back. */
	if (!c->left) {
		softib_leave_pool(c->pool);
		softib_go.close(c->handle);
	}
	close(context->async_fd);
	close(c->async_write);
	if (context->cmd_fd >= 0)
		close(context->cmd_fd);
	pthread_mutex_destroy(&context->mutex);
	free(c);
	return 0;
}
ALSO_1_0(ibv_close_device);

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	/* What was said when it was opened: so a forked child is told as well. */
	if (!softib_left(context) && softib_gone(context))
		return EIO;
	*attr = to_context(context)->attr;
	return 0;
}
ALSO_1_0(ibv_query_device);

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	int error = softib_gone(context) ?: softib_go.query_gid(to_context(context)->handle, port, index, gid->raw);

	return error ? FAIL_INT(error) : 0;
}
ALSO_1_0(ibv_query_gid);

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	uint16_t key;
	int error = softib_gone(context) ?: softib_go.query_pkey(to_context(context)->handle, port, index, &key);

	if (error)
		return FAIL_INT(error);
	*pkey = htobe16(key);
	return 0;
}
ALSO_1_0(ibv_query_pkey);

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 key;

	for (int i = 0; !ibv_query_pkey(context, port, i, &key); i++)
		if (key == pkey)
			return i;
	return -1;
}

static int fork_wanted;

/* Nothing has to be done (ext.c has the rest of it). */
EXPORT int ibv_fork_init(void)
{
	fork_wanted = 1;
	return 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return fork_wanted ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}
