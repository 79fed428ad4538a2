/* The part of exports.h that belongs to the extended verbs. */
#ifndef SOFTIB_EXPORTS_EXT_H
#define SOFTIB_EXPORTS_EXT_H

#define SOFTIB_EXT(X)

#endif
