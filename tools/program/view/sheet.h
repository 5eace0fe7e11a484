/* SPDX-License-Identifier: MIT
 * A contact sheet: rows of pictures with captions, as a PNG file. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_SHEET_H
#define CVY_TOOLS_PROGRAM_VIEW_SHEET_H

#include <stdbool.h>
#include <stdint.h>

/* n pictures of h x w pixels with c channels (1: gray, 3: RGB), consecutive, and their captions (each may be NULL;
 * characters outside ASCII become '?', and long ones are cut off). Small pictures are enlarged by a whole number.
 * Written as by cvy_file_put. False, with the reason printed. */
bool sheet_write(const char *path, const uint8_t *pixels, int n, int h, int w, int c, const char *const *texts);

#endif
