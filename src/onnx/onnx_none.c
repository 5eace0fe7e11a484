/* SPDX-License-Identifier: MIT
 * A build without protobuf-c: ONNX files are refused. */
#include "convoy/onnx.h"
#include "src/base/failure.h"

static cvy_status refuse(const char *path) {
  cvy_log_error("%s: this program was built without protobuf-c and can neither read nor write ONNX files", path);
  return CVY_E_UNSUPPORTED;
}

bool cvy_onnx_is_here(void) { return false; }
cvy_status cvy_onnx_input(const char *path, int shape[3]) {
  shape[0] = shape[1] = shape[2] = 0;
  return refuse(path);
}
cvy_status cvy_onnx_import(const char *path, int channels, int height, int width, cvy_net **out) {
  (void)channels, (void)height, (void)width;
  *out = NULL;
  return refuse(path);
}
cvy_status cvy_onnx_export(const cvy_net *net, const char *weights, cvy_onnx_end end, const char *path) {
  (void)net, (void)weights, (void)end;
  return refuse(path);
}
