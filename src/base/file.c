/* SPDX-License-Identifier: MIT */
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/mem.h"

enum { ASIDE_TRIES = 100, MOST_LINKS = 40, READER_TRIES = 30 };

static cvy_file_kind kind_of_mode(mode_t mode) {
  return S_ISREG(mode)                     ? CVY_FILE_REGULAR
         : S_ISDIR(mode)                   ? CVY_FILE_FOLDER
         : S_ISFIFO(mode) || S_ISCHR(mode) ? CVY_FILE_STREAM
                                           : CVY_FILE_OTHER;
}

cvy_file_kind cvy_file_kind_of(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 ? kind_of_mode(info.st_mode) : CVY_FILE_MISSING;
}

bool cvy_file_exists(const char *path) { return cvy_file_kind_of(path) != CVY_FILE_MISSING; }

/* The folder of `path` in `out`. */
static bool folder_of(const char *path, char *out, size_t out_bytes) {
  const char *const slash = strrchr(path, '/');
  const size_t n = !slash || slash == path ? 1 : (size_t)(slash - path);
  if (n >= out_bytes) return false;
  memcpy(out, slash ? path : ".", n);
  out[n] = 0;
  return true;
}

/* ---- names ---- */

/* A link that another user created in a folder like /tmp may lead anywhere. The system does not follow it when a file
 * is opened (fs.protected_symlinks), and neither does cvy_file_resolve, which resolves links in order to write beside
 * the target. */
static bool link_is_foreign(const char *link) {
  char folder[PATH_MAX];
  struct stat of_link, of_folder;
  if (lstat(link, &of_link) != 0 || !folder_of(link, folder, sizeof folder) || stat(folder, &of_folder) != 0)
    return true;
  const bool shared = (of_folder.st_mode & S_ISVTX) && (of_folder.st_mode & S_IWOTH);
  return shared && of_link.st_uid != geteuid() && of_link.st_uid != of_folder.st_uid;
}

char *cvy_file_resolve(const char *path) {
  char name[PATH_MAX], target[PATH_MAX], folder[PATH_MAX], real[PATH_MAX];
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  if (length == 0 || length >= sizeof name) {
    errno = length ? ENAMETOOLONG : ENOENT;
    return NULL;
  }
  memcpy(name, path, length);
  name[length] = 0;
  for (int links = 0;; links++) { /* the last part of the name as long as it is a link */
    const ssize_t n = readlink(name, target, sizeof target - 1);
    if (n < 0) break;
    target[n] = 0;
    if (links == MOST_LINKS || link_is_foreign(name)) {
      errno = links == MOST_LINKS ? ELOOP : EACCES;
      return NULL;
    }
    const char *const slash = target[0] == '/' ? NULL : strrchr(name, '/');
    const size_t kept = slash ? (size_t)(slash - name) + 1 : 0;
    if (kept + (size_t)n >= sizeof name) {
      errno = ENAMETOOLONG;
      return NULL;
    }
    memcpy(name + kept, target, (size_t)n + 1);
    for (length = strlen(name); length > 1 && name[length - 1] == '/'; length--) name[length - 1] = 0;
  }
  if (realpath(name, real)) return cvy_strdup(real);
  if (errno != ENOENT && errno != EACCES) return NULL;
  /* A file that does not exist yet: its folder may not exist either. */
  const char *const slash = strrchr(name, '/'), *const last = slash ? slash + 1 : name;
  if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) return NULL; /* also a deleted working folder */
  if (!folder_of(name, folder, sizeof folder)) return NULL;
  char *const above = cvy_file_resolve(folder), *out = NULL;
  if (!above) return NULL;
  const size_t n_above = strcmp(above, "/") == 0 ? 0 : strlen(above);
  out = cvy_calloc(n_above + strlen(last) + 2, 1);
  if (out) sprintf(out, "%.*s/%s", (int)n_above, above, last);
  cvy_free(above);
  return out;
}

bool cvy_file_same(const char *a, const char *b) {
  struct stat info_a, info_b;
  if (stat(a, &info_a) == 0 && stat(b, &info_b) == 0)
    return info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
  char *const real_a = cvy_file_resolve(a), *const real_b = cvy_file_resolve(b);
  const bool same = real_a && real_b && strcmp(real_a, real_b) == 0;
  cvy_free(real_a);
  cvy_free(real_b);
  return same;
}

bool cvy_file_is_in(const char *path, const char *folder, const char *prefix) {
  char *const real = cvy_file_resolve(path), *const of = cvy_file_resolve(folder);
  const size_t n = of ? strlen(of) : 0;
  const bool is =
      real && of && strncmp(real, of, n) == 0 && real[n] == '/' && strncmp(real + n + 1, prefix, strlen(prefix)) == 0;
  cvy_free(real);
  cvy_free(of);
  return is;
}

/* ---- reading ---- */

cvy_status cvy_file_open(const char *path, int *fd) {
  cvy_status status = CVY_OK;
  struct stat info;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* without O_NONBLOCK a pipe waits for a writer */
  CVY_REQUIRE(*fd >= 0, CVY_E_IO, "cannot open %s: %s", path, strerror(errno));
  CVY_REQUIRE(fstat(*fd, &info) == 0, CVY_E_IO, "cannot look at %s: %s", path, strerror(errno));
  CVY_REQUIRE(S_ISREG(info.st_mode), CVY_E_IO, "cannot read %s: a %s, not a regular file", path,
              S_ISDIR(info.st_mode)    ? "folder"
              : S_ISFIFO(info.st_mode) ? "pipe"
                                       : "device");
  return CVY_OK;
fail:
  if (*fd >= 0) close(*fd);
  *fd = -1;
  return status;
}

size_t cvy_file_read_at(int fd, size_t offset, size_t size_bytes, void *out) {
  size_t n = 0;
  ssize_t got = 1;
  while (n < size_bytes && got > 0) {
    const size_t rest = size_bytes - n;
    errno = 0;
    do got = pread(fd, (char *)out + n, rest < INT_MAX ? rest : INT_MAX, (off_t)(offset + n));
    while (got < 0 && errno == EINTR);
    if (got > 0) n += (size_t)got;
  }
  return n;
}

cvy_status cvy_file_read_part(int fd, const char *path, size_t offset, size_t size_bytes, void *out) {
  cvy_status status = CVY_OK;
  const size_t n = cvy_file_read_at(fd, offset, size_bytes, out);
  CVY_REQUIRE(n == size_bytes || errno == 0, CVY_E_IO, "cannot read %s: %s", path, strerror(errno));
  CVY_REQUIRE(n == size_bytes, CVY_E_IO,
              "cannot read %s: it ends at byte %zu, %zu bytes earlier than when it was opened", path, offset + n,
              size_bytes - n);
fail:
  return status;
}

cvy_status cvy_file_read(const char *path, size_t max_bytes, char **data, size_t *size) {
  cvy_status status = CVY_OK;
  int fd;
  CVY_TRY(cvy_file_open(path, &fd));
  status = cvy_file_read_open(fd, path, max_bytes, data, size);
  close(fd);
fail:
  return status;
}

cvy_status cvy_file_read_open(int fd, const char *path, size_t max_bytes, char **data, size_t *size) {
  cvy_status status = CVY_OK;
  char *content = NULL;
  size_t n = 0, capacity = 0;
  struct stat info;
  CVY_REQUIRE(fstat(fd, &info) == 0, CVY_E_IO, "cannot look at %s: %s", path, strerror(errno));
  CVY_REQUIRE((size_t)info.st_size <= max_bytes, CVY_E_IO, "%s has %lld bytes; expected at most %zu", path,
              (long long)info.st_size, max_bytes);
  capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 4096; /* one more, to see the end without growing */
  content = cvy_calloc(capacity + 1, 1);
  CVY_REQUIRE(content, CVY_E_MEMORY, "no memory for the %zu bytes of %s", capacity, path);
  /* The size is a hint: files of /proc have none, and a file may grow meanwhile. */
  for (;;) {
    if (n == capacity) {
      char *const grown = cvy_realloc(content, n + 1, 2 * capacity + 1, 1);
      CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory for %zu bytes of %s", 2 * capacity, path);
      content = grown;
      capacity *= 2;
    }
    const ssize_t got = read(fd, content + n, capacity - n);
    if (got < 0 && errno == EINTR) continue;
    CVY_REQUIRE(got >= 0, CVY_E_IO, "cannot read %s: %s", path, strerror(errno));
    if (got == 0) break;
    n += (size_t)got;
    CVY_REQUIRE(n <= max_bytes, CVY_E_IO, "%s has too many bytes; expected at most %zu", path, max_bytes);
  }
  content[n] = 0;
  *data = content;
  *size = n;
  content = NULL;
fail:
  cvy_free(content);
  return status;
}

/* ---- writing ---- */

static bool write_all(int fd, const char *data, size_t size) {
  while (size > 0) {
    const ssize_t put = write(fd, data, size < INT_MAX ? size : INT_MAX);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    data += put;
    size -= (size_t)put;
  }
  return true;
}

static bool write_pieces(int fd, const cvy_piece *pieces, int n_pieces) {
  for (int i = 0; i < n_pieces; i++)
    if (!write_all(fd, pieces[i].data, pieces[i].size)) return false;
  return true;
}

cvy_sync cvy_file_sync(int fd) {
  if (fsync(fd) == 0) return CVY_SYNC_DONE;
  return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP ? CVY_SYNC_NONE : CVY_SYNC_FAILED;
}

static void say_no_sync(const char *path) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if (cvy_log_is_attempt() || atomic_flag_test_and_set(&warned))
    return; /* a warning inside an attempt would be
                                                                          * hidden */
  cvy_log_warning(
      "the file system of %s cannot sync files (%s): a power cut may damage the files written last (reported once)",
      path, strerror(errno));
}

/* Syncs the folder, which stores the file's name. A file system without this call, or a folder without permission to
 * read, is not a failure; a disk error is. */
static bool sync_folder(const char *folder) {
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool failed = fd >= 0 && fsync(fd) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT);
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return !failed;
}

/* Length of a name's part before ".tmp.PID.XXXXXXXX": all of it, or as many bytes as fit. */
static size_t kept_of_name(const char *name) {
  enum { ROOM = sizeof ".tmp.4194304000.00000000" - 1 };
  size_t n = strlen(name);
  if (n <= NAME_MAX - ROOM) return n;
  n = NAME_MAX - ROOM;
  while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80) n--; /* a whole character of UTF-8 */
  return n;
}

/* Creates the temporary file that is renamed to `path`. Its name has random bits, since process numbers repeat (in a
 * container every run may be process 1) and a killed run may have left a file. -1: errno. */
static int make_aside(const char *path, mode_t mode, char aside[PATH_MAX]) {
  const char *const slash = strrchr(path, '/'), *const name = slash ? slash + 1 : path;
  const size_t kept = (size_t)(name - path) + kept_of_name(name);
  if (strlen(name) > NAME_MAX) { /* a rename to this name would fail */
    errno = ENAMETOOLONG;
    return -1;
  }
  for (int i = 0; i < ASIDE_TRIES; i++) {
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) bits = (uint32_t)cvy_clock_ns();
    const int n = snprintf(aside, PATH_MAX, "%.*s.tmp.%ld.%08x", (int)kept, path, (long)getpid(), (unsigned)bits);
    if (n < 0 || n >= PATH_MAX) {
      errno = ENAMETOOLONG;
      return -1;
    }
    const int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

bool cvy_file_is_aside(const char *name, const char *of) {
  static const char middle[] = ".tmp.";
  const size_t n = kept_of_name(of);
  if (strncmp(name, of, n) != 0 || strncmp(name + n, middle, sizeof middle - 1) != 0) return false;
  const char *const pid = name + n + sizeof middle - 1, *const dot = pid + strspn(pid, "0123456789");
  return dot != pid && *dot == '.' && dot[1] && strspn(dot + 1, "0123456789abcdef") == strlen(dot + 1);
}

/* Copies owner, group and permissions from the replaced file; a group that this user may not set gets no permissions.
 * False: errno. */
static bool take_mode(int fd, const char *path) {
  struct stat old, new;
  if (lstat(path, &old) != 0 || !S_ISREG(old.st_mode) || fstat(fd, &new) != 0) return true;
  if (new.st_uid != old.st_uid) (void)!fchown(fd, old.st_uid, (gid_t)-1);
  const bool same_group = new.st_gid == old.st_gid || fchown(fd, (uid_t)-1, old.st_gid) == 0;
  return fchmod(fd, old.st_mode & (same_group ? 0777 : 0707)) == 0 || errno == EPERM || errno == EOPNOTSUPP;
}

/* keep: the complete temporary file is kept if it cannot be closed or renamed. */
static cvy_status write_aside(const char *path, unsigned mode, bool keep, const cvy_piece *pieces, int n_pieces) {
  cvy_status status = CVY_OK;
  char aside[PATH_MAX] = "", folder[PATH_MAX];
  bool made = false;
  int fd = -1;
  CVY_REQUIRE(folder_of(path, folder, sizeof folder), CVY_E_IO, "cannot write '%.200s…': %s", path,
              strerror(ENAMETOOLONG));
  fd = make_aside(path, mode, aside);
  CVY_REQUIRE(fd >= 0 || errno != ENAMETOOLONG, CVY_E_IO, "cannot write '%.200s…': %s", path, strerror(errno));
  CVY_REQUIRE(fd >= 0, CVY_E_IO, "cannot write %s: %s", path, strerror(errno));
  made = true;
  CVY_REQUIRE(!keep || take_mode(fd, path), CVY_E_IO, "cannot write %s with its permissions: %s", path,
              strerror(errno));
  CVY_REQUIRE(write_pieces(fd, pieces, n_pieces), CVY_E_IO, "cannot write %s: %s", path, strerror(errno));
  const cvy_sync sync = cvy_file_sync(fd);
  CVY_REQUIRE(sync != CVY_SYNC_FAILED, CVY_E_IO, "cannot write %s to the disk: %s", path, strerror(errno));
  if (sync == CVY_SYNC_NONE) say_no_sync(path);
  made = !keep; /* the file is complete and may be the only copy */
  const int closed = close(fd);
  fd = -1;
  CVY_REQUIRE(closed == 0, CVY_E_IO, "cannot close %s: %s%s", aside, strerror(errno), keep ? "; it is kept" : "");
  CVY_REQUIRE(rename(aside, path) == 0, CVY_E_IO, "cannot rename %s to %s: %s%s", aside, path, strerror(errno),
              keep ? "; the former is complete and is kept" : "");
  made = false;
  CVY_REQUIRE(sync_folder(folder), CVY_E_IO, "cannot write the folder of %s to the disk: %s", path, strerror(errno));
fail:
  if (fd >= 0) close(fd);
  if (made) unlink(aside);
  return status;
}

cvy_status cvy_file_write(const char *path, const cvy_piece *pieces, int n_pieces) {
  return write_aside(path, 0666, true, pieces, n_pieces);
}

cvy_status cvy_file_write_mode(const char *path, unsigned mode, const cvy_piece *pieces, int n_pieces) {
  return write_aside(path, mode, false, pieces, n_pieces);
}

static const char folder_name[] = "it is a folder or ends in '/'; expected a file name";
/* open returns ENXIO for a pipe without a reader. */
static const char *reason(int error) {
  return error == ENXIO    ? "it is a pipe without a reader, or a missing device"
         : error == EISDIR ? folder_name
                           : strerror(error);
}

/* Opens a pipe or device for writing without waiting for its other end; writes may wait then. */
static int open_stream(const char *path, int flags) {
  int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0666);
  for (int i = 0; fd < 0 && errno == ENXIO && i < READER_TRIES; i++) { /* the reader may be starting */
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0666);
  }
  struct stat info;
  if (fd >= 0 && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)) {
    const int now = fcntl(fd, F_GETFL);
    if (now >= 0) (void)fcntl(fd, F_SETFL, now & ~O_NONBLOCK);
  }
  return fd;
}

static cvy_status write_stream(const char *path, const cvy_piece *pieces, int n_pieces) {
  cvy_status status = CVY_OK;
  int fd = open_stream(path, 0);
  CVY_REQUIRE(fd >= 0, CVY_E_IO, "cannot write %s: %s", path, reason(errno));
  CVY_REQUIRE(write_pieces(fd, pieces, n_pieces), CVY_E_IO, "cannot write %s: %s", path, strerror(errno));
  const int closed = close(fd);
  fd = -1;
  CVY_REQUIRE(closed == 0, CVY_E_IO, "cannot write %s: %s", path, strerror(errno));
fail:
  if (fd >= 0) close(fd);
  return status;
}

cvy_status cvy_file_put(const char *path, const cvy_piece *pieces, int n_pieces) {
  cvy_status status = CVY_OK;
  char *real = NULL;
  const cvy_file_kind kind = cvy_file_kind_of(path);
  if (kind == CVY_FILE_STREAM) return write_stream(path, pieces, n_pieces);
  CVY_REQUIRE(kind != CVY_FILE_FOLDER, CVY_E_IO, "cannot write %s: %s", path, folder_name);
  real = cvy_file_resolve(path);
  CVY_REQUIRE(real, errno == ENOMEM ? CVY_E_MEMORY : CVY_E_IO, "cannot write %s: %s", path, strerror(errno));
  status = cvy_file_write(real, pieces, n_pieces);
fail:
  cvy_free(real);
  return status;
}

bool cvy_file_try(const char *path, const char **why) {
  const cvy_file_kind kind = cvy_file_kind_of(path);
  const size_t length = strlen(path);
  char aside[PATH_MAX];
  *why = NULL;
  if (kind == CVY_FILE_FOLDER || (length > 0 && path[length - 1] == '/')) *why = folder_name;
  else if (kind == CVY_FILE_OTHER) *why = "it is not a regular file";
  if (*why) return false;
  if (kind == CVY_FILE_STREAM) {
    const int fd = open_stream(path, 0);
    struct stat info;
    if (fd < 0) *why = reason(errno);
    else if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) close(fd);
    return fd >= 0; /* a pipe stays open until the process ends: for its reader a close is the end */
  }
  char *const real = cvy_file_resolve(path);
  const int fd = real && (kind == CVY_FILE_MISSING || access(path, W_OK) == 0) ? make_aside(real, 0666, aside) : -1;
  if (fd < 0) *why = strerror(errno);
  else {
    close(fd);
    unlink(aside);
  }
  cvy_free(real);
  return fd >= 0;
}

int cvy_file_append(const char *path, bool *made, const char **why) {
  const bool stream = cvy_file_kind_of(path) == CVY_FILE_STREAM;
  char *const real = stream ? cvy_strdup(path) : cvy_file_resolve(path);
  const size_t length = strlen(path);
  int fd = -1;
  *made = false;
  *why = length > 0 && path[length - 1] == '/' ? folder_name : NULL;
  if (real && !*why && !stream) fd = open_stream(real, O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW);
  *made = fd >= 0;
  if (real && !*why && !*made && (stream || errno == EEXIST))
    fd = open_stream(real, O_APPEND | (stream ? 0 : O_NOFOLLOW));
  if (fd < 0 && !*why) *why = reason(errno);
  cvy_free(real);
  return fd;
}

/* ---- folders ---- */

cvy_status cvy_make_dirs(const char *path, int *n_made) {
  cvy_status status = CVY_OK;
  char part[PATH_MAX], above[PATH_MAX];
  const size_t n = strlen(path);
  int made = 0;
  CVY_REQUIRE(n > 0 && n < sizeof part, CVY_E_IO,
              "cannot create the folder '%.200s': its path has %zu bytes; expected 1 to %d", path, n, PATH_MAX - 1);
  memcpy(part, path, n + 1);
  for (size_t i = 1; i <= n; i++) {
    if (part[i] != '/' && part[i] != 0) continue;
    if (part[i] == '/' && part[i - 1] == '/') continue;
    const char saved = part[i];
    part[i] = 0;
    if (mkdir(part, 0777) == 0) {
      made++;
      CVY_REQUIRE(folder_of(part, above, sizeof above) && sync_folder(above), CVY_E_IO,
                  "cannot write the folder of %s to the disk: %s", part, strerror(errno));
    } else {
      const int error = errno;
      struct stat info;
      CVY_REQUIRE(stat(part, &info) == 0, CVY_E_IO, "cannot create the folder %s: %s", part, strerror(error));
      CVY_REQUIRE(S_ISDIR(info.st_mode), CVY_E_IO, "cannot create the folder %s: %s is a file", path, part);
    }
    part[i] = saved;
  }
fail:
  if (status != CVY_OK && made) cvy_remove_dirs(part, made);
  if (n_made) *n_made = status == CVY_OK ? made : 0;
  return status;
}

void cvy_remove_dirs(const char *path, int n_made) {
  char part[PATH_MAX];
  if (strlen(path) >= sizeof part) return;
  strcpy(part, path);
  for (int i = 0; i < n_made; i++) {
    size_t n = strlen(part);
    while (n > 1 && part[n - 1] == '/') part[--n] = 0;
    if (rmdir(part) != 0) return;
    char *const slash = strrchr(part, '/');
    if (!slash || slash == part) return;
    *slash = 0;
  }
}
