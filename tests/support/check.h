/* SPDX-License-Identifier: MIT
 * What the tests share: a main over all devices, guarded and poisoned buffers, fills, bounds, reports.
 *
 *   CHECK_TEST(relu) {
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
 *   int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
 *
 * Command line: [--case 'TEXT'] runs the cases with exactly this text, [--test NAME]… these tests alone.
 * CVY_TEST_DEVICE=P:D narrows to one device, CVY_TEST_SHAPE=cpu|simt to one shape of kernels, CVY_TEST_SEED sets the
 * seed (default 1). Exit: 0, 1 failed, 77 no usable device or every test was skipped (a skip, not a pass). */
#ifndef CVY_TESTS_SUPPORT_CHECK_H
#define CVY_TESTS_SUPPORT_CHECK_H

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
#include "src/cl/devices/device_open.h"
#include "src/ref/case.h"

#ifdef NDEBUG
#error "tests keep their asserts: build without NDEBUG"
#endif
/* what a test, or a callback of one, is given and has no use for */
#pragma GCC diagnostic ignored "-Wunused-parameter"

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
  struct check_object *objects;
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
/* The same with all tests that CHECK_TEST has made, in the order of their lines. Where the test layer is built
 * (CVY_TEST_LAYER), the OpenCL loader is told to take it. */
int check_run(int argc, char **argv, int flags);
/* begin before each test, and end after it unless it failed; either may be NULL. */
void check_around(void (*begin)(check_device *d), void (*end)(check_device *d));
/* Called once, behind the last test on the last device. */
void check_after_all(void (*fn)(void));
/* For tests of kernels whose functions return structs: oclgrind does not know a declaration that comes of inlining
 * those, so there kernels are built without optimisation. Called before check_main or check_run. */
void check_plain_in_oclgrind(void);
void check_add(int line, const char *name, void (*fn)(check_device *d));
/* Defines a test: CHECK_TEST(name) { … }, with `check_device *d`. */
#define CHECK_TEST(name)                                                                                 \
  static void test_##name(check_device *d);                                                              \
  __attribute__((constructor)) static void add_##name(void) { check_add(__LINE__, #name, test_##name); } \
  static void test_##name(check_device *d)

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
/* An empty folder, the only one of its test, removed with all its content at the test's end. Borrowed. */
const char *check_temp_dir(void);
/* A text, and a path in the test's folder, which is made if there is none: both last until the test's end. */
const char *check_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *check_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on every program is a new one to this process and to the driver: PoCL keeps what was compiled, in memory and
 * on the disk. The cache is in an empty folder. */
void check_fresh_programs(void);
/* Makes or replaces a file. */
void check_write(const char *path, const void *bytes, size_t n);
/* A file's bytes and a 0 behind them, until the test's end; n may be NULL. */
char *check_read(const char *path, size_t *n);
void check_same_files(const char *a, const char *b);

/* ---- objects of a case ---- */
/* check_case_end closes it, the last one first; a test that fails leaves it open. Returns the object. check_team.h has
 * the usual ones. */
void *check_own(check_device *d, void *object, void (*close)(void *object));
/* Closes it now, and before it whatever was opened after it. */
void check_release(check_device *d, const void *object);

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
