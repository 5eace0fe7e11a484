/* SPDX-License-Identifier: MIT
 * Convolutions on libraries opened at run time (gemm: CLBlast, fft: clFFT) against the reference; and what happens
 * without the libraries (CVY_CLBLAST=none, CVY_CLFFT=none).
 *
 * Where a library is not there, or fails on a driver, its cases are skipped with the reason that `works` gave. Under
 * oclgrind they all are, for time: CLBlast is tried with a product of 10^9 multiply-adds, and compiling and trying one
 * size of clFFT's transforms takes minutes there. What our own kernels write is checked by the guard bands of each
 * case. */
#include <stdio.h>

#include "src/cl/blas.h"
#include "src/cl/fft.h"
#include "tests/support/conv_case.h"

static const cvy_conv_algo_list gemm_only = {1, {CVY_CONV_GEMM}}, fft_only = {1, {CVY_CONV_FFT}};

enum { RANDOM_CASES = 16, MOST_WORK = 300000 };

/* Its planes have a size that the cases of fft use too. */
static const cvy_conv2d_params small = {
    .n_max = 1, .x = {9, 7, 3, 4}, .k = 4, .y_pitch = 4, .r = 5, .s = 5, .stride_h = 1, .stride_w = 1};

/* Can the algorithm do anything here? Says why not, and skips the test. */
static void need(check_device *d, cvy_conv_algo algo) {
  cvy_conv2d_params p = small;
  p.algos = (cvy_conv_algo_list){1, {algo}};
  if (conv_in_oclgrind()) check_skip(d, "%s would take too long under oclgrind", cvy_conv_algo_name(algo));
  cvy_conv2d *op = NULL;
  check_log_clear();
  const cvy_status status = cvy_conv2d_create(d->cl, &p, &op);
  cvy_conv2d_destroy(&op);
  if (status == CVY_OK) return;
  assert_int_equal(status, CVY_E_UNSUPPORTED);
  check_skip(d, "%s: %s", cvy_conv_algo_name(algo), check_log_get());
}

static void run_case(check_device *d, case_rng *r, const conv_case *c, const char *name) {
  conv_case_run(d, r, c);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    if (*conv_case_took((cvy_conv_pass)pass)) assert_string_equal(conv_case_took((cvy_conv_pass)pass), name);
}

static int any_pitch(case_rng *r, int c) {
  const int pitches[] = {c, cvy_pitch_of(c), (c + 3) / 4 * 4, c + 1, cvy_input_pitch_of(c)};
  return pitches[case_int(r, 0, 4)];
}

/* What any algorithm's cases have beside the shape. */
static void choose_rest(case_rng *r, conv_case *c, double most_work) {
  cvy_conv2d_params *const p = &c->p;
  const int most = (int)(most_work / conv_case_work(p, 1));
  c->n = case_edge(r, 7, most < 40 ? most : 40);
  p->n_max = c->n + CASE_ONE_OF(r, 0, 0, 1, 30);
  p->bias = case_int(r, 0, 1);
  p->prologue = case_int(r, 0, 1) ? case_int(r, 1, 7) : 0;
  p->stats = case_int(r, 0, 1);
  p->no_backward_data = case_int(r, 0, 3) == 0;
  p->x.pitch = any_pitch(r, p->x.c), p->y_pitch = any_pitch(r, p->k);
  c->group_size = p->prologue & CVY_CONV_SCALE ? CASE_ONE_OF(r, 0, 1, 2, 3, 100) : 0;
  c->accumulate = case_int(r, 0, 1);
  c->fill = (case_fill_kind)case_int(r, 0, CASE_FILL_ANY - 1);
}

/* ---- gemm ---- */

static void test_gemm_random(check_device *d) {
  need(d, CVY_CONV_GEMM);
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : RANDOM_CASES); i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = {0};
    cvy_conv2d_params *const p = &c.p;
    do {
      *p = (cvy_conv2d_params){.x = {.h = case_edge(&r, 7, 20),
                                     .w = case_edge(&r, 14, 30),
                                     .c = CASE_ONE_OF(&r, 1, 2, 3, 4, 7, 16, 17, 20, 33, 64)},
                               .k = CASE_ONE_OF(&r, 1, 3, 10, 16, 17, 20, 33, 64),
                               .r = CASE_ONE_OF(&r, 1, 1, 2, 3, 3, 5, 7),
                               .s = CASE_ONE_OF(&r, 1, 1, 2, 3, 3, 5, 7),
                               .stride_h = CASE_ONE_OF(&r, 1, 1, 2, 2, 3, 4),
                               .stride_w = CASE_ONE_OF(&r, 1, 1, 2, 2, 3, 4),
                               .pad_h = CASE_ONE_OF(&r, 0, 1, 1, 2, 8),
                               .pad_w = CASE_ONE_OF(&r, 0, 1, 1, 2, 3),
                               .n_max = 1,
                               .algos = gemm_only};
      p->x.pitch = p->x.c, p->y_pitch = p->k;
    } while (p->x.h + 2 * p->pad_h < p->r || p->x.w + 2 * p->pad_w < p->s || conv_case_work(p, 1) > MOST_WORK);
    choose_rest(&r, &c, MOST_WORK);
    run_case(d, &r, &c, "gemm");
  }
}

/* Layers of the networks, products large enough for CLBlast's tiled kernels, columns in place, several chunks. */
static void test_gemm_layers(check_device *d) {
  static const struct {
    int n, h, w, c, x_pitch, k, r, stride, pad, mib;
    bool bias;
    int prologue;
  } layers[] = {
      {2, 28, 28, 64, 64, 64, 3, 1, 1, 0, true, 0},
      {5, 14, 14, 20, 32, 50, 5, 1, 2, 1, true, 0},   /* chunks of two samples, the last of one */
      {7, 28, 28, 32, 32, 64, 3, 2, 1, 1, true, 3},   /* groups of the prologue across chunks */
      {7, 7, 7, 33, 48, 20, 1, 1, 0, 0, true, 0},     /* columns in place, padding of dx */
      {7, 7, 7, 32, 32, 20, 1, 1, 0, 0, false, 3},    /* the same with a prologue: not in place */
      {2, 14, 14, 64, 64, 128, 1, 2, 0, 0, true, 0},  /* a shortcut */
      {33, 4, 4, 48, 48, 128, 4, 1, 0, 0, true, 0},   /* linear: columns in place */
      {9, 4, 4, 50, 64, 10, 4, 3, 0, 0, true, 0},     /* linear with pitch */
      {300, 1, 1, 128, 128, 10, 1, 1, 0, 1, true, 0}, /* linear on one pixel */
      {6, 28, 28, 64, 64, 288, 3, 1, 1, 0, true, 0},  /* CLBlast's tiled kernels, which want `temp` */
  };
  need(d, CVY_CONV_GEMM);
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    if (layers[i].k == 288 && !d->cpu_shaped && !getenv("CVY_TEST_FULL")) continue; /* the reference takes seconds */
    case_rng r = check_rng_make(d, 1000 + (int)i);
    conv_case c = {.n = layers[i].n,
                   .p = {.n_max = layers[i].n + (int)i % 2,
                         .x = {layers[i].h, layers[i].w, layers[i].c, layers[i].x_pitch},
                         .k = layers[i].k,
                         .y_pitch = cvy_pitch_of(layers[i].k),
                         .r = layers[i].r,
                         .s = layers[i].r,
                         .stride_h = layers[i].stride,
                         .stride_w = layers[i].stride,
                         .pad_h = layers[i].pad,
                         .pad_w = layers[i].pad,
                         .bias = layers[i].bias,
                         .prologue = layers[i].prologue,
                         .stats = i % 2 == 0,
                         .algos = gemm_only},
                   .group_size = 2,
                   .accumulate = i % 3 == 2,
                   .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_INTEGERS};
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
      c.p.choice[pass] = (cvy_conv_choice){CVY_CONV_GEMM, {layers[i].mib}};
    run_case(d, &r, &c, "gemm");
  }
}

/* ---- fft ---- */

/* Few sizes of planes: each is some seconds of compiling. */
static const int sizes[][2] = {{10, 7}, {14, 15}};

/* Random rows (columns) of image, filter and padding whose planes have `length`. */
static void choose_line(case_rng *r, int (*length_of)(int least), int length, int *size, int *filter, int *pad) {
  int least;
  do {
    *filter = CASE_ONE_OF(r, 5, 5, 6, 7, 11);
    *pad = CASE_ONE_OF(r, 0, 1, 2, 2, 3, *filter - 1, *filter + 2);
    *size = case_int(r, 1, length);
    least = *size + (*pad < *filter - 1 ? *pad : *filter - 1);
    if (least < *filter) least = *filter;
  } while (length_of(least) != length || *size + 2 * *pad < *filter);
}

static void test_fft_random(check_device *d) {
  need(d, CVY_CONV_FFT);
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : RANDOM_CASES); i++) {
    case_rng r = check_rng_make(d, 2000 + i);
    const int *const size = sizes[i % (int)(sizeof sizes / sizeof *sizes)];
    conv_case c = {0};
    cvy_conv2d_params *const p = &c.p;
    do {
      *p = (cvy_conv2d_params){.x = {.c = CASE_ONE_OF(&r, 1, 2, 3, 4, 7, 16, 17, 20)},
                               .k = CASE_ONE_OF(&r, 1, 3, 10, 16, 17, 20),
                               .stride_h = 1,
                               .stride_w = 1,
                               .n_max = 1,
                               .algos = fft_only};
      choose_line(&r, cvy_fft_rows, size[0], &p->x.h, &p->r, &p->pad_h);
      choose_line(&r, cvy_fft_width, size[1], &p->x.w, &p->s, &p->pad_w);
      p->x.pitch = p->x.c, p->y_pitch = p->k;
    } while (conv_case_work(p, 1) > 4 * MOST_WORK);
    choose_rest(&r, &c, 4 * MOST_WORK);
    run_case(d, &r, &c, "fft");
  }
}

/* LeNet's layer, large filters, padding that nothing sees, and sums in parts: over samples, channels and filters. */
static void test_fft_layers(check_device *d) {
  static const struct {
    int n, h, w, c, k, r, pad, mib, prologue;
  } layers[] = {
      {5, 13, 15, 20, 50, 5, 0, 0, 0}, {40, 12, 13, 20, 50, 5, 2, 1, 3}, {3, 4, 6, 4, 5, 11, 9, 0, 0},
      {2, 8, 6, 40, 70, 5, 1, 1, 0},   {60, 8, 5, 30, 20, 7, 2, 1, 5},
  };
  need(d, CVY_CONV_FFT);
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    case_rng r = check_rng_make(d, 3000 + (int)i);
    conv_case c = {
        .n = layers[i].n,
        .p = case_conv2d_params(layers[i].n + (int)i % 2 * 3,
                                (cvy_shape){layers[i].h, layers[i].w, layers[i].c, cvy_pitch_of(layers[i].c)},
                                layers[i].k, layers[i].r, 1, layers[i].pad),
        .group_size = 3,
        .accumulate = i % 2 == 0,
        .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_OUTLIERS};
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
      c.p.choice[pass] = (cvy_conv_choice){CVY_CONV_FFT, {layers[i].mib}};
    c.p.bias = c.p.stats = true, c.p.prologue = layers[i].prologue, c.p.algos = fft_only;
    run_case(d, &r, &c, "fft");
  }
}

static void test_fft_refuses(check_device *d) {
  static const struct {
    int r, s, stride;
    const char *why;
  } wrong[] = {{3, 5, 1, "only filters of 5x5"}, {7, 4, 1, "only filters of 5x5"}, {5, 5, 2, "only stride 1"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const cvy_conv2d_params p = {.n_max = 1,
                                 .x = {9, 9, 3, 4},
                                 .k = 4,
                                 .y_pitch = 4,
                                 .r = wrong[i].r,
                                 .s = wrong[i].s,
                                 .stride_h = wrong[i].stride,
                                 .stride_w = wrong[i].stride,
                                 .algos = fft_only};
    cvy_conv2d *op = NULL;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, wrong[i].why);
    assert_null(op);
  }
}

/* ---- libraries ---- */

static bool is_candidate(check_device *d, cvy_conv_algo algo) {
  cvy_conv_choice choices[64];
  bool found = false;
  const int n = cvy_conv2d_candidates(d->cl, &small, CVY_CONV_FORWARD, choices, 64);
  assert_true(n >= 1 && n <= 64);
  for (int i = 0; i < n; i++) found = found || choices[i].algo == algo;
  return found;
}

/* Hidden libraries: refused by name with the reason, gone from the candidates, everything else as before. */
static void test_absent(check_device *d) {
  char what[256];
  cvy_conv2d *op = NULL;
  cvy_conv2d_params p = small;
  setenv("CVY_CLBLAST", "none", 1);
  assert_false(cvy_blas_probe(what, sizeof what));
  assert_string_equal(what, "CVY_CLBLAST=none");
  p.algos = gemm_only;
  check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, "CLBlast is not installed");
  assert_null(op);
  assert_false(is_candidate(d, CVY_CONV_GEMM));
  size_t bytes;
  check_fails(cvy_blas_sgemm_temp_bytes(d->queue, 1, 1, 1, false, false, &bytes), CVY_E_UNSUPPORTED,
              "CVY_CLBLAST=none");
  p = small, p.choice[CVY_CONV_FORWARD].algo = CVY_CONV_GEMM; /* a tuned choice from another day */
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_DIRECT);
  cvy_conv2d_destroy(&op);
  unsetenv("CVY_CLBLAST");

  const cvy_fft_plan *plan;
  setenv("CVY_CLFFT", "none", 1);
  assert_false(cvy_fft_probe(what, sizeof what));
  assert_string_equal(what, "CVY_CLFFT=none");
  p = small, p.algos = fft_only;
  check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, "clFFT is not installed");
  assert_false(is_candidate(d, CVY_CONV_FFT));
  check_fails(cvy_fft_plan_get(d->cl, 8, 8, 1, &plan), CVY_E_UNSUPPORTED, "CVY_CLFFT=none");
  p.algos = (cvy_conv_algo_list){2, {CVY_CONV_FFT, CVY_CONV_DIRECT}};
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_DIRECT);
  cvy_conv2d_destroy(&op);
  unsetenv("CVY_CLFFT");
}

/* Wrong sizes come back with CLBlast's name of the error. */
static void test_blas_errors(check_device *d) {
  need(d, CVY_CONV_GEMM);
  check_buffer *const b = check_scratch(d, "matrices", 4096);
  const cvy_blas_matrix good = {.buffer = b->cl, .row_pitch = 8};
  cvy_blas_matrix wrong = good;
  check_fails(cvy_blas_sgemm(d->queue, 0, 8, 8, &good, &good, &good, false, NULL), CVY_E_ARGUMENT,
              "CLBlastInvalidDimension (-1017)");
  wrong.row_pitch = 7;
  check_fails(cvy_blas_sgemm(d->queue, 8, 8, 8, &wrong, &good, &good, false, NULL), CVY_E_ARGUMENT,
              "CLBlastInvalidLeadDimA (-1016)");
  wrong = good, wrong.offset = 4096 / 4 - 63;
  check_fails(cvy_blas_sgemm(d->queue, 8, 8, 8, &good, &wrong, &good, false, NULL), CVY_E_ARGUMENT,
              "CLBlastInsufficientMemoryB (-1010)");
  check_fails(cvy_blas_sgemm(d->queue, 8, 8, 8, &good, &good, &wrong, false, NULL), CVY_E_ARGUMENT,
              "CLBlastInsufficientMemoryC (-1009)");
  wrong = good, wrong.transposed = true;
  check_fails(cvy_blas_sgemm(d->queue, 8, 8, 8, &good, &good, &wrong, false, NULL), CVY_E_ARGUMENT, "not transposed");
}

/* Without being asked for, no device takes them, nor compiles anything of theirs: what they would gain on a GPU is an
 * estimate until it is measured. LeNet's second layer is where the estimate for FFT is best. */
static void test_auto(check_device *d) {
  const cvy_conv2d_params lenet = {.n_max = 256,
                                   .x = {13, 13, 20, 32},
                                   .k = 50,
                                   .y_pitch = 64,
                                   .r = 5,
                                   .s = 5,
                                   .stride_h = 1,
                                   .stride_w = 1,
                                   .bias = true};
  const cvy_conv2d_params *const layers[] = {&small, &lenet};
  union {
    const cvy_device_info *in;
    cvy_device_info *out;
  } info = {.in = cvy_device_get_info(d->cl)};
  const cvy_device_kind kind = info.in->kind;
  for (int gpu = 0; gpu < 2; gpu++) {
    for (int l = 0; l < 2; l++) {
      cvy_conv2d *op = NULL;
      info.out->kind = gpu ? CVY_DEVICE_GPU : kind;
      const cvy_status status = cvy_conv2d_create(d->cl, layers[l], &op);
      info.out->kind = kind;
      check_ok(status);
      for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
        const cvy_conv_algo algo = cvy_conv2d_chosen(op, (cvy_conv_pass)pass).algo;
        if (algo == CVY_CONV_GEMM || algo == CVY_CONV_FFT)
          check_fail(d, "layer %d, pass %d, %s: %s is the default", l, pass, gpu ? "GPU" : "as it is",
                     cvy_conv_algo_name(algo));
      }
      cvy_conv2d_destroy(&op);
    }
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"auto", test_auto},
                                     {"absent", test_absent},
                                     {"blas_errors", test_blas_errors},
                                     {"gemm_random", test_gemm_random},
                                     {"gemm_layers", test_gemm_layers},
                                     {"fft_random", test_fft_random},
                                     {"fft_layers", test_fft_layers},
                                     {"fft_refuses", test_fft_refuses}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
