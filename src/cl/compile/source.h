/* SPDX-License-Identifier: MIT
 * Texts of the kernel files: embedded ones, or read from the folder $CVY_CL_DIR; and the keys of their programs. */
#ifndef CVY_CL_COMPILE_SOURCE_H
#define CVY_CL_COMPILE_SOURCE_H

#include "convoy/device.h"
#include "src/base/text.h"

typedef struct cvy_embedded_source {
  const char *name;
  const char *folder; /* of cl/ in which the file lies: "", "conv2d/" */
  const unsigned char *data;
  size_t size;
} cvy_embedded_source;
extern const cvy_embedded_source cvy_embedded_cl[]; /* made by tools/generate/embed_cl.py; ends with a NULL name */

/* Appends the text of `file` (without ".cl") with its includes in place. CVY_E_ARGUMENT: no such file, CVY_E_IO: not
 * readable. */
cvy_status cvy_source_get(const char *file, cvy_text *out);
/* The same, read from `folder`, which has the sub-folders of cl/; a file that is not embedded lies in `folder`
 * itself. */
cvy_status cvy_source_read(const char *folder, const char *file, cvy_text *out);
/* Appends to *key by what caches find a program (cache.h): its source, its options, the device and its driver. *source
 * (may be NULL) gets the source. */
cvy_status cvy_source_key(const cvy_device_info *device, const char *file, const char *options, cvy_text *source,
                          cvy_text *key);

#endif
