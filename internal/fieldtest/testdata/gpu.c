/* What a collective library for GPUs does before it sends anything: it opens libibverbs by the name that development
 * packages have, finds the adapter's place in the machine by the name of its folder, and walks from there to a
 * processor. Prints what it found. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                    \
	do {                                                                       \
		if (!(x)) {                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);     \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static const char *const names[] = {"libibverbs.so", "libibverbs.so.1", "librdmacm.so", "libibumad.so"};

/* is_address tells whether a name is a PCI address: four digits, two, two and one. */
static int is_address(const char *name)
{
	static const char form[] = "xxxx:xx:xx.x";

	if (strlen(name) != strlen(form))
		return 0;
	for (size_t i = 0; form[i]; i++)
		if (form[i] == 'x' ? !isxdigit((unsigned char)name[i]) : name[i] != form[i])
			return 0;
	return 1;
}

static void show(const char *dir, const char *name)
{
	char path[2 * PATH_MAX], line[256] = "-\n";
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "r");
	if (f) {
		MUST(fgets(line, sizeof line, f));
		fclose(f);
	}
	printf("%s %s", name, line);
}

int main(void)
{
	void *(*list)(int *), *handle;
	const char *(*name_of)(void *);
	void **devices;
	char path[2 * PATH_MAX], *home, *address, *end, *known;
	int count;
	Dl_info info;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		MUST(dlopen(names[i], RTLD_NOW));
	handle = dlopen("libibverbs.so", RTLD_NOW);
	*(void **)&list = dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1");
	*(void **)&name_of = dlvsym(handle, "ibv_get_device_name", "IBVERBS_1.1");
	MUST(list && name_of && dlvsym(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8") &&
	     dlvsym(handle, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
	MUST(dladdr(*(void **)&list, &info));
	devices = list(&count);
	MUST(devices && count == 1);
	printf("library %s\ndevice %s\n", info.dli_fname, name_of(devices[0]));

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", name_of(devices[0]));
	home = realpath(path, NULL);
	MUST(home);
	/* Functions of one device are one, and so are virtual functions. */
	end = home + strlen(home);
	end[-1] = end[-3] = end[-4] = '0';
	address = strrchr(home, '/') + 1;
	MUST(is_address(address));
	snprintf(path, sizeof path, "%s/subsystem", home);
	end = realpath(path, NULL);
	printf("subsystem %s\n", end ? end : "-");
	snprintf(path, sizeof path, "/sys/class/pci_bus/%.7s/../../%s", address, address);
	known = realpath(path, NULL);
	MUST(known && !strcmp(known, home));
	show(home, "class");
	show(home, "max_link_speed");
	show(home, "max_link_width");
	show(home, "numa_node");
	/* Up from there is no other address, but a root. */
	address[-1] = '\0';
	MUST(!is_address(strrchr(home, '/') + 1));
	printf("root %s\n", home);
	printf("GIN %s %s, host %s\n", getenv("NCCL_GIN_ENABLE"), getenv("NCCL_GIN_TYPE"), getenv("NCCL_HOSTID"));
	return 0;
}
