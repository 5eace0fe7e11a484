/* SPDX-License-Identifier: MIT */
#include "src/data/idx.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "src/base/file.h"
#include "src/base/mem.h"

enum {
  CHUNK = 1 << 16,
  PIECE = 1 << 24,
  MAX_RATIO = 1032, /* deflate packs at most so many bytes into one */
  TYPE_UBYTE = 8,
  TYPE_SHORT = 0x0b
};

/* A stream of bytes out of a plain or compressed file. */
typedef struct source {
  char *path;
  int fd;
  uint64_t file_bytes, read_bytes; /* size of the file, and how much of it has been read */
  bool gzip, inflating, ended;     /* inflating: z is initialised; ended: the gzip data is complete */
  z_stream z;
  uint8_t in[CHUNK]; /* gzip only: bytes read from the file; z.next_in points to the first that is not inflated */
} source;

/* Up to `size` bytes of the file itself; less only at its end. */
static cvy_status read_raw(source *s, void *to, size_t size, size_t *got) {
  cvy_status status = CVY_OK;
  *got = 0;
  while (*got < size) {
    const size_t part = size - *got < INT_MAX ? size - *got : INT_MAX;
    const ssize_t n = read(s->fd, (char *)to + *got, part);
    if (n < 0 && errno == EINTR) continue;
    CVY_REQUIRE(n >= 0, CVY_E_IO, "cannot read %s: %s", s->path, strerror(errno));
    if (n == 0) break;
    *got += (size_t)n;
    s->read_bytes += (uint64_t)n;
  }
fail:
  return status;
}

static cvy_status refill(source *s) {
  cvy_status status = CVY_OK;
  size_t got;
  CVY_TRY(read_raw(s, s->in, CHUNK, &got));
  s->z.next_in = s->in;
  s->z.avail_in = (uInt)got;
fail:
  return status;
}

/* At the end of a gzip member: begins the next one, or notes the end of the file. Other bytes are an error. */
static cvy_status next_member(source *s) {
  cvy_status status = CVY_OK;
  if (s->z.avail_in < 2) { /* read on, behind the one byte that may be left */
    const uint8_t first = s->z.avail_in ? *s->z.next_in : 0;
    const size_t have = s->z.avail_in;
    size_t got;
    CVY_TRY(read_raw(s, s->in + have, CHUNK - have, &got));
    if (have) s->in[0] = first;
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)(have + got);
  }
  if (s->z.avail_in == 0) {
    s->ended = true;
    return CVY_OK;
  }
  CVY_REQUIRE(s->z.avail_in >= 2 && s->z.next_in[0] == 0x1f && s->z.next_in[1] == 0x8b, CVY_E_FORMAT,
              "%s: %llu bytes from offset %llu on, behind the end of the gzip data, are not gzip data", s->path,
              (unsigned long long)(s->file_bytes - (s->read_bytes - s->z.avail_in)),
              (unsigned long long)(s->read_bytes - s->z.avail_in));
  CVY_REQUIRE(inflateReset(&s->z) == Z_OK, CVY_E_MEMORY, "cannot inflate %s: %s", s->path,
              s->z.msg ? s->z.msg : "zlib failed");
fail:
  return status;
}

/* Up to `size` bytes of the content; less only at its end, whose checksum and length have then been checked. */
static cvy_status read_content(source *s, void *to, size_t size, size_t *got) {
  cvy_status status = CVY_OK;
  if (!s->gzip) return read_raw(s, to, size, got);
  *got = 0;
  while (*got < size && !s->ended) {
    if (s->z.avail_in == 0) CVY_TRY(refill(s));
    CVY_REQUIRE(s->z.avail_in > 0, CVY_E_FORMAT, "%s is cut off: the gzip data goes on behind its %llu bytes", s->path,
                (unsigned long long)s->file_bytes);
    const size_t part = size - *got < INT_MAX ? size - *got : INT_MAX;
    s->z.next_out = (uint8_t *)to + *got;
    s->z.avail_out = (uInt)part;
    const int code = inflate(&s->z, Z_NO_FLUSH);
    *got += part - s->z.avail_out;
    CVY_REQUIRE(code != Z_MEM_ERROR, CVY_E_MEMORY, "no memory to inflate %s", s->path);
    CVY_REQUIRE(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, CVY_E_FORMAT,
                "%s: the gzip data is broken near offset %llu: %s", s->path,
                (unsigned long long)(s->read_bytes - s->z.avail_in), s->z.msg ? s->z.msg : "zlib failed");
    if (code == Z_STREAM_END) CVY_TRY(next_member(s));
  }
fail:
  return status;
}

static cvy_status open_source(source *s, const char *path) {
  cvy_status status = CVY_OK;
  struct stat info;
  s->path = cvy_strdup(path);
  CVY_REQUIRE(s->path, CVY_E_MEMORY, "no memory to read %s", path);
  CVY_TRY(cvy_file_open(path, &s->fd));
  CVY_REQUIRE(fstat(s->fd, &info) == 0, CVY_E_IO, "cannot look at %s: %s", path, strerror(errno));
  s->file_bytes = (uint64_t)info.st_size;
  uint8_t magic[2];
  const ssize_t n = pread(s->fd, magic, 2, 0);
  CVY_REQUIRE(n >= 0, CVY_E_IO, "cannot read %s: %s", path, strerror(errno));
  s->gzip = n == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  if (s->gzip) {
    /* 15 + 16: window of 32 KiB, gzip's frame with its checksum and length and no other */
    CVY_REQUIRE(inflateInit2(&s->z, 15 + 16) == Z_OK, CVY_E_MEMORY, "no memory to inflate %s", path);
    s->inflating = true;
  } else {
    const size_t length = strlen(path);
    CVY_REQUIRE(length < 3 || strcmp(path + length - 3, ".gz") != 0, CVY_E_FORMAT,
                "%s is not a gzip file: it has %llu bytes and does not begin with 1f 8b", path,
                (unsigned long long)s->file_bytes);
  }
fail:
  return status;
}

static void close_source(source *s) {
  if (s->inflating) inflateEnd(&s->z);
  if (s->fd >= 0) close(s->fd);
  cvy_free(s->path);
}

/* Fills rank, dims, elem_bytes and size_bytes from the first bytes. *header_bytes: how many they are. */
static cvy_status read_header(source *s, int min_rank, int max_rank, cvy_idx *idx, size_t *header_bytes) {
  cvy_status status = CVY_OK;
  uint8_t head[4 + 4 * 4];
  size_t got;
  CVY_TRY(read_content(s, head, 4, &got));
  CVY_REQUIRE(got == 4, CVY_E_FORMAT, "%s has %zu bytes: too short for the magic number of an idx file", s->path, got);
  CVY_REQUIRE(head[0] == 0 && head[1] == 0 && (head[2] == TYPE_UBYTE || head[2] == TYPE_SHORT), CVY_E_FORMAT,
              "%s: the magic number at offset 0 is %02x%02x%02x%02x, an idx file begins with 000008 (bytes) or 00000b "
              "(16 bits)",
              s->path, head[0], head[1], head[2], head[3]);
  idx->elem_bytes = head[2] == TYPE_SHORT ? 2 : 1;
  CVY_REQUIRE(head[3] >= min_rank && head[3] <= max_rank, CVY_E_FORMAT,
              "%s: %d dimensions at offset 3; expected %d%s%.0d", s->path, head[3], min_rank,
              min_rank < max_rank ? " to " : "", min_rank < max_rank ? max_rank : 0);
  idx->rank = head[3];
  *header_bytes = 4 + 4 * (size_t)idx->rank;
  CVY_TRY(read_content(s, head + 4, *header_bytes - 4, &got));
  CVY_REQUIRE(got == *header_bytes - 4, CVY_E_FORMAT, "%s has %zu bytes: too short for its %d dimensions", s->path,
              4 + got, idx->rank);
  size_t size = (size_t)idx->elem_bytes;
  for (int i = 0; i < idx->rank; i++) {
    const uint8_t *const b = head + 4 + 4 * i;
    const uint32_t dim = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    CVY_REQUIRE(dim > 0, CVY_E_FORMAT, "%s: dimension %d at offset %d is 0: the set is empty", s->path, i, 4 + 4 * i);
    CVY_REQUIRE(dim <= INT_MAX, CVY_E_FORMAT, "%s: dimension %d at offset %d is %u, more than %d", s->path, i,
                4 + 4 * i, dim, INT_MAX);
    CVY_REQUIRE(cvy_mul_size(size, dim, &size), CVY_E_FORMAT, "%s: the product of its %d dimensions overflows", s->path,
                idx->rank);
    idx->dims[i] = (int)dim;
  }
  idx->size_bytes = size;
fail:
  return status;
}

/* "60000x28x28", and " of 2" behind it where elements have two bytes */
static const char *dims_text(const cvy_idx *idx, char out[64]) {
  int at = 0;
  for (int i = 0; i < idx->rank; i++) at += snprintf(out + at, 64 - (size_t)at, "%s%d", i ? "x" : "", idx->dims[i]);
  if (idx->elem_bytes > 1) snprintf(out + at, 64 - (size_t)at, " of %d", idx->elem_bytes);
  return out;
}

struct cvy_idx_reader {
  source s;
  size_t header_bytes;
};

cvy_status cvy_idx_open(const char *path, int min_rank, int max_rank, cvy_idx *out, cvy_idx_reader **reader) {
  cvy_status status = CVY_OK;
  char text[64];
  *out = (cvy_idx){0};
  *reader = NULL;
  cvy_idx_reader *opened = cvy_calloc(1, sizeof *opened);
  CVY_REQUIRE(opened, CVY_E_MEMORY, "no memory to read %s", path);
  source *const s = &opened->s;
  s->fd = -1;
  CVY_TRY(open_source(s, path));
  CVY_TRY(read_header(s, min_rank, max_rank, out, &opened->header_bytes));
  dims_text(out, text);
  if (s->gzip) /* refuse before taking memory for bytes that cannot come */
    CVY_REQUIRE(out->size_bytes / MAX_RATIO <= s->file_bytes, CVY_E_FORMAT,
                "%s: its header says %s = %zu bytes, more than %llu bytes of gzip data can hold", path, text,
                out->size_bytes, (unsigned long long)s->file_bytes);
  else
    CVY_REQUIRE(s->file_bytes - opened->header_bytes == out->size_bytes, CVY_E_FORMAT,
                "%s: its header says %s = %zu bytes from offset %zu on, the file has %llu there", path, text,
                out->size_bytes, opened->header_bytes, (unsigned long long)(s->file_bytes - opened->header_bytes));
  *reader = opened;
  opened = NULL;
fail:
  cvy_idx_close(&opened);
  if (status != CVY_OK) *out = (cvy_idx){0};
  return status;
}

cvy_status cvy_idx_finish(cvy_idx_reader *reader, const atomic_bool *stop, cvy_idx *idx) {
  cvy_status status = CVY_OK;
  source *const s = &reader->s;
  char text[64];
  size_t got = 0;
  dims_text(idx, text);
  idx->data = cvy_alloc_unset(idx->size_bytes, 1);
  CVY_REQUIRE(idx->data, CVY_E_MEMORY, "no memory for the %zu bytes of %s", idx->size_bytes, s->path);
  for (size_t at = 0; at < idx->size_bytes; at += got) {
    const size_t part = idx->size_bytes - at < PIECE ? idx->size_bytes - at : PIECE;
    if (stop && atomic_load(stop)) {
      status = CVY_E_INTERRUPTED;
      goto fail;
    }
    CVY_TRY(read_content(s, idx->data + at, part, &got));
    CVY_REQUIRE(got == part, CVY_E_FORMAT, "%s: its header says %s = %zu bytes from offset %zu on, only %zu are there",
                s->path, text, idx->size_bytes, reader->header_bytes, at + got);
  }
  /* Ask for one more byte: it must not be there, and on the way zlib checks the end of compressed data. */
  uint8_t more;
  CVY_TRY(read_content(s, &more, 1, &got));
  CVY_REQUIRE(got == 0, CVY_E_FORMAT, "%s: there is more data than the %s = %zu bytes that its header says", s->path,
              text, idx->size_bytes);
fail:
  if (status != CVY_OK) cvy_idx_clear(idx);
  return status;
}

void cvy_idx_close(cvy_idx_reader **reader) {
  if (*reader) close_source(&(*reader)->s);
  cvy_free(*reader);
  *reader = NULL;
}

void cvy_idx_clear(cvy_idx *idx) {
  cvy_free(idx->data);
  *idx = (cvy_idx){0};
}
