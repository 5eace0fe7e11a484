/* SPDX-License-Identifier: MIT
 * Pixels of any size and channels → those that a network takes. Any thread. */
#ifndef CVY_DATA_PICTURE_READ_H
#define CVY_DATA_PICTURE_READ_H

#include "convoy/picture.h"
#include "src/base/failure.h"

/* in: (h,w,c) → out as cvy_picture_read. `name` is for messages. CVY_E_MISMATCH. */
cvy_status cvy_picture_fit(const char *name, const uint8_t *in, int h, int w, int c, const cvy_model_facts *facts,
                           uint8_t *out);
/* As cvy_picture_read, but without its warning. *clipped: values of a 16-bit gray PNG have become white. */
cvy_status cvy_picture_read_file(const char *path, const cvy_model_facts *facts, uint8_t *pixels, bool *clipped);
void cvy_picture_say_clipped(const char *path);

#endif
