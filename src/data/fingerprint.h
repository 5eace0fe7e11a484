/* SPDX-License-Identifier: MIT
 * Fingerprints of pictures' files: whether a file is still the one that was decoded. Names, sizes and times do not say
 * that: two files that changed places, or another version of a set copied with `cp -a`, have the same. */
#ifndef CVY_DATA_FINGERPRINT_H
#define CVY_DATA_FINGERPRINT_H

#include "src/data/folder.h"

/* Files up to this size are hashed whole, of larger ones the first and the last half of so many bytes. */
enum { CVY_FINGERPRINT_BYTES = 1 << 16 };

/* out[i], n of the folder: XXH3 of item i's bytes, size, inode, and times of its last change and of its last change of
 * status (which no program can set); of a file that cannot be read, of the reason. On all cores. False: out of
 * memory. */
bool cvy_fingerprints(const cvy_folder *folder, uint64_t *out);

#endif
