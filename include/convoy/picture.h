/* SPDX-License-Identifier: MIT
 * Pictures in files, as a trained network takes them: height x width x channels bytes. Any thread; a list belongs to
 * one. */
#ifndef CONVOY_PICTURE_H
#define CONVOY_PICTURE_H

#include <stdint.h>

#include "convoy/about.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a picture into pixels (facts->height x width x channels): JPEG, PNG, PGM or PPM (P5, P6), decoded as those of a
 * data set (data.h). Gray becomes RGB and the other way round (ITU-R 601) as the network asks for. It is resized as in
 * training where the facts tell how; else, if it has another size than the network's input, to that size, of a square
 * input the middle. Warnings name a 16-bit gray PNG whose values above 255 became white (facts->png16_scale), and
 * a picture that EXIF turns, which is ignored (facts->exif_rotate).
 * CVY_E_IO · CVY_E_FORMAT: broken, cut off, another format, or this build has no library for it · CVY_E_MISMATCH: no
 * picture fits the network · CVY_E_MEMORY. */
cvy_status cvy_picture_read(const char *path, const cvy_model_info *info, uint8_t *pixels);

/* Pictures to predict, in the order of the calls. */
typedef struct cvy_picture_list cvy_picture_list;
cvy_status cvy_picture_list_create(cvy_picture_list **out);
void cvy_picture_list_destroy(cvy_picture_list **list);
/* Adds the picture, all pictures of a folder and of those in it (by their extensions, sorted by name), or all rows of
 * an idx file of images, plain or .gz, whose pixels are kept. A picture is not opened: if it is not there or broken,
 * reading it says so. Other files of a folder are left out, with a message; a link to a folder that it is in is not
 * followed. CVY_E_IO: a folder that cannot be read, of which the list has the pictures of all others; an idx file that
 * cannot be read · CVY_E_FORMAT: a broken idx file, a folder without pictures · CVY_E_MEMORY: the list is as it was. */
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
