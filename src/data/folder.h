/* SPDX-License-Identifier: MIT
 * The pictures of a folder, found as torchvision's ImageFolder finds them:
 *   DIR/train/CLASS/…, DIR/test/CLASS/…, DIR/val/CLASS/…   or   DIR/CLASS/…
 * with other names of these parts, too (folder_names.h). A class is a folder; its pictures are the files with a
 * picture's extension in it and in all folders below it, symbolic links followed. Classes are sorted by name; the
 * pictures of a class by the folder they are in, then by name (bytes). Differences: hidden folders and those of systems
 * are left out, at every depth, and a folder that contains itself by a link is walked once. */
#ifndef CVY_DATA_FOLDER_H
#define CVY_DATA_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/base/failure.h"
#include "src/data/folder_names.h"

typedef struct cvy_folder_item {
  char *path; /* below `dir`: "train/cat/1.jpg" */
  int label;
} cvy_folder_item;

typedef struct cvy_folder {
  char *dir;
  char **classes;
  int n_classes;
  cvy_folder_item *items; /* of the sets in their order, each by class and name */
  size_t n, n_of[CVY_SETS], room;
  bool has[CVY_SETS];              /* the set's folder is there */
  int n_ignored;                   /* files without a picture's extension */
  int n_hidden;                    /* folders that are hidden or a system's */
  int n_unread;                    /* CVY_NAME_UNREAD: ImageFolder would take some of them */
  char *ignored, *hidden, *unread; /* the first of each; or NULL */
} cvy_folder;

/* By the end of a file's name, capitals or not. PICTURE: .jpg, .jpeg, .png, .ppm and .pgm, which ImageFolder takes,
 * too; UNREAD: other formats of pictures. */
typedef enum cvy_name_kind { CVY_NAME_OTHER, CVY_NAME_UNREAD, CVY_NAME_PICTURE } cvy_name_kind;
cvy_name_kind cvy_name_kind_of(const char *name);
/* `endings` ends with NULL. */
bool cvy_name_ends_in(const char *name, const char *const *endings);

/* A folder on the way down, and those above it. */
typedef struct cvy_folder_step {
  const struct cvy_folder_step *above;
  dev_t device;
  ino_t inode;
} cvy_folder_step;
/* *out: the step to `path`. *loop: it is one of those above, which is logged as a warning. CVY_E_IO. */
cvy_status cvy_folder_enter(const char *path, const cvy_folder_step *above, cvy_folder_step *out, bool *loop);

struct dirent;
/* The entry of the folder that is open as `dir` is a folder, also behind a symbolic link. */
bool cvy_folder_is_entry(int dir, const struct dirent *entry);
/* True if `dir` has folders: it may hold pictures. */
bool cvy_folder_is_one(const char *dir);
/* Folders beside the parts of a set are left out, with a warning, and so are val and test without class folders.
 * CVY_E_IO: a folder cannot be read; CVY_E_FORMAT: no classes, no pictures, a class of test or val that train does not
 * have, two folders of one part, classes that sound like parts or hold parts; CVY_E_MEMORY. On failure *out is
 * empty. */
cvy_status cvy_folder_list(const char *dir, cvy_folder *out);
void cvy_folder_clear(cvy_folder *folder);

#endif
