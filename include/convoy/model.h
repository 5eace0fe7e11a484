/* SPDX-License-Identifier: MIT
 * A trained network in a file: its metadata, and predictions.
 *
 *   cvy_model *model;
 *   cvy_model_open("w.safetensors", "auto", NULL, &model);       // on all GPUs, else the CPU
 *   const cvy_model_info *info = cvy_model_get_info(model);    // classes, sizes, names
 *   cvy_model_predict(model, pixels, n, probabilities);          // n x h x w x c bytes → n x classes
 *   cvy_model_close(&model);
 *
 * tests/examples/predict.c is a whole program. */
#ifndef CONVOY_MODEL_H
#define CONVOY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/device.h"
#include "convoy/about.h"
#include "convoy/net.h"
#include "convoy/team.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the network that `info` describes and compares it with the names and shapes of the tensors of `path`, before
 * any device allocates memory. An ONNX model is opened by its name or, if there is no such file, beside `path`. Errors
 * as of cvy_net_open and cvy_team_load; CVY_E_MISMATCH also: the ONNX file's graph differs from info->graph. */
cvy_status cvy_model_net(const char *path, const cvy_model_info *info, cvy_net **out);

/* A trained network on devices, ready for predictions. One thread at a time. */
typedef struct cvy_model cvy_model;
/* Zero means the default everywhere. */
typedef struct cvy_model_params {
  int batch;                  /* samples of a pass on all devices together, for which memory is planned; 0: 256 */
  const cvy_model_info *info; /* for a file without metadata; for an ONNX file the values that it lacks, 0 else;
                               * copied */
  const char *model;          /* an ONNX file that replaces the one in the metadata; NULL: no replacement */
  const char *conv_algo;      /* as in cvy_team_params */
  cvy_math math;
  const cvy_stop *stop; /* requested: a prediction ends with CVY_E_INTERRUPTED; borrowed */
} cvy_model_params;
/* Opens a weights file, a checkpoint or an ONNX file with weights on the devices of a selector (cvy_devices_select;
 * NULL: "auto"). params may be NULL. An ONNX file does not describe preprocessing. Without params->info the shorter
 * side of a picture is resized to the input's size and the centre is cropped; the picture is converted to gray for one
 * channel; x = byte / 255. CVY_E_ARGUMENT also: neither the file nor params name the network. Other errors as of
 * cvy_model_net, cvy_devices_select, cvy_team_create and cvy_team_load. */
cvy_status cvy_model_open(const char *path, const char *devices, const cvy_model_params *params, cvy_model **out);
void cvy_model_close(cvy_model **model);
/* Metadata and devices, borrowed until the model is closed. */
const cvy_model_info *cvy_model_get_info(const cvy_model *model);
const cvy_devices *cvy_model_devices(const cvy_model *model);
/* Its team, which was created for inference, for parameters by name and predictions on floats (cvy_team_param_get,
 * cvy_team_param_set, cvy_team_evaluate_batch). Borrowed likewise. */
cvy_team *cvy_model_team(const cvy_model *model);
/* Probabilities of n samples (n, height, width, channels) of bytes → n x classes, by the pass of cvy_team_classify. An
 * evaluation with the same batch on the same devices gives the same numbers. More samples than a batch take several
 * passes. CVY_E_MEMORY · CVY_E_DEVICE: the last device failed · CVY_E_INTERRUPTED. */
cvy_status cvy_model_predict(cvy_model *model, const uint8_t *pixels, int n, float *probabilities);

#ifdef __cplusplus
}
#endif
#endif
