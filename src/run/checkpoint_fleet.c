/* SPDX-License-Identifier: MIT
 * A checkpoint of the head, for all nodes of a fleet (convoy/train.h). */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/run/checkpoint.h"
#include "src/fleet/node_messages.h"

/* Of a head's checkpoint: more than any network here has. */
static const size_t MOST_BYTES = (size_t)64 << 30;

/* Opens bytes that came over the link as a file in memory. */
static cvy_status open_bytes(const void *data, size_t bytes, cvy_checkpoint **out) {
  cvy_status status = CVY_OK;
  char path[64];
  size_t put = 0;
  const int fd = memfd_create("checkpoint of the head", MFD_CLOEXEC);
  CVY_REQUIRE(fd >= 0, CVY_E_MEMORY, "no file in memory for the head's checkpoint: %s", strerror(errno));
  while (put < bytes) {
    const ssize_t n = write(fd, (const char *)data + put, bytes - put);
    if (n < 0 && errno == EINTR) continue;
    CVY_REQUIRE(n > 0, CVY_E_MEMORY, "no memory for the %zu bytes of the head's checkpoint: %s", bytes,
                strerror(errno));
    put += (size_t)n;
  }
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  CVY_TRY(cvy_checkpoint_open_file(path, out));
fail:
  if (fd >= 0) close(fd);
  return status;
}

cvy_status cvy_checkpoint_open_fleet(const char *dir, cvy_fleet *fleet, cvy_checkpoint **out) {
  cvy_status status = CVY_OK;
  void *data = NULL;
  size_t bytes = 0;
  *out = NULL;
  if (cvy_fleet_is_head(fleet)) {
    CVY_TRY(cvy_checkpoint_open(dir, out));
    if (*out) {
      char *content;
      CVY_TRY(cvy_file_read(cvy_checkpoint_path(*out), SIZE_MAX, &content, &bytes));
      data = content;
    }
  }
  CVY_TRY(cvy_fleet_spread(fleet, &data, &bytes, MOST_BYTES));
  if (bytes > 0 && !*out) CVY_TRY(open_bytes(data, bytes, out));
fail:
  if (status != CVY_OK) cvy_checkpoint_close(out);
  cvy_free(data);
  return status;
}
