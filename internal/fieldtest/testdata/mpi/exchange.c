/*
 * Exchanges messages between all ranks and looks at every byte that arrives.
 *
 *   exchange pingpong|alltoall|allreduce...
 *
 * Each rank prints, for each of them, the host that it runs on and how many bytes it had for ranks on others, which
 * is at least what
 * that host's port has to show. With something wrong it says what, and all end.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Around what transports treat apart: inline, one packet, eager, rendezvous; and lengths that are no multiple of
 * anything. */
static const int sizes[] = {0, 1, 8, 63, 1000, 4096, 8191, 8192, 40001, 65536, 300007, 1 << 20, (4 << 20) + 3};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = (4 << 20) + 3, EACH_MAX = 300007 };

static int rank, ranks;
static char host[64];
static char (*hosts)[sizeof(host)];
static uint64_t sent;

static void fail(const char *what, int from, int size, long at, int got, int want)
{
	fprintf(stderr, "rank %d: %s of %d bytes from rank %d: byte %ld is %#x, want %#x\n", rank, what, size, from, at,
		got, want);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* byte is byte i of message number n from one rank to another. */
static unsigned char byte(int from, int to, int n, long i)
{
	uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)from * 40503u + (uint32_t)to * 9973u + (uint32_t)n * 131u;

	return (unsigned char)(x >> 24 ^ x >> 8);
}

static void fill(unsigned char *b, int from, int to, int n, int size)
{
	for (int i = 0; i < size; i++)
		b[i] = byte(from, to, n, i);
}

static void check(const char *what, const unsigned char *b, int from, int to, int n, int size)
{
	for (int i = 0; i < size; i++)
		if (b[i] != byte(from, to, n, i))
			fail(what, from, size, i, b[i], byte(from, to, n, i));
}

static void account(int to, uint64_t bytes)
{
	if (strcmp(hosts[to], host))
		sent += bytes;
}

/* pingpong sends messages to and fro between every two ranks, the largest only between neighbours. */
static void pingpong(void)
{
	unsigned char *b = malloc(LARGEST);
	MPI_Status status;
	int n = 0, count;

	for (int a = 0; a < ranks; a++)
		for (int z = a + 1; z < ranks; z++)
			for (int s = 0; s < SIZES; s++, n++) {
				int size = sizes[s], peer = rank == a ? z : a;

				if ((rank != a && rank != z) || (size > EACH_MAX && z != a + 1))
					continue;
				if (rank == a) {
					fill(b, a, z, n, size);
					MPI_Send(b, size, MPI_BYTE, peer, n, MPI_COMM_WORLD);
				}
				memset(b, 0xee, size);
				MPI_Recv(b, size, MPI_BYTE, peer, n, MPI_COMM_WORLD, &status);
				MPI_Get_count(&status, MPI_BYTE, &count);
				if (count != size)
					fail("ping-pong's length", peer, size, 0, count, size);
				check("ping-pong", b, peer, rank, n, size);
				if (rank == z) {
					fill(b, z, a, n, size);
					MPI_Send(b, size, MPI_BYTE, peer, n, MPI_COMM_WORLD);
				}
				account(peer, size);
			}
	free(b);
}

/* alltoall exchanges blocks of all sizes that fit, all ranks at once, a few times in a row. */
static void alltoall(void)
{
	unsigned char *out = malloc((size_t)EACH_MAX * ranks), *in = malloc((size_t)EACH_MAX * ranks);
	int n = 0;

	for (int round = 0; round < 3; round++)
		for (int s = 0; s < SIZES && sizes[s] <= EACH_MAX; s++, n++) {
			int size = sizes[s];

			for (int r = 0; r < ranks; r++)
				fill(out + (size_t)r * size, rank, r, n, size);
			memset(in, 0xee, (size_t)size * ranks);
			MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
			for (int r = 0; r < ranks; r++) {
				check("all-to-all", in + (size_t)r * size, r, rank, n, size);
				/* An algorithm may pass short blocks on through others; it sends no fewer bytes. */
				account(r, size);
			}
		}
	free(out);
	free(in);
}

/* allreduce adds, compares and combines. */
static void allreduce(void)
{
	int most = (1 << 20) / sizeof(uint64_t) + 1;
	uint64_t *in = malloc(most * sizeof(*in)), *out = malloc(most * sizeof(*out));

	for (int s = 1; s < SIZES; s++) {
		int count = sizes[s] / (int)sizeof(*in) + 1;

		if (count > most)
			continue;
		for (int i = 0; i < count; i++)
			in[i] = (uint64_t)(rank + 1) * (i + s);
		MPI_Allreduce(in, out, count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++) {
			uint64_t want = (uint64_t)ranks * (ranks + 1) / 2 * (i + s);

			if (out[i] != want)
				fail("sum", -1, count * 8, i, (int)out[i], (int)want);
		}
		MPI_Allreduce(in, out, count, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			if (out[i] != (uint64_t)ranks * (i + s))
				fail("maximum", -1, count * 8, i, (int)out[i], ranks * (i + s));
		for (int i = 0; i < count; i++)
			in[i] = 1ull << (rank + i) % 64;
		MPI_Allreduce(in, out, count, MPI_UINT64_T, MPI_BOR, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++) {
			uint64_t want = 0;

			for (int r = 0; r < ranks; r++)
				want |= 1ull << (r + i) % 64;
			if (out[i] != want)
				fail("or", -1, count * 8, i, (int)out[i], (int)want);
		}
		/* What a rank has, others know only if it left its host once. */
		sent += 3 * (uint64_t)count * sizeof(*in) / ranks;
	}
	free(in);
	free(out);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {{"pingpong", pingpong}, {"alltoall", alltoall}, {"allreduce", allreduce}};
	const char *h = getenv("SOFTIB_HOST");

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	snprintf(host, sizeof(host), "%s", h ? h : "none");
	hosts = calloc(ranks, sizeof(*hosts));
	MPI_Allgather(host, sizeof(host), MPI_CHAR, hosts, sizeof(host), MPI_CHAR, MPI_COMM_WORLD);
	for (int a = 1; a < argc; a++)
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			if (!strcmp(argv[a], tests[i].name)) {
				sent = 0;
				tests[i].run();
				printf("%s: rank %d of %d on %s sent %llu\n", argv[a], rank, ranks, host, (unsigned long long)sent);
			}
	MPI_Finalize();
	return 0;
}
