/* SPDX-License-Identifier: MIT
 * A contact sheet: pictures in rows, each with a text under it, as a PNG file. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_SHEET_H
#define CVY_TOOLS_PROGRAM_VIEW_SHEET_H

#include <stdbool.h>
#include <stdint.h>

/* n pictures of h x w pixels with c channels (1: gray, 3: RGB), one behind the other, and their texts (each may be
 * NULL; letters that are not ASCII become '?', and the end is cut off where there is no room). Small pictures are
 * enlarged by a whole number. The file is written as cvy_file_put does it. False with the reason said. */
bool sheet_write(const char *path, const uint8_t *pixels, int n, int h, int w, int c, const char *const *texts);

#endif
