/* SPDX-License-Identifier: MIT */
#include "src/base/user_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/mem.h"

static bool is_own(const struct stat *info) { return info->st_uid == geteuid() || info->st_uid == 0; }

/* Warns once per process; returns false. */
static bool refuse(const char *path, const struct stat *info, const char *why) {
  static atomic_bool warned;
  if (cvy_log_is_attempt() || atomic_exchange(&warned, true))
    return false; /* a warning inside an attempt would be
                                                                             * hidden */
  char owner[64];
  snprintf(owner, sizeof owner, "it belongs to user %ld, not to user %ld", (long)info->st_uid, (long)geteuid());
  cvy_log_warning("%s is not used: %s (reported once; other files of the cache may be left out, too)", path,
                  why ? why : owner);
  return false;
}

static bool file_is_trusted(const char *path, const struct stat *info) {
  if (S_ISLNK(info->st_mode)) return refuse(path, info, "it is a symbolic link");
  if (!S_ISREG(info->st_mode)) return refuse(path, info, "it is not a regular file");
  if (!is_own(info)) return refuse(path, info, NULL);
  if (info->st_mode & (S_IWGRP | S_IWOTH)) return refuse(path, info, "other users may write to it");
  return true;
}

/* False if other users may create files there. Removes their permissions from a folder of this user. */
static bool folder_is_trusted(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  if (!is_own(&info)) return refuse(path, &info, NULL);
  if (info.st_uid == geteuid() && (info.st_mode & 077)) (void)chmod(path, 0700);
  else if (info.st_mode & (S_IWGRP | S_IWOTH)) return refuse(path, &info, "other users may write to it");
  return access(path, W_OK | X_OK) == 0;
}

void cvy_user_cache_make_dirs(char *path) {
  for (char *c = path + 1;; c++) {
    if (*c != '/' && *c != 0) continue;
    const char saved = *c;
    *c = 0;
    const bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
    *c = saved;
    if (!made || !saved) return;
  }
}

/* Warns once per process; returns false. */
static bool miss_home(const char *home) {
  static atomic_bool warned;
  if (cvy_log_is_attempt() || atomic_exchange(&warned, true)) return false;
  cvy_log_warning(
      "HOME=%s is not a folder: compiled kernels, tuned choices and decoded pictures are not stored; set "
      "XDG_CACHE_HOME to a folder for them",
      home);
  return false;
}

bool cvy_user_cache_base(char *out, size_t out_bytes) {
  const char *const xdg = cvy_env_text(CVY_ENV_XDG_CACHE_HOME), *const home = cvy_env_text(CVY_ENV_HOME);
  struct stat info;
  int n;
  if (xdg && xdg[0] == '/') {
    n = snprintf(out, out_bytes, "%s", xdg); /* the standard says to ignore relative paths */
  } else if (home && home[0] == '/') {
    if (stat(home, &info) != 0 || !S_ISDIR(info.st_mode)) return miss_home(home);
    n = snprintf(out, out_bytes, "%s/.cache", home);
  } else {
    return false;
  }
  return n > 0 && (size_t)n < out_bytes;
}

/* Adds "/name" to the path. */
static bool go_below(char *path, size_t bytes, const char *name) {
  const size_t n = strlen(path);
  const int more = snprintf(path + n, bytes - n, "/%s", name);
  return more > 0 && (size_t)more < bytes - n;
}

bool cvy_user_cache_dir(const char *below, char *out, size_t out_bytes) {
  if (!cvy_user_cache_base(out, out_bytes) || !go_below(out, out_bytes, "convoy")) return false;
  cvy_user_cache_make_dirs(out);
  if (!folder_is_trusted(out)) return false;
  if (!below) return true;
  if (!go_below(out, out_bytes, below)) return false;
  (void)mkdir(out, 0700);
  return folder_is_trusted(out);
}

int cvy_user_cache_open(const char *path, size_t *size) {
  struct stat info;
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  *size = 0;
  if (fd < 0) {
    if (errno == ELOOP && lstat(path, &info) == 0) (void)file_is_trusted(path, &info);
    return -1;
  }
  if (fstat(fd, &info) == 0 && file_is_trusted(path, &info)) {
    *size = (size_t)info.st_size;
    return fd;
  }
  close(fd);
  return -1;
}

cvy_status cvy_user_cache_read(const char *path, size_t max_bytes, char **data, size_t *size) {
  *data = NULL;
  const int fd = cvy_user_cache_open(path, size);
  *size = 0;
  if (fd < 0) return CVY_OK;
  cvy_log_attempt_begin();
  const cvy_status status = cvy_file_read_open(fd, path, max_bytes, data, size);
  cvy_log_attempt_end(false);
  close(fd);
  return status;
}

cvy_status cvy_user_cache_write(const char *path, const cvy_piece *pieces, int n_pieces) {
  return cvy_file_write_mode(path, 0600, pieces, n_pieces);
}

bool cvy_user_cache_is_own(const char *folder) {
  struct stat info;
  return stat(folder, &info) == 0 && is_own(&info);
}
