/*
 * Where a machine has an InfiniBand adapter, its IP addresses are those of an IPoIB interface, and programs of
 * librdmacm look for them among the interfaces (libfabric does). The fabric's addresses have no interface behind them
 * unless softib exec has made one, so getifaddrs shows one to programs that have looked for adapters before. Others,
 * which look for an address to use TCP on, see what the machine has.
 */
#include "softib.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>

static atomic_bool listed;

void softib_was_listed(void)
{
	atomic_store_explicit(&listed, true, memory_order_relaxed);
}

/* One entry of the list, with all that it points to. */
struct entry {
	struct ifaddrs ifa;
	struct sockaddr_in address, mask, broadcast;
	char name[IFNAMSIZ];
};

/* 198.18.0.0/15, RFC 2544: the addresses of all hosts. */
enum { PREFIX = 15 };

/* How the list's entries are told from the C library's: nobody else has this name at this address. */
static bool is_ours(const struct ifaddrs *ifa)
{
	return ifa->ifa_name == ((const struct entry *)ifa)->name;
}

static struct entry *make_entry(struct in_addr address)
{
	struct entry *e = calloc(1, sizeof(*e));
	struct sockaddr_in base = { .sin_family = AF_INET };

	if (!e)
		return NULL;
	e->address = e->mask = e->broadcast = base;
	e->address.sin_addr = address;
	e->mask.sin_addr.s_addr = htonl(~0u << (32 - PREFIX));
	e->broadcast.sin_addr.s_addr = address.s_addr | ~e->mask.sin_addr.s_addr;
	strcpy(e->name, "softib0");
	e->ifa = (struct ifaddrs){
		.ifa_name = e->name,
		.ifa_flags = IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST,
		.ifa_addr = (struct sockaddr *)&e->address,
		.ifa_netmask = (struct sockaddr *)&e->mask,
		.ifa_broadaddr = (struct sockaddr *)&e->broadcast,
	};
	return e;
}

EXPORT int getifaddrs(struct ifaddrs **list)
{
	int (*next)(struct ifaddrs **) = (int (*)(struct ifaddrs **))dlsym(RTLD_NEXT, "getifaddrs");
	const char *text = getenv("SOFTIB_ADDRESS");
	struct ifaddrs **end = list;
	struct in_addr address;
	int status = next ? next(list) : FAIL_INT(ENOSYS);

	if (status || !text || !atomic_load_explicit(&listed, memory_order_relaxed) ||
	    inet_pton(AF_INET, text, &address) != 1)
		return status;
	for (; *end; end = &(*end)->ifa_next) {
		const struct sockaddr_in *has = (const struct sockaddr_in *)(*end)->ifa_addr;

		if (has && has->sin_family == AF_INET && has->sin_addr.s_addr == address.s_addr)
			return 0; /* there is a real one */
	}
	*end = (struct ifaddrs *)make_entry(address); /* without memory, without */
	return 0;
}

EXPORT void freeifaddrs(struct ifaddrs *list)
{
	void (*next)(struct ifaddrs *) = (void (*)(struct ifaddrs *))dlsym(RTLD_NEXT, "freeifaddrs");

	for (struct ifaddrs **at = &list; *at; at = &(*at)->ifa_next)
		if (is_ours(*at)) { /* it is the last */
			free(*at);
			*at = NULL;
			break;
		}
	if (next && list)
		next(list);
}
