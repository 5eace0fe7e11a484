/* SPDX-License-Identifier: MIT */
#include "src/data/picture_read.h"

#include <string.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"
#include "src/data/decode/picture_decode.h"
#include "src/data/resize.h"

/* How a picture becomes the network's input: as in training if the metadata describe it, else in the way that fits a
 * shape
 * like the network's: a square is the middle of the picture. */
static cvy_data_params size_of(const cvy_model_info *info) {
  if (info->size_h || info->size_w) return (cvy_data_params){.size_h = info->size_h, .size_w = info->size_w};
  return (cvy_data_params){.size_h = info->height == info->width ? -1 : info->height, .size_w = info->width};
}

/* `picture` may change. */
static cvy_status fit(const char *name, cvy_picture *picture, const cvy_model_info *info, uint8_t *out) {
  cvy_status status = CVY_OK;
  cvy_resizer resizer = {0};
  CVY_REQUIRE(info->channels == 1 || info->channels == 3, CVY_E_MISMATCH,
              "%s is a picture, and the network takes images of %d channels: pictures have 1 or 3", name,
              info->channels);
  CVY_REQUIRE(cvy_picture_set_channels(picture, info->channels), CVY_E_MEMORY, "no memory for the pixels of %s", name);
  if (picture->h == info->height && picture->w == info->width) {
    memcpy(out, picture->pixels, (size_t)picture->h * (size_t)picture->w * (size_t)picture->c);
    return CVY_OK;
  }
  const cvy_data_params params = size_of(info);
  const cvy_fit to = cvy_fit_of(&params, picture->h, picture->w);
  CVY_REQUIRE(to.h == info->height && to.w == info->width, CVY_E_MISMATCH,
              "%s becomes a picture of %dx%d (height, width), the network takes %dx%d", name, to.h, to.w, info->height,
              info->width);
  CVY_REQUIRE(cvy_resize(&resizer, picture->pixels, picture->h, picture->w, picture->c, &to, out), CVY_E_MEMORY,
              "no memory to resize %s", name);
fail:
  cvy_resizer_clear(&resizer);
  return status;
}

cvy_status cvy_picture_fit(const char *name, const uint8_t *in, int h, int w, int c, const cvy_model_info *info,
                           uint8_t *out) {
  cvy_status status = CVY_OK;
  const size_t bytes = (size_t)h * (size_t)w * (size_t)c;
  cvy_picture picture = {.c = c};
  if (h == info->height && w == info->width && c == info->channels) {
    memcpy(out, in, bytes);
    return CVY_OK;
  }
  CVY_REQUIRE(c == 1 || c == 3, CVY_E_MISMATCH,
              "%s is an image of %dx%dx%d (height, width, channels), the network takes %dx%dx%d", name, h, w, c,
              info->height, info->width, info->channels);
  CVY_REQUIRE(cvy_picture_reserve(&picture, h, w, c), CVY_E_MEMORY, "no memory for the %zu bytes of %s", bytes, name);
  memcpy(picture.pixels, in, bytes);
  CVY_TRY(fit(name, &picture, info, out));
fail:
  cvy_picture_clear(&picture);
  return status;
}

void cvy_picture_say(const char *path, const cvy_picture_oddities *odd, cvy_picture_oddities *said) {
  if (odd->clipped && !said->clipped)
    cvy_log_warning(
        "%s is a 16-bit gray PNG: values above 255 become white, as with torchvision's ImageFolder (Pillow's "
        "convert); --png16 scale takes 0 to 65535 as black to white",
        path);
  if (odd->turned && !said->turned)
    cvy_log_warning(
        "%s is turned or mirrored, as its EXIF says, which is ignored, as with torchvision's ImageFolder; "
        "--exif rotate takes it upright",
        path);
  said->clipped |= odd->clipped;
  said->turned |= odd->turned;
}

cvy_status cvy_picture_read(const char *path, const cvy_model_info *info, uint8_t *pixels) {
  cvy_picture_oddities odd, said = {0};
  const cvy_status status = cvy_picture_read_file(path, info, pixels, &odd);
  if (status == CVY_OK) cvy_picture_say(path, &odd, &said);
  return status;
}

cvy_status cvy_picture_read_file(const char *path, const cvy_model_info *info, uint8_t *pixels,
                                 cvy_picture_oddities *odd) {
  cvy_status status = CVY_OK;
  cvy_picture picture = {.scale_16 = info->png16_scale, .exif_rotate = info->exif_rotate};
  char *bytes = NULL;
  size_t size = 0;
  char why[CVY_PICTURE_WHY] = "";
  CVY_TRY(cvy_file_read(path, CVY_PICTURE_MOST_BYTES, &bytes, &size));
  status = cvy_picture_decode((const uint8_t *)bytes, size, &picture, why);
  if (status != CVY_OK) cvy_log_error("%s: %s", path, why);
  CVY_TRY(status);
  CVY_TRY(fit(path, &picture, info, pixels));
fail:
  *odd = (cvy_picture_oddities){.clipped = picture.clipped, .turned = picture.orientation > 1 && !info->exif_rotate};
  cvy_free(bytes);
  cvy_picture_clear(&picture);
  return status;
}
