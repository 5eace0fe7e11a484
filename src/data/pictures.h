/* SPDX-License-Identifier: MIT
 * All pictures of a folder, decoded and resized on all cores. */
#ifndef CVY_DATA_PICTURES_H
#define CVY_DATA_PICTURES_H

#include <stdatomic.h>

#include "convoy/data.h"
#include "src/data/folder.h"
#include "src/data/decode/picture_decode.h"

/* Facts about one picture. */
typedef struct cvy_picture_info {
  int h, w;     /* of the file, before it is resized; 0 if it is broken */
  bool clipped; /* a 16-bit gray PNG, values above 255 of which have become 255 */
  bool turned;  /* EXIF notes another orientation than upright */
  char *why;    /* broken: why; else NULL */
} cvy_picture_info;

typedef struct cvy_pictures {
  const cvy_folder *folder;
  const cvy_data_params *params; /* size, gray, png16_scale and exif_rotate */
  const atomic_bool *stop;
  atomic_long *done; /* pictures that are finished */
  int h, w; /* each picture must have this size when it is fitted, with `reference` as the first that has; 0: any */
  size_t reference;
  /* Takes the fitted picture i. Called on many threads at once, once for each picture that is not broken. */
  cvy_status (*take)(void *arg, size_t i, const uint8_t *pixels, int h, int w, int c);
  void *arg;
  cvy_picture_info *infos; /* one for each item; cvy_picture_infos_free */
} cvy_pictures;

/* Threads that work on so many pictures: one for each core that this process may use. */
int cvy_picture_threads(size_t pictures);
/* CVY_E_FORMAT: two pictures have different sizes (the first two are named), or all are broken. CVY_E_INTERRUPTED:
 * stop. CVY_E_MEMORY; failures of `take`. Broken pictures are noted and not logged. */
cvy_status cvy_pictures_decode(cvy_pictures *p);
/* Decodes items from `*i` on until one is not broken: its number in *i, its fitted size. The broken ones on the way get
 * no info. CVY_E_FORMAT: there is none. */
cvy_status cvy_pictures_first(const cvy_folder *folder, const cvy_data_params *params, size_t *i, int *h, int *w);
/* Looks at the headers of the next hundred pictures behind `first`, which has h x w: photographs of several sizes are
 * seen before anything is made for the size of one. CVY_E_ARGUMENT as above. */
cvy_status cvy_pictures_look(const cvy_folder *folder, const cvy_data_params *params, size_t first, int h, int w);
void cvy_picture_infos_free(cvy_picture_info *infos, size_t n);

#endif
