/* SPDX-License-Identifier: MIT
 * A checkpoint of the head, for all nodes of a fleet (convoy/train.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/run/checkpoint.h"
#include "src/team/nodes.h"

static cvy_status read_all(const char *path, void **data, size_t *bytes) {
  cvy_status status = CVY_OK;
  struct stat info;
  size_t got = 0;
  int fd = -1;
  CVY_TRY(cvy_file_open(path, &fd));
  CVY_REQUIRE(fstat(fd, &info) == 0 && info.st_size > 0, CVY_E_IO, "%s: cannot be read: %s", path, strerror(errno));
  *bytes = (size_t)info.st_size;
  *data = cvy_alloc_unset(*bytes, 1);
  CVY_REQUIRE(*data, CVY_E_MEMORY, "out of host memory for the %zu bytes of %s", *bytes, path);
  while (got < *bytes) {
    const ssize_t n = pread(fd, (char *)*data + got, *bytes - got, (off_t)got);
    if (n < 0 && errno == EINTR) continue;
    CVY_REQUIRE(n > 0, CVY_E_IO, "%s: cannot be read: %s", path, n < 0 ? strerror(errno) : "it became shorter");
    got += (size_t)n;
  }
fail:
  if (fd >= 0) close(fd);
  return status;
}

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
    if (*out) CVY_TRY(read_all(cvy_checkpoint_path(*out), &data, &bytes));
  }
  CVY_TRY(cvy_fleet_spread(fleet, &data, &bytes));
  if (bytes > 0 && !*out) CVY_TRY(open_bytes(data, bytes, out));
fail:
  if (status != CVY_OK) cvy_checkpoint_close(out);
  cvy_free(data);
  return status;
}
