/* SPDX-License-Identifier: MIT
 * Convolutions with CVY_MATH_TF32: kernels that do what NVIDIA's mma.sync does, without it
 * (CVY_FORCE_MATRIX=nvidia-emulated), against ref_conv2d.c with the bounds of TF32; devices that do not have it, or
 * where it does not work. What the instruction itself does only a GPU can show: there the same cases run with it. */
#include <math.h>
#include <stdio.h>

#include "src/ops/conv2d/gemm_tile.h"
#include "src/ops/conv2d/math.h"
#include "tests/support/conv_case.h"

/* CPU-shaped kernels do not have it. The largest tile wants 17 KiB of local memory, NVIDIA's GPUs have 48 and more:
 * there the trial must succeed. With less only the trial tells: llvmpipe has 32 KiB, and Mesa 22.3 counts each array
 * twice, Mesa 25 once. */
static bool is_ours(const check_device *d) {
  if (d->cpu_shaped) return false;
  return cvy_device_get_capabilities(d->cl)->local_bytes >= 48 << 10 ||
         cvy_math_resolve(d->cl, CVY_MATH_TF32) == CVY_MATH_TF32;
}

/* tile: 0 is the default. */
static void run_case(check_device *d, case_rng *r, conv_case *c, cvy_conv_algo algo, int tile, const char *name) {
  c->p.math = CVY_MATH_TF32;
  c->p.algos = (cvy_conv_algo_list){1, {algo}};
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    c->p.choice[pass].algo = algo;
    if (tile > 0) memcpy(c->p.choice[pass].tile, cvy_gemm_tiles[tile - 1], sizeof c->p.choice[pass].tile);
  }
  conv_case_run(d, r, c);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    const char *const took = conv_case_took((cvy_conv_pass)pass);
    const bool is_thin = pass == CVY_CONV_BACKWARD_WEIGHTS && !strcmp(took, "thin_simt"); /* its products are float32 */
    if (*took && !is_thin) assert_string_equal(took, name);
  }
}

static conv_case random_case(case_rng *r, bool winograd) {
  conv_case c = {.n = case_int(r, 1, conv_in_oclgrind() ? 2 : 4), .accumulate = case_int(r, 0, 1)};
  cvy_conv2d_params *const p = &c.p;
  const int most = conv_in_oclgrind() ? 5 : 9;
  p->r = winograd ? 3 : case_int(r, 1, 5), p->s = winograd ? 3 : case_int(r, 1, 3);
  p->stride_h = winograd ? 1 : case_int(r, 1, 3), p->stride_w = winograd ? 1 : case_int(r, 1, 2);
  p->pad_h = case_int(r, 0, 2), p->pad_w = case_int(r, 0, 2);
  p->x.h = case_int(r, p->r, most), p->x.w = case_int(r, p->s, most);
  p->x.c = CASE_ONE_OF(r, 1, 3, 4, 5, 16, 17, 20, 72), p->k = CASE_ONE_OF(r, 1, 3, 8, 10, 33, 70, 140);
  conv_case_vary(r, &c);
  return c;
}

/* All tiles, all layouts; integers come out exact. */
static void test_random(check_device *d) {
  if (!is_ours(d)) return;
  const int cases = conv_in_oclgrind() ? 4 : getenv("CVY_TEST_FULL") ? 120 : 8;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    const bool winograd = i % 4 == 3;
    conv_case c = random_case(&r, winograd);
    if (i % 3 == 0) c.fill = CASE_FILL_INTEGERS;
    run_case(d, &r, &c, winograd ? CVY_CONV_WINOGRAD2 : CVY_CONV_DIRECT, (i + i / 4) % (1 + CVY_GEMM_TILES),
             winograd ? "winograd2_simt" : "direct_simt");
  }
}

static cvy_conv2d_params one_by_one(void) {
  cvy_conv2d_params p = case_conv2d_params(1, (cvy_shape){3, 3, 3, 4}, 4, 1, 1, 0);
  p.y_pitch = 4;
  p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
  return p;
}

/* y of a 1x1 convolution whose channels 0 and 1 are x and w, the others 0. */
static float product(check_device *d, float x, float w, cvy_math math) {
  cvy_conv2d_params p = one_by_one();
  cvy_conv2d *op = NULL;
  p.math = math, p.inference = true;
  float *const in = check_floats(d, 27), *const filter = check_floats(d, 12);
  in[0] = x, filter[0] = w;
  check_buffer *const bx = check_input(d, "x", in, 9, 3, 4), *const bw = check_input(d, "w", filter, 3, 4, 4),
                      *const by = check_output(d, "y", 9, 4, 4);
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  assert_int_equal(cvy_conv2d_workspace_bytes(op), 0);
  check_ok(cvy_conv2d_forward(op, d->queue, 1, bx->cl, NULL, bw->cl, NULL, by->cl, NULL, NULL));
  const float y = check_download(by)[0];
  cvy_conv2d_destroy(&op);
  return y;
}

/* The same through Winograd's transforms, which only take numbers of one magnitude from here: y in the middle of an
 * image whose middle is x, by a filter whose middle is w; or dw in the middle, if dy's middle is w. */
static float transformed_product(check_device *d, float x, float w, bool gradient) {
  cvy_conv2d_params p = one_by_one();
  cvy_conv2d *op = NULL;
  cvy_buffer *workspace = NULL;
  p.r = p.s = 3, p.pad_h = p.pad_w = 1, p.math = CVY_MATH_TF32, p.algos.algo[0] = CVY_CONV_WINOGRAD2;
  float *const in = check_floats(d, 27), *const filter = check_floats(d, 108), *const dy = check_floats(d, 36);
  in[12] = x, filter[48] = dy[16] = w;
  check_buffer *const bx = check_input(d, "x", in, 9, 3, 4), *const bw = check_input(d, "w", filter, 27, 4, 4),
                      *const bdy = check_input(d, "dy", dy, 9, 4, 4),
                      *const out = check_output(d, "result", gradient ? 27 : 9, 4, 4);
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  check_ok(cvy_buffer_create(d->cl, cvy_conv2d_workspace_bytes(op), &workspace));
  if (gradient)
    check_ok(cvy_conv2d_backward_weights(op, d->queue, 1, bx->cl, NULL, bdy->cl, out->cl, NULL, false, workspace));
  else check_ok(cvy_conv2d_forward(op, d->queue, 1, bx->cl, NULL, bw->cl, NULL, out->cl, NULL, workspace));
  const float value = check_download(out)[gradient ? 48 : 16];
  cvy_buffer_destroy(&workspace);
  cvy_conv2d_destroy(&op);
  return value;
}

/* Ten bits of mantissa, to nearest, ties away from zero; only where it is asked for. */
static void test_rounding(check_device *d) {
  static const struct {
    float given, wanted;
  } values[] = {{1 + 0x1p-12f, 1},
                {1 + 0x1p-11f, 1 + 0x1p-10f},
                {-1 - 0x1p-11f, -1 - 0x1p-10f},
                {1 + 0x1p-10f, 1 + 0x1p-10f},
                {1 + 0x1.8p-10f, 1 + 0x1p-9f},
                {0x1.fff8p+9f, 0x1p+10f},
                {3e38f, 0x1.c38p+127f},
                {0, 0}};
  if (!is_ours(d)) return;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    if (!check_case(d, "round %a", (double)values[i].given)) continue;
    const float x = product(d, values[i].given, 1, CVY_MATH_TF32), w = product(d, 1, values[i].given, CVY_MATH_TF32),
                fp32 = product(d, values[i].given, 1, CVY_MATH_FP32);
    if (x != values[i].wanted || w != values[i].wanted)
      fail_msg("%a: as x it is %a, as w %a; %a is wanted", (double)values[i].given, (double)x, (double)w,
               (double)values[i].wanted);
    assert_true(fp32 == values[i].given);
    for (int gradient = 0; gradient < 2 && fabsf(values[i].given) < 1e6f; gradient++) {
      const float of_x = transformed_product(d, values[i].given, 1, gradient),
                  of_w = transformed_product(d, 1, values[i].given, gradient);
      if (of_x != values[i].wanted || of_w != values[i].wanted)
        fail_msg("%a: transformed as x it is %a, as %s %a; %a is wanted", (double)values[i].given, (double)of_x,
                 gradient ? "dy" : "w", (double)of_w, (double)values[i].wanted);
    }
    check_case_end(d);
  }
}

/* F(4x4) stays float32 and says so; the others state the bound of TF32. */
static void test_bounds(check_device *d) {
  if (!is_ours(d)) return;
  static const cvy_conv_algo algos[] = {CVY_CONV_DIRECT, CVY_CONV_WINOGRAD2, CVY_CONV_WINOGRAD4};
  for (int i = 0; i < 3; i++) {
    cvy_conv2d *op = NULL;
    cvy_conv2d_params p = one_by_one();
    p.r = p.s = 3, p.math = CVY_MATH_TF32, p.algos.algo[0] = algos[i];
    check_ok(cvy_conv2d_create(d->cl, &p, &op));
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
      const double bound = cvy_conv2d_error_bound(op, (cvy_conv_pass)pass);
      assert_true(i < 2 ? bound == CVY_TF32_ERROR_BOUND : bound < 1e-5);
    }
    cvy_conv2d_destroy(&op);
  }
}

/* The device once more, opened with CVY_FORCE_MATRIX as `how` says (NULL: not set). */
static cvy_device *open_as(const check_device *d, const char *how) {
  cvy_device_list *list = NULL;
  cvy_device *device = NULL;
  const cvy_device_info *const info = cvy_device_get_info(d->cl);
  check_ok(cvy_device_list_create(&list));
  cvy_selected_device selected = {.item = -1, .label = "another"};
  for (int i = 0; i < list->n; i++)
    if (list->items[i].platform == info->platform && list->items[i].index == info->index) selected.item = i;
  how ? setenv("CVY_FORCE_MATRIX", how, 1) : unsetenv("CVY_FORCE_MATRIX");
  check_ok(cvy_device_open(list, &selected, false, &device));
  setenv("CVY_FORCE_MATRIX", "nvidia-emulated", 1);
  cvy_device_list_destroy(&list);
  return device;
}

/* Where it is not, and where it is claimed but does not compile: float32, one warning, the stated bound of float32. */
static void test_not_here(check_device *d) {
  static const struct {
    const char *how, *says;
  } cases[] = {{NULL, "compute capability 8.0"}, {"nvidia", "a trial of it failed"}, {"amd", "compute capability 8.0"}};
  for (int i = 0; i < 3; i++) {
    cvy_device *device = open_as(d, cases[i].how);
    cvy_conv2d *op = NULL;
    cvy_conv2d_params p = one_by_one();
    if (i == 0 && cvy_device_get_capabilities(device)->matrix_unit == CVY_MATRIX_NVIDIA) {
      fprintf(stderr, "  %s has it\n", d->name);
      cvy_device_close(&device);
      return;
    }
    p.math = CVY_MATH_TF32;
    check_log_clear();
    assert_int_equal(cvy_math_resolve(device, CVY_MATH_FP32), CVY_MATH_FP32);
    assert_false(check_log_contains("no TF32 here"));
    if (i == 2 && !d->cpu_shaped)
      assert_true(check_log_contains("another: products do without its matrix units: a trial"));
    assert_int_equal(cvy_math_define(device, CVY_MATH_FP32), 0);
    check_ok(cvy_conv2d_create(device, &p, &op));
    assert_true(check_log_contains("another: no TF32 here, products are float32"));
    assert_true(check_log_contains(d->cpu_shaped ? "float32 only" : cases[i].says));
    assert_true(cvy_conv2d_error_bound(op, CVY_CONV_FORWARD) <= 1e-5);
    cvy_conv2d_destroy(&op);
    check_log_clear();
    check_ok(cvy_conv2d_create(device, &p, &op)); /* said once, and not tried again */
    assert_false(check_log_contains("TF32"));
    assert_int_equal(cvy_device_get_matrix(device)->tried,
                     cvy_device_get_capabilities(device)->matrix_unit != CVY_MATRIX_NONE);
    cvy_conv2d_destroy(&op);
    cvy_device_close(&device);
  }
}

static void test_trial(check_device *d) {
  assert_int_equal(cvy_math_resolve(d->cl, CVY_MATH_TF32), is_ours(d) ? CVY_MATH_TF32 : CVY_MATH_FP32);
  assert_int_equal(cvy_math_define(d->cl, CVY_MATH_FP32), 0);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"trial", test_trial},
                                     {"random", test_random},
                                     {"rounding", test_rounding},
                                     {"bounds", test_bounds},
                                     {"not_here", test_not_here}};
  setenv("CVY_FORCE_MATRIX", "nvidia-emulated", 0);
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
