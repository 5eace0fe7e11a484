/* SPDX-License-Identifier: MIT
 * Files that are read through memory. Another program may cut such a file while it is mapped, and a disk may fail: the
 * system then sends SIGBUS to the thread that reads, and by default ends the process. A handler replaces the pages that
 * are gone by zeros, the thread goes on, and cvy_map_check reports it. A SIGBUS of anything else goes to the handler
 * that was there before. */
#ifndef CVY_BASE_MAPPED_FILE_H
#define CVY_BASE_MAPPED_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/failure.h"

/* Maps `bytes` of a file, shared; `name` is for messages. NULL: errno; EMFILE: this process has 64 such files. */
void *cvy_map(int fd, size_t bytes, bool writes, const char *name);
/* CVY_E_IO, logged, if a part of the map that holds `address` was read and was not there: bytes that were read since
 * the last check may be zeros. Call it behind each read whose bytes are used. CVY_OK for other memory. Any thread. */
cvy_status cvy_map_check(const void *address);
/* `map`: as cvy_map gave it. No thread reads it any more. */
void cvy_map_end(void *map);

#endif
