/* SPDX-License-Identifier: MIT
 * The pictures of a folder, found as torchvision's ImageFolder finds them:
 *   DIR/train/CLASS/…, DIR/test/CLASS/…, DIR/val/CLASS/…   or   DIR/CLASS/…
 * A class is a folder; its pictures are the files with a picture's extension in it and in all folders below it,
 * symbolic links followed. Classes are sorted by name; the pictures of a class by the folder they are in, then by name
 * (bytes). Differences: folders whose name begins with a dot are no classes, and a folder that contains itself by a
 * link is walked once. */
#ifndef CVY_DATA_FOLDER_H
#define CVY_DATA_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

enum { CVY_SET_OF_TRAIN, CVY_SET_OF_VAL, CVY_SET_OF_TEST, CVY_SETS };

typedef struct cvy_folder_item {
  char *path; /* below `dir`: "train/cat/1.jpg" */
  int label;
  uint64_t size;      /* bytes; 0 for a dangling link */
  int64_t changed_ns; /* time of its last change */
} cvy_folder_item;

typedef struct cvy_folder {
  char *dir;
  char **classes;
  int n_classes;
  cvy_folder_item *items; /* of the sets in their order, each by class and name */
  size_t n, n_of[CVY_SETS], room;
  bool has[CVY_SETS]; /* the set's folder is there */
  int n_ignored;      /* files without a picture's extension */
  int n_unread;       /* files with the extension of a picture that is not JPEG or PNG: ImageFolder would take them */
  char *ignored, *unread; /* the first of each; or NULL */
} cvy_folder;

/* True if the name ends as those of pictures that can be decoded, capitals or not: .jpg, .jpeg, .png, .ppm, .pgm. */
bool cvy_picture_has_name(const char *name);
/* True if `dir` has folders: it may hold pictures. */
bool cvy_folder_is_one(const char *dir);
/* CVY_E_IO: a folder cannot be read; CVY_E_FORMAT: no classes, no pictures, a class of test or val that train does not
 * have; CVY_E_MEMORY. On failure *out is empty. */
cvy_status cvy_folder_list(const char *dir, cvy_folder *out);
void cvy_folder_clear(cvy_folder *folder);

#endif
