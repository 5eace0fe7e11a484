/* SPDX-License-Identifier: MIT */
#include "src/data/fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/base/pool.h"
#include "src/data/pictures.h"

enum { HALF = CVY_FINGERPRINT_BYTES / 2 };

typedef struct job {
  const cvy_folder *folder;
  uint64_t *out;
  atomic_size_t next;
} job;

static int64_t nanoseconds(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

static uint64_t fingerprint_of(const char *path) {
  uint8_t bytes[CVY_FINGERPRINT_BYTES];
  struct stat info = {0};
  size_t n = 0;
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), error = fd < 0 ? errno : 0;
  if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    const bool whole = info.st_size <= (off_t)sizeof bytes;
    n = cvy_file_read_at(fd, 0, whole ? sizeof bytes : HALF, bytes);
    if (!whole) n += cvy_file_read_at(fd, (size_t)info.st_size - HALF, HALF, bytes + n);
  }
  const int64_t attributes[] = {info.st_size,
                                (int64_t)info.st_ino,
                                nanoseconds(info.st_mtim),
                                nanoseconds(info.st_ctim),
                                (int64_t)info.st_mode & S_IFMT,
                                error};
  if (fd >= 0) close(fd);
  return XXH3_64bits_withSeed(attributes, sizeof attributes, XXH3_64bits(bytes, n));
}

static void run_lanes(void *arg, size_t begin, size_t end) {
  job *const j = arg;
  char path[PATH_MAX];
  for (; begin < end; begin++)
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->folder->n;) {
      const int n = snprintf(path, sizeof path, "%s/%s", j->folder->dir, j->folder->items[i].path);
      j->out[i] = n > 0 && (size_t)n < sizeof path ? fingerprint_of(path) : ENAMETOOLONG;
    }
}

bool cvy_fingerprints(const cvy_folder *folder, uint64_t *out) {
  cvy_pool *pool = NULL;
  job j = {.folder = folder, .out = out};
  const int threads = cvy_picture_threads(folder->n);
  if (cvy_pool_create(threads, &pool) != CVY_OK) return false;
  cvy_pool_run(pool, (size_t)threads, 1, run_lanes, &j);
  cvy_pool_destroy(&pool);
  return true;
}
