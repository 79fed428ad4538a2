/* Talking to the daemon: one request, one reply. */
#ifndef SOFTIB_CLIENT_H
#define SOFTIB_CLIENT_H

#include <stddef.h>

#include "protocol.h"

/* umad_debug's level. */
extern int debug_level;

void warn(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define TRACE(...)                                  \
	do {                                            \
		if (debug_level)                            \
			warn(__func__, __VA_ARGS__);            \
	} while (0)

/* Set while what goes wrong is not worth a word. */
extern _Thread_local int quiet;

/*
 * Asks on a connection of its own. The reply's bytes go to payload, *size of
 * them at most, and *size becomes their number. Returns 0 or a negative
 * errno. Where keep is given, the connection stays open and its descriptor is
 * put there.
 */
int ask(struct softib_request *request, struct softib_reply *reply, void *payload, size_t *size, int *keep);

#endif
