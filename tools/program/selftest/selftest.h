/* SPDX-License-Identifier: MIT
 * Harness of `convoy selftest`: known results on the user's devices. A case of src/ref/cases.h is created once and run
 * on every device. */
#ifndef CVY_TOOLS_PROGRAM_SELFTEST_SELFTEST_H
#define CVY_TOOLS_PROGRAM_SELFTEST_SELFTEST_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "src/cl/buffer.h"
#include "src/cl/opened_device.h"
#include "src/ops/activation.h"
#include "src/ops/broadcast.h"
#include "src/ops/channels.h"
#include "src/ops/layers/groupnorm.h"
#include "src/ops/layers/resample.h"
#include "src/ref/case.h"

enum { SELFTEST_FAILURES_KEPT = 10 };

typedef struct selftest_device {
  const char *label;
  cvy_device *cl;
  char failures[SELFTEST_FAILURES_KEPT][600];
  int cases, failed;     /* shapes run, shapes that failed */
  long launches;         /* kernels run */
  double seconds, worst; /* largest error / bound of all values compared */
  char worst_case[256];
} selftest_device;

typedef struct selftest {
  selftest_device *devices;
  int n_devices;
} selftest;

/* Runs a case on all devices, under the name of its operation and this text; selftest_op also ends it. */
void selftest_case(selftest *t, op_case *c, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define selftest_op(t, c, ...) (selftest_case((t), (c), __VA_ARGS__), case_end(c))

/* All cases of the network `model`, or of resnet18 and lenet (NULL), and of other operations in one small shape. */
struct cvy_net;
cvy_status selftest_run_all(selftest *t, const char *model, const struct cvy_net *net);
/* Parts of selftest_run_all. */
void selftest_layers(selftest *t, const char *model, const struct cvy_net *net);
/* Fused convolution, ReLU and pool, on devices that support it. */
cvy_status selftest_convpools(selftest *t, const char *model, const struct cvy_net *net);
void selftest_other_operations(selftest *t);
/* One case; its text begins with `of`, as "resnet18 ". */
void selftest_activation(selftest *t, const char *of, int rows, const cvy_activation_params *p);
void selftest_broadcast(selftest *t, const char *of, const cvy_broadcast_params *p);
void selftest_resample(selftest *t, const char *of, const cvy_resample_params *p);
void selftest_groupnorm(selftest *t, const char *of, const cvy_groupnorm_params *p);
void selftest_channels(selftest *t, const char *of, int rows, const cvy_channels_call *call);

#endif
