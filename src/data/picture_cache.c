/* SPDX-License-Identifier: MIT */
#include "src/data/picture_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/file.h"
#include "src/base/mapped_file.h"
#include "src/base/mem.h"
#include "src/base/user_cache.h"
#include "src/data/fingerprint.h"

enum { HEAD_BYTES = 4096, CHUNK = 1 << 24 };
#define CLIPPED (UINT32_C(1) << 31)
#define TURNED (UINT32_C(1) << 30) /* pictures have fewer rows */
static const char MAGIC[8] = "CVYIMGS", ENDING[] = ".images", ASIDE[] = ".tmp.";

typedef struct head {
  char magic[8];
  uint32_t version, head_bytes;
  uint64_t key[2];
  uint64_t n_items, n_kept[CVY_SETS];
  uint32_t h, w, c, unused;
  uint64_t hashes[CVY_SETS];            /* XXH64 of each set's images */
  uint64_t reasons_bytes, records_hash; /* of records and reasons */
  uint64_t own_hash;                    /* of all before it */
} head;

typedef struct record {
  uint32_t h, w;   /* h: with CLIPPED and TURNED, if it was */
  uint64_t reason; /* 0: not broken; else 1 + its place among the reasons */
} record;

static uint64_t hash_of_head(const head *h) { return XXH64(h, offsetof(head, own_hash), CVY_PICTURE_CACHE_VERSION); }

/* ---- names ---- */

static void add(XXH3_state_t *state, const void *bytes, size_t n) { XXH3_128bits_update(state, bytes, n); }

static bool make_key(const cvy_folder *f, const cvy_data_params *params, uint64_t key[2]) {
  const char *const libraries = cvy_picture_libraries();
  const int64_t settings[6] = {CVY_PICTURE_CACHE_VERSION, params->size_h,     params->size_w, params->gray,
                               params->png16_scale,       params->exif_rotate};
  uint64_t *const prints = cvy_alloc_unset(f->n, sizeof *prints);
  XXH3_state_t *const state = prints && cvy_fingerprints(f, prints) ? XXH3_createState() : NULL;
  if (!state) {
    cvy_free(prints);
    return false;
  }
  XXH3_128bits_reset(state);
  add(state, settings, sizeof settings);
  add(state, libraries, strlen(libraries) + 1);
  for (int i = 0; i < f->n_classes; i++) add(state, f->classes[i], strlen(f->classes[i]) + 1);
  for (int set = 0; set < CVY_SETS; set++) add(state, &f->n_of[set], sizeof f->n_of[set]);
  for (size_t i = 0; i < f->n; i++) {
    const cvy_folder_item *const item = &f->items[i];
    add(state, item->path, strlen(item->path) + 1);
    add(state, &item->label, sizeof item->label);
  }
  add(state, prints, f->n * sizeof *prints);
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  cvy_free(prints);
  key[0] = hash.low64;
  key[1] = hash.high64;
  return true;
}

void cvy_picture_cache_find(const cvy_folder *folder, const cvy_data_params *params, cvy_picture_cache *out) {
  char dir[PATH_MAX], size[48] = "as-it-is";
  *out = (cvy_picture_cache){.folder = folder, .fd = -1};
  char *const real = realpath(folder->dir, NULL);
  if (params->size_h < 0) snprintf(size, sizeof size, "%d", params->size_w);
  else if (params->size_h > 0) snprintf(size, sizeof size, "%dx%d", params->size_h, params->size_w);
  if (real && cvy_user_cache_dir("data", dir, sizeof dir) && make_key(folder, params, out->key)) {
    const int n = snprintf(out->path, sizeof out->path, "%s/%016llx-%s%s%s%s%s", dir,
                           (unsigned long long)XXH64(real, strlen(real), 0), size, params->gray ? "-gray" : "",
                           params->png16_scale ? "-scaled" : "", params->exif_rotate ? "-rotated" : "", ENDING);
    if (n < 0 || (size_t)n >= sizeof out->path - 64) out->path[0] = 0; /* 64: for what names it while it is written */
  }
  free(real);
}

/* ---- reading ---- */

static size_t image_bytes(const cvy_picture_cache *c) { return (size_t)c->h * (size_t)c->w * (size_t)c->c; }

/* Everything that the head says fits together, and with the size of the file. */
static bool head_is_right(const cvy_picture_cache *c, const head *h, size_t file_bytes) {
  size_t each, images, records, kept = 0;
  if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0 || h->version != CVY_PICTURE_CACHE_VERSION ||
      h->head_bytes != HEAD_BYTES || h->own_hash != hash_of_head(h) || memcmp(h->key, c->key, sizeof h->key) != 0 ||
      h->n_items != c->folder->n || h->h - 1 >= INT16_MAX * 2 || h->w - 1 >= INT16_MAX * 2 || (h->c != 1 && h->c != 3))
    return false;
  for (int set = 0; set < CVY_SETS; set++) {
    if (h->n_kept[set] > c->folder->n_of[set]) return false;
    kept += h->n_kept[set];
  }
  if (!cvy_mul_size((size_t)h->h * h->w, h->c, &each) || !cvy_mul_size(kept, each, &images) ||
      !cvy_mul_size(c->folder->n, sizeof(record), &records) || h->reasons_bytes > file_bytes || images > file_bytes ||
      records > file_bytes)
    return false;
  return HEAD_BYTES + cvy_round_up(images, sizeof(uint64_t)) + records + h->reasons_bytes == file_bytes;
}

/* Records and reasons → infos. */
static bool read_infos(cvy_picture_cache *c, const head *h) {
  const size_t n = c->folder->n, records_bytes = n * sizeof(record);
  const uint8_t *const tail = c->map + c->map_bytes - h->reasons_bytes - records_bytes;
  const char *const reasons = (const char *)tail + records_bytes;
  size_t at = 0, kept[CVY_SETS] = {0};
  if (XXH64(tail, records_bytes + h->reasons_bytes, 0) != h->records_hash) return false;
  if (h->reasons_bytes && reasons[h->reasons_bytes - 1] != 0) return false;
  c->infos = cvy_calloc(n, sizeof *c->infos);
  if (!c->infos) return false;
  for (int set = 0; set < CVY_SETS; set++)
    for (size_t i = 0; i < c->folder->n_of[set]; i++, at++) {
      record r;
      memcpy(&r, tail + at * sizeof r, sizeof r);
      if (r.w > INT32_MAX || r.reason > h->reasons_bytes) return false;
      c->infos[at] = (cvy_picture_info){
          .h = (int)(r.h & ~(CLIPPED | TURNED)), .w = (int)r.w, .clipped = r.h & CLIPPED, .turned = r.h & TURNED};
      if (r.reason && !(c->infos[at].why = cvy_strdup(reasons + r.reason - 1))) return false;
      kept[set] += !r.reason;
    }
  for (int set = 0; set < CVY_SETS; set++)
    if (kept[set] != h->n_kept[set]) return false;
  return true;
}

static bool map_file(cvy_picture_cache *c, int fd, size_t bytes) {
  void *const map = cvy_map(fd, bytes, false, c->path);
  if (!map) return false;
  c->map = map;
  c->map_bytes = bytes;
  return true;
}

static void take_head(cvy_picture_cache *c, const head *h) {
  c->h = (int)h->h;
  c->w = (int)h->w;
  c->c = (int)h->c;
  for (int set = 0; set < CVY_SETS; set++) {
    c->n_kept[set] = (size_t)h->n_kept[set];
    c->hashes[set] = h->hashes[set];
  }
}

static void forget(cvy_picture_cache *c) {
  cvy_picture_infos_free(c->infos, c->folder->n);
  c->infos = NULL;
  cvy_map_end(c->map);
  c->map = NULL;
  c->map_bytes = 0;
  memset(c->n_kept, 0, sizeof c->n_kept);
}

bool cvy_picture_cache_open(cvy_picture_cache *c) {
  head h;
  size_t bytes;
  if (!c->path[0]) return false;
  const int fd = cvy_user_cache_open(c->path, &bytes);
  if (fd < 0) return false;
  const bool right = bytes >= HEAD_BYTES && pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h &&
                     head_is_right(c, &h, bytes) && map_file(c, fd, bytes);
  close(fd);
  if (!right) return false;
  if (!read_infos(c, &h)) {
    forget(c);
    return false;
  }
  take_head(c, &h);
  return true;
}

const uint8_t *cvy_picture_cache_images(const cvy_picture_cache *c, int set) {
  size_t before = 0;
  for (int i = 0; i < set; i++) before += c->n_kept[i];
  return c->map + HEAD_BYTES + before * image_bytes(c);
}

bool cvy_picture_cache_check(const cvy_picture_cache *c, const atomic_bool *stop) {
  if (c->map_bytes > cvy_host_memory_bytes() / 2) return true;
  XXH64_state_t *const state = XXH64_createState();
  bool right = true;
  for (int set = 0; set < CVY_SETS && state && right; set++) {
    const uint8_t *const images = cvy_picture_cache_images(c, set);
    const size_t bytes = c->n_kept[set] * image_bytes(c);
    XXH64_reset(state, 0);
    for (size_t at = 0; at < bytes && !(stop && atomic_load(stop)); at += CHUNK)
      XXH64_update(state, images + at, bytes - at < CHUNK ? bytes - at : CHUNK);
    right = (stop && atomic_load(stop)) || XXH64_digest(state) == c->hashes[set];
  }
  XXH64_freeState(state);
  return right;
}

/* ---- writing ---- */

static bool write_at(int fd, const void *bytes, size_t size, size_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

/* Files aside that no living process has locked. */
static void remove_left_behind(const char *path) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
  DIR *const dir = opendir(folder);
  for (const struct dirent *entry; dir && (entry = readdir(dir));) {
    const char *const middle = strstr(entry->d_name, ASIDE);
    const size_t n = sizeof ENDING - 1;
    if (!middle || middle - entry->d_name < (ptrdiff_t)n || memcmp(middle - n, ENDING, n) != 0) continue;
    const int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)unlinkat(dirfd(dir), entry->d_name, 0);
    close(fd);
  }
  if (dir) closedir(dir);
}

/* Ends what is being written. */
static void drop(cvy_picture_cache *c) {
  if (c->aside[0]) unlink(c->aside);
  c->aside[0] = 0;
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
}

static bool refuse(cvy_picture_cache *c, const char *what) {
  cvy_log_warning("no decoded copy of %s is kept: %s: %s", c->folder->dir, what, strerror(errno));
  drop(c);
  return false;
}

bool cvy_picture_cache_begin(cvy_picture_cache *c, int h, int w, int channels) {
  size_t bytes;
  uint32_t bits;
  c->h = h;
  c->w = w;
  c->c = channels;
  if (!c->path[0] || !cvy_mul_size(c->folder->n, image_bytes(c), &bytes)) return false;
  remove_left_behind(c->path);
  if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) bits = 0;
  const int n = snprintf(c->aside, sizeof c->aside, "%s%s%ld.%08x", c->path, ASIDE, (long)getpid(), (unsigned)bits);
  if (n < 0 || (size_t)n >= sizeof c->aside) return refuse(c, c->path);
  c->fd = open(c->aside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (c->fd < 0) {
    c->aside[0] = 0;
    return refuse(c, c->path);
  }
  (void)flock(c->fd, LOCK_EX | LOCK_NB);
  /* all of the room at once: a disk that is too small is seen now. Some file systems cannot promise it. */
  if (fallocate(c->fd, 0, 0, (off_t)(HEAD_BYTES + bytes)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    return refuse(c, c->path);
  return true;
}

cvy_status cvy_picture_cache_put(cvy_picture_cache *c, size_t i, const uint8_t *pixels) {
  return write_at(c->fd, pixels, image_bytes(c), HEAD_BYTES + i * image_bytes(c)) ? CVY_OK : CVY_E_IO;
}

/* Moves images down over the places of broken ones; false: errno. */
static bool close_gaps(cvy_picture_cache *c, const cvy_picture_info *infos) {
  const size_t each = image_bytes(c);
  size_t to = 0;
  uint8_t *const image = cvy_alloc_unset(each, 1);
  bool ok = image != NULL;
  for (size_t i = 0; i < c->folder->n && ok; i++) {
    if (infos[i].why) continue;
    if (to != i)
      ok = cvy_file_read_at(c->fd, HEAD_BYTES + i * each, each, image) == each &&
           write_at(c->fd, image, each, HEAD_BYTES + to * each);
    to++;
  }
  cvy_free(image);
  return ok;
}

/* Records and reasons as they stand in the file; NULL: out of memory. */
static uint8_t *make_tail(const cvy_folder *f, const cvy_picture_info *infos, size_t *reasons_bytes, size_t *bytes) {
  size_t reasons = 0, at = 0;
  for (size_t i = 0; i < f->n; i++) reasons += infos[i].why ? strlen(infos[i].why) + 1 : 0;
  *reasons_bytes = reasons;
  *bytes = f->n * sizeof(record) + reasons;
  uint8_t *const tail = cvy_calloc(*bytes, 1);
  for (size_t i = 0; i < f->n && tail; i++) {
    const record r = {.h = (uint32_t)infos[i].h | (infos[i].clipped ? CLIPPED : 0) | (infos[i].turned ? TURNED : 0),
                      .w = (uint32_t)infos[i].w,
                      .reason = infos[i].why ? at + 1 : 0};
    memcpy(tail + i * sizeof r, &r, sizeof r);
    if (!infos[i].why) continue;
    const size_t n = strlen(infos[i].why) + 1;
    memcpy(tail + f->n * sizeof r + at, infos[i].why, n);
    at += n;
  }
  return tail;
}

bool cvy_picture_cache_finish(cvy_picture_cache *c, cvy_picture_info *infos) {
  head h = {.version = CVY_PICTURE_CACHE_VERSION,
            .head_bytes = HEAD_BYTES,
            .key = {c->key[0], c->key[1]},
            .n_items = c->folder->n,
            .h = (uint32_t)c->h,
            .w = (uint32_t)c->w,
            .c = (uint32_t)c->c};
  size_t at = 0, kept = 0, reasons, tail_bytes;
  memcpy(h.magic, MAGIC, sizeof h.magic);
  for (int set = 0; set < CVY_SETS; set++)
    for (size_t i = 0; i < c->folder->n_of[set]; i++) {
      const bool good = !infos[at++].why;
      h.n_kept[set] += good;
      kept += good;
    }
  const size_t images = cvy_round_up(kept * image_bytes(c), sizeof(uint64_t));
  uint8_t *const tail = make_tail(c->folder, infos, &reasons, &tail_bytes);
  if (!tail || !close_gaps(c, infos) || ftruncate(c->fd, (off_t)(HEAD_BYTES + images)) != 0 ||
      !write_at(c->fd, tail, tail_bytes, HEAD_BYTES + images)) {
    cvy_free(tail);
    return refuse(c, c->path);
  }
  h.reasons_bytes = reasons;
  h.records_hash = XXH64(tail, tail_bytes, 0);
  cvy_free(tail);
  if (!map_file(c, c->fd, HEAD_BYTES + images + tail_bytes)) return refuse(c, c->path);
  take_head(c, &h);
  for (int set = 0; set < CVY_SETS; set++)
    h.hashes[set] = c->hashes[set] = XXH64(cvy_picture_cache_images(c, set), c->n_kept[set] * image_bytes(c), 0);
  h.own_hash = hash_of_head(&h);
  /* a copy that is too large to be checked when it is read must be on the disk before it has its name */
  const bool checked = c->map_bytes <= cvy_host_memory_bytes() / 2, written = write_at(c->fd, &h, sizeof h, 0);
  const cvy_sync sync = written && !checked ? cvy_file_sync(c->fd) : CVY_SYNC_DONE;
  if (!written || sync == CVY_SYNC_FAILED || (sync == CVY_SYNC_DONE && rename(c->aside, c->path) != 0)) {
    forget(c);
    return refuse(c, c->path);
  }
  if (sync == CVY_SYNC_DONE) c->aside[0] = 0; /* else the name goes, and the map stays as long as this process */
  else
    cvy_log_warning("the decoded copy of %s serves this run alone: the file system of %s cannot sync files (%s)",
                    c->folder->dir, c->path, strerror(errno));
  drop(c);
  c->infos = infos;
  return true;
}

void cvy_picture_cache_clear(cvy_picture_cache *c) {
  if (!c->folder) return;
  drop(c);
  forget(c);
}
