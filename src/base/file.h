/* SPDX-License-Identifier: MIT
 * Files as a run uses them: whole reads and writes, appending, and checks before any work begins. Nothing here waits
 * for the other end of a pipe. Any thread. */
#ifndef CVY_BASE_FILE_H
#define CVY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/failure.h"

/* The kind of file that a name leads to; symbolic links are followed. STREAM is a pipe, a terminal or another character
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
/* Where a file of this name lies or would lie: symbolic links followed, also one whose target is not there yet, no "."
 * or "..". cvy_free. NULL with errno: out of memory, a loop of links, or the working folder is gone. In a folder that
 * all may write to (with the sticky bit, as /tmp) links of other users are not followed: EACCES. */
char *cvy_file_resolve(const char *path);
/* Both names are, or would become, one file: hard links, symbolic links and folders' other names are seen. */
bool cvy_file_same(const char *a, const char *b);

/* `path` is or would be a file of `folder` whose name begins with `prefix`. */
bool cvy_file_is_in(const char *path, const char *folder, const char *prefix);

/* ---- reading: plain files only ---- */

/* *fd: to be closed by the caller. CVY_E_IO with path and reason: also a pipe, a device, a folder. */
cvy_status cvy_file_open(const char *path, int *fd);
/* Reads size_bytes at `offset`. CVY_E_IO: also if the file ends before. */
cvy_status cvy_file_read_part(int fd, const char *path, size_t offset, size_t size_bytes, void *out);
/* Reads a whole file of at most max_bytes. *data (cvy_free) has one NUL more than *size. CVY_E_IO, CVY_E_MEMORY. */
cvy_status cvy_file_read(const char *path, size_t max_bytes, char **data, size_t *size);
/* The same from a descriptor, which stays open. */
cvy_status cvy_file_read_open(int fd, const char *path, size_t max_bytes, char **data, size_t *size);

/* ---- writing ---- */

/* Brings the bytes written to `fd` to the disk. NONE: the file system has no such call (EINVAL, ENOSYS, EOPNOTSUPP;
 * some kinds of FUSE, of network and of container mounts). errno unless DONE. */
typedef enum cvy_sync { CVY_SYNC_DONE, CVY_SYNC_NONE, CVY_SYNC_FAILED } cvy_sync;
cvy_sync cvy_file_sync(int fd);

typedef struct cvy_piece {
  const void *data;
  size_t size;
} cvy_piece;
/* Writes the pieces one after the other aside (PATH.tmp.PID.XXXXXXXX, made anew, through no link), syncs, renames over
 * `path`, syncs the folder: readers see the old or the new file whole, and after CVY_OK the new one survives a power
 * cut, unless its file system cannot sync, which is warned of once per process. A file that is replaced leaves its
 * permissions, owner and group to the new one. CVY_E_IO: nothing is left behind, but where a close or rename fails the
 * whole file aside stays, and the message names it: it may be the only copy. */
cvy_status cvy_file_write(const char *path, const cvy_piece *pieces, int n_pieces);
/* The same for a file that can be made again, with these permissions (less the umask): no failure leaves anything. */
cvy_status cvy_file_write_mode(const char *path, unsigned mode, const cvy_piece *pieces, int n_pieces);
/* The same where a user names the output: a symbolic link stays one and its target is replaced; pipes and devices are
 * written directly. */
cvy_status cvy_file_put(const char *path, const cvy_piece *pieces, int n_pieces);
/* Checks that cvy_file_put could write `path`, and leaves nothing behind. False: *why is the reason (static or errno's
 * text). */
bool cvy_file_try(const char *path, const char **why);
/* True if `name` (without its folder) is a temporary name that cvy_file_write uses for `of`. */
bool cvy_file_is_aside(const char *name, const char *of);

/* Opens a file for appending: output that grows during a run. Makes it if missing (*made), and never truncates it. A
 * pipe must have a reader. -1 with the reason, as cvy_file_try. */
int cvy_file_append(const char *path, bool *made, const char **why);

/* ---- folders ---- */

/* Like mkdir -p; syncs the folders above new ones. *n_made (may be NULL): how many folders it made. CVY_E_IO. */
cvy_status cvy_make_dirs(const char *path, int *n_made);
/* Removes the last n_made folders of `path`, as far as they are empty. */
void cvy_remove_dirs(const char *path, int n_made);

/* ---- locks ---- */

/* One process at a time for a file or folder that is there, until the last release or the end of the process (flock).
 * The process that has it may take it again. CVY_E_ARGUMENT: another one has it; the message names `what`, the path and
 * its PID. A file system without locks: one warning, and CVY_OK. CVY_E_IO, CVY_E_MEMORY. */
typedef struct cvy_file_lock cvy_file_lock;
cvy_status cvy_file_lock_take(const char *what, const char *path, cvy_file_lock **out);
void cvy_file_lock_release(cvy_file_lock **lock); /* NULL is fine */

#endif
