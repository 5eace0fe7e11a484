/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/data/folder.h"
#include "src/data/idx.h"
#include "src/data/picture_read.h"

enum { MOST_DEPTH = 32, MOST_SIDE = 65536 };

typedef struct item {
  char *name;   /* its file; of an idx file with its row: "file[17]" */
  int idx, row; /* the list's idx file, -1: none */
} item;

struct cvy_picture_list {
  item *items;
  cvy_idx *idx;
  int n, n_idx;
  size_t items_room, idx_room;
  cvy_picture_oddities said;
};

cvy_status cvy_picture_list_create(cvy_picture_list **out) {
  cvy_status status = CVY_OK;
  *out = cvy_calloc(1, sizeof **out);
  CVY_REQUIRE(*out, CVY_E_MEMORY, "no memory for a list of pictures");
fail:
  return status;
}

static void shorten(cvy_picture_list *l, int n, int n_idx) {
  while (l->n > n) cvy_free(l->items[--l->n].name);
  while (l->n_idx > n_idx) cvy_idx_clear(&l->idx[--l->n_idx]);
}

void cvy_picture_list_destroy(cvy_picture_list **list) {
  cvy_picture_list *const l = *list;
  *list = NULL;
  if (!l) return;
  shorten(l, 0, 0);
  cvy_free(l->items);
  cvy_free(l->idx);
  cvy_free(l);
}

/* Takes over `name`, which may be NULL: no memory. */
static cvy_status append(cvy_picture_list *l, char *name, int idx, int row) {
  cvy_status status = CVY_OK;
  item *const grown = name ? cvy_grow(l->items, (size_t)l->n, &l->items_room, 64, sizeof *grown) : NULL;
  CVY_REQUIRE(grown && l->n < INT32_MAX, CVY_E_MEMORY, "no memory for a list of %d pictures", l->n);
  l->items = grown;
  l->items[l->n++] = (item){.name = name, .idx = idx, .row = row};
  return CVY_OK;
fail:
  cvy_free(name);
  return status;
}

static char *joined(const char *format, const char *a, const char *b, int row) {
  cvy_text text = {0};
  if (b) cvy_text_add(&text, format, a, b);
  else cvy_text_add(&text, format, a, row);
  char *const out = text.failed ? NULL : cvy_strdup(cvy_text_get(&text));
  cvy_text_clear(&text);
  return out;
}

/* ---- folders ---- */

static int by_name(const void *a, const void *b) { return strcmp(((const item *)a)->name, ((const item *)b)->name); }

/* Files of a folder that are not taken: how many, and the first. */
typedef struct left_out {
  int n_unread, n_other;
  char *unread, *other;
} left_out;

/* Takes over `path`. */
static void note(int *n, char **first, char *path) {
  if ((*n)++ == 0) *first = path;
  else cvy_free(path);
}

static bool is_picture(const char *name) {
  return cvy_name_kind_of(name) == CVY_NAME_PICTURE ||
         cvy_name_ends_in(name, (const char *const[]){".jfif", ".jpe", NULL}); /* JPEGs, which ImageFolder leaves out */
}

static cvy_status walk(cvy_picture_list *l, const char *dir, const cvy_folder_step *above, int depth, left_out *out);

/* One entry of a folder; takes over `path`. */
static cvy_status take(cvy_picture_list *l, char *path, const char *name, const cvy_folder_step *here, int depth,
                       left_out *out) {
  cvy_status status = CVY_OK;
  if (cvy_file_kind_of(path) == CVY_FILE_FOLDER) {
    status = walk(l, path, here, depth + 1, out);
    cvy_free(path);
  } else if (is_picture(name)) status = append(l, path, -1, 0);
  else if (cvy_name_kind_of(name) == CVY_NAME_UNREAD) note(&out->n_unread, &out->unread, path);
  else note(&out->n_other, &out->other, path);
  return status;
}

/* A folder below that cannot be read is named, and the others are taken: the status says so. */
static cvy_status walk(cvy_picture_list *l, const char *dir, const cvy_folder_step *above, int depth, left_out *out) {
  cvy_status status = CVY_OK, of_below = CVY_OK;
  cvy_folder_step here;
  bool loop;
  DIR *folder = NULL;
  CVY_TRY(cvy_folder_enter(dir, above, &here, &loop));
  if (loop) return CVY_OK;
  CVY_REQUIRE(depth < MOST_DEPTH, CVY_E_IO, "%s: folders lie in each other more than %d deep", dir, MOST_DEPTH);
  folder = opendir(dir);
  CVY_REQUIRE(folder, CVY_E_IO, "cannot read the folder %s: %s", dir, strerror(errno));
  for (const struct dirent *entry; (errno = 0, entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    const bool slash = dir[strlen(dir) - 1] == '/';
    char *const path = joined(slash ? "%s%s" : "%s/%s", dir, entry->d_name, 0);
    CVY_REQUIRE(path, CVY_E_MEMORY, "no memory to list %s", dir);
    const cvy_status of_entry = take(l, path, entry->d_name, &here, depth, out);
    if (of_entry == CVY_E_MEMORY) CVY_TRY(of_entry);
    if (of_entry != CVY_OK) of_below = of_entry;
  }
  CVY_REQUIRE(errno == 0, CVY_E_IO, "cannot read the folder %s: %s", dir, strerror(errno));
fail:
  if (folder) closedir(folder);
  return status != CVY_OK ? status : of_below;
}

static cvy_status add_folder(cvy_picture_list *l, const char *dir) {
  cvy_status status = CVY_OK;
  const int n = l->n;
  left_out out = {0};
  const cvy_status walked = walk(l, dir, NULL, 0, &out);
  if (walked == CVY_E_MEMORY) CVY_TRY(walked);
  if (out.n_unread && l->n > n)
    cvy_log_warning("%d picture%s of %s left out: none of JPEG, PNG, PGM and PPM; the first is %s", out.n_unread,
                    out.n_unread > 1 ? "s" : "", dir, out.unread);
  if (out.n_other && l->n > n)
    cvy_log_info("%d file%s of %s left out: no pictures by their names; the first is %s", out.n_other,
                 out.n_other > 1 ? "s" : "", dir, out.other);
  CVY_REQUIRE(l->n > n || walked != CVY_OK, CVY_E_FORMAT,
              "the folder %s has no pictures: no .jpg, .jpeg, .jfif, .png, .ppm or .pgm%s%s", dir,
              out.n_unread || out.n_other ? "; the first other file is " : "",
              out.n_unread  ? out.unread
              : out.n_other ? out.other
                            : "");
  if (l->n > n) qsort(l->items + n, (size_t)(l->n - n), sizeof *l->items, by_name);
  CVY_TRY(walked);
fail:
  cvy_free(out.unread);
  cvy_free(out.other);
  return status;
}

/* ---- idx files ---- */

/* By its first bytes: idx of bytes with 3 or 4 dimensions, or gzip. */
static bool is_idx(const char *path) {
  unsigned char head[4];
  int fd;
  if (cvy_file_kind_of(path) != CVY_FILE_REGULAR || cvy_file_open(path, &fd) != CVY_OK) return false;
  const bool whole = pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head;
  close(fd);
  if (!whole) return false;
  return (head[0] == 0x1f && head[1] == 0x8b) || (head[0] == 0 && head[1] == 0 && (head[3] == 3 || head[3] == 4));
}

static cvy_status add_idx(cvy_picture_list *l, const char *path) {
  cvy_status status = CVY_OK;
  cvy_idx idx = {0};
  cvy_idx_reader *reader = NULL;
  CVY_TRY(cvy_idx_open(path, 3, 4, &idx, &reader));
  CVY_REQUIRE(idx.elem_bytes == 1, CVY_E_FORMAT, "%s: its elements have 16 bits, images are bytes", path);
  CVY_REQUIRE(idx.dims[1] <= MOST_SIDE && idx.dims[2] <= MOST_SIDE && (idx.rank == 3 || idx.dims[3] <= MOST_SIDE),
              CVY_E_FORMAT, "%s: its images have more than %d rows, columns or channels", path, MOST_SIDE);
  CVY_TRY(cvy_idx_finish(reader, NULL, &idx));
  cvy_idx *const grown = cvy_grow(l->idx, (size_t)l->n_idx, &l->idx_room, 4, sizeof *grown);
  CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory for the images of %s", path);
  l->idx = grown;
  const int n = idx.dims[0];
  l->idx[l->n_idx++] = idx;
  idx = (cvy_idx){0};
  for (int row = 0; row < n; row++) CVY_TRY(append(l, joined("%s[%d]", path, NULL, row), l->n_idx - 1, row));
fail:
  cvy_idx_close(&reader);
  cvy_idx_clear(&idx);
  return status;
}

/* ---- the list ---- */

cvy_status cvy_picture_list_add(cvy_picture_list *l, const char *path) {
  cvy_status status = CVY_OK;
  const int n = l->n, n_idx = l->n_idx;
  if (cvy_file_kind_of(path) == CVY_FILE_FOLDER) {
    status = add_folder(l, path);
    if (status == CVY_E_IO) return status; /* it has what could be read */
    CVY_TRY(status);
  } else if (is_idx(path)) {
    CVY_TRY(add_idx(l, path));
  } else {
    CVY_TRY(append(l, cvy_strdup(path), -1, 0));
  }
  return CVY_OK;
fail:
  shorten(l, n, n_idx);
  return status;
}

int cvy_picture_list_count(const cvy_picture_list *l) { return l->n; }
const char *cvy_picture_list_name(const cvy_picture_list *l, int i) { return l->items[i].name; }

cvy_status cvy_picture_list_read(cvy_picture_list *l, int i, const cvy_model_info *info, uint8_t *pixels) {
  const item *const it = &l->items[i];
  if (it->idx < 0) {
    cvy_picture_oddities odd;
    const cvy_status status = cvy_picture_read_file(it->name, info, pixels, &odd);
    if (status == CVY_OK) cvy_picture_say(it->name, &odd, &l->said);
    return status;
  }
  const cvy_idx *const idx = &l->idx[it->idx];
  const int h = idx->dims[1], w = idx->dims[2], c = idx->rank == 4 ? idx->dims[3] : 1;
  return cvy_picture_fit(it->name, idx->data + (size_t)it->row * (size_t)h * (size_t)w * (size_t)c, h, w, c, info,
                         pixels);
}
