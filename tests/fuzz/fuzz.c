/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"

static char folder[64];
static const char *seeds; /* the folder they go to */

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *walk) {
  (void)info, (void)flag, (void)walk;
  return remove(path);
}

static void remove_folder(void) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Messages are made, as what is in a file ends up in them, and dropped. */
static void drop(void *user, cvy_log_level level, const char *message) { (void)user, (void)level, (void)message; }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  static const char option[] = "--seeds=";
  snprintf(folder, sizeof folder, "%s/convoy-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  CVY_ASSERT(mkdtemp(folder));
  atexit(remove_folder);
  setenv("XDG_CACHE_HOME", folder, 1);
  cvy_log_set(drop, NULL, CVY_LOG_DEBUG);
  for (int i = 1; i < *argc; i++)
    if (strncmp((*argv)[i], option, sizeof option - 1) == 0) seeds = (*argv)[i] + sizeof option - 1;
  if (!seeds) return 0;
  fuzz_seeds();
  exit(0);
}

const char *fuzz_folder(void) { return folder; }

static void write_file(const char *path, const void *first, size_t first_bytes, const void *second,
                       size_t second_bytes) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CVY_ASSERT(fd >= 0);
  CVY_ASSERT(first_bytes == 0 || write(fd, first, first_bytes) == (ssize_t)first_bytes);
  CVY_ASSERT(second_bytes == 0 || write(fd, second, second_bytes) == (ssize_t)second_bytes);
  close(fd);
}

const char *fuzz_file(const char *name, const void *first, size_t first_bytes, const void *second,
                      size_t second_bytes) {
  static char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  write_file(path, first, first_bytes, second, second_bytes);
  return path;
}

void fuzz_seed(const void *first, size_t first_bytes, const void *second, size_t second_bytes) {
  static int n;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/seed-%d", seeds, n++);
  write_file(path, first, first_bytes, second, second_bytes);
}

uint8_t *fuzz_read(const char *path, size_t *size) {
  FILE *const f = fopen(path, "rb");
  struct stat info;
  CVY_ASSERT(f && fstat(fileno(f), &info) == 0);
  *size = (size_t)info.st_size;
  uint8_t *const bytes = malloc(*size + 1);
  CVY_ASSERT(bytes && fread(bytes, 1, *size, f) == *size);
  fclose(f);
  return bytes;
}

static long kept;
void fuzz_keep(void) { kept = cvy_live_count(CVY_LIVE_MEMORY); }
void fuzz_end(void) { CVY_ASSERT(cvy_live_count(CVY_LIVE_MEMORY) == kept); }
