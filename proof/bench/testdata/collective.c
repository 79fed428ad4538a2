/*
 * How long an operation takes that all ranks take part in: collective allreduce|alltoall BYTES TIMES. Rank 0 prints the
 * microseconds of one.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4) {
		fprintf(stderr, "usage: collective allreduce|alltoall BYTES TIMES\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int all = !strcmp(argv[1], "alltoall"), size = atoi(argv[2]), times = atoi(argv[3]);
	char *in = calloc(ranks, size), *out = calloc(ranks, size);
	if (!in || !out)
		MPI_Abort(MPI_COMM_WORLD, 1);
	double began = 0;
	for (int i = -times / 10; i < times; i++) { /* the first ones are not counted */
		if (i == 0) {
			MPI_Barrier(MPI_COMM_WORLD);
			began = MPI_Wtime();
		}
		if (all)
			MPI_Alltoall(in, size, MPI_BYTE, out, size, MPI_BYTE, MPI_COMM_WORLD);
		else
			MPI_Allreduce(in, out, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
	}
	double took = MPI_Wtime() - began;
	if (rank == 0)
		printf("%s %f\n", argv[1], took / times * 1e6);
	free(in);
	free(out);
	MPI_Finalize();
	return 0;
}
