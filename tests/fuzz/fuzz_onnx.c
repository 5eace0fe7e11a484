/* SPDX-License-Identifier: MIT
 * convoy/onnx.h: the input is a whole file. What can be read as a network can be written, and is then read again. */
#include <stdlib.h>

#include "convoy/onnx.h"
#include "tests/fuzz/fuzz.h"

static const float values[1 << 16];

void fuzz_seeds(void) {
  for (int softmax = 0; softmax < 2; softmax++) {
    cvy_net *net;
    size_t size;
    FUZZ_OK(cvy_net_create(1, 5, 5, &net));
    cvy_node x =
        cvy_net_conv2d(net, cvy_net_input(net), "c", &(cvy_conv2d_spec){.filters = 2, .kernel = {3, 3}, .pad = {1, 1}});
    x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "b", NULL));
    x = cvy_net_add(net, cvy_net_maxpool(net, x, &(cvy_pool2d_spec){.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}}),
                    x);
    FUZZ_OK(cvy_net_finish(net, cvy_net_linear(net, cvy_net_global_avgpool(net, x), "f", 2, false)));
    for (int k = 0; k < cvy_net_param_count(net); k++) {
      cvy_param_info p;
      if (cvy_net_param(net, k, &p)) FUZZ_OK(cvy_net_set_values(net, p.name, values, p.elems));
    }
    const char *const path = fuzz_file("seed", NULL, 0, NULL, 0);
    FUZZ_OK(cvy_onnx_export(net, NULL, softmax ? CVY_ONNX_PROBABILITIES : CVY_ONNX_LOGITS, path));
    uint8_t *const file = fuzz_read(path, &size);
    fuzz_seed(file, size, NULL, 0);
    free(file);
    cvy_net_destroy(&net);
  }
}

/* Values that are trained: neighbouring factors and numbers that are added may become one layer. */
static size_t count_trained(const cvy_net *net) {
  size_t n = 0;
  for (int k = 0; k < cvy_net_param_count(net); k++) {
    cvy_param_info p;
    if (cvy_net_param(net, k, &p) && !p.fixed) n += p.elems;
  }
  return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_net *net, *again;
  if (cvy_onnx_import(fuzz_file("file.onnx", data, size, NULL, 0), 0, 0, 0, &net) == CVY_OK) {
    const char *const path = fuzz_file("again.onnx", NULL, 0, NULL, 0);
    CVY_ASSERT(cvy_net_has_all_values(net));
    FUZZ_OK(cvy_onnx_export(net, NULL, CVY_ONNX_AS_READ, path));
    FUZZ_OK(cvy_onnx_import(path, 0, 0, 0, &again));
    CVY_ASSERT(count_trained(net) == count_trained(again));
    cvy_net_destroy(&again);
    cvy_net_destroy(&net);
  }
  CVY_ASSERT(!net);
  fuzz_end();
  return 0;
}
