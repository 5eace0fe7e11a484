/* SPDX-License-Identifier: MIT
 * SIMT-shaped convolutions as they are planned for a large card (CVY_FORCE_PLAN): sums in parts, phases of
 * backward-data in one launch and in several, pixels that no tap reaches; the order in which parts are added up. */
#include <stdio.h>

#include "src/ops/linear.h"
#include "tests/support/conv_case.h"

static bool is_ours(const check_device *d) { return !d->cpu_shaped; }

/* Parts of the passes of a layer as it is planned. */
static void find_parts(check_device *d, const cvy_conv2d_params *p, int parts[CVY_CONV_PASSES]) {
  cvy_conv2d *op;
  check_ok(cvy_conv2d_create(d->cl, p, &op));
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    parts[pass] = cvy_conv2d_expected_of(op, (cvy_conv_pass)pass).parts;
  cvy_conv2d_destroy(&op);
}

/* Layers with strides, direct: taps that differ between phases, phases without taps, phases of different sizes, more
 * phases than a launch has. */
static void test_strides(check_device *d) {
  static const struct {
    int n, h, w, c, k, r, s, stride_h, stride_w, pad_h, pad_w;
    bool parts[2]; /* forward, backward_data */
  } layers[] = {
      {2, 14, 14, 64, 80, 3, 3, 2, 2, 1, 1, {true, true}},  /* 1, 2, 2 and 4 taps */
      {2, 9, 7, 96, 160, 3, 3, 2, 2, 1, 1, {true, true}},   /* phases of different sizes */
      {2, 8, 8, 160, 288, 1, 1, 2, 2, 0, 0, {true, true}},  /* three phases without taps, in parts */
      {2, 8, 8, 16, 16, 1, 1, 2, 2, 0, 0, {false, false}},  /* and cleared */
      {2, 7, 11, 16, 16, 1, 3, 3, 2, 1, 0, {true, false}},  /* rows without taps only */
      {2, 11, 7, 16, 20, 3, 1, 2, 3, 0, 1, {true, false}},  /* columns without taps only */
      {2, 2, 2, 16, 16, 1, 1, 3, 3, 1, 1, {false, false}},  /* one pixel of dy, in the padding */
      {1, 13, 12, 20, 130, 5, 5, 5, 5, 2, 1, {true, true}}, /* 25 phases of one tap */
      {1, 23, 21, 16, 120, 7, 6, 5, 5, 3, 2, {true, true}}, /* 25 phases of 1, 2 and 4 taps, in parts */
      {1, 23, 21, 3, 8, 7, 6, 5, 5, 3, 2, {true, false}},   /* the same, whole */
      {2, 12, 10, 40, 100, 5, 4, 3, 3, 2, 1, {true, true}},
  };
  if (!is_ours(d)) return;
  for (int i = 0; i < (int)(sizeof layers / sizeof *layers); i++) {
    for (int more = 0; more < 2; more++) {
      case_rng r = check_rng_make(d, 100 * more + i);
      conv_case c = {.n = layers[i].n,
                     .p = {.n_max = layers[i].n + more,
                           .x = {layers[i].h, layers[i].w, layers[i].c, cvy_pitch_of(layers[i].c)},
                           .k = layers[i].k,
                           .y_pitch = more ? layers[i].k + 1 : cvy_pitch_of(layers[i].k),
                           .r = layers[i].r,
                           .s = layers[i].s,
                           .stride_h = layers[i].stride_h,
                           .stride_w = layers[i].stride_w,
                           .pad_h = layers[i].pad_h,
                           .pad_w = layers[i].pad_w,
                           .bias = true,
                           .stats = true,
                           .prologue = more ? CVY_CONV_SCALE | CVY_CONV_RELU : 0,
                           .algos = {1, {CVY_CONV_DIRECT}}},
                     .accumulate = more,
                     .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_INTEGERS};
      int parts[CVY_CONV_PASSES];
      if (more) /* larger work-groups */
        c.p.choice[CVY_CONV_BACKWARD_WEIGHTS] =
            (cvy_conv_choice){CVY_CONV_DIRECT, {128, i % 2 ? 64 : 128, i % 2 ? 4 : 8}};
      if (conv_in_oclgrind() && (more || conv_case_work(&c.p, c.n) > 1e6)) continue;
      find_parts(d, &c.p, parts);
      for (int pass = 0; pass <= CVY_CONV_BACKWARD_DATA; pass++)
        if ((parts[pass] > 1) != layers[i].parts[pass])
          check_fail(d, "layer %d, pass %d: %d parts", i, pass, parts[pass]);
      conv_case_run(d, &r, &c);
    }
  }
}

/* Gradients of filters in so many parts that items share the sum of a value, and dy's columns in several sums. */
static void test_finish(check_device *d) {
  if (!is_ours(d) || conv_in_oclgrind()) return;
  for (int i = 0; i < 2; i++) {
    case_rng r = check_rng_make(d, 200 + i);
    conv_case c = {.n = 13 + i, .accumulate = i == 1, .fill = CASE_FILL_NORMAL};
    int parts[CVY_CONV_PASSES];
    c.p = case_conv2d_params(14, (cvy_shape){30, 30, 8, 8}, 18 - 2 * i, 1 + 2 * i, 1, 0);
    c.p.y_pitch = c.p.k, c.p.bias = c.p.no_backward_data = true, c.p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
    find_parts(d, &c.p, parts);
    if (parts[CVY_CONV_BACKWARD_WEIGHTS] <= 64) check_fail(d, "case %d: %d parts", i, parts[CVY_CONV_BACKWARD_WEIGHTS]);
    conv_case_run(d, &r, &c);
    assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_WEIGHTS), "direct_simt");
  }
}

/* Winograd with few tiles and many channels: products in parts. */
static void test_winograd(check_device *d) {
  if (!is_ours(d) || conv_in_oclgrind()) return;
  for (int i = 0; i < 4; i++) {
    case_rng r = check_rng_make(d, 300 + i);
    const int size = i < 2 ? 4 : 7, channels = i < 2 ? 260 : 130;
    conv_case c = {.n = 2,
                   .p = conv_square_3x3(2 + i, size, channels, channels, 1),
                   .accumulate = i == 1,
                   .fill = CASE_FILL_NORMAL};
    c.p.algos = (cvy_conv_algo_list){1, {i % 2 ? CVY_CONV_WINOGRAD4 : CVY_CONV_WINOGRAD2}};
    int parts[CVY_CONV_PASSES];
    find_parts(d, &c.p, parts);
    if (parts[CVY_CONV_FORWARD] < 2 || parts[CVY_CONV_BACKWARD_DATA] < 2)
      check_fail(d, "case %d: %d and %d parts", i, parts[CVY_CONV_FORWARD], parts[CVY_CONV_BACKWARD_DATA]);
    conv_case_run(d, &r, &c);
  }
}

/* More samples than the cache holds: chunks of 7 and 6. */
static void test_chunks(check_device *d) {
  if (!is_ours(d) || conv_in_oclgrind()) return;
  case_rng r = check_rng_make(d, 400);
  conv_case c = {.n = 13, .fill = CASE_FILL_NORMAL};
  c.p = case_conv2d_params(13, (cvy_shape){64, 64, 16, 16}, 16, 3, 1, 1);
  c.p.bias = true;
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    c.p.choice[pass] = (cvy_conv_choice){CVY_CONV_WINOGRAD2, {64, 64, 4, 1}};
  conv_case_run(d, &r, &c);
  assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_WEIGHTS), "winograd2_simt");
}

/* Parts are added up in their order: 2^24 + 1 + 1 is 2^24 in float32, 1 + 1 + 2^24 is not. */
static void test_order(check_device *d) {
  enum { DEPTH = 512, FILTERS = 16 };
  if (!is_ours(d) || !check_case(d, "order of parts")) return;
  const cvy_conv2d_params p = {.n_max = 1,
                               .x = {1, 1, DEPTH, DEPTH},
                               .k = FILTERS,
                               .y_pitch = FILTERS,
                               .r = 1,
                               .s = 1,
                               .stride_h = 1,
                               .stride_w = 1,
                               .inference = true,
                               .algos = {1, {CVY_CONV_DIRECT}}};
  cvy_conv2d *op;
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  const int parts = cvy_conv2d_expected_of(op, CVY_CONV_FORWARD).parts;
  assert_true(parts >= 3 && DEPTH % (8 * parts) == 0);
  const int each = DEPTH / parts;
  float *const x = check_floats(d, DEPTH), *const w = check_floats(d, DEPTH * FILTERS);
  double *const want = check_doubles(d, FILTERS), *const bound = check_doubles(d, FILTERS);
  for (int e = 0; e < DEPTH; e++) x[e] = 1.0f;
  for (int k = 0; k < FILTERS; k++) {
    w[k] = 0x1p24f;
    w[each * FILTERS + k] = w[(2 * each + each / 2) * FILTERS + k] = 1.0f;
    want[k] = 0x1p24;
  }
  check_buffer *const bx = check_input(d, "x", x, 1, DEPTH, DEPTH),
                      *const bw = check_input(d, "w", w, DEPTH, FILTERS, FILTERS),
                      *const by = check_output(d, "y", 1, FILTERS, FILTERS);
  cvy_buffer *workspace;
  check_ok(cvy_buffer_create(d->cl, cvy_conv2d_workspace_bytes(op), &workspace));
  check_ok(cvy_conv2d_forward(op, d->queue, 1, bx->cl, NULL, bw->cl, NULL, by->cl, NULL, workspace));
  check_close(d, "y", check_download(by), want, bound, 1, FILTERS);
  cvy_conv2d_destroy(&op);
  cvy_buffer_destroy(&workspace);
  check_case_end(d);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"strides", test_strides},
                                     {"finish", test_finish},
                                     {"winograd", test_winograd},
                                     {"chunks", test_chunks},
                                     {"order", test_order}};
  setenv("CVY_FORCE_PLAN", "h100", 1);
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
