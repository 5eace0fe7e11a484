/* SPDX-License-Identifier: MIT
 * What the tests share: a main over all devices, guarded and poisoned buffers, fills, bounds, reports.
 *
 *   static void test_relu(check_device *d) {
 *     for (int i = 0; i < 20; i++) {
 *       case_rng r = check_rng_make(d, i);
 *       const int rows = case_edge(&r, 16, 100), c = case_edge(&r, 16, 70), pitch = cvy_pitch_of(c);
 *       if (!check_case(d, "relu rows=%d c=%d", rows, c)) continue;
 *       float *x = check_floats(d, (size_t)rows * c);                   // freed by check_case_end
 *       case_fill(&r, x, (size_t)rows * c, CASE_FILL_ANY);
 *       check_buffer *bx = check_input(d, "x", x, rows, c, pitch), *by = check_output(d, "y", rows, c, pitch);
 *       check_ok(cvy_relu_…(…, d->queue, …, bx->cl, by->cl));
 *       check_close(d, "y", check_download(by), want, tol, rows, c);
 *       check_case_end(d);                                              // guards, inputs unchanged, everything freed
 *     }
 *   }
 *   int main(int argc, char **argv) {
 *     static const check_test tests[] = {{"relu", test_relu}};
 *     return check_main(argc, argv, tests, 1, CHECK_DEVICES | CHECK_BOTH_SHAPES);
 *   }
 *
 * Command line: [--case 'TEXT'] runs the cases with exactly this text, [--test NAME] one test.
 * CVY_TEST_DEVICE=P:D narrows to one device, CVY_TEST_SHAPE=cpu|simt to one shape of kernels, CVY_TEST_SEED sets the
 * seed (default 1). Exit: 0, 1 failed, 77 no usable device or every test was skipped (a skip, not a pass). */
#ifndef CVY_TESTS_CHECK_H
#define CVY_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/base/mem.h"
#include "src/base/failure.h"
#include "src/cl/buffer.h"
#include "src/cl/opened_device.h"
#include "src/ref/case.h"

#ifdef NDEBUG
#error "tests keep their asserts: build without NDEBUG"
#endif

typedef struct check_buffer check_buffer;
typedef struct check_device {
  cvy_device *cl;   /* NULL in tests without device */
  cvy_queue *queue; /* its compute queue */
  bool cpu_shaped;  /* shape of kernels in this run */
  char name[200];   /* "0:0 pthread-… (simt)" */
  char place[16];   /* "0:0" */
  /* private */
  char case_text[512];
  check_buffer *buffers;
  case_memory memory;
} check_device;

typedef struct check_test {
  const char *name;
  void (*fn)(check_device *d);
} check_test;
/* CHECK_DEVICES: each test runs once per usable device (else once, with d->cl NULL). CHECK_BOTH_SHAPES: on each device
 * once with CPU-shaped and once with SIMT kernels (CVY_FORCE_SHAPE). CHECK_PROFILING: devices are opened with
 * profiling. CHECK_NOT_RUSTICL: not there; Mesa 22.3 crashes in its own compiled code when teams of several contexts
 * come and go in a process (an evaluation that was interrupted, devices that failed), which PoCL, Intel and the
 * sanitizers do not complain about. After the tests no object may be alive, unless a device was given up because it
 * hung. */
enum { CHECK_HOST = 0, CHECK_DEVICES = 1, CHECK_BOTH_SHAPES = 2, CHECK_PROFILING = 4, CHECK_NOT_RUSTICL = 8 };
int check_main(int argc, char **argv, const check_test *tests, int n_tests, int flags);

/* Names the case that follows, for reports; false if --case asks for another one. */
bool check_case(check_device *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits for the queue; guard bands must be whole and inputs unchanged; frees buffers and blocks of the case. Also done
 * after each test. */
void check_case_end(check_device *d);

/* Runs a case of src/ref/cases.h, and ends it: everything about it must be right. */
void check_op(check_device *d, op_case *c);

/* ---- calls ---- */
#define check_ok(expr) check_status_is((expr), CVY_OK, NULL, #expr, __FILE__, __LINE__)
/* Must fail with `code` and log a message that contains `text` (NULL: any). */
#define check_fails(expr, code, text) \
  (check_log_clear(), check_status_is((expr), (code), (text), #expr, __FILE__, __LINE__))
void check_status_is(cvy_status got, cvy_status want, const char *text, const char *expr, const char *file, int line);
/* Messages of the library are kept (all levels) and printed if the test fails. */
void check_log_clear(void);
void check_log_start(void); /* again, after a test has set a callback of its own */
bool check_log_contains(const char *text);
const char *check_log_get(void);
/* An empty folder, removed with all its content at exit. Borrowed. */
const char *check_temp_dir(void);

/* ---- random shapes and values: src/ref/case.h ---- */
uint64_t check_seed(void);
case_rng check_rng_make(const check_device *d, int stream); /* the same on every device */
/* Zeroed memory of the case, freed by check_case_end. */
float *check_floats(check_device *d, size_t n);
double *check_doubles(check_device *d, size_t n);
double *check_to_doubles(check_device *d, const float *x, size_t n);

/* ---- device memory with guard bands ---- */
struct check_buffer {
  cvy_buffer *cl; /* what the operation gets: a slice with guards on both sides */
  /* private */
  check_device *device;
  case_guarded *guarded;
  char name[32];
  size_t size_bytes;
  bool constant; /* must be as it was at the end */
  int rows, cols, pitch;
  check_buffer *next;
};
/* rows x cols floats (dense on the host) with `pitch` floats per row on the device, padding zero. Must be unchanged at
 * the end. */
check_buffer *check_input(check_device *d, const char *name, const float *dense, int rows, int cols, int pitch);
/* The same, but the operation may change it (accumulation, in-place). Padding must still be zero when downloaded. */
check_buffer *check_inout(check_device *d, const char *name, const float *dense, int rows, int cols, int pitch);
/* All NaN, padding too. */
check_buffer *check_output(check_device *d, const char *name, int rows, int cols, int pitch);
/* Bytes that must be unchanged (labels, indices, uint8 images). */
check_buffer *check_input_bytes(check_device *d, const char *name, const void *bytes, size_t size_bytes);
/* `size_bytes` of 0xff: workspace or an output of another type than float. */
check_buffer *check_scratch(check_device *d, const char *name, size_t size_bytes);
/* Waits; rows x cols dense floats, freed by check_case_end. The padding must be zero. */
const float *check_download(check_buffer *buffer);
/* Waits; the raw bytes. */
void check_download_bytes(check_buffer *buffer, void *out, size_t size_bytes);

/* ---- comparisons: a failure prints device, case, seed, worst element, a map, and the command that repeats it ---- */
/* Each |got - want| must be <= tol; a value that is not finite where `want` is finite is wrong whatever tol says. */
void check_close(check_device *d, const char *what, const float *got, const double *want, const double *tol,
                 size_t rows, int cols);
/* tol = factor * FLT_EPSILON * mag + FLT_MIN, mag = sum of |terms| of each element. */
void check_close_mag(check_device *d, const char *what, const float *got, const double *want, const double *mag,
                     double factor, size_t rows, int cols);
/* Bit for bit, except that 0 and -0 are the same. */
void check_same(check_device *d, const char *what, const float *got, const float *want, size_t rows, int cols);
/* ||got - want|| <= bound * ||want|| (l2 norms). */
void check_relative_l2(check_device *d, const char *what, const float *got, const double *want, size_t n, double bound);
/* Fails with case, seed and command. */
_Noreturn void check_fail(check_device *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the test, which is neither passed nor failed: prints the reason. What it has created must be gone. */
_Noreturn void check_skip(check_device *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
