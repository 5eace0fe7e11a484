/* SPDX-License-Identifier: MIT
 * Models by name or from a file. */
#include <string.h>

#include "convoy/onnx.h"
#include "src/base/failure.h"

bool cvy_onnx_is_file(const char *model) {
  const size_t n = model ? strlen(model) : 0;
  return n > 5 && !strcmp(model + n - 5, ".onnx");
}

cvy_status cvy_net_open(const char *model, int channels, int height, int width, int classes, cvy_net **out) {
  cvy_status status = CVY_OK;
  cvy_net *net = NULL;
  *out = NULL;
  if (!cvy_onnx_is_file(model)) return cvy_net_model(model, channels, height, width, classes, out);
  CVY_TRY(cvy_onnx_import(model, channels, height, width, &net));
  CVY_REQUIRE(classes == 0 || classes == cvy_net_classes(net), CVY_E_MISMATCH,
              "%s has %d classes, the data have %d: export it with as many outputs. If the data hold a part of "
              "its classes: a folder of pictures needs a folder for each of them (empty ones, too), other data "
              "--classes %d",
              model, cvy_net_classes(net), classes, cvy_net_classes(net));
  *out = net;
  net = NULL;
fail:
  cvy_net_destroy(&net);
  return status;
}
