/* Names to addresses. */
#define _GNU_SOURCE
#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>

#include "cm.h"

static void copy_hints(struct addrinfo *to, const struct rdma_addrinfo *from)
{
	*to = (struct addrinfo){ 0 };
	if (from->ai_flags & RAI_PASSIVE)
		to->ai_flags |= AI_PASSIVE;
	if (from->ai_flags & RAI_NUMERICHOST)
		to->ai_flags |= AI_NUMERICHOST;
	/* A GID is written as an IPv6 address. */
	if (from->ai_family == AF_IB)
		to->ai_family = from->ai_flags & RAI_FAMILY ? AF_INET6 : AF_UNSPEC;
	else
		to->ai_family = from->ai_family;

	if (from->ai_qp_type)
		to->ai_socktype = from->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
	switch (from->ai_port_space) {
	case RDMA_PS_TCP:
		to->ai_protocol = IPPROTO_TCP;
		break;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		to->ai_protocol = IPPROTO_UDP;
		break;
	case RDMA_PS_IB:
		if (to->ai_socktype)
			to->ai_protocol = to->ai_socktype == SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP;
		break;
	}
}

/* Whether the system's file of hosts has a name: then it means what is there. */
static int in_hosts_file(const char *name)
{
	FILE *file = fopen("/etc/hosts", "re");
	char *line = NULL;
	size_t room = 0;
	int found = 0;

	while (file && !found && getline(&line, &room, file) >= 0) {
		char *rest, *word;

		line[strcspn(line, "#\n")] = 0;
		word = strtok_r(line, " \t", &rest);
		while (word && !found) {
			word = strtok_r(NULL, " \t", &rest);
			found = word && !strcasecmp(word, name);
		}
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/*
 * A fabric's hosts are h1, h2, ... and have the addresses 198.18.0.0 + 1,
 * + 2, ... Where the system does not know them, nobody needs to ask a name
 * server that does not know them either.
 */
static const char *fabric_host(const char *node, char text[INET_ADDRSTRLEN])
{
	const uint32_t base = 198u << 24 | 18u << 16, most = (1u << 17) - 1; /* 198.18.0.0/15, RFC 2544 */
	struct in_addr address;
	const char *verbs = getenv("SOFTIB_VERBS");
	unsigned long n;
	char *end;

	if (verbs && !strncmp(verbs, "roce:", 5)) /* a real network has names of its own */
		return node;
	if (!node || node[0] != 'h' || node[1] < '1' || node[1] > '9')
		return node;
	n = strtoul(node + 1, &end, 10);
	if (*end || n > most || in_hosts_file(node))
		return node;
	address.s_addr = htonl(base + n);
	return inet_ntop(AF_INET, &address, text, INET_ADDRSTRLEN);
}

static int keep_address(struct sockaddr **to, socklen_t *to_size, const void *from, socklen_t size)
{
	*to = malloc(size);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, size);
	*to_size = size;
	return 0;
}

static int keep_gid(struct sockaddr **to, socklen_t *to_size, const struct sockaddr_in6 *from, int port_space)
{
	struct sockaddr_ib ib = {
		.sib_family = AF_IB,
		.sib_pkey = htobe16(0xffff),
		.sib_flowinfo = from->sin6_flowinfo,
		.sib_scope_id = from->sin6_scope_id,
	};
	uint64_t mask = 0;

	memcpy(&ib.sib_addr, &from->sin6_addr, sizeof(ib.sib_addr));
	ib.sib_sid = htobe64((uint64_t)port_space << 16 | be16toh(from->sin6_port));
	if (port_space)
		mask |= RDMA_IB_IP_PS_MASK;
	if (from->sin6_port)
		mask |= RDMA_IB_IP_PORT_MASK;
	ib.sib_sid_mask = htobe64(mask);
	return keep_address(to, to_size, &ib, sizeof(ib));
}

/* Fills the result with what the system's resolver said. Returns 0 or EAI_*. */
static int adopt(struct rdma_addrinfo *to, const struct rdma_addrinfo *hints, const struct addrinfo *from)
{
	int passive = (from->ai_flags & AI_PASSIVE) || (hints && hints->ai_flags & RAI_PASSIVE);
	struct sockaddr **address = passive ? &to->ai_src_addr : &to->ai_dst_addr;
	socklen_t *size = passive ? &to->ai_src_len : &to->ai_dst_len;
	char **name = passive ? &to->ai_src_canonname : &to->ai_dst_canonname;

	if (hints && hints->ai_qp_type)
		to->ai_qp_type = hints->ai_qp_type;
	else
		to->ai_qp_type = from->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
	if (hints && hints->ai_port_space)
		to->ai_port_space = hints->ai_port_space;
	else
		to->ai_port_space = from->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (passive)
		to->ai_flags |= RAI_PASSIVE;
	if (from->ai_canonname)
		*name = strdup(from->ai_canonname);

	if (hints && hints->ai_flags & RAI_FAMILY && hints->ai_family == AF_IB && from->ai_family == AF_INET6) {
		to->ai_family = AF_IB;
		return keep_gid(address, size, (struct sockaddr_in6 *)from->ai_addr, to->ai_port_space);
	}
	to->ai_family = from->ai_family;
	return keep_address(address, size, from->ai_addr, from->ai_addrlen);
}

static int resolve(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo *to)
{
	char text[INET_ADDRSTRLEN];
	struct addrinfo system_hints, *found;
	int error;

	if (hints)
		copy_hints(&system_hints, hints);
	if (!hints || (hints->ai_family != AF_INET6 && hints->ai_family != AF_IB))
		node = fabric_host(node, text);
	error = getaddrinfo(node, service, hints ? &system_hints : NULL, &found);
	if (error)
		return error;
	error = adopt(to, hints, found);
	freeaddrinfo(found);
	return error;
}

EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
	struct rdma_addrinfo **res)
{
	struct rdma_addrinfo *out;
	const char *socket = secure_getenv("SOFTIB_RDMACM");
	int error = 0;

	if (!res || (!node && !service && !hints))
		return fail(EINVAL);
	if (!socket || !*socket)
		return fail(ENODEV);
	out = calloc(1, sizeof(*out));
	if (!out)
		return -1;
	if (node || service) {
		error = resolve(node, service, hints, out);
	} else {
		out->ai_flags = hints->ai_flags;
		out->ai_family = hints->ai_family;
		out->ai_qp_type = hints->ai_qp_type;
		out->ai_port_space = hints->ai_port_space;
		if (hints->ai_dst_len)
			error = keep_address(&out->ai_dst_addr, &out->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
	}
	if (!error && hints && hints->ai_src_len && !out->ai_src_len)
		error = keep_address(&out->ai_src_addr, &out->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	if (error) {
		rdma_freeaddrinfo(out);
		return error;
	}
	*res = out;
	return 0;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
		res = next;
	}
}
