/* SPDX-License-Identifier: MIT
 * Model metadata: settings of a trained network that its tensors do not hold. Weights files hold it. Any thread. */
#ifndef CONVOY_ABOUT_H
#define CONVOY_ABOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limit for images that are normalised; images that become pixels/255 may have more channels. */
enum { CVY_INPUT_CHANNELS_MOST = 16 };

/* Metadata of a trained network. Weights files and checkpoints hold it in the header, `__metadata__`, under the key
 * "convoy", as one JSON object with sorted keys:
 *   {"classes":10,"class_names":[…],"deviation":[…],"exif":"rotate","graph":"0123456789abcdef","gray":true,
 *    "input":[channels,height,width],"mean":[…],"model":"lenet","png16":"scale","size":[size_h,size_w]}
 * class_names, deviation and mean, exif, graph, gray, model, png16 and size are optional. Other keys are ignored. */
typedef struct cvy_model_info {
  const char *model; /* "resnet18", "lenet", an ONNX file as the user named it; NULL: a network that the program
                      * builds */
  uint64_t graph;    /* cvy_net_fingerprint of an ONNX file's network; 0: none */
  int channels, height, width, classes;
  const char *const *class_names; /* `classes` of them, plain UTF-8 (cvy_team_describe); NULL: classes are numbers */
  /* Resizing of pictures to height x width (cvy_data_params). size_h -1: shorter side to size_w, centre crop; 0, 0:
   * none. */
  int size_h, size_w;
  bool gray;                     /* pictures are converted to gray first */
  bool png16_scale, exif_rotate; /* as in cvy_data_params */
  /* x = (byte / 255 - mean[c]) / deviation[c]; n_channels 0: byte / 255. */
  int n_channels;
  float mean[CVY_INPUT_CHANNELS_MOST], deviation[CVY_INPUT_CHANNELS_MOST];
} cvy_model_info;

/* Reads only the metadata of a file. *out NULL with CVY_OK: it has none. CVY_E_IO · CVY_E_FORMAT: not a weights file,
 * or values out of range · CVY_E_MEMORY. */
cvy_status cvy_model_info_read(const char *path, cvy_model_info **out);
void cvy_model_info_free(cvy_model_info **info);
#ifdef __cplusplus
}
#endif
#endif
