/* SPDX-License-Identifier: MIT
 * Files: whole reads and writes, appending, and checks before any work begins. No function waits for the other end of a
 * pipe. Any thread. */
#ifndef CVY_BASE_FILE_H
#define CVY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/failure.h"

/* The kind of a file; symbolic links are followed. STREAM is a pipe, a terminal or another character
 * device. */
typedef enum cvy_file_kind {
  CVY_FILE_MISSING,
  CVY_FILE_REGULAR,
  CVY_FILE_FOLDER,
  CVY_FILE_STREAM,
  CVY_FILE_OTHER
} cvy_file_kind;
cvy_file_kind cvy_file_kind_of(const char *path);
bool cvy_file_exists(const char *path);
/* The absolute path of a file that exists or may be created: without "." and "..", symbolic links resolved, also one
 * whose target does not exist yet. Free with cvy_free. NULL with errno: out of memory, a loop of links, or the working
 * folder is deleted. In a folder that all users may write to (with the sticky bit, such as /tmp) links of other users
 * are not followed: EACCES. */
char *cvy_file_resolve(const char *path);
/* True if both names are, or would become, the same file, also through hard links, symbolic links and other names of
 * folders. */
bool cvy_file_same(const char *a, const char *b);

/* True if `path` is, or would become, a file of `folder` whose name begins with `prefix`. */
bool cvy_file_is_in(const char *path, const char *folder, const char *prefix);

/* ---- reading: regular files only ---- */

/* The caller closes *fd. CVY_E_IO with path and reason, also for a pipe, a device or a folder. */
cvy_status cvy_file_open(const char *path, int *fd);
/* Reads size_bytes at `offset`; how many it has read. Fewer: the file ends before (errno is 0), or errno says why. */
size_t cvy_file_read_at(int fd, size_t offset, size_t size_bytes, void *out);
/* Reads size_bytes at `offset`. CVY_E_IO also if the file is shorter. */
cvy_status cvy_file_read_part(int fd, const char *path, size_t offset, size_t size_bytes, void *out);
/* Reads a whole file of at most max_bytes. *data (cvy_free) has one NUL more than *size. CVY_E_IO, CVY_E_MEMORY. */
cvy_status cvy_file_read(const char *path, size_t max_bytes, char **data, size_t *size);
/* The same from a descriptor, which stays open. */
cvy_status cvy_file_read_open(int fd, const char *path, size_t max_bytes, char **data, size_t *size);

/* ---- writing ---- */

/* Syncs the bytes written to `fd`. NONE: not supported by the file system (EINVAL, ENOSYS, EOPNOTSUPP; some FUSE,
 * network and container mounts). errno unless DONE. */
typedef enum cvy_sync { CVY_SYNC_DONE, CVY_SYNC_NONE, CVY_SYNC_FAILED } cvy_sync;
cvy_sync cvy_file_sync(int fd);

typedef struct cvy_piece {
  const void *data;
  size_t size;
} cvy_piece;
/* Writes the pieces to a new temporary file (PATH.tmp.PID.XXXXXXXX), syncs it, renames it to `path`, and syncs the
 * folder. Readers see either the old or the new file, and after CVY_OK the new one survives a power cut, unless its
 * file system cannot sync (one warning per process). The new file gets permissions, owner and group of the replaced
 * one. CVY_E_IO: the temporary file is removed, unless a close or rename failed: then the complete file is kept, since
 * it may be the only copy, and the message names it. */
cvy_status cvy_file_write(const char *path, const cvy_piece *pieces, int n_pieces);
/* The same for a file that can be recreated, with these permissions (minus the umask): no failure leaves a file. */
cvy_status cvy_file_write_mode(const char *path, unsigned mode, const cvy_piece *pieces, int n_pieces);
/* The same for an output named by a user: the target of a symbolic link is replaced; pipes and devices are written
 * directly. */
cvy_status cvy_file_put(const char *path, const cvy_piece *pieces, int n_pieces);
/* Checks that cvy_file_put can write `path`, without leaving a file. False: *why is the reason (static or errno's
 * text). */
bool cvy_file_try(const char *path, const char **why);
/* True if `name` (without its folder) is a temporary name that cvy_file_write uses for `of`. */
bool cvy_file_is_aside(const char *name, const char *of);

/* Opens a file for appending: output that grows during a run. Creates it if missing (*made), and never truncates it. A
 * pipe must have a reader. -1 with the reason, as cvy_file_try. */
int cvy_file_append(const char *path, bool *made, const char **why);

/* ---- folders ---- */

/* Like mkdir -p; syncs the folders above new ones. *n_made (may be NULL): number of created folders. CVY_E_IO. */
cvy_status cvy_make_dirs(const char *path, int *n_made);
/* Removes the last n_made folders of `path` that are empty. */
void cvy_remove_dirs(const char *path, int n_made);

/* ---- locks ---- */

/* Locks an existing file or folder for this process, until the last release or the end of the process (flock).
 * Recursive within a process. CVY_E_ARGUMENT: another process has the lock; the message names `what`, the path and its
 * PID. A file system without locks: one warning, and CVY_OK. CVY_E_IO, CVY_E_MEMORY. */
typedef struct cvy_file_lock cvy_file_lock;
cvy_status cvy_file_lock_take(const char *what, const char *path, cvy_file_lock **out);
void cvy_file_lock_release(cvy_file_lock **lock); /* NULL is fine */

#endif
