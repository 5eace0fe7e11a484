/* SPDX-License-Identifier: MIT
 * Winograd convolution, F(4x4,3x3), also with stride 2, and F(2x2,3x3), against ref_conv2d.c: the passes that a device
 * has it for, direct's for the others. CVY_TEST_FULL=1 runs ten times as many random shapes. */
#include <math.h>
#include <stdio.h>

#include "src/ref/ref.h"
#include "tests/support/conv_case.h"

static const cvy_conv_algo algos[] = {CVY_CONV_WINOGRAD4, CVY_CONV_WINOGRAD2};
enum { RANDOM_CASES = 24, MOST_WORK = 400000 }; /* multiply-adds of a pass */

static double most_work(void) { return conv_in_oclgrind() ? MOST_WORK / 10 : MOST_WORK; }

/* Forward and backward_data must be taken by Winograd's kernels where the device's shape has them. */
static void run_case(check_device *d, case_rng *r, conv_case *c, cvy_conv_algo algo) {
  c->p.algos = (cvy_conv_algo_list){2, {algo, CVY_CONV_DIRECT}};
  conv_case_run(d, r, c);
  for (int pass = 0; d->cpu_shaped && pass < CVY_CONV_BACKWARD_WEIGHTS; pass++)
    if (*conv_case_took((cvy_conv_pass)pass))
      assert_string_equal(conv_case_took((cvy_conv_pass)pass),
                          algo == CVY_CONV_WINOGRAD4 ? "winograd4_cpu" : "winograd2_cpu");
}

static conv_case random_case(case_rng *r, cvy_conv_algo algo) {
  conv_case c = {0};
  cvy_conv2d_params *const p = &c.p;
  const int stride = algo == CVY_CONV_WINOGRAD4 ? case_int(r, 1, 2) : 1;
  do {
    const int h = CASE_ONE_OF(r, 1, 2, 3, 4, 5, 7, 8, 9, 14, 17);
    const int w = CASE_ONE_OF(r, 1, 2, 3, 4, 5, 7, 8, 9, 14, 28, 32);
    const int channels = CASE_ONE_OF(r, 1, 3, 7, 16, 17, 20, 31, 33, 50, 64, 65);
    const int k = CASE_ONE_OF(r, 1, 5, 10, 16, 17, 20, 32, 33, 48, 50, 64, 65, 80);
    *p = conv_dense_3x3(h, w, channels, k, stride);
    p->pad_h = CASE_ONE_OF(r, 0, 1, 1, 2, 2, 3);
    p->pad_w = CASE_ONE_OF(r, 0, 1, 1, 2, 2, 3);
  } while (p->x.h + 2 * p->pad_h < 3 || p->x.w + 2 * p->pad_w < 3 || conv_case_work(p, 1) > most_work());
  const int most = (int)(most_work() / conv_case_work(p, 1));
  c.n = case_edge(r, 14, most < 60 ? most : 60);
  p->n_max = c.n + CASE_ONE_OF(r, 0, 0, 1, 30);
  p->bias = case_int(r, 0, 1);
  p->prologue = case_int(r, 0, 1) ? case_int(r, 1, 7) : 0;
  p->stats = case_int(r, 0, 2) > 0;
  p->no_backward_data = case_int(r, 0, 7) == 0;
  p->x.pitch = cvy_pitch_of(p->x.c) + CASE_ONE_OF(r, 0, 0, 0, 16);
  p->y_pitch = cvy_pitch_of(p->k) + CASE_ONE_OF(r, 0, 0, 0, 16);
  c.group_size = p->prologue & CVY_CONV_SCALE ? CASE_ONE_OF(r, 0, 1, 2, 3, 100) : 0;
  c.accumulate = case_int(r, 0, 1);
  c.fill = (case_fill_kind)case_int(r, 0, CASE_FILL_ANY - 1);
  return c;
}

static void test_random(check_device *d) {
  const int some = conv_in_oclgrind() ? RANDOM_CASES / 3 : d->cpu_shaped ? RANDOM_CASES : RANDOM_CASES / 4;
  const int cases = getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : some;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    conv_case c = random_case(&r, algos[i % 2]);
    run_case(d, &r, &c, algos[i % 2]);
  }
}

/* The layers of resnet18 at few samples, whole tiles and cut ones, images that share blocks and that are cut by them.
 */
static void test_layers(check_device *d) {
  static const struct {
    int n, h, w, c, k, pad, n_more, stride; /* n_more: samples of the largest batch behind those of this one */
  } layers[] = {
      {50, 4, 4, 512, 64, 1, 10, 1}, /* its largest batch has smaller blocks of tiles */
      {3, 28, 28, 64, 64, 1, 0, 1},
      {5, 14, 14, 128, 128, 1, 0, 1},
      {9, 7, 7, 256, 40, 1, 0, 1},
      {40, 4, 4, 512, 16, 1, 0, 1},
      {1, 4, 4, 512, 64, 1, 0, 1},
      {2, 32, 32, 3, 20, 0, 0, 1},
      {33, 1, 1, 20, 48, 1, 0, 1},
      {3, 5, 61, 16, 16, 2, 0, 1},
      {65536, 3, 3, 1, 1, 1, 0, 1}, /* more images than there may be work-groups */
      {3, 28, 28, 64, 80, 1, 30, 2},
      {9, 14, 14, 128, 64, 1, 0, 2},
      {30, 7, 7, 256, 48, 1, 0, 2},
      {1, 7, 7, 256, 64, 1, 0, 2}, /* weights are transformed where they are used */
      {2, 33, 32, 3, 20, 0, 0, 2},
      {17, 2, 3, 20, 48, 2, 0, 2},
      {150, 29, 31, 3, 20, 1, 0, 1},
      {300, 29, 31, 3, 2, 1, 0, 2}, /* large for what is stored past the caches, of y and of dx */
      {5, 9, 11, 20, 16, 1, 0, 2},  /* last tiles of 1 and 2 outputs */
      {3, 8, 8, 20, 16, 1, 0, 2},   /* four outputs whose last pixel is in the image */
  };
  for (size_t i = 0; i < 2 * (sizeof layers / sizeof *layers); i++) {
    const size_t at = i / 2;
    if (layers[at].stride == 2 && algos[i % 2] != CVY_CONV_WINOGRAD4) continue;
    case_rng r = check_rng_make(d, 1000 + (int)i);
    const cvy_shape x = {layers[at].h, layers[at].w, layers[at].c, cvy_pitch_of(layers[at].c)};
    conv_case c = {.n = layers[at].n,
                   .p = case_conv2d_params(layers[at].n + layers[at].n_more, x, layers[at].k, 3, layers[at].stride,
                                           layers[at].pad),
                   .accumulate = at % 3 == 0,
                   .fill = CASE_FILL_NORMAL};
    c.p.bias = true, c.p.stats = at % 4 != 3;
    if (conv_in_oclgrind() && conv_case_work(&c.p, c.n) > 5e5) continue;
    if (!d->cpu_shaped && (conv_case_work(&c.p, c.n) > 2e7 || c.n > 1000)) continue;
    run_case(d, &r, &c, algos[i % 2]);
  }
}

/* Each combination of prologue flags, with groups of samples that end in a smaller one. */
static void test_prologue(check_device *d) {
  for (int i = conv_in_oclgrind() ? 10 : 0; i < 14; i++) {
    const int flags = i / 2 + 1, stride = flags % 2 ? 1 : 1 + i % 2; /* F(2x2,3x3) has stride 1 alone */
    case_rng r = check_rng_make(d, 2000 + i);
    conv_case c = conv_prologue_case(flags, stride);
    run_case(d, &r, &c, algos[flags % 2]);
  }
}

/* The stated bound, relative L2 of the whole result, on every fill: small, large, cancelling, outliers, a mean much
 * larger than the deviation; sums over few channels and over many. */
static void test_bound(check_device *d) {
  static const struct {
    int n, side, c, k, stride;
  } shapes[] = {{3, 7, 64, 32, 1},  {2, 4, 512, 16, 1}, {2, 4, 16, 512, 1},
                {2, 15, 64, 32, 2}, {2, 7, 512, 16, 2}, {2, 7, 16, 512, 2}};
  enum { N_SHAPES = sizeof shapes / sizeof *shapes };
  for (int i = 0; i < 2 * N_SHAPES * CASE_FILL_ANY && !conv_in_oclgrind(); i++) {
    const case_fill_kind fill = (case_fill_kind)(i / 2 % CASE_FILL_ANY);
    const int shape = i / (2 * CASE_FILL_ANY), n = shapes[shape].n, side = shapes[shape].side, c = shapes[shape].c,
              k = shapes[shape].k;
    const int stride = shapes[shape].stride, y_side = (side - 1) / stride + 1;
    const size_t rows = (size_t)n * (size_t)(side * side), y_rows = (size_t)n * (size_t)(y_side * y_side),
                 x_size = rows * (size_t)c, y_size = y_rows * (size_t)k, w_size = (size_t)9 * (size_t)c * (size_t)k;
    if (stride == 2 && algos[i % 2] != CVY_CONV_WINOGRAD4) continue;
    case_rng r = check_rng_make(d, 3000 + i);
    cvy_conv2d_params p = case_conv2d_params(n, (cvy_shape){side, side, c, c}, k, 3, stride, 1);
    p.algos = (cvy_conv_algo_list){2, {algos[i % 2], CVY_CONV_DIRECT}};
    if (!check_case(d, "bound %s fill=%d c=%d k=%d stride=%d", cvy_conv_algo_name(algos[i % 2]), (int)fill, c, k,
                    stride))
      continue;
    float *const x = check_floats(d, x_size), *const w = check_floats(d, w_size), *const dy = check_floats(d, y_size);
    case_fill(&r, x, x_size, fill), case_fill(&r, w, w_size, fill), case_fill(&r, dy, y_size, fill);
    double *const y_want = check_doubles(d, y_size), *const dx_want = check_doubles(d, x_size);
    const double *const w64 = check_to_doubles(d, w, w_size);
    ref_conv2d_forward(&p, n, check_to_doubles(d, x, x_size), w64, NULL, y_want, NULL);
    ref_conv2d_backward_data(&p, n, check_to_doubles(d, dy, y_size), w64, dx_want, NULL);
    check_buffer *const bx = check_input(d, "x", x, (int)rows, c, c), *const bw = check_input(d, "w", w, 9 * c, k, k),
                        *const bdy = check_input(d, "dy", dy, (int)y_rows, k, k),
                        *const by = check_output(d, "y", (int)y_rows, k, k),
                        *const bdx = check_output(d, "dx", (int)rows, c, c);
    cvy_conv2d *op = NULL;
    check_ok(cvy_conv2d_create(d->cl, &p, &op));
    check_buffer *const ws = check_scratch(d, "workspace", cvy_conv2d_workspace_bytes(op) + 64);
    check_ok(cvy_conv2d_forward(op, d->queue, n, bx->cl, NULL, bw->cl, NULL, by->cl, NULL, ws->cl));
    check_ok(cvy_conv2d_backward_data(op, d->queue, n, bdy->cl, bw->cl, bdx->cl, false, ws->cl));
    check_relative_l2(d, "y", check_download(by), y_want, y_size, cvy_conv2d_error_bound(op, CVY_CONV_FORWARD));
    check_relative_l2(d, "dx", check_download(bdx), dx_want, x_size,
                      cvy_conv2d_error_bound(op, CVY_CONV_BACKWARD_DATA));
    cvy_conv2d_destroy(&op);
    check_case_end(d);
  }
}

/* What cannot be done is refused with its reason, and AUTO passes over it; unknown tiles are passed over too. */
static void test_refused(check_device *d) {
  cvy_conv2d_params good = case_conv2d_params(64, (cvy_shape){14, 14, 64, 64}, 64, 3, 1, 1);
  good.inference = true;
  for (int i = 0; d->cpu_shaped && i < 2; i++) {
    cvy_conv2d_params p = good;
    cvy_conv2d *op = NULL;
    p.algos = (cvy_conv_algo_list){1, {algos[i]}};
    p.r = 1;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, "3x3");
    p = good, p.algos = (cvy_conv_algo_list){1, {algos[i]}}, p.stride_w = 2;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED,
                algos[i] == CVY_CONV_WINOGRAD4 ? "only strides 1x1 and 2x2" : "only stride 1");
    p = good, p.algos = (cvy_conv_algo_list){1, {algos[i]}}, p.x.c = 3, p.x.pitch = 4;
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, "multiples of 16");
    p = good, p.choice[CVY_CONV_FORWARD] = (cvy_conv_choice){algos[i], {56}};
    check_ok(cvy_conv2d_create(d->cl, &p, &op));
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, algos[i]);
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).tile[0], 56);
    cvy_conv2d_destroy(&op);
    p.choice[CVY_CONV_FORWARD].tile[0] = 57;
    check_ok(cvy_conv2d_create(d->cl, &p, &op));
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).tile[0], 0);
    cvy_conv2d_destroy(&op);
  }
}

/* The shipped default: Winograd where it is faster. */
static void test_auto(check_device *d) {
  static const struct {
    int n, side, c, stride;
    cvy_conv_algo algo;
  } layers[] = {
      {256, 28, 64, 1, CVY_CONV_WINOGRAD4}, {64, 14, 128, 1, CVY_CONV_WINOGRAD4},  {256, 7, 256, 1, CVY_CONV_WINOGRAD4},
      {256, 4, 512, 1, CVY_CONV_WINOGRAD4}, {1, 4, 512, 1, CVY_CONV_DIRECT},       {256, 1, 64, 1, CVY_CONV_DIRECT},
      {256, 28, 64, 2, CVY_CONV_WINOGRAD4}, {256, 14, 128, 2, CVY_CONV_WINOGRAD4}, {256, 7, 256, 2, CVY_CONV_WINOGRAD4},
      {1, 7, 256, 2, CVY_CONV_DIRECT},      {256, 28, 16, 2, CVY_CONV_DIRECT}};
  for (size_t i = 0; d->cpu_shaped && i < sizeof layers / sizeof *layers; i++) {
    const cvy_shape x = {layers[i].side, layers[i].side, layers[i].c, layers[i].c};
    const cvy_conv2d_params p =
        case_conv2d_params(layers[i].n, x, layers[i].stride * layers[i].c, 3, layers[i].stride, 1);
    cvy_conv2d *op = NULL;
    check_ok(cvy_conv2d_create(d->cl, &p, &op));
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_FORWARD).algo, layers[i].algo);
    assert_int_equal(cvy_conv2d_chosen(op, CVY_CONV_BACKWARD_DATA).algo, layers[i].algo);
    cvy_conv2d_destroy(&op);
  }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"layers", test_layers}, {"prologue", test_prologue}, {"random", test_random},
                                     {"bound", test_bound},   {"refused", test_refused},   {"auto", test_auto}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
