/* SPDX-License-Identifier: MIT
 * Writes pictures as PNG with zlib only, also in a build without libpng. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_PNG_WRITE_H
#define CVY_TOOLS_PROGRAM_VIEW_PNG_WRITE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A picture of h x w pixels (both at least 1) with c channels of 8 bits (1: gray, 3: RGB). False when out of memory, or
 * a write fails. */
bool png_write(FILE *out, const uint8_t *pixels, int h, int w, int c);

#endif
