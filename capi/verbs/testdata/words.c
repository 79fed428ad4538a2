/* words LIBIBVERBS LIBRDMACM: what two libraries say of every number: words for statuses, and the arithmetic of rates.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *get(const char *library, const char *name)
{
	void *h = dlopen(library, RTLD_NOW), *f = h ? dlsym(h, name) : NULL;

	if (!f) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return f;
}

int main(int argc, char **argv)
{
	static const char *const words[] = { "ibv_wc_status_str", "ibv_event_type_str", "ibv_node_type_str",
		"ibv_port_state_str", "rdma_event_str" };
	static const char *const numbers[] = { "ibv_rate_to_mult", "mult_to_ibv_rate", "ibv_rate_to_mbps" };
	enum { WORDS = sizeof(words) / sizeof(words[0]), NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
	int (*mbps)(int);

	if (argc != 3)
		return 2;
	for (int i = 0; i < WORDS; i++) {
		const char *(*f)(int) = get(argv[i == WORDS - 1 ? 2 : 1], words[i]);

		for (int v = -2; v < 64; v++)
			printf("%s(%d) = %s\n", words[i], v, f(v));
	}
	for (int i = 0; i < NUMBERS; i++) {
		int (*f)(int) = get(argv[1], numbers[i]);

		for (int v = -2; v < 512; v++)
			printf("%s(%d) = %d\n", numbers[i], v, f(v));
	}
	mbps = get(argv[1], "mbps_to_ibv_rate");
	for (int v = 0; v < 1300000; v++)
		if (mbps(v) != mbps(-1))
			printf("mbps_to_ibv_rate(%d) = %d\n", v, mbps(v));
	return 0;
}
