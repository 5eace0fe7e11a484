/* SPDX-License-Identifier: MIT
 * Pictures in files, decoded for a trained network: height x width x channels bytes. Any thread; one thread at a time
 * for a list. */
#ifndef CONVOY_PICTURE_H
#define CONVOY_PICTURE_H

#include <stdint.h>

#include "convoy/about.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a picture into pixels (info->height x width x channels): JPEG, PNG, PGM or PPM (P5, P6), decoded as those of a
 * data set (data.h). Gray is converted to RGB, or RGB to gray (ITU-R 601), as the network needs it. The picture is
 * resized as in training if `info` describes that. Else a picture of another size is resized to the network's input;
 * for a square input the centre is cropped. Warnings name a 16-bit gray PNG whose values above 255 were clipped
 * (info->png16_scale), and a picture whose EXIF orientation is ignored (info->exif_rotate).
 * CVY_E_IO · CVY_E_FORMAT: broken, truncated, another format, or this build has no library for it · CVY_E_MISMATCH: the
 * network's input is not a picture · CVY_E_MEMORY. */
cvy_status cvy_picture_read(const char *path, const cvy_model_info *info, uint8_t *pixels);

/* Pictures to predict, in the order of the calls. */
typedef struct cvy_picture_list cvy_picture_list;
cvy_status cvy_picture_list_create(cvy_picture_list **out);
void cvy_picture_list_destroy(cvy_picture_list **list);
/* Adds a picture, all pictures of a folder and its subfolders (by their extensions, sorted by name), or all rows of an
 * idx file of images, plain or .gz, whose pixels stay in memory. A picture is not opened: a missing or broken one is an
 * error of the read. Other files of a folder are left out, with a message. A link to one of its own parent folders is
 * not followed. CVY_E_IO: a folder cannot be read (the list has the pictures of all others), or an idx file cannot be
 * read · CVY_E_FORMAT: a broken idx file, a folder without pictures · CVY_E_MEMORY: the list is unchanged. */
cvy_status cvy_picture_list_add(cvy_picture_list *list, const char *path);
int cvy_picture_list_count(const cvy_picture_list *list);
/* "photo.jpg", "t10k-images-idx3-ubyte[17]": borrowed from the list until the next picture is added. */
const char *cvy_picture_list_name(const cvy_picture_list *list, int i);
/* As cvy_picture_read; each warning names the first picture of the list. */
cvy_status cvy_picture_list_read(cvy_picture_list *list, int i, const cvy_model_info *info, uint8_t *pixels);

#ifdef __cplusplus
}
#endif
#endif
