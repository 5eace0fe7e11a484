/* SPDX-License-Identifier: MIT */
#include "src/data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "convoy/data.h"
#include "src/base/mem.h"
#include "src/base/text.h"

/* ---- lists of names ---- */

typedef struct names {
  char **at;
  size_t n, room;
} names;

static void names_clear(names *list) {
  for (size_t i = 0; i < list->n; i++) cvy_free(list->at[i]);
  cvy_free(list->at);
  *list = (names){0};
}

/* Takes over `name` (NULL: out of memory). */
static cvy_status names_add(names *list, char *name) {
  cvy_status status = CVY_OK;
  char **const larger = name ? cvy_grow(list->at, list->n, &list->room, 32, sizeof *list->at) : NULL;
  if (larger) list->at = larger;
  CVY_REQUIRE(larger, CVY_E_MEMORY, "no memory for the names of files");
  list->at[list->n++] = name;
  name = NULL;
fail:
  cvy_free(name);
  return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static void names_sort(names *list) {
  if (list->n) qsort(list->at, list->n, sizeof *list->at, by_name);
}

/* "a/b"; "b" where a is empty. */
static char *join(const char *a, const char *b) {
  const size_t na = strlen(a), nb = strlen(b);
  char *const path = cvy_alloc_unset(na + nb + 2, 1);
  if (!path) return NULL;
  memcpy(path, a, na);
  if (na) path[na] = '/';
  memcpy(path + na + (na > 0), b, nb + 1);
  return path;
}

/* ---- one folder ---- */

bool cvy_folder_is_entry(int dir, const struct dirent *entry) {
  struct stat info;
  if (entry->d_type == DT_DIR) return true;
  if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) return false;
  return fstatat(dir, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

/* Sorted names of the folders and of all else in it; either may be NULL. */
static cvy_status read_folder(const char *path, names *folders, names *files) {
  cvy_status status = CVY_OK;
  DIR *const dir = opendir(path);
  CVY_REQUIRE(dir, CVY_E_IO, "the folder %s cannot be read: %s", path, strerror(errno));
  for (;;) {
    errno = 0;
    const struct dirent *const entry = readdir(dir);
    CVY_REQUIRE(entry || errno == 0, CVY_E_IO, "the folder %s cannot be read: %s", path, strerror(errno));
    if (!entry) break;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    names *const list = cvy_folder_is_entry(dirfd(dir), entry) ? folders : files;
    if (list) CVY_TRY(names_add(list, cvy_strdup(entry->d_name)));
  }
  if (folders) names_sort(folders);
  if (files) names_sort(files);
fail:
  if (dir) closedir(dir);
  return status;
}

/* Counts it, and keeps the first. */
static cvy_status note(int *count, char **first, const char *folder, const char *name) {
  cvy_status status = CVY_OK;
  if ((*count)++ == 0) {
    *first = join(folder, name);
    CVY_REQUIRE(*first, CVY_E_MEMORY, "no memory for the names of files");
  }
fail:
  return status;
}

/* The folders in `below` but the hidden ones, which are noted. */
static cvy_status read_folders(cvy_folder *f, const char *below, names *out) {
  cvy_status status = CVY_OK;
  size_t n = 0;
  char *const path = *below ? join(f->dir, below) : cvy_strdup(f->dir);
  CVY_REQUIRE(path, CVY_E_MEMORY, "no memory for the names of files");
  CVY_TRY(read_folder(path, out, NULL));
  for (size_t i = 0; i < out->n; i++) {
    char *const name = out->at[i];
    const bool is_hidden = cvy_folder_is_hidden(name);
    if (is_hidden && status == CVY_OK) status = note(&f->n_hidden, &f->hidden, below, name);
    if (is_hidden) cvy_free(name);
    else out->at[n++] = name;
  }
  out->n = n;
fail:
  cvy_free(path);
  return status;
}

bool cvy_folder_is_one(const char *dir) {
  bool found = false;
  DIR *const d = opendir(dir);
  for (const struct dirent *entry; d && !found && (entry = readdir(d));)
    found = !cvy_folder_is_hidden(entry->d_name) && cvy_folder_is_entry(dirfd(d), entry);
  if (d) closedir(d);
  return found;
}

/* ---- the files of a class ---- */

cvy_status cvy_folder_enter(const char *path, const cvy_folder_step *above, cvy_folder_step *out, bool *loop) {
  cvy_status status = CVY_OK;
  struct stat info;
  *loop = false;
  CVY_REQUIRE(stat(path, &info) == 0, CVY_E_IO, "the folder %s cannot be read: %s", path, strerror(errno));
  for (const cvy_folder_step *s = above; s && !*loop; s = s->above)
    *loop = s->device == info.st_dev && s->inode == info.st_ino;
  if (*loop) cvy_log_warning("%s leads back to a folder that it is in; not followed", path);
  *out = (cvy_folder_step){above, info.st_dev, info.st_ino};
fail:
  return status;
}

/* Adds `path` (below f->dir) and all folders below it. */
static cvy_status walk(cvy_folder *f, const char *path, const cvy_folder_step *above, names *out) {
  cvy_status status = CVY_OK;
  names below = {0};
  cvy_folder_step here;
  bool loop;
  char *full = join(f->dir, path), *next = NULL;
  CVY_REQUIRE(full, CVY_E_MEMORY, "no memory for the names of files");
  CVY_TRY(cvy_folder_enter(full, above, &here, &loop));
  if (loop) goto fail;
  CVY_TRY(names_add(out, cvy_strdup(path)));
  CVY_TRY(read_folders(f, path, &below));
  for (size_t i = 0; i < below.n; i++) {
    next = join(path, below.at[i]);
    CVY_REQUIRE(next, CVY_E_MEMORY, "no memory for the names of files");
    CVY_TRY(walk(f, next, &here, out));
    cvy_free(next);
    next = NULL;
  }
fail:
  names_clear(&below);
  cvy_free(full);
  cvy_free(next);
  return status;
}

bool cvy_name_ends_in(const char *name, const char *const *endings) {
  const char *const dot = strrchr(name, '.');
  for (; dot && *endings; endings++)
    if (strcasecmp(dot, *endings) == 0) return true;
  return false;
}

cvy_name_kind cvy_name_kind_of(const char *name) {
  static const char *const read[] = {".jpg", ".jpeg", ".png", ".ppm", ".pgm", NULL}, *const unread[] = {
                                                                                         ".bmp",  ".tif",  ".tiff",
                                                                                         ".webp", ".gif",  ".heic",
                                                                                         ".heif", ".avif", ".jxl",
                                                                                         ".jp2",  NULL};
  return cvy_name_ends_in(name, read)     ? CVY_NAME_PICTURE
         : cvy_name_ends_in(name, unread) ? CVY_NAME_UNREAD
                                          : CVY_NAME_OTHER;
}

/* Takes over `path`. */
static cvy_status add_item(cvy_folder *f, char *path, int set, int label) {
  cvy_status status = CVY_OK;
  cvy_folder_item *const larger = path ? cvy_grow(f->items, f->n, &f->room, 256, sizeof *f->items) : NULL;
  if (larger) f->items = larger;
  CVY_REQUIRE(larger, CVY_E_MEMORY, "no memory for the names of files");
  f->items[f->n++] = (cvy_folder_item){.path = path, .label = label};
  f->n_of[set]++;
  path = NULL;
fail:
  cvy_free(path);
  return status;
}

/* Both are folders in one. */
static bool are_siblings(const char *a, const char *b) {
  const char *const slash_a = strrchr(a, '/'), *const slash_b = strrchr(b, '/');
  return slash_a && slash_b && slash_a - a == slash_b - b && memcmp(a, b, (size_t)(slash_a - a)) == 0;
}

static int set_of_path(const char *path) {
  const char *const slash = strrchr(path, '/');
  return slash ? cvy_folder_set_of(slash + 1) : -1;
}

/* A class with parts of a set in it: pictures of all parts would be trained as one class. folders: all of `class`. */
static cvy_status refuse_parts(const cvy_folder *f, const char *class, const names *folders) {
  cvy_status status = CVY_OK;
  for (size_t i = 1; i < folders->n; i++) { /* 0 is the class itself */
    const char *const train = folders->at[i];
    if (set_of_path(train) != CVY_SET_OF_TRAIN) continue;
    for (size_t k = 1; k < folders->n; k++) {
      const char *const other = folders->at[k];
      const int above = (int)(strrchr(train, '/') - train);
      CVY_REQUIRE(set_of_path(other) <= CVY_SET_OF_TRAIN || !are_siblings(train, other), CVY_E_FORMAT,
                  "%s/%s would be a class, but its folders %s and %s are parts of a set: expected train/CLASS/… and "
                  "test/CLASS/… in the folder that is given (%s/%.*s, if all pictures are there)",
                  f->dir, class, train, other, f->dir, above, train);
    }
  }
fail:
  return status;
}

static cvy_status list_class(cvy_folder *f, const char *path, int set, int label) {
  cvy_status status = CVY_OK;
  names folders = {0}, files = {0};
  char *full = NULL;
  CVY_TRY(walk(f, path, NULL, &folders));
  CVY_TRY(refuse_parts(f, path, &folders));
  names_sort(&folders);
  for (size_t i = 0; i < folders.n; i++) {
    full = join(f->dir, folders.at[i]);
    CVY_REQUIRE(full, CVY_E_MEMORY, "no memory for the names of files");
    CVY_TRY(read_folder(full, NULL, &files));
    for (size_t j = 0; j < files.n; j++) switch (cvy_name_kind_of(files.at[j])) {
        case CVY_NAME_PICTURE: CVY_TRY(add_item(f, join(folders.at[i], files.at[j]), set, label)); break;
        case CVY_NAME_UNREAD: CVY_TRY(note(&f->n_unread, &f->unread, folders.at[i], files.at[j])); break;
        case CVY_NAME_OTHER: CVY_TRY(note(&f->n_ignored, &f->ignored, folders.at[i], files.at[j])); break;
      }
    names_clear(&files);
    cvy_free(full);
    full = NULL;
  }
fail:
  names_clear(&folders);
  names_clear(&files);
  cvy_free(full);
  return status;
}

/* ---- the whole ---- */

static int find_class(const cvy_folder *f, const char *name) {
  char *const *const found =
      f->n_classes ? bsearch(&name, f->classes, (size_t)f->n_classes, sizeof *f->classes, by_name) : NULL;
  return found ? (int)(found - f->classes) : -1;
}

static bool is_ascii(const char *name) {
  while (*name && (unsigned char)*name < 0x80) name++;
  return !*name;
}

static void add_bytes(cvy_text *text, const char *name) {
  for (; *name; name++) cvy_text_add(text, " %02x", (unsigned char)*name);
}

/* The training set has a class of this name in the other of Unicode's forms, as archives of macOS have it: both names
 * look the same. Or it has none like it. */
static cvy_status refuse_class(const cvy_folder *f, const char *full, const char *train, const char *name) {
  cvy_text bytes = {0};
  const char *other = NULL;
  for (int i = 0; i < f->n_classes && !is_ascii(name) && !other; i++)
    if (cvy_folder_names_look_alike(f->classes[i], name)) other = f->classes[i];
  if (other) {
    cvy_text_add(&bytes, "in %s it is", full);
    add_bytes(&bytes, name);
    cvy_text_add(&bytes, ", in %s/%s", f->dir, train);
    add_bytes(&bytes, other);
    cvy_log_error(
        "class '%s' has two names that look alike with different bytes (Unicode's forms NFC and NFD): %s; "
        "rename one",
        name, cvy_text_get(&bytes));
  } else {
    cvy_log_error("%s has the class '%s', which %s/%s does not have", full, name, f->dir, train);
  }
  cvy_text_clear(&bytes);
  return CVY_E_FORMAT;
}

/* Two classes of the training set whose names look alike are two classes; archives that were unpacked on unlike systems
 * make two of one. */
static void warn_of_alike(const char *full, const names *classes) {
  for (size_t i = 0; i < classes->n; i++)
    for (size_t j = is_ascii(classes->at[i]) ? classes->n : i + 1; j < classes->n; j++) { /* neither form is ASCII */
      if (!cvy_folder_names_look_alike(classes->at[i], classes->at[j])) continue;
      cvy_text bytes = {0};
      add_bytes(&bytes, classes->at[i]);
      cvy_text_add(&bytes, " and");
      add_bytes(&bytes, classes->at[j]);
      cvy_log_warning(
          "%s has two classes whose names look alike with different bytes (Unicode's forms NFC and NFD), '%s':%s; "
          "if they are one class, move the pictures of one folder to the other",
          full, classes->at[i], cvy_text_get(&bytes));
      cvy_text_clear(&bytes);
    }
}

/* Classes whose names are all those of parts would train a network that distinguishes the parts. */
static cvy_status refuse_part_names(const char *full, const names *classes) {
  cvy_status status = CVY_OK;
  cvy_text list = {0};
  size_t n = 0;
  while (n < classes->n && cvy_folder_sounds_like_part(classes->at[n])) {
    cvy_text_add(&list, "%s'%s'", n ? ", " : "", classes->at[n]);
    n++;
  }
  CVY_REQUIRE(n == 0 || n < classes->n, CVY_E_FORMAT,
              "the folders of %s, %s, sound like parts of a set and not like classes: expected train/CLASS/…, with "
              "val/CLASS/… or test/CLASS/… or both, or CLASS/… alone",
              full, cvy_text_get(&list));
fail:
  cvy_text_clear(&list);
  return status;
}

/* below: the set's folder, "" for all of dir; train: the training set's. The first set that is listed gives the
 * classes. */
static cvy_status list_set(cvy_folder *f, const char *below, int set, const char *train) {
  cvy_status status = CVY_OK;
  names classes = {0};
  char *path = NULL, *const full = *below ? join(f->dir, below) : cvy_strdup(f->dir);
  CVY_REQUIRE(full, CVY_E_MEMORY, "no memory for the names of files");
  CVY_TRY(read_folders(f, below, &classes));
  CVY_REQUIRE(classes.n > 0, CVY_E_FORMAT, "%s has no folders: expected one for each class, with its pictures in it",
              full);
  CVY_REQUIRE(classes.n <= CVY_MAX_CLASSES, CVY_E_FORMAT, "%s has %zu folders; expected at most %d classes", full,
              classes.n, CVY_MAX_CLASSES);
  if (set == CVY_SET_OF_TRAIN) {
    CVY_TRY(refuse_part_names(full, &classes));
    warn_of_alike(full, &classes);
    f->classes = classes.at;
    f->n_classes = (int)classes.n;
    classes = (names){0};
  }
  const size_t n = set == CVY_SET_OF_TRAIN ? (size_t)f->n_classes : classes.n;
  for (size_t i = 0; i < n; i++) {
    const char *const name = set == CVY_SET_OF_TRAIN ? f->classes[i] : classes.at[i];
    const int label = find_class(f, name);
    const size_t before = f->n;
    if (label < 0) CVY_TRY(refuse_class(f, full, train, name));
    path = join(below, name);
    CVY_REQUIRE(path, CVY_E_MEMORY, "no memory for the names of files");
    CVY_TRY(list_class(f, path, set, label));
    if (f->n == before) cvy_log_warning("%s/%s has no pictures: the class '%s' is empty there", f->dir, path, name);
    cvy_free(path);
    path = NULL;
  }
  CVY_REQUIRE(f->n_of[set] > 0, CVY_E_FORMAT, "%s has no pictures in the folders of its %zu class%s%s%s", full, n,
              n == 1 ? "" : "es", f->n_unread ? "; none is a JPEG or a PNG, the first is " : "",
              f->n_unread ? f->unread : "");
  f->has[set] = true;
fail:
  names_clear(&classes);
  cvy_free(full);
  cvy_free(path);
  return status;
}

/* ---- parts of a set ---- */

/* `below` has folders. */
static bool has_folders(const cvy_folder *f, const char *below) {
  char *const path = join(f->dir, below);
  const bool has = path && cvy_folder_is_one(path);
  cvy_free(path);
  return has;
}

/* The name of the one folder in `below` that is not hidden → *only, cvy_free; NULL: there is none, or several. */
static cvy_status find_only(const cvy_folder *f, const char *below, char **only) {
  cvy_status status = CVY_OK;
  names inside = {0};
  size_t n = 0, at = 0;
  char *const full = join(f->dir, below);
  *only = NULL;
  CVY_REQUIRE(full, CVY_E_MEMORY, "no memory for the names of files");
  CVY_TRY(read_folder(full, &inside, NULL));
  for (size_t i = 0; i < inside.n; i++)
    if (!cvy_folder_is_hidden(inside.at[i])) n++, at = i;
  if (n == 1) *only = cvy_strdup(inside.at[at]);
  CVY_REQUIRE(n != 1 || *only, CVY_E_MEMORY, "no memory for the names of files");
fail:
  names_clear(&inside);
  cvy_free(full);
  return status;
}

/* The folder of a part, or the one in it if archives have nested it ("seg_train/seg_train/CLASS"). cvy_free. */
static cvy_status innermost(const cvy_folder *f, const char *name, int set, char **out) {
  cvy_status status = CVY_OK;
  char *only = NULL, *next = NULL;
  *out = cvy_strdup(name);
  for (bool again = true; again;) {
    CVY_REQUIRE(*out, CVY_E_MEMORY, "no memory for the names of files");
    CVY_TRY(find_only(f, *out, &only));
    again = only && cvy_folder_set_of(only) == set;
    if (again) {
      next = join(*out, only);
      CVY_REQUIRE(next, CVY_E_MEMORY, "no memory for the names of files");
      again = has_folders(f, next);
    }
    if (again) {
      cvy_free(*out);
      *out = next;
      next = NULL;
    }
    cvy_free(only);
    only = NULL;
  }
fail:
  cvy_free(only);
  cvy_free(next);
  return status;
}

static cvy_status say_left_out(const cvy_folder *f, const names *others) {
  enum { MOST_NAMED = 5 };
  cvy_status status = CVY_OK;
  cvy_text list = {0};
  for (size_t i = 0; i < others->n && i < MOST_NAMED; i++) cvy_text_add(&list, "%s'%s'", i ? ", " : "", others->at[i]);
  CVY_REQUIRE(!list.failed, CVY_E_MEMORY, "no memory for the names of files");
  if (others->n)
    cvy_log_warning(
        "%zu folder%s of %s left out beside the training set, neither a validation nor a test set by the "
        "name: %s%s",
        others->n, others->n > 1 ? "s" : "", f->dir, cvy_text_get(&list), others->n > MOST_NAMED ? ", …" : "");
fail:
  cvy_text_clear(&list);
  return status;
}

/* train: the training set's folder, which is listed already, once it is. */
static cvy_status list_part(cvy_folder *f, const char *name, int set, char **train) {
  cvy_status status = CVY_OK;
  char *part = NULL, *only = NULL;
  CVY_TRY(innermost(f, name, set, &part));
  if (set != CVY_SET_OF_TRAIN && !has_folders(f, part)) {
    cvy_log_warning("%s/%s is left out: without a folder for each class its files have no labels", f->dir, part);
    goto fail;
  }
  CVY_TRY(find_only(f, part, &only));
  if (set != CVY_SET_OF_TRAIN && only && find_class(f, only) < 0 && cvy_folder_says_no_class(only)) {
    cvy_log_warning("%s/%s is left out: its one folder, '%s', is no class, so its files have no labels", f->dir, part,
                    only);
    goto fail;
  }
  CVY_TRY(list_set(f, part, set, *train ? *train : part));
  if (set == CVY_SET_OF_TRAIN) {
    *train = part;
    part = NULL;
  }
fail:
  cvy_free(part);
  cvy_free(only);
  return status;
}

cvy_status cvy_folder_list(const char *dir, cvy_folder *out) {
  cvy_status status = CVY_OK;
  names folders = {0}, others = {0};
  const char *parts[CVY_SETS] = {NULL}, *twice[CVY_SETS] = {NULL};
  char *train = NULL;
  *out = (cvy_folder){0};
  out->dir = cvy_strdup(dir);
  CVY_REQUIRE(out->dir, CVY_E_MEMORY, "no memory for the names of files");
  for (size_t n = strlen(out->dir); n > 1 && out->dir[n - 1] == '/'; n--) out->dir[n - 1] = 0;
  CVY_TRY(read_folders(out, "", &folders));
  for (size_t i = 0; i < folders.n; i++) {
    const int set = cvy_folder_set_of(folders.at[i]);
    if (set < 0) CVY_TRY(names_add(&others, cvy_strdup(folders.at[i])));
    else if (parts[set]) twice[set] = folders.at[i];
    else parts[set] = folders.at[i];
  }
  /* beside other classes a folder with pictures alone may be the class of trains */
  const char *const first = parts[CVY_SET_OF_TRAIN];
  if (first && (others.n == 0 || twice[CVY_SET_OF_TRAIN] || has_folders(out, first))) {
    for (int set = 0; set < CVY_SETS; set++)
      CVY_REQUIRE(!twice[set], CVY_E_FORMAT,
                  "%s has the folders %s and %s: expected one for each part of the set, train, val and test", out->dir,
                  parts[set], twice[set]);
    for (int set = 0; set < CVY_SETS; set++)
      if (parts[set]) CVY_TRY(list_part(out, parts[set], set, &train));
    CVY_TRY(say_left_out(out, &others));
  } else {
    CVY_REQUIRE(others.n > 0 || folders.n == 0, CVY_E_FORMAT,
                "%s has the folder %s, but no %s/train with a folder for each class", dir, folders.at[0], dir);
    out->n_hidden = 0; /* counted again below */
    cvy_free(out->hidden);
    out->hidden = NULL;
    CVY_TRY(list_set(out, "", CVY_SET_OF_TRAIN, ""));
  }
fail:
  names_clear(&folders);
  names_clear(&others);
  cvy_free(train);
  if (status != CVY_OK) cvy_folder_clear(out);
  return status;
}

void cvy_folder_clear(cvy_folder *f) {
  for (int i = 0; i < f->n_classes; i++) cvy_free(f->classes[i]);
  for (size_t i = 0; i < f->n; i++) cvy_free(f->items[i].path);
  cvy_free(f->classes);
  cvy_free(f->items);
  cvy_free(f->ignored);
  cvy_free(f->hidden);
  cvy_free(f->unread);
  cvy_free(f->dir);
  *f = (cvy_folder){0};
}
