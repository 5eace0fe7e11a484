/* SPDX-License-Identifier: MIT */
#include "src/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"

/* Room for `more` bytes and a NUL. */
static bool reserve(cvy_text *text, size_t more) {
  if (text->failed) return false;
  if (more > SIZE_MAX / 2 - text->size - 1) return !(text->failed = true);
  const size_t need = text->size + more + 1;
  if (need <= text->capacity) return true;
  const size_t capacity = need > 2 * text->capacity ? need + 64 : 2 * text->capacity;
  char *const data = cvy_realloc(text->data, text->data ? text->size + 1 : 0, capacity, 1);
  if (!data) return !(text->failed = true);
  text->data = data;
  text->capacity = capacity;
  return true;
}

void cvy_text_add(cvy_text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char small[512];
  va_list again;
  va_copy(again, args);
  const int n = vsnprintf(small, sizeof small, format, args);
  if (n >= 0 && (size_t)n < sizeof small) {
    cvy_text_add_bytes(text, small, (size_t)n);
  } else if (n < 0) {
    text->failed = true;
  } else if (reserve(text, (size_t)n)) {
    vsnprintf(text->data + text->size, (size_t)n + 1, format, again);
    text->size += (size_t)n;
  }
  va_end(again);
  va_end(args);
}

void cvy_text_add_bytes(cvy_text *text, const void *bytes, size_t size) {
  if (!reserve(text, size)) return;
  if (size) memcpy(text->data + text->size, bytes, size);
  text->size += size;
  text->data[text->size] = 0;
}

const char *cvy_text_get(const cvy_text *text) { return text->data ? text->data : ""; }

void cvy_text_clear(cvy_text *text) {
  cvy_free(text->data);
  *text = (cvy_text){0};
}

/* Bytes of the character at `s`, 0 if it is none (overlong forms and surrogates are none). */
static size_t utf8_bytes(const unsigned char *s) {
  const size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  const bool none = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
                    (s[0] == 0xf4 && s[1] > 0x8f);
  return none ? 0 : n;
}

void cvy_utf8_copy(const char *text, char *out, size_t out_bytes) {
  size_t used = 0;
  while (*text) {
    const size_t n = utf8_bytes((const unsigned char *)text), more = n ? n : 1;
    if (used + more >= out_bytes) break;
    if (n) memcpy(out + used, text, n);
    else out[used] = '?';
    text += more;
    used += more;
  }
  out[used] = 0;
}

bool cvy_parse_int(const char *s, int64_t min, int64_t max, int64_t *out) {
  const char *const digits = s + (*s == '-');
  if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return false;
  errno = 0;
  const long long value = strtoll(s, NULL, 10);
  if (errno != 0 || value < min || value > max) return false;
  *out = value;
  return true;
}

static locale_t c_locale;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

bool cvy_parse_float(const char *s, double min, double max, double *out) {
  /* no hexadecimal, no "inf", no "nan", no blanks; a point whatever the locale */
  if (!*s || strspn(s, "0123456789+-.eE") != strlen(s)) return false;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_c_locale);
  char *end;
  const double value = c_locale ? strtod_l(s, &end, c_locale) : strtod(s, &end);
  if (*end || !isfinite(value) || !(value >= min && value <= max)) return false;
  *out = value;
  return true;
}

cvy_status cvy_file_read(const char *path, size_t max_bytes, char **data, size_t *size) {
  cvy_status status = CVY_OK;
  char *content = NULL;
  size_t n = 0, capacity = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  CVY_REQUIRE(fd >= 0, CVY_E_IO, "cannot open %s: %s", path, strerror(errno));
  struct stat info;
  CVY_REQUIRE(fstat(fd, &info) == 0, CVY_E_IO, "cannot look at %s: %s", path, strerror(errno));
  CVY_REQUIRE(!S_ISDIR(info.st_mode), CVY_E_IO, "cannot read %s: it is a folder", path);
  CVY_REQUIRE(S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode), CVY_E_IO, "cannot read %s: it is a device, not a file",
              path);
  capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 4096; /* so that the end is seen without growing */
  CVY_REQUIRE(!S_ISREG(info.st_mode) || (size_t)info.st_size <= max_bytes, CVY_E_IO,
              "%s has %lld bytes, at most %zu are accepted here", path, (long long)info.st_size, max_bytes);
  content = cvy_calloc(capacity + 1, 1);
  CVY_REQUIRE(content, CVY_E_MEMORY, "no memory for the %zu bytes of %s", capacity, path);
  /* The size is a hint: pipes have none, and a file may grow meanwhile. */
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
    CVY_REQUIRE(n <= max_bytes, CVY_E_IO, "%s has more than the %zu bytes that are accepted here", path, max_bytes);
  }
  content[n] = 0;
  *data = content;
  *size = n;
  content = NULL;
fail:
  cvy_free(content);
  if (fd >= 0) close(fd);
  return status;
}

bool cvy_file_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

/* The folder of `path` in `out`. */
static bool folder_of(const char *path, char *out, size_t out_bytes) {
  const char *const slash = strrchr(path, '/');
  const size_t n = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
  if (n >= out_bytes) return false;
  memcpy(out, slash ? path : ".", n);
  out[n] = 0;
  return true;
}

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

cvy_status cvy_file_write(const char *path, const cvy_piece *pieces, int n_pieces) {
  static atomic_uint counter;
  cvy_status status = CVY_OK;
  char aside[PATH_MAX], folder[PATH_MAX];
  int fd = -1, folder_fd = -1;
  bool made = false;
  const int n = snprintf(aside, sizeof aside, "%s.tmp.%ld.%u", path, (long)getpid(), atomic_fetch_add(&counter, 1u));
  CVY_REQUIRE(n > 0 && (size_t)n < sizeof aside && folder_of(path, folder, sizeof folder), CVY_E_IO,
              "cannot write '%.200s…': the path is longer than %d bytes", path, PATH_MAX - 32);
  fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  CVY_REQUIRE(fd >= 0, CVY_E_IO, "cannot create %s: %s", aside, strerror(errno));
  made = true;
  for (int i = 0; i < n_pieces; i++)
    CVY_REQUIRE(write_all(fd, pieces[i].data, pieces[i].size), CVY_E_IO, "cannot write %s: %s", aside, strerror(errno));
  CVY_REQUIRE(fsync(fd) == 0, CVY_E_IO, "cannot write %s to the disk: %s", aside, strerror(errno));
  const int closed = close(fd);
  fd = -1;
  CVY_REQUIRE(closed == 0, CVY_E_IO, "cannot close %s: %s", aside, strerror(errno));
  CVY_REQUIRE(rename(aside, path) == 0, CVY_E_IO, "cannot rename %s to %s: %s", aside, path, strerror(errno));
  made = false;
  /* The new name reaches the disk with its folder. Some file systems refuse to sync folders: the content is safe by
   * then. */
  folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd >= 0 && fsync(folder_fd) != 0) cvy_log_debug("cannot sync the folder %s: %s", folder, strerror(errno));
fail:
  if (folder_fd >= 0) close(folder_fd);
  if (fd >= 0) close(fd);
  if (made) unlink(aside);
  return status;
}

cvy_status cvy_make_dirs(const char *path) {
  cvy_status status = CVY_OK;
  char part[PATH_MAX];
  const size_t n = strlen(path);
  CVY_REQUIRE(n > 0 && n < sizeof part, CVY_E_IO,
              "cannot make the folder '%.200s': its path has %zu bytes, 1 to %d are possible", path, n, PATH_MAX - 1);
  memcpy(part, path, n + 1);
  for (size_t i = 1; i <= n; i++) {
    if (part[i] != '/' && part[i] != 0) continue;
    const char saved = part[i];
    part[i] = 0;
    if (mkdir(part, 0777) != 0) {
      const int error = errno;
      struct stat info;
      CVY_REQUIRE(stat(part, &info) == 0, CVY_E_IO, "cannot make the folder %s: %s", part, strerror(error));
      CVY_REQUIRE(S_ISDIR(info.st_mode), CVY_E_IO, "cannot make the folder %s: %s is a file", path, part);
    }
    part[i] = saved;
  }
fail:
  return status;
}

/* mkdir -p without messages: no cache is no failure. */
static bool make_dirs_quietly(char *path) {
  for (char *c = path + 1;; c++) {
    if (*c != '/' && *c != 0) continue;
    const char saved = *c;
    *c = 0;
    const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
    *c = saved;
    if (!made) return false;
    if (!saved) break;
  }
  return access(path, W_OK | X_OK) == 0;
}

bool cvy_cache_dir(char *out, size_t out_bytes) {
  const char *const xdg = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
  int n;
  if (xdg && xdg[0] == '/')
    n = snprintf(out, out_bytes, "%s/convoy", xdg); /* relative ones are to be ignored, says the standard */
  else if (home && home[0] == '/') n = snprintf(out, out_bytes, "%s/.cache/convoy", home);
  else return false;
  return n > 0 && (size_t)n < out_bytes && make_dirs_quietly(out);
}
