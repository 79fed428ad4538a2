/*
 * The program under test: a client sends COUNT messages to a server over a reliable connection, the server checks
 * each and answers. It knows nothing about softib.
 *
 *	exchange ADDRESS           the server, for one client
 *	exchange ADDRESS COUNT     the client
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 65536
#define PORT "7471"

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void fill(unsigned char *b, uint32_t n)
{
	for (int i = 0; i < SIZE; i++)
		b[i] = (unsigned char)(n * 31 + i * 7);
	n = htonl(n);
	memcpy(b, &n, sizeof n);
}

/* done waits for one completion of either queue, which must be a good one. */
static void done(struct rdma_cm_id *id, int receive)
{
	struct ibv_wc wc;
	int n = receive ? rdma_get_recv_comp(id, &wc) : rdma_get_send_comp(id, &wc);
	need(n == 1, "completion");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "exchange: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: exchange ADDRESS [COUNT]\n");
		return 2;
	}
	int client = argc == 3;
	uint32_t count = client ? (uint32_t)strtoul(argv[2], NULL, 10) : UINT32_MAX;
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = client ? 0 : RAI_PASSIVE}, *res;
	need(!rdma_getaddrinfo(argv[1], PORT, &hints, &res), "rdma_getaddrinfo");

	struct ibv_qp_init_attr qp = {.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1};
	struct rdma_cm_id *id, *listener = NULL;
	if (client) {
		need(!rdma_create_ep(&id, res, NULL, &qp), "rdma_create_ep");
	} else {
		need(!rdma_create_ep(&listener, res, NULL, &qp), "rdma_create_ep");
		need(!rdma_listen(listener, 1), "rdma_listen");
		printf("listening\n");
		fflush(stdout);
		need(!rdma_get_request(listener, &id), "rdma_get_request");
	}

	static unsigned char out[SIZE], in[SIZE], want[SIZE];
	struct ibv_mr *omr = rdma_reg_msgs(id, out, SIZE), *imr = rdma_reg_msgs(id, in, SIZE);
	need(omr && imr, "rdma_reg_msgs");
	need(!rdma_post_recv(id, NULL, in, SIZE, imr), "rdma_post_recv");
	need(client ? !rdma_connect(id, NULL) : !rdma_accept(id, NULL), client ? "rdma_connect" : "rdma_accept");

	/* The server does not know how many will come: the client says so in the first message. */
	for (uint32_t n = 0; n < count; n++) {
		if (client) {
			fill(out, n ? n : count);
			need(!rdma_post_send(id, NULL, out, SIZE, omr, 0), "rdma_post_send");
			done(id, 0);
		}
		done(id, 1);
		uint32_t got;
		memcpy(&got, in, sizeof got);
		if (!client && n == 0)
			count = ntohl(got);
		fill(want, n ? n : count);
		if (memcmp(in, want, SIZE)) {
			fprintf(stderr, "exchange: message %u is damaged\n", n);
			return 1;
		}
		need(!rdma_post_recv(id, NULL, in, SIZE, imr), "rdma_post_recv");
		if (!client) {
			fill(out, n ? n : count);
			need(!rdma_post_send(id, NULL, out, SIZE, omr, 0), "rdma_post_send");
			done(id, 0);
		}
	}
	/* Who ends the connection takes away what the other may still wait for: an acknowledgement that was lost comes
	 * again only while there is somebody to send it. So the client says when it has all of its completions, the
	 * server, which has its own, ends the connection, and nobody waits for that last message to be acknowledged. */
	if (client) {
		struct rdma_cm_event *event;
		need(!rdma_post_send(id, NULL, out, 1, omr, 0), "rdma_post_send");
		need(!rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
		rdma_ack_cm_event(event);
	} else {
		done(id, 1);
	}
	rdma_disconnect(id);
	printf("%u messages of %d bytes came back intact\n", count, SIZE);
	return 0;
}
