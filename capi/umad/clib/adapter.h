#ifndef SOFTIB_ADAPTER_H
#define SOFTIB_ADAPTER_H

#include "abi.h"

/*
 * Finds the port that a program names; an adapter that is not named is the
 * host's own, port 0 the best one. On success returns 0, and ca is to be
 * released. -ENODEV: no such adapter or none usable; -EINVAL: it has no such port.
 */
int find_port(const char *ca_name, int *portnum, struct umad_ca *ca);

#endif
