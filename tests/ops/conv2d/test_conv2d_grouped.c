/* SPDX-License-Identifier: MIT
 * Convolution with groups, dilation and other padding behind than in front, all passes against ref_conv2d.c; the
 * reference itself by differences, and as plain convolutions of the groups. CVY_TEST_FULL=1: ten times as many. */
#include <math.h>
#include <stdio.h>

#include "src/ref/ref.h"
#include "tests/support/conv_case.h"

enum { RANDOM_CASES = 30, MOST_WORK = 200000 };

static double most_work(void) { return conv_in_oclgrind() ? MOST_WORK / 20 : MOST_WORK; }

static bool has_output(const cvy_conv2d_params *p) {
  return p->x.h + 2 * p->pad_h + p->pad_more_h > (p->r - 1) * p->dilation_h &&
         p->x.w + 2 * p->pad_w + p->pad_more_w > (p->s - 1) * p->dilation_w;
}

/* Depthwise ones, groups of few channels and of many, and no groups but a dilation. */
static conv_case random_case(const check_device *d, case_rng *r) {
  conv_case c = {0};
  cvy_conv2d_params *const p = &c.p;
  cvy_shape out;
  do {
    const int kind = case_int(r, 0, 3);
    *p = (cvy_conv2d_params){.x = {.h = case_edge(r, 7, 17), .w = case_edge(r, 14, 20)},
                             .r = CASE_ONE_OF(r, 1, 2, 3, 3, 3, 5),
                             .s = CASE_ONE_OF(r, 1, 2, 3, 3, 3, 5),
                             .stride_h = CASE_ONE_OF(r, 1, 1, 1, 2, 2, 3),
                             .stride_w = CASE_ONE_OF(r, 1, 1, 1, 2, 2, 3),
                             .pad_h = CASE_ONE_OF(r, 0, 1, 1, 2, 3),
                             .pad_w = CASE_ONE_OF(r, 0, 1, 1, 2, 3),
                             .dilation_h = CASE_ONE_OF(r, 1, 1, 2, 3),
                             .dilation_w = CASE_ONE_OF(r, 1, 1, 2, 3),
                             .n_max = 1};
    p->pad_more_h = case_int(r, -p->pad_h, 2), p->pad_more_w = case_int(r, -p->pad_w, 2);
    p->groups = kind == 0 ? 1 : CASE_ONE_OF(r, 2, 3, 5, 8, 16, 17, 32, 40);
    const int group_c = kind == 1 ? 1 : CASE_ONE_OF(r, 1, 2, 3, 4, 8, 16, 20),
              group_k = kind == 1 ? 1 : CASE_ONE_OF(r, 1, 2, 4, 5, 8, 16, 33);
    p->x.c = p->groups * group_c, p->k = p->groups * group_k;
    if (kind == 0) p->dilation_h = CASE_ONE_OF(r, 1, 2, 3), p->dilation_w = p->dilation_h > 1 ? 1 : 2;
    p->x.pitch = p->x.c, p->y_pitch = p->k;
  } while (!has_output(p) || conv_case_work(p, 1) > most_work() || p->x.c > 200 || p->k > 200);
  check_ok(cvy_conv2d_output_shape(p, &out));
  const int most = (int)(most_work() / conv_case_work(p, 1));
  c.n = case_edge(r, 5, most < 20 ? most : 20);
  conv_case_vary(r, &c);
  if (d->cpu_shaped && case_int(r, 0, 3)) p->x.pitch = cvy_pitch_of(p->x.c), p->y_pitch = cvy_pitch_of(p->k);
  p->no_backward_data = case_int(r, 0, 4) == 0;
  c.accumulate = case_int(r, 0, 1);
  return c;
}

static void test_random(check_device *d) {
  const int cases = getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : RANDOM_CASES / (conv_in_oclgrind() ? 2 : 1);
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    const conv_case c = random_case(d, &r);
    conv_case_run(d, &r, &c);
  }
}

/* Layers of mobilenet_v2, resnext50_32x4d and regnet_y_400mf at small sizes, and shapes at the edges of tiles. */
static void test_layers(check_device *d) {
  static const struct {
    int n, h, w, groups, c, k, size, stride, pad, dilation, more;
  } layers[] = {
      {2, 16, 16, 32, 32, 32, 3, 1, 1, 1, 0},   {3, 15, 15, 96, 96, 96, 3, 2, 1, 1, 0},
      {5, 2, 2, 240, 240, 240, 3, 1, 1, 1, 0},  {2, 9, 9, 40, 40, 40, 5, 2, 2, 1, 0},
      {2, 28, 28, 17, 17, 17, 3, 1, 1, 1, 0},   {2, 14, 14, 32, 128, 128, 3, 1, 1, 1, 0},
      {2, 9, 9, 32, 256, 256, 3, 2, 1, 1, 0},   {2, 7, 7, 8, 128, 128, 3, 1, 1, 1, 0},
      {2, 7, 7, 4, 128, 128, 3, 2, 1, 1, 0},    {1, 12, 12, 6, 48, 48, 3, 1, 1, 1, 0},
      {2, 8, 8, 13, 104, 104, 3, 2, 1, 1, 0},   {2, 17, 17, 1, 32, 32, 3, 1, 2, 2, 0},
      {2, 16, 16, 48, 48, 48, 3, 2, 0, 1, 1},   {2, 15, 16, 48, 48, 48, 3, 1, 2, 2, 0},
      {1, 61, 57, 16, 16, 16, 7, 1, 3, 1, 0},   {9, 7, 7, 160, 160, 160, 3, 1, 1, 1, 0},
      {1, 1, 40, 32, 32, 64, 3, 1, 1, 1, 0},    {2, 10, 10, 2, 32, 64, 1, 1, 0, 1, 0},
      {40, 3, 3, 20, 20, 20, 3, 1, 1, 1, 0},    {2, 9, 9, 48, 48, 96, 3, 2, 1, 1, -1},
      {1, 112, 112, 16, 16, 16, 3, 2, 1, 1, 0}, {1, 30, 30, 3, 48, 144, 3, 1, 1, 1, 0},
      {2, 13, 12, 48, 48, 48, 5, 1, 2, 1, 0},   {1, 6, 23, 32, 32, 32, 5, 1, 2, 1, 0},
      {3, 4, 5, 144, 144, 144, 3, 1, 1, 1, 0},  {2, 15, 14, 32, 32, 32, 3, 2, 2, 2, 0},
      {2, 13, 12, 4, 32, 32, 3, 2, 2, 2, 0},
  };
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    case_rng r = check_rng_make(d, 1000 + (int)i);
    const cvy_shape x = {layers[i].h, layers[i].w, layers[i].c, cvy_pitch_of(layers[i].c)};
    conv_case c = {
        .n = layers[i].n,
        .p = case_conv2d_params(layers[i].n, x, layers[i].k, layers[i].size, layers[i].stride, layers[i].pad),
        .accumulate = i % 3 == 0,
        .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_INTEGERS};
    c.p.groups = layers[i].groups;
    c.p.dilation_h = c.p.dilation_w = layers[i].dilation;
    c.p.pad_more_h = c.p.pad_more_w = layers[i].more;
    c.p.bias = i % 4 != 0, c.p.stats = i % 2 == 0;
    c.p.prologue = i % 3 == 1 ? CVY_CONV_SCALE | CVY_CONV_RELU : 0;
    if (conv_in_oclgrind() && conv_case_work(&c.p, c.n) >= 3e5) continue;
    conv_case_run(d, &r, &c);
    const int group_c = c.p.x.c / c.p.groups, group_k = c.p.k / c.p.groups;
    const bool even = group_c == group_k && (group_c == 2 || group_c == 4 || group_c == 8),
               whole = group_c % 16 == 0 && group_k % 16 == 0, depthwise = group_c == 1 && group_k == 1,
               quads = group_c % 4 == 0 && group_k % 4 == 0;
    const char *const cpu = depthwise ? "depthwise" : even || whole ? "groups_cpu" : "grouped";
    for (int pass = 0; pass < CVY_CONV_PASSES && *conv_case_took((cvy_conv_pass)pass); pass++)
      assert_string_equal(conv_case_took((cvy_conv_pass)pass), d->cpu_shaped        ? cpu
                                                               : depthwise || quads ? "groups_simt"
                                                                                    : "grouped");
  }
}

/* The reference's backward passes are the derivatives of its forward pass; a group of its forward
 * pass is a plain convolution of the group's channels. */
static void test_reference(check_device *d) {
  case_rng r = check_rng_make(d, 3000);
  for (int i = 0; i < 20; i++) {
    conv_case c = random_case(d, &r);
    const cvy_conv2d_params *const p = &c.p;
    cvy_shape out;
    check_ok(cvy_conv2d_output_shape(p, &out));
    const int n = c.n < 2 ? c.n : 2, group_c = p->x.c / p->groups, group_k = p->k / p->groups;
    const size_t pixels = (size_t)(n * p->x.h * p->x.w), places = (size_t)(n * out.h * out.w),
                 x_size = pixels * (size_t)p->x.c, w_size = (size_t)(p->r * p->s * group_c * p->k),
                 y_size = places * (size_t)p->k;
    float *const fill = check_floats(d, x_size > w_size   ? x_size > y_size ? x_size : y_size
                                        : w_size > y_size ? w_size
                                                          : y_size);
    case_fill(&r, fill, x_size, CASE_FILL_NORMAL);
    double *const x = check_to_doubles(d, fill, x_size);
    case_fill(&r, fill, w_size, CASE_FILL_NORMAL);
    double *const w = check_to_doubles(d, fill, w_size);
    case_fill(&r, fill, y_size, CASE_FILL_NORMAL);
    const double *const t = check_to_doubles(d, fill, y_size);
    double *const y = check_doubles(d, y_size);
    conv_case_differences(d, &r, p, n, x, w, t);
    cvy_conv2d_params one = *p;
    one.groups = 1, one.x.c = one.x.pitch = group_c, one.k = one.y_pitch = group_k;
    double *const x1 = check_doubles(d, pixels * (size_t)group_c),
                  *const w1 = check_doubles(d, (size_t)(p->r * p->s * group_c * group_k)),
                  *const y1 = check_doubles(d, places * (size_t)group_k);
    ref_conv2d_forward(p, n, x, w, NULL, y, NULL);
    for (int g = 0; g < p->groups; g++) {
      for (size_t j = 0; j < pixels * (size_t)group_c; j++)
        x1[j] = x[j / (size_t)group_c * (size_t)p->x.c + (size_t)(g * group_c) + j % (size_t)group_c];
      for (size_t j = 0; j < w_size / (size_t)p->groups; j++)
        w1[j] = w[j / (size_t)group_k * (size_t)p->k + (size_t)(g * group_k) + j % (size_t)group_k];
      ref_conv2d_forward(&one, n, x1, w1, NULL, y1, NULL);
      for (size_t j = 0; j < places * (size_t)group_k; j++) {
        const double got = y[j / (size_t)group_k * (size_t)p->k + (size_t)(g * group_k) + j % (size_t)group_k];
        if (!(fabs(got - y1[j]) <= 1e-12 * (1 + fabs(got))))
          check_fail(d, "reference: group %d gives %.17g, a convolution of its channels %.17g", g, got, y1[j]);
      }
    }
    check_case_end(d);
  }
}

static void test_bad_shapes(check_device *d) {
  const cvy_conv2d_params good = case_conv2d_params(2, (cvy_shape){5, 5, 12, 16}, 8, 3, 1, 0);
  static const struct {
    size_t at;
    int value;
    const char *text;
  } wrong[] = {
#define FIELD(name) offsetof(cvy_conv2d_params, name)
      {FIELD(groups), -1, "-1 groups"},        {FIELD(groups), 3, "must divide 12 channels and 8 filters"},
      {FIELD(groups), 8, "8 groups"},          {FIELD(dilation_h), -1, "dilation -1x0"},
      {FIELD(dilation_w), 1 << 24, "2^24"},    {FIELD(dilation_h), 3, "dilation 3x1"},
      {FIELD(pad_more_h), -1, "-1 more rows"}, {FIELD(pad_more_w), 1 << 24, "more columns right"},
#undef FIELD
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    cvy_conv2d_params p = good;
    cvy_conv2d *op = NULL;
    memcpy((char *)&p + wrong[i].at, &wrong[i].value, sizeof(int));
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_ARGUMENT, wrong[i].text);
    assert_null(op);
  }
}

/* Every other algorithm refuses what it would compute wrongly, and says why. */
static void test_others_refuse(check_device *d) {
  for (int algo = CVY_CONV_WINOGRAD2; algo < CVY_CONV_ALGOS; algo++)
    for (int what = 0; what < 3; what++) {
      cvy_conv2d_params p = case_conv2d_params(1, (cvy_shape){8, 8, 16, 16}, 16, algo == CVY_CONV_FFT ? 5 : 3, 1, 2);
      cvy_conv2d *op = NULL;
      p.algos = (cvy_conv_algo_list){1, {(cvy_conv_algo)algo}};
      if (what == 0) p.groups = 4;
      else if (what == 1) p.dilation_w = 2;
      else p.pad_more_h = 1;
      check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED,
                  what == 0   ? "know no groups"
                  : what == 1 ? "know no dilation"
                              : "the same padding on both sides");
      assert_null(op);
    }
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"layers", test_layers},
                                     {"random", test_random},
                                     {"reference", test_reference},
                                     {"bad_shapes", test_bad_shapes},
                                     {"others_refuse", test_others_refuse}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
