/* SPDX-License-Identifier: MIT
 * Decoded copies of picture folders: one file for a folder with one size and one number of channels, in
 * $XDG_CACHE_HOME/convoy/data, named PATH-SIZE.images, PATH the hash of the folder's path in hex digits.
 *   0     head (struct head in picture_cache.c): magic, version, the key, counts, sizes, hashes, its own hash
 *   4096  the images that are not broken, in the order of the folder's list
 *   …     a record for each picture of the list (size of the original; whether values were clipped and EXIF turns it;
 *         broken: where its reason is), the reasons
 * Numbers are this machine's. The key is a hash of the names, labels and fingerprints (fingerprint.h: bytes, sizes,
 * inodes and times) of all files, the wanted size, channels and depth, and the decoders' versions: other pictures
 * replace the copy. A file is written aside under a lock (flock) and renamed; files that
 * killed processes have left are removed by the next one that writes. Folder and file must be the user's own
 * (base/user_cache.h). The images' hashes are checked while the file is mapped, unless it is larger than half of the
 * memory; heads and records always. A wrong file counts as missing. */
#ifndef CVY_DATA_PICTURE_CACHE_H
#define CVY_DATA_PICTURE_CACHE_H

#include <stdatomic.h>

#include "src/data/pictures.h"

enum { CVY_PICTURE_CACHE_VERSION = 3 };

typedef struct cvy_picture_cache {
  char path[4096]; /* "" : there is no place for it */
  uint64_t key[2];
  int h, w, c;
  const cvy_folder *folder;
  /* read from a file, or complete */
  uint8_t *map; /* the whole file, read-only */
  size_t map_bytes;
  size_t n_kept[CVY_SETS];
  cvy_picture_info *infos; /* cvy_picture_cache_clear frees them */
  uint64_t hashes[CVY_SETS];
  /* being written */
  int fd;
  char aside[4096];
} cvy_picture_cache;

/* Where the copy of this folder with these settings is. */
void cvy_picture_cache_find(const cvy_folder *folder, const cvy_data_params *params, cvy_picture_cache *out);
/* Maps the file; false: there is none, or it is another folder's or damaged. h, w and c are set then. */
bool cvy_picture_cache_open(cvy_picture_cache *cache);
/* True unless the hashes of the images are wrong; *stop ends it early (true). */
bool cvy_picture_cache_check(const cvy_picture_cache *cache, const atomic_bool *stop);
/* The images of a set in the map. */
const uint8_t *cvy_picture_cache_images(const cvy_picture_cache *cache, int set);

/* Begins a new file with room for all pictures of h x w x c. False, with a warning: no place on the disk, or it cannot
 * be written. */
bool cvy_picture_cache_begin(cvy_picture_cache *cache, int h, int w, int c);
/* Picture i, on any thread. CVY_E_IO without a message. */
cvy_status cvy_picture_cache_put(cvy_picture_cache *cache, size_t i, const uint8_t *pixels);
/* Takes over the infos (n of the folder); closes up the gaps of broken pictures, maps the images, and gives the file
 * its name. False, with a warning: it could not be written; infos are the caller's then. */
bool cvy_picture_cache_finish(cvy_picture_cache *cache, cvy_picture_info *infos);
/* Unmaps; removes a file that was not finished. */
void cvy_picture_cache_clear(cvy_picture_cache *cache);

#endif
