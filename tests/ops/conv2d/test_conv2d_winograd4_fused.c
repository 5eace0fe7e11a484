/* SPDX-License-Identifier: MIT
 * F(4x4,3x3) in one kernel against ref_conv2d.c, forward and backward_data, with blocks of 16 and of 32 tiles: sizes
 * that cut tiles and blocks in every way, any padding, channels and pitch; statistics of samples that share blocks, or
 * lie in several; what it refuses; for which layers and devices it is planned. */
#include "src/cl/dry_run.h"
#include "tests/support/conv_case.h"

static const cvy_conv_algo_list fused_first = {2, {CVY_CONV_WINOGRAD4_FUSED, CVY_CONV_DIRECT}};

/* CPU-shaped devices have kernels of their own. */
static bool is_ours(const check_device *d) { return !d->cpu_shaped; }

/* backward_weights is direct's. */
static void run_case(check_device *d, case_rng *r, conv_case *c, int band, int tiles) {
  c->p.algos = fused_first, c->p.r = c->p.s = 3, c->p.stride_h = c->p.stride_w = 1;
  for (int pass = 0; pass < CVY_CONV_BACKWARD_WEIGHTS; pass++)
    c->p.choice[pass] = (cvy_conv_choice){CVY_CONV_WINOGRAD4_FUSED, {band, tiles}};
  conv_case_run(d, r, c);
  for (int pass = 0; pass < CVY_CONV_BACKWARD_WEIGHTS; pass++)
    if (*conv_case_took((cvy_conv_pass)pass))
      assert_string_equal(conv_case_took((cvy_conv_pass)pass), "winograd4_fused");
}

static void test_random(check_device *d) {
  if (!is_ours(d)) return;
  const int cases = conv_in_oclgrind() ? 6 : getenv("CVY_TEST_FULL") ? 120 : 16;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = conv_padded_case(&r, conv_in_oclgrind() ? 3 : 6, conv_in_oclgrind() ? 6 : 13);
    cvy_conv2d_params *const p = &c.p;
    p->x.c = CASE_ONE_OF(&r, 1, 2, 3, 4, 5, 10, 17, 20), p->k = CASE_ONE_OF(&r, 1, 3, 8, 10, 16, 32, 33, 70);
    conv_case_vary(&r, &c);
    if (i % 2 == 0) run_case(d, &r, &c, i % 4 == 0 ? 1 : 64, 32);
    else run_case(d, &r, &c, i % 4 == 1 ? 8 : 64, 16);
  }
}

/* Larger ones. Tiles of a sample: 49 (one block and a half, or three and a bit), 16 with rows and columns cut off, 4, 1
 * (a block has 16 or 32 samples); in bands that are full, cut off, and longer than all blocks. */
static void test_layers(check_device *d) {
  static const struct {
    int n, size, c, k, pad, band, tiles;
  } layers[] = {{2, 28, 64, 64, 1, 0, 0},   {3, 28, 12, 64, 1, 1, 32}, {5, 14, 36, 70, 1, 64, 16},
                {9, 7, 130, 64, 1, 64, 32}, {19, 4, 20, 40, 1, 8, 16}, {70, 2, 8, 36, 1, 1, 32}};
  if (!is_ours(d) || conv_in_oclgrind()) return;
  for (int i = 0; i < (int)(sizeof layers / sizeof *layers); i++) {
    case_rng r = check_rng_make(d, 1000 + i);
    conv_case c = {.n = layers[i].n, .fill = CASE_FILL_NORMAL, .accumulate = i % 2 == 1};
    c.p = conv_square_3x3(layers[i].n, layers[i].size, layers[i].c, layers[i].k, layers[i].pad);
    run_case(d, &r, &c, layers[i].band, layers[i].tiles);
  }
}

/* A prologue of each kind, with tiles of several groups in a block: channels in pairs and one by one. */
static void test_prologues(check_device *d) {
  if (!is_ours(d)) return;
  for (int flags = 1; flags < 8; flags++) {
    case_rng r = check_rng_make(d, 2000 + flags);
    conv_case c = conv_prologue_case(flags, 1);
    if (flags % 2) c.p.x.pitch = c.p.x.c + 1;
    run_case(d, &r, &c, 64, flags < 4 ? 16 : 32);
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
    cvy_conv2d_params p = conv_dense_3x3(9, 9, 5, 7, wrong[i].stride);
    p.r = p.s = wrong[i].r, p.pad_h = p.pad_w = wrong[i].pad, p.inference = wrong[i].inference;
    p.algos = (cvy_conv_algo_list){1, {CVY_CONV_WINOGRAD4_FUSED}};
    cvy_conv2d *op = NULL;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED,
                is_ours(d) ? wrong[i].why : "these kernels are for SIMT devices");
    assert_null(op);
  }
}

/* Forward of a square 3x3 layer with this algorithm on a card on paper; AUTO: with the one that is chosen. */
static cvy_conv2d *planned(cvy_device *card, int size, int channels, cvy_conv_algo algo, int band, int tiles) {
  cvy_conv2d_params p = case_conv2d_params(256, (cvy_shape){size, size, channels, channels}, channels, 3, 1, 1);
  p.inference = true;
  if (algo != CVY_CONV_AUTO) {
    p.algos = (cvy_conv_algo_list){1, {algo}};
    p.choice[CVY_CONV_FORWARD] = (cvy_conv_choice){algo, {band, tiles}};
  }
  cvy_conv2d *op = NULL;
  check_ok(cvy_conv2d_create(card, &p, &op));
  return op;
}

static double expected_s(cvy_device *card, int size, int channels, cvy_conv_algo algo, int band, int tiles) {
  cvy_conv2d *op = planned(card, size, channels, algo, band, tiles);
  const double seconds = cvy_conv2d_expected_of(op, CVY_CONV_FORWARD).seconds;
  cvy_conv2d_destroy(&op);
  return seconds;
}

/* On a card with 3 MB of cache and a layer with many pixels, it is expected to be faster than transforms that go
 * through memory, and than F(2x2,3x3); with few pixels and many filters (38 MB, transformed) it is not. Small blocks
 * read the filters twice as often. */
static void test_planned(check_device *d) {
  cvy_device *card = NULL;
  if (!is_ours(d)) return;
  check_ok(cvy_device_open_dry_run(cvy_known_device_find("rtx3060"), &card));
  const double fused = expected_s(card, 28, 64, CVY_CONV_WINOGRAD4_FUSED, 0, 0);
  assert_true(fused < 0.8 * expected_s(card, 28, 64, CVY_CONV_WINOGRAD4, 0, 0));
  assert_true(fused < 0.8 * expected_s(card, 28, 64, CVY_CONV_WINOGRAD2_FUSED, 0, 0));
  assert_true(fused < expected_s(card, 28, 64, CVY_CONV_WINOGRAD4_FUSED, 8, 16));
  cvy_conv2d *op = planned(card, 28, 64, CVY_CONV_AUTO, 0, 0);
  assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_WINOGRAD4_FUSED);
  cvy_conv2d_destroy(&op);
  op = planned(card, 4, 512, CVY_CONV_AUTO, 0, 0);
  assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_WINOGRAD4);
  cvy_conv2d_destroy(&op);
  cvy_device_close(&card);
}

/* A card whose work-groups have 256 items at most takes blocks of 16 tiles, whatever a file of the tuner says. */
static void test_small_groups(check_device *d) {
  cvy_device *card = NULL;
  if (!is_ours(d)) return;
  check_ok(cvy_device_open_dry_run(cvy_known_device_find("rx6800"), &card));
  for (int tiles = 0; tiles <= 32; tiles += 32) {
    cvy_conv2d *op = planned(card, 28, 64, CVY_CONV_WINOGRAD4_FUSED, tiles ? 64 : 0, tiles);
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).tile[1], 0);
    assert_true(cvy_conv2d_expected_of(op, CVY_CONV_FORWARD).seconds ==
                expected_s(card, 28, 64, CVY_CONV_WINOGRAD4_FUSED, 8, 16));
    cvy_conv2d_destroy(&op);
  }
  cvy_device_close(&card);
}

/* A CPU never takes it unasked, with kernels of either shape. */
static void test_not_on_cpus(check_device *d) {
  if (cvy_device_get_info(d->cl)->kind != CVY_DEVICE_CPU) return;
  const int layers[][2] = {{28, 64}, {14, 128}, {7, 256}, {4, 512}};
  for (int i = 0; i < 4; i++) {
    cvy_conv2d *op = planned(d->cl, layers[i][0], layers[i][1], CVY_CONV_AUTO, 0, 0);
    assert_int_not_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, CVY_CONV_WINOGRAD4_FUSED);
    cvy_conv2d_destroy(&op);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"random", test_random},          {"layers", test_layers},
                                     {"prologues", test_prologues},    {"refused", test_refused},
                                     {"planned", test_planned},        {"small_groups", test_small_groups},
                                     {"not_on_cpus", test_not_on_cpus}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
