/* SPDX-License-Identifier: MIT
 * Memory-mapped files. If another program truncates a mapped file, or the disk fails, the system sends SIGBUS to the
 * reading thread, which by default ends the process. A handler replaces the missing pages by zeros, the thread
 * continues, and cvy_map_check reports the error. Any other SIGBUS is passed to the previous handler. */
#ifndef CVY_BASE_MAPPED_FILE_H
#define CVY_BASE_MAPPED_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/failure.h"

/* Maps `bytes` of a file, shared; `name` is for messages. NULL: errno; EMFILE: this process has 64 such files. */
void *cvy_map(int fd, size_t bytes, bool writes, const char *name);
/* CVY_E_IO, logged, if a missing part of the map that contains `address` was read: bytes that were read since the last
 * check may be zeros. Call it after each read whose bytes are used. CVY_OK for other memory. Any thread. */
cvy_status cvy_map_check(const void *address);
/* `map`: from cvy_map. No thread may read it any more. */
void cvy_map_end(void *map);

#endif
