/* SPDX-License-Identifier: MIT
 * Winograd's kernels for SIMT devices, all passes against ref_conv2d.c: sizes that cut tiles in every way, any padding,
 * channels and pitch; what they refuse. */
#include "src/ops/conv2d/gemm_tile.h"
#include "tests/support/conv_case.h"

static const cvy_conv_algo_list only[2] = {{1, {CVY_CONV_WINOGRAD2}}, {1, {CVY_CONV_WINOGRAD4}}};
static const char *const names[2] = {"winograd2_simt", "winograd4_simt"};

/* CPU-shaped devices have kernels of their own. */
static bool is_ours(const check_device *d) { return !d->cpu_shaped; }

static void run_case(check_device *d, case_rng *r, conv_case *c, int which) {
  c->p.algos = only[which], c->p.r = c->p.s = 3, c->p.stride_h = c->p.stride_w = 1;
  conv_case_run(d, r, c);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    if (*conv_case_took((cvy_conv_pass)pass)) assert_string_equal(conv_case_took((cvy_conv_pass)pass), names[which]);
}

static void test_random(check_device *d) {
  if (!is_ours(d)) return;
  const int cases = conv_in_oclgrind() ? 4 : getenv("CVY_TEST_FULL") ? 120 : 16;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = conv_padded_case(&r, conv_in_oclgrind() ? 2 : 5, conv_in_oclgrind() ? 6 : 11);
    cvy_conv2d_params *const p = &c.p;
    p->x.c = CASE_ONE_OF(&r, 1, 3, 4, 5, 16, 17, 20), p->k = CASE_ONE_OF(&r, 1, 3, 8, 10, 16, 33, 70);
    conv_case_vary(&r, &c);
    run_case(d, &r, &c, i % 2);
  }
}

/* Larger ones: several work-groups of products, several tiles per item of the output transform. */
static void test_layers(check_device *d) {
  static const struct {
    int n, size, c, k, pad;
  } layers[] = {{2, 28, 64, 64, 1}, {5, 7, 130, 150, 1}, {3, 4, 192, 64, 1}};
  if (!is_ours(d) || conv_in_oclgrind()) return;
  for (int i = 0; i < 6; i++) {
    case_rng r = check_rng_make(d, 1000 + i);
    const int l = i / 2;
    conv_case c = {.n = layers[l].n, .fill = CASE_FILL_NORMAL, .accumulate = l == 1};
    c.p = conv_square_3x3(layers[l].n, layers[l].size, layers[l].c, layers[l].k, layers[l].pad);
    run_case(d, &r, &c, i % 2);
  }
}

/* Tiles that tune may choose, more rows than one holds, a depth that ends within a step. */
static void test_tiles(check_device *d) {
  if (!is_ours(d)) return;
  for (int i = 0; i < 2 * CVY_GEMM_TILES; i++) {
    const cvy_gemm_tile tile = cvy_gemm_tile_at(i / 2);
    if (!cvy_gemm_tile_fits(cvy_device_get_capabilities(d->cl), tile) || (conv_in_oclgrind() && i > 0)) continue;
    case_rng r = check_rng_make(d, 2000 + i);
    conv_case c = {.n = 9, .fill = CASE_FILL_INTEGERS};
    c.p = conv_square_3x3(9, i % 2 ? 14 : 7, 20, 12, 1);
    for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
      c.p.choice[pass] = (cvy_conv_choice){only[i % 2].algo[0], {tile.m, tile.n, tile.k}};
    run_case(d, &r, &c, i % 2);
  }
}

static void test_refused(check_device *d) {
  if (!is_ours(d)) return;
  static const struct {
    int r, stride, pad;
    const char *why;
  } wrong[] = {{5, 1, 1, "only 3x3 filters"}, {3, 2, 1, "only stride 1"}, {3, 1, 3, "only padding up to 2"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    cvy_conv2d_params p = {.n_max = 1,
                           .x = {9, 9, 5, 5},
                           .k = 7,
                           .y_pitch = 7,
                           .r = wrong[i].r,
                           .s = wrong[i].r,
                           .stride_h = wrong[i].stride,
                           .stride_w = wrong[i].stride,
                           .pad_h = wrong[i].pad,
                           .pad_w = wrong[i].pad,
                           .algos = only[1]};
    cvy_conv2d *op = NULL;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, wrong[i].why);
    assert_null(op);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"random", test_random}, {"layers", test_layers}, {"tiles", test_tiles}, {"refused", test_refused}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
