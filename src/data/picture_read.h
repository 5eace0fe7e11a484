/* SPDX-License-Identifier: MIT
 * Pixels of any size and channels → those that a network takes. Any thread. */
#ifndef CVY_DATA_PICTURE_READ_H
#define CVY_DATA_PICTURE_READ_H

#include "convoy/picture.h"
#include "src/base/failure.h"

/* in: (h,w,c) → out as cvy_picture_read. `name` is for messages. CVY_E_MISMATCH. */
cvy_status cvy_picture_fit(const char *name, const uint8_t *in, int h, int w, int c, const cvy_model_info *info,
                           uint8_t *out);
/* Of a picture: not as one would think. */
typedef struct cvy_picture_oddities {
  bool clipped; /* values of a 16-bit gray PNG have become white */
  bool turned;  /* EXIF says that it is turned or mirrored, which is ignored */
} cvy_picture_oddities;
/* As cvy_picture_read, but without its warnings. */
cvy_status cvy_picture_read_file(const char *path, const cvy_model_info *info, uint8_t *pixels,
                                 cvy_picture_oddities *odd);
/* Warns of those that are not in *said, and adds them to it. */
void cvy_picture_say(const char *path, const cvy_picture_oddities *odd, cvy_picture_oddities *said);

#endif
