/*
 * AddressSanitizer's runtime wants to be the first library of a process and ends one in which others are preloaded,
 * though nothing depends on it where these have no constructors. It asks for options here, whatever ASAN_OPTIONS says
 * besides; a program that has such a function itself is asked instead.
 */
#include "softib.h"

EXPORT const char *__asan_default_options(void);

EXPORT const char *__asan_default_options(void)
{
	return "verify_asan_link_order=0";
}
