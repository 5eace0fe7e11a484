/* SPDX-License-Identifier: MIT
 * The user's cache folder: compiled kernels, tuned choices and decoded pictures. Devices run code from it, so a file
 * that other users (except root) may have written counts as missing, with one warning per process. Any
 * thread. */
#ifndef CVY_BASE_USER_CACHE_H
#define CVY_BASE_USER_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/file.h"

/* $XDG_CACHE_HOME, or $HOME/.cache. False: neither variable is set, or the home does not exist (it is not created,
 * since system users and containers have such homes; one warning per process). */
bool cvy_user_cache_base(char *out, size_t out_bytes);
/* $XDG_CACHE_HOME/convoy or $HOME/.cache/convoy, or the folder `below` in it (may be NULL), created if missing, only
 * for the user (0700). False if it cannot be created. */
bool cvy_user_cache_dir(const char *below, char *out, size_t out_bytes);
/* Reads a file of the cache: a regular file of this user or root that no other user may write, and not a link. CVY_OK
 * with *data NULL: missing. CVY_E_IO, CVY_E_MEMORY without an error message. */
cvy_status cvy_user_cache_read(const char *path, size_t max_bytes, char **data, size_t *size);
/* Opens such a file for reading; *size: its bytes. -1: missing. */
int cvy_user_cache_open(const char *path, size_t *size);
/* As cvy_file_write, only for the user (0600). */
cvy_status cvy_user_cache_write(const char *path, const cvy_piece *pieces, int n_pieces);
/* mkdir -p only for the user (0700), without messages: a missing cache is not a failure. Writes to `path` and restores
 * it. */
void cvy_user_cache_make_dirs(char *path);
/* True if the folder of another program's cache belongs to this user or root. */
bool cvy_user_cache_is_own(const char *folder);

#endif
