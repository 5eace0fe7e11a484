/* SPDX-License-Identifier: MIT
 * Known answers on the user's devices: harness of `convoy selftest`. A case is one operation with one shape; its truth
 * (src/ref, in double) is computed once and compared on every device. Errors stick to the case: after one, later calls
 * of the same case and device do nothing.
 *
 *   selftest_case_begin(t, "relu", "n=%zu", n);
 *   const float *x = selftest_random(t, n, -1, 1);
 *   double *want = …, *bound = …;
 *   while (selftest_next_device(t)) {
 *     cvy_buffer *bx = selftest_input(t, x, 1, n, n), *by = selftest_output(t, 1, n, n);
 *     SELFTEST_RUN(t, cvy_eltwise_relu(op, t->queue, n, bx, by));
 *     selftest_compare(t, "y", by, 1, n, n, want, bound);
 *   }
 *   selftest_case_end(t); */
#ifndef CVY_TOOLS_SELFTEST_H
#define CVY_TOOLS_SELFTEST_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "src/cl/buffer.h"
#include "src/cl/opened_device.h"
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
  /* the case */
  char operation[64], text[256];
  int at;         /* device of the loop, -1 before it */
  cvy_device *cl; /* its device and compute queue */
  cvy_queue *queue;
  bool failed; /* this case on this device */
  long launches_before;
  uint64_t begin_ns;
  cvy_buffer *buffers[32];
  int n_buffers;
  void *blocks[64];
  int n_blocks, case_blocks; /* case_blocks: those of the case itself, not of one device */
  uint64_t random_at;
} selftest;

void selftest_case_begin(selftest *t, const char *operation, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void selftest_case_end(selftest *t);
/* The whole of it for a case of src/ref/cases.h; selftest_op also ends that. */
void selftest_case(selftest *t, op_case *c, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define selftest_op(t, c, ...) (selftest_case((t), (c), __VA_ARGS__), case_end(c))
bool selftest_next_device(selftest *t);

/* Host memory of the case, freed by its end; zeroed. */
float *selftest_floats(selftest *t, size_t n);
double *selftest_doubles(selftest *t, size_t n);
float *selftest_random(selftest *t, size_t n, double lo, double hi);
/* As doubles, absolute values if `magnitude`. */
double *selftest_widen(selftest *t, const float *x, size_t n, bool magnitude);

/* Device memory of the case and device: rows x c values, `pitch` apart, zeros between. Outputs start as NaN, but zeros
 * behind c. */
cvy_buffer *selftest_input(selftest *t, const float *x, size_t rows, size_t c, size_t pitch);
cvy_buffer *selftest_output(selftest *t, size_t rows, size_t c, size_t pitch);
cvy_buffer *selftest_bytes(selftest *t, const void *data, size_t size_bytes); /* data NULL: undefined */
cvy_buffer *selftest_workspace(selftest *t, size_t size_bytes);               /* NULL for 0 */
/* Dense values back on the host (zeros on failure). */
float *selftest_read(selftest *t, cvy_buffer *buffer, size_t rows, size_t c, size_t pitch);

/* Each |got - want| <= bound; bound NULL: equal after rounding `want` to float. */
void selftest_compare(selftest *t, const char *what, cvy_buffer *buffer, size_t rows, size_t c, size_t pitch,
                      const double *want, const double *bound);
void selftest_fail(selftest *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define SELFTEST_RUN(t, expr)                                                                                  \
  do {                                                                                                         \
    if (!(t)->failed) {                                                                                        \
      const cvy_status selftest_status = (expr);                                                               \
      if (selftest_status != CVY_OK) selftest_fail((t), "%.40s: %s", #expr, cvy_status_text(selftest_status)); \
    }                                                                                                          \
  } while (0)

/* bound[i] = factor * eps * bound[i] + the smallest normal float. */
void selftest_bounds(double *bound, size_t n, double factor);

/* All cases of the networks resnet18 and lenet, and of operations that they do not use in one small shape. */
cvy_status selftest_run_all(selftest *t);
/* Parts of selftest_run_all. */
struct cvy_net;
void selftest_layers(selftest *t, const char *model, const struct cvy_net *net);
/* Convolution, ReLU and pool in one, where a device has it. */
cvy_status selftest_convpools(selftest *t, const char *model, const struct cvy_net *net);
void selftest_other_operations(selftest *t);

#endif
