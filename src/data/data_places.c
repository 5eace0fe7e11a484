/* SPDX-License-Identifier: MIT */
#include "src/data/data_places.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/data/data_sources.h"
#include "src/data/folder_names.h"

/* DEPTH: folders are looked at so far down, for MNIST/raw. */
enum { DEPTH = 2, MOST_LISTED = 8 };

typedef struct places {
  cvy_text list; /* of the data sets: their paths */
  int n;
  char *first;
  const data_source *source; /* of the first; NULL: pictures in parts */
  char *pickles;             /* the first folder with CIFAR's pickles; or NULL */
  bool is_hundred;           /* they are CIFAR-100's */
  bool has_classes;          /* other folders have pictures or folders */
} places;

/* True for a regular file that begins as Python's pickles do: PROTO (0x80) and a version from 2 on. */
static bool is_pickle(const char *dir, const char *name) {
  char path[PATH_MAX];
  unsigned char head[2];
  struct stat info;
  const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
  const int fd = n > 0 && n < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  const bool is = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                  read(fd, head, sizeof head) == sizeof head && head[0] == 0x80 && head[1] >= 2 && head[1] <= 9;
  if (fd >= 0) close(fd);
  return is;
}

static cvy_status note_pickles(places *p, const char *dir) {
  cvy_status status = CVY_OK;
  const bool ten = is_pickle(dir, "data_batch_1") || is_pickle(dir, "test_batch");
  const bool hundred = !ten && is_pickle(dir, "train") && is_pickle(dir, "test");
  if (p->pickles || !(ten || hundred)) return CVY_OK;
  p->is_hundred = hundred;
  p->pickles = cvy_strdup(dir);
  CVY_REQUIRE(p->pickles, CVY_E_MEMORY, "no memory for the names of files");
fail:
  return status;
}

static cvy_status add_place(places *p, const char *dir, const data_source *source) {
  cvy_status status = CVY_OK;
  if (p->n < MOST_LISTED) cvy_text_add(&p->list, "%s%s", p->n ? ", " : "", dir);
  else if (p->n == MOST_LISTED) cvy_text_add(&p->list, ", …");
  if (p->n++ == 0) {
    p->first = cvy_strdup(dir);
    p->source = source;
    CVY_REQUIRE(p->first, CVY_E_MEMORY, "no memory for the names of files");
  }
fail:
  return status;
}

/* The entries of a folder, as far as they say what it is. */
typedef struct content {
  bool has_picture; /* it is a class, or a part of one */
  bool has_train, has_other_part;
  int n_folders;
} content;

/* An entry of `dir` is a folder, in the end of a link, too: its path. */
static bool is_folder(const char *dir, DIR *opened, const struct dirent *entry, char path[PATH_MAX]) {
  return cvy_folder_is_entry(dirfd(opened), entry) && snprintf(path, PATH_MAX, "%s/%s", dir, entry->d_name) < PATH_MAX;
}

/* whole: to the end, else to the first picture, which is enough to know a class by. */
static content look_at(const char *dir, bool whole) {
  content found = {0};
  char path[PATH_MAX];
  DIR *const d = opendir(dir);
  for (const struct dirent *entry; d && (whole || !found.has_picture) && (entry = readdir(d));) {
    const char *const name = entry->d_name;
    if (cvy_folder_is_hidden(name)) continue;
    found.has_picture |= cvy_name_kind_of(name) != CVY_NAME_OTHER;
    if (!is_folder(dir, d, entry, path)) continue;
    const int set = cvy_folder_set_of(name);
    found.n_folders++;
    if (set == CVY_SET_OF_TRAIN) found.has_train |= cvy_folder_is_one(path);
    else if (set >= 0) found.has_other_part = true;
  }
  if (d) closedir(d);
  return found;
}

/* EMNIST's splits, each a set: `dir`/emnist-letters and others. */
static cvy_status add_splits(places *p, const char *dir) {
  cvy_status status = CVY_OK;
  char split[NAME_MAX + 1], path[PATH_MAX];
  struct dirent **names = NULL;
  const int n = scandir(dir, &names, NULL, alphasort);
  for (int i = 0; i < n && status == CVY_OK; i++) {
    char before[sizeof split] = "";
    const bool is_same = i > 0 && data_idx_split(names[i - 1]->d_name, before, sizeof before) &&
                         data_idx_split(names[i]->d_name, split, sizeof split) && !strcmp(split, before);
    if (!is_same && data_idx_split(names[i]->d_name, split, sizeof split) &&
        snprintf(path, sizeof path, "%s/%s", dir, split) < (int)sizeof path)
      status = add_place(p, path, &data_idx);
  }
  for (int i = 0; i < n; i++) free(names[i]);
  free(names);
  return status;
}

/* Looks at the folders in `dir`, and `depth` further down. */
static cvy_status look_below(places *p, const char *dir, int depth) {
  cvy_status status = CVY_OK;
  char path[PATH_MAX];
  DIR *const d = opendir(dir);
  for (const struct dirent *entry; d && (entry = readdir(d));) {
    if (cvy_folder_is_hidden(entry->d_name) || !is_folder(dir, d, entry, path)) continue;
    const content in = look_at(path, false);
    const int places_before = p->n;
    const char *const pickles_before = p->pickles;
    if (!in.has_picture) {
      const bool is_train = in.has_train && (in.has_other_part || in.n_folders == 1);
      const data_source *const source = data_source_of_files(path);
      if (source || is_train) CVY_TRY(add_place(p, path, source));
      else CVY_TRY(note_pickles(p, path));
      if (p->n == places_before) CVY_TRY(add_splits(p, path));
      if (p->n == places_before && in.n_folders && depth > 1) CVY_TRY(look_below(p, path, depth - 1));
    }
    const bool is_known = p->n > places_before || p->pickles != pickles_before;
    if (!is_known && (in.has_picture || in.n_folders)) p->has_classes = true;
  }
fail:
  if (d) closedir(d);
  return status;
}

static void add_cure(cvy_text *text, const places *p) {
  const char *const name = p->is_hundred ? "cifar-100" : "cifar-10";
  const char *const unpacked = p->is_hundred ? "cifar-100-binary" : "cifar-10-batches-bin";
  cvy_text_add(text,
               "%s has %s as Python's pickles, which are not read; its binary version is: curl -L "
               "https://www.cs.toronto.edu/~kriz/%s-binary.tar.gz | tar xz, and name the folder %s",
               p->pickles, p->is_hundred ? "CIFAR-100" : "CIFAR-10", name, unpacked);
}

cvy_status data_find_place(const char *dir, char **out) {
  cvy_status status = CVY_OK;
  places p = {0};
  cvy_text cure = {0};
  *out = NULL;
  const content own = look_at(dir, true);
  CVY_TRY(note_pickles(&p, dir));
  if (!own.has_picture && !own.n_folders) CVY_TRY(add_splits(&p, dir));
  if (!p.pickles && !own.has_train && own.n_folders) CVY_TRY(look_below(&p, dir, DEPTH));
  if (p.pickles) add_cure(&cure, &p);
  CVY_REQUIRE(!cure.failed && !p.list.failed, CVY_E_MEMORY, "no memory for the names of files");
  CVY_REQUIRE(!p.pickles || p.n > 0, CVY_E_FORMAT, "%s", cvy_text_get(&cure));
  if (p.n == 0) goto fail;
  const bool is_only = p.n == 1 && !p.has_classes && (!p.pickles || p.source == &data_cifar);
  CVY_REQUIRE(
      is_only, CVY_E_FORMAT, "%s is not a data set itself; %s: %s%s%s", dir,
      p.n > 1 ? "several are in it, name one of these" : "one is in it beside others that may be meant, name it",
      cvy_text_get(&p.list), p.pickles ? "; " : "", cvy_text_get(&cure));
  cvy_log_info("%s: the data set in it, %s, is read", dir, p.first);
  *out = p.first;
  p.first = NULL;
fail:
  cvy_text_clear(&p.list);
  cvy_text_clear(&cure);
  cvy_free(p.first);
  cvy_free(p.pickles);
  return status;
}
