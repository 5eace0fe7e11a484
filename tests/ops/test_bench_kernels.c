/* SPDX-License-Identifier: MIT
 * The kernels of `convoy bench` do the work that they are timed for: every value is written or copied once, every value
 * is read, and the multiply-adds are as many as said. */
#include <math.h>

#include "src/cl/launch.h"
#include "tests/support/check.h"

enum { LOCAL = 256, CHAINS = 12 };

typedef struct geometry {
  cvy_grid each, read;
  int vec, items, chunk, read_chunk, groups;
} geometry;

static geometry geometry_of(const check_device *d, int n_vec, int groups) {
  geometry g = {.vec = d->cpu_shaped ? 16 : 4, .items = d->cpu_shaped ? 1 : LOCAL};
  g.chunk = d->cpu_shaped ? (n_vec + groups - 1) / groups : 1;
  g.each = (cvy_grid){.global = {d->cpu_shaped ? (size_t)groups : cvy_round_up((size_t)n_vec, LOCAL)},
                      .local = {(size_t)g.items}};
  g.read_chunk = (n_vec + groups - 1) / groups;
  g.groups = groups;
  g.read = (cvy_grid){.global = {(size_t)(groups * g.items)}, .local = {(size_t)g.items}};
  return g;
}

CHECK_TEST(memory) {
  cvy_kernel *read = NULL, *write = NULL, *copy = NULL;
  check_ok(cvy_kernel_create(d->cl, "bench", "bench_read", NULL, 0, &read));
  check_ok(cvy_kernel_create(d->cl, "bench", "bench_write", NULL, 0, &write));
  check_ok(cvy_kernel_create(d->cl, "bench", "bench_copy", NULL, 0, &copy));
  for (int i = 0; i < (getenv("CVY_TEST_OCLGRIND") ? 4 : 16); i++) {
    case_rng r = check_rng_make(d, i);
    const int n_vec = case_edge(&r, 64, getenv("CVY_TEST_OCLGRIND") ? 700 : 5000), groups = case_int(&r, 1, 7);
    if (!check_case(d, "memory vectors=%d groups=%d", n_vec, groups)) continue;
    const geometry g = geometry_of(d, n_vec, groups);
    const int n = n_vec * g.vec, sums = groups * g.items * g.vec;
    float *const x = check_floats(d, (size_t)n), *const value = check_floats(d, (size_t)n);
    case_fill(&r, x, (size_t)n, CASE_FILL_INTEGERS);
    for (int k = 0; k < n; k++) value[k] = 1.5f;
    check_buffer *const bx = check_input(d, "x", x, 1, n, n), *const by = check_output(d, "y", 1, n, n);
    check_buffer *const bz = check_output(d, "z", 1, n, n), *const out = check_output(d, "out", 1, sums, sums);
    check_ok(CVY_LAUNCH(d->queue, copy, g.each, CVY_BUF(bx->cl), CVY_BUF(by->cl), CVY_UINT((uint32_t)n_vec),
                        CVY_UINT((uint32_t)g.chunk)));
    check_ok(CVY_LAUNCH(d->queue, write, g.each, CVY_BUF(bz->cl), CVY_FLOAT(1.5f), CVY_UINT((uint32_t)n_vec),
                        CVY_UINT((uint32_t)g.chunk)));
    check_ok(CVY_LAUNCH(d->queue, read, g.read, CVY_BUF(bx->cl), CVY_BUF(out->cl), CVY_UINT((uint32_t)n_vec),
                        CVY_UINT((uint32_t)g.read_chunk)));
    check_same(d, "copy", check_download(by), x, 1, n);
    check_same(d, "write", check_download(bz), value, 1, n);
    const float *const got = check_download(out);
    double want = 0, sum = 0; /* small integers: exact */
    for (int k = 0; k < n; k++) want += (double)x[k];
    for (int k = 0; k < sums; k++) sum += (double)got[k];
    if (sum != want) check_fail(d, "the sums of bench_read add up to %g, must be %g", sum, want);
    check_case_end(d);
  }
  cvy_kernel_destroy(&read);
  cvy_kernel_destroy(&write);
  cvy_kernel_destroy(&copy);
}

CHECK_TEST(fma) {
  static const int widths[] = {1, 4, 8, 16};
  for (int i = 0; i < 4; i++) {
    const int width = widths[i], rounds = 5 + i, items = d->cpu_shaped ? 3 : 2 * LOCAL;
    const cvy_define define = {"WIDTH", width};
    cvy_kernel *fma_kernel = NULL;
    if (!check_case(d, "fma width=%d", width)) continue;
    check_ok(cvy_kernel_create(d->cl, "bench", "bench_fma", &define, 1, &fma_kernel));
    check_buffer *const out = check_output(d, "out", items, width, width);
    const cvy_grid grid = {.global = {(size_t)items}, .local = {d->cpu_shaped ? 1 : LOCAL}};
    check_ok(
        CVY_LAUNCH(d->queue, fma_kernel, grid, CVY_BUF(out->cl), CVY_FLOAT(0.5f), CVY_FLOAT(0.25f), CVY_INT(rounds)));
    double *const want = check_doubles(d, (size_t)(items * width)), *const tol =
                                                                        check_doubles(d, (size_t)(items * width));
    for (int k = 0; k < items * width; k++) {
      for (int chain = 0; chain < CHAINS; chain++) {
        double v = k / width + chain;
        for (int round = 0; round < rounds; round++) v = v * 0.5 + 0.25;
        want[k] += v;
      }
      tol[k] = 1e-6 * (fabs(want[k]) + 1);
    }
    check_close(d, "out", check_download(out), want, tol, (size_t)items, width);
    check_case_end(d);
    cvy_kernel_destroy(&fma_kernel);
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
