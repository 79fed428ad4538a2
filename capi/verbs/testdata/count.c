/* Says how many adapters there are. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	printf("%d adapters\n", n);
	ibv_free_device_list(list);
	return 0;
}
