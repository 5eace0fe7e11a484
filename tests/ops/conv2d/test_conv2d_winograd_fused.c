/* SPDX-License-Identifier: MIT
 * Fused Winograd for SIMT devices against ref_conv2d.c, forward and backward_data: sizes that cut tiles and blocks in
 * every way, any padding, channels and pitch; statistics of samples that share blocks, or lie in several; what it
 * refuses; for which layers it is planned. */
#include "src/cl/dry_run.h"
#include "tests/support/conv_case.h"

static const cvy_conv_algo_list fused_first = {2, {CVY_CONV_WINOGRAD2_FUSED, CVY_CONV_DIRECT}};

/* CPU-shaped devices have kernels of their own. */
static bool is_ours(const check_device *d) { return !d->cpu_shaped; }

/* backward_weights is direct's. */
static void run_case(check_device *d, case_rng *r, conv_case *c, int band) {
  c->p.algos = fused_first, c->p.r = c->p.s = 3, c->p.stride_h = c->p.stride_w = 1;
  for (int pass = 0; pass < CVY_CONV_BACKWARD_WEIGHTS; pass++)
    c->p.choice[pass] = (cvy_conv_choice){CVY_CONV_WINOGRAD2_FUSED, {band}};
  conv_case_run(d, r, c);
  for (int pass = 0; pass < CVY_CONV_BACKWARD_WEIGHTS; pass++)
    if (*conv_case_took((cvy_conv_pass)pass))
      assert_string_equal(conv_case_took((cvy_conv_pass)pass), "winograd2_fused");
}

static void test_random(check_device *d) {
  if (!is_ours(d)) return;
  const int cases = conv_in_oclgrind() ? 6 : getenv("CVY_TEST_FULL") ? 120 : 24;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = conv_padded_case(&r, conv_in_oclgrind() ? 3 : 6, conv_in_oclgrind() ? 6 : 13);
    cvy_conv2d_params *const p = &c.p;
    p->x.c = CASE_ONE_OF(&r, 1, 2, 3, 4, 5, 16, 17, 20), p->k = CASE_ONE_OF(&r, 1, 3, 8, 10, 16, 32, 33, 70);
    conv_case_vary(&r, &c);
    run_case(d, &r, &c, CASE_ONE_OF(&r, 0, 0, 1, 64));
  }
}

/* Larger ones. Tiles of a sample: 196 (six blocks and a piece), 16 (two to a block), 16 with rows and columns cut off,
 * 4, 1 (32 samples to a block); in bands that are full, cut off, and longer than all blocks. */
static void test_layers(check_device *d) {
  static const struct {
    int n, size, c, k, pad, band;
  } layers[] = {{2, 28, 64, 64, 1, 0}, {3, 28, 12, 64, 1, 1},  {5, 8, 36, 150, 1, 64},
                {9, 7, 130, 64, 1, 0}, {33, 4, 20, 40, 1, 64}, {70, 2, 8, 36, 1, 1}};
  if (!is_ours(d) || conv_in_oclgrind()) return;
  for (int i = 0; i < (int)(sizeof layers / sizeof *layers); i++) {
    case_rng r = check_rng_make(d, 1000 + i);
    conv_case c = {.n = layers[i].n, .fill = CASE_FILL_NORMAL, .accumulate = i % 2 == 1};
    c.p = conv_square_3x3(layers[i].n, layers[i].size, layers[i].c, layers[i].k, layers[i].pad);
    run_case(d, &r, &c, layers[i].band);
  }
}

static void test_refused(check_device *d) {
  static const struct {
    int r, stride, pad;
    bool inference;
    const char *why;
  } wrong[] = {{5, 1, 1, true, "only 3x3 filters"},
               {3, 2, 1, true, "only stride 1"},
               {3, 1, 3, true, "only padding up to 2"},
               {3, 1, 1, false, "only forward and backward_data"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const cvy_conv2d_params p = {.n_max = 1,
                                 .x = {9, 9, 5, 5},
                                 .k = 7,
                                 .y_pitch = 7,
                                 .r = wrong[i].r,
                                 .s = wrong[i].r,
                                 .stride_h = wrong[i].stride,
                                 .stride_w = wrong[i].stride,
                                 .pad_h = wrong[i].pad,
                                 .pad_w = wrong[i].pad,
                                 .inference = wrong[i].inference,
                                 .algos = {1, {CVY_CONV_WINOGRAD2_FUSED}}};
    cvy_conv2d *op = NULL;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED,
                is_ours(d) ? wrong[i].why : "these kernels are for SIMT devices");
    assert_null(op);
  }
}

/* Seconds that forward of a square 3x3 layer is expected to take on a card on paper. */
static double expected_s(cvy_device *card, int size, int channels, cvy_conv_algo algo, int band) {
  cvy_conv2d_params p = case_conv2d_params(256, (cvy_shape){size, size, channels, channels}, channels, 3, 1, 1);
  p.inference = true;
  p.algos = (cvy_conv_algo_list){1, {algo}};
  p.choice[CVY_CONV_FORWARD] = (cvy_conv_choice){algo, {band}};
  cvy_conv2d *op = NULL;
  check_ok(cvy_conv2d_create(card, &p, &op));
  const double seconds = cvy_conv2d_expected_of(op, CVY_CONV_FORWARD).seconds;
  cvy_conv2d_destroy(&op);
  return seconds;
}

/* On a card with 3 MB of cache and a layer with many pixels, the fused kernel is expected to be faster than transforms
 * that go through memory; with few pixels and many filters (8 MB and more, transformed) it is not, and reads them the
 * more often the narrower its bands are. */
static void test_planned(check_device *d) {
  cvy_device *card = NULL;
  if (!is_ours(d)) return;
  check_ok(cvy_device_open_dry_run(cvy_known_device_find("rtx3060"), &card));
  assert_true(expected_s(card, 28, 64, CVY_CONV_WINOGRAD2_FUSED, 0) <
              0.8 * expected_s(card, 28, 64, CVY_CONV_WINOGRAD4, 0));
  assert_true(expected_s(card, 7, 256, CVY_CONV_WINOGRAD2_FUSED, 0) >
              1.1 * expected_s(card, 7, 256, CVY_CONV_WINOGRAD4, 0));
  assert_true(expected_s(card, 4, 512, CVY_CONV_WINOGRAD2_FUSED, 1) >
              1.1 * expected_s(card, 4, 512, CVY_CONV_WINOGRAD2_FUSED, 0));
  cvy_device_close(&card);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"random", test_random}, {"layers", test_layers}, {"refused", test_refused}, {"planned", test_planned}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
