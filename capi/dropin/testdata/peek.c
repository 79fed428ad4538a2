/*
 * Two programs, of which one reads the other's memory, as the receiver of a large message does.
 *   peek              says where its word is and waits for the end of standard input
 *   peek PID ADDRESS  reads that word and prints it
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char word[] = "the word";
	char got[sizeof word] = "", c;
	struct iovec here = {got, sizeof got}, there = {word, sizeof word};

	if (argc == 1) {
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		printf("%d %p\n", getpid(), (void *)word);
		fflush(stdout);
		while (read(0, &c, 1) > 0)
			;
		return 0;
	}
	there.iov_base = (void *)strtoul(argv[2], NULL, 16);
	if (process_vm_readv(atoi(argv[1]), &here, 1, &there, 1, 0) != sizeof got) {
		perror("process_vm_readv");
		return 1;
	}
	puts(got);
	return 0;
}
