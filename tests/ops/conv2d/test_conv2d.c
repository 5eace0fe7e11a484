/* SPDX-License-Identifier: MIT
 * Convolution: forward with prologue and statistics, backward-data, backward-weights and bias gradient against
 * ref_conv2d.c. CVY_TEST_FULL=1 runs ten times as many random shapes. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "src/ops/conv2d/gemm_tile.h"
#include "src/ops/conv2d/math.h"
#include "src/ref/ref.h"
#include "tests/support/conv_case.h"

static const cvy_conv_algo_list direct_only = {1, {CVY_CONV_DIRECT}};

enum { RANDOM_CASES = 24, MOST_WORK = 300000 }; /* multiply-adds of a pass */

static double most_work(void) { return conv_in_oclgrind() ? MOST_WORK / 10 : MOST_WORK; }

static float *filled(check_device *d, case_rng *r, size_t n, case_fill_kind kind) {
  float *const x = check_floats(d, n);
  case_fill(r, x, n, kind);
  return x;
}

/* Direct's kernels for a pass on CPU-shaped devices: panels with 16 channels to read and more, columns where that is
 * less work. */
static bool is_direct_cpu(const conv_case *c, cvy_conv_pass pass, const char *took) {
  const bool panels = (pass == CVY_CONV_FORWARD && c->p.x.c >= 16 && c->p.x.pitch % 16 == 0) ||
                      (pass == CVY_CONV_BACKWARD_DATA && c->p.k >= 16);
  return strcmp(took, panels ? "panels_cpu" : "direct_cpu") == 0 ||
         (pass == CVY_CONV_BACKWARD_DATA && strcmp(took, "columns_cpu") == 0);
}

/* Runs it and wants direct's kernels for the tested shape of kernels in all passes. */
static void run_case(check_device *d, case_rng *r, const conv_case *c) {
  conv_case_run(d, r, c);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    const char *const took = conv_case_took((cvy_conv_pass)pass);
    if (!*took) continue;
    const bool thin = pass == CVY_CONV_BACKWARD_WEIGHTS && c->p.x.c <= 4 && strcmp(took, "thin_simt") == 0;
    if (!d->cpu_shaped && !thin) assert_string_equal(took, "direct_simt");
    if (d->cpu_shaped && !is_direct_cpu(c, (cvy_conv_pass)pass, took)) fail_msg("pass %d took %s", pass, took);
  }
}

/* ---- shapes ---- */

/* Pitches that the kernels of this run take; for SIMT any. */
static void choose_pitches(const check_device *d, case_rng *r, cvy_conv2d_params *p) {
  const int more_x = case_int(r, 0, 3), more_y = case_int(r, 0, 3);
  if (d->cpu_shaped) {
    p->y_pitch = cvy_pitch_of(p->k) + (more_y == 3 ? 16 : 0);
    p->x.pitch = p->no_backward_data ? cvy_input_pitch_of(p->x.c) : cvy_pitch_of(p->x.c) + (more_x == 3 ? 16 : 0);
  } else {
    const int x[] = {p->x.c, cvy_input_pitch_of(p->x.c), cvy_pitch_of(p->x.c), p->x.c + 3},
              y[] = {p->k, cvy_pitch_of(p->k), (p->k + 3) / 4 * 4, p->k + 1};
    p->x.pitch = x[more_x], p->y_pitch = y[more_y];
  }
}

static conv_case random_case(const check_device *d, case_rng *r) {
  conv_case c = {0};
  cvy_conv2d_params *const p = &c.p;
  cvy_shape out;
  do {
    *p = (cvy_conv2d_params){.x = {.h = case_edge(r, 7, 20),
                                   .w = case_edge(r, 14, 30),
                                   .c = CASE_ONE_OF(r, 1, 1, 2, 3, 3, 4, 7, 16, 17, 20, 31, 33, 50, 64, 65)},
                             .k = CASE_ONE_OF(r, 1, 3, 5, 10, 16, 17, 20, 32, 33, 48, 50, 64, 65, 80),
                             .r = CASE_ONE_OF(r, 1, 1, 2, 3, 3, 3, 5, 7),
                             .s = CASE_ONE_OF(r, 1, 1, 2, 3, 3, 3, 5, 7),
                             .stride_h = CASE_ONE_OF(r, 1, 1, 1, 2, 2, 3, 4),
                             .stride_w = CASE_ONE_OF(r, 1, 1, 1, 2, 2, 3, 4),
                             .pad_h = CASE_ONE_OF(r, 0, 1, 1, 2, 3),
                             .pad_w = CASE_ONE_OF(r, 0, 1, 1, 2, 3),
                             .n_max = 1};
    if (case_int(r, 0, 3) == 0) p->pad_more_h = case_int(r, -p->pad_h, 2), p->pad_more_w = case_int(r, -p->pad_w, 2);
    p->x.pitch = p->x.c, p->y_pitch = p->k;
  } while (p->x.h + 2 * p->pad_h + p->pad_more_h < p->r || p->x.w + 2 * p->pad_w + p->pad_more_w < p->s ||
           conv_case_work(p, 1) > most_work());
  check_ok(cvy_conv2d_output_shape(p, &out));
  const int most = (int)(most_work() / conv_case_work(p, 1));
  c.n = case_edge(r, 7, most < 40 ? most : 40);
  p->n_max = c.n + CASE_ONE_OF(r, 0, 0, 1, 30);
  p->bias = case_int(r, 0, 1);
  p->prologue = case_int(r, 0, 1) ? case_int(r, 1, 7) : 0;
  p->stats = case_int(r, 0, 1);
  p->no_backward_data = case_int(r, 0, 3) == 0;
  p->algos = direct_only;
  choose_pitches(d, r, p);
  c.group_size = p->prologue & CVY_CONV_SCALE ? CASE_ONE_OF(r, 0, 1, 2, 3, 100) : 0;
  c.accumulate = case_int(r, 0, 1);
  c.fill = (case_fill_kind)case_int(r, 0, CASE_FILL_ANY - 1);
  return c;
}

static void test_random(check_device *d) {
  /* each SIMT case may be a program of its own */
  const int some = (d->cpu_shaped ? RANDOM_CASES : RANDOM_CASES / 2) / (conv_in_oclgrind() ? 2 : 1);
  const int cases = getenv("CVY_TEST_FULL") ? 10 * RANDOM_CASES : some;
  for (int i = 0; i < cases; i++) {
    case_rng r = check_rng_make(d, i);
    const conv_case c = random_case(d, &r);
    run_case(d, &r, &c);
  }
}

/* Layers of the two networks, and shapes that are cut in every way: several images per strip, rows, columns, more
 * positions than a table. */
static void test_layers(check_device *d) {
  static const struct {
    int n, h, w, c, x_pitch, k, r, s, stride, pad;
    bool stats;
  } layers[] = {
      {3, 28, 28, 1, 1, 64, 3, 3, 1, 1, true},        {1, 28, 28, 64, 64, 48, 3, 3, 1, 1, true},
      {1, 28, 28, 64, 64, 64, 3, 3, 2, 1, true},      {2, 28, 28, 64, 64, 64, 1, 1, 2, 0, false},
      {3, 7, 7, 256, 256, 20, 3, 3, 1, 1, true},      {7, 4, 4, 512, 512, 16, 3, 3, 1, 1, true},
      {9, 28, 28, 1, 1, 20, 3, 3, 1, 0, false},       {3, 13, 13, 20, 32, 50, 5, 5, 1, 0, false},
      {1, 40, 40, 64, 64, 16, 3, 3, 1, 1, true},      {2, 2, 400, 64, 64, 10, 3, 3, 1, 1, true},
      {2, 45, 45, 1, 1, 16, 3, 3, 1, 1, true},        {2, 32, 32, 3, 4, 64, 3, 3, 1, 1, false},
      {1, 8, 8, 200, 208, 100, 3, 3, 2, 1, false},    {70, 3, 3, 3, 4, 16, 3, 3, 1, 1, true},
      {2, 33, 31, 48, 48, 40, 5, 3, 2, 1, false},     {40, 7, 7, 80, 80, 17, 3, 3, 2, 1, false},
      {3, 30, 90, 5, 16, 33, 5, 5, 1, 1, false},      {5, 9, 9, 33, 48, 20, 1, 1, 2, 0, false},
      {30, 7, 7, 32, 32, 40, 3, 3, 2, 1, true},       {33, 14, 14, 16, 16, 48, 3, 3, 2, 1, true},
      {17, 14, 14, 32, 32, 16, 1, 1, 2, 0, true},     {31, 1, 1, 100, 112, 50, 1, 1, 1, 0, false},
      {84, 28, 28, 16, 16, 64, 1, 1, 1, 0, true},     {340, 28, 28, 16, 16, 16, 1, 1, 2, 0, false},
      {5, 14, 28, 1, 1, 10, 3, 3, 1, 1, true},        {84, 56, 56, 1, 1, 10, 3, 3, 1, 1, true},
      {3, 14, 28, 1, 1, 48, 5, 5, 1, 2, true},        {13, 14, 14, 80, 80, 96, 1, 1, 2, 0, true},
      {3, 9, 9, 32, 32, 20, 1, 1, 2, 1, true},        {3, 9, 21, 1, 1, 48, 3, 3, 1, 1, true},
      {84, 28, 28, 1, 1, 64, 3, 3, 1, 1, true},       {90, 61, 61, 1, 1, 10, 3, 3, 1, 1, true},
      {5, 9, 21, 1, 1, 96, 3, 3, 2, 1, false},        {3, 30, 28, 1, 1, 128, 3, 3, 1, 0, true},
      {1, 257, 257, 2, 16, 3, 257, 257, 1, 0, false}, /* more taps than there may be work-groups */
  };
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    case_rng r = check_rng_make(d, 1000 + (int)i);
    const bool differentiable = layers[i].x_pitch % 16 == 0;
    const conv_case c = {.n = layers[i].n,
                         .p = {.n_max = layers[i].n,
                               .x = {layers[i].h, layers[i].w, layers[i].c, layers[i].x_pitch},
                               .k = layers[i].k,
                               .y_pitch = cvy_pitch_of(layers[i].k),
                               .r = layers[i].r,
                               .s = layers[i].s,
                               .stride_h = layers[i].stride,
                               .stride_w = layers[i].stride,
                               .pad_h = layers[i].pad,
                               .pad_w = layers[i].pad,
                               .bias = true,
                               .stats = layers[i].stats,
                               .no_backward_data = !differentiable,
                               .algos = direct_only},
                         .accumulate = i % 3 == 0,
                         .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_INTEGERS};
    /* large for what CPU kernels store past caches, or launch */
    if (!d->cpu_shaped && ((layers[i].c > 1 && layers[i].n > 80) || layers[i].r > 100)) continue;
    if (!conv_in_oclgrind() || conv_case_work(&c.p, c.n) < (d->cpu_shaped ? 1.5e7 : 1e6)) run_case(d, &r, &c);
  }
}

/* One filter: the gradient of the input gathers from one channel, in lines of neighbours that are added to what is
 * there; of 32 channels and more. */
static void test_one_filter(check_device *d) {
  static const int sizes[][3] = {{14, 28, 48}, {9, 14, 32}, {5, 42, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    case_rng r = check_rng_make(d, 2500 + (int)i);
    const int channels = sizes[i][2];
    const cvy_shape x = {sizes[i][0], sizes[i][1], channels, cvy_pitch_of(channels)};
    conv_case c = {.n = 2, .p = case_conv2d_params(2, x, 1, 3, 1, 1), .accumulate = true, .fill = CASE_FILL_NORMAL};
    c.p.bias = true, c.p.algos = direct_only;
    run_case(d, &r, &c);
    if (d->cpu_shaped) assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_DATA), "direct_cpu");
  }
}

/* Each combination of prologue flags, with groups of samples that end in a smaller one. */
static void test_prologue(check_device *d) {
  for (int flags = conv_in_oclgrind() ? 5 : 1; flags <= 7; flags++) {
    case_rng r = check_rng_make(d, 2000 + flags);
    conv_case c = conv_prologue_case(flags, 1);
    c.p.stride_h = 1 + flags % 2;
    c.p.algos = direct_only;
    if (flags == 3) c.fill = CASE_FILL_INTEGERS;
    run_case(d, &r, &c);
  }
}

/* Backward passes of the reference are the derivatives of its forward pass. */
static void test_reference(check_device *d) {
  case_rng r = check_rng_make(d, 3000);
  for (int i = 0; i < 12; i++) {
    conv_case c = random_case(d, &r);
    const cvy_conv2d_params *const p = &c.p;
    cvy_shape out;
    check_ok(cvy_conv2d_output_shape(p, &out));
    const int n = c.n < 2 ? c.n : 2;
    const size_t x_size = (size_t)n * p->x.h * p->x.w * p->x.c, w_size = (size_t)p->r * p->s * p->x.c * p->k,
                 y_size = (size_t)n * out.h * out.w * p->k;
    double *const x = check_to_doubles(d, filled(d, &r, x_size, CASE_FILL_NORMAL), x_size);
    double *const w = check_to_doubles(d, filled(d, &r, w_size, CASE_FILL_NORMAL), w_size);
    const double *const t = check_to_doubles(d, filled(d, &r, y_size, CASE_FILL_NORMAL), y_size);
    conv_case_differences(d, &r, p, n, x, w, t);
    check_case_end(d);
  }
}

/* ---- wrong use ---- */

static cvy_conv2d_params good_params(void) { return case_conv2d_params(2, (cvy_shape){5, 5, 3, 16}, 4, 3, 1, 1); }

static void test_bad_shapes(check_device *d) {
  static const struct {
    size_t at;
    int value;
    const char *text;
  } wrong[] = {
#define FIELD(name) offsetof(cvy_conv2d_params, name)
      {FIELD(n_max), 0, "n_max is 0"},
      {FIELD(x.h), 0, "input 0x5x3"},
      {FIELD(x.w), -1, "input 5x-1x3"},
      {FIELD(x.c), 0, "input 5x5x0"},
      {FIELD(x.pitch), 2, "input pitch 2"},
      {FIELD(k), 0, "0 filters"},
      {FIELD(y_pitch), 3, "output pitch 3"},
      {FIELD(r), 0, "filter 0x3"},
      {FIELD(r), 8, "8x3 filter does not fit"},
      {FIELD(s), 9, "3x9 filter does not fit"},
      {FIELD(stride_h), 0, "stride 0x1"},
      {FIELD(stride_w), -2, "stride 1x-2"},
      {FIELD(pad_h), -1, "padding -1x1"},
      {FIELD(pad_w), 1 << 30, "2^24"},
      {FIELD(prologue), 8, "prologue flags 0x8"},
      {FIELD(n_max), 1 << 30, "32-bit"},
      {FIELD(k), 1 << 30, "pitch 16 is smaller"},
      {FIELD(algos), 9, "list of 9 algorithms"},
#undef FIELD
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    cvy_conv2d_params p = good_params();
    cvy_conv2d *op = NULL;
    memcpy((char *)&p + wrong[i].at, &wrong[i].value, sizeof(int));
    check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_ARGUMENT, wrong[i].text);
    assert_null(op);
  }
  cvy_conv2d_params p = good_params();
  cvy_conv2d *op = NULL;
  cvy_shape y;
  check_fails(cvy_conv2d_create(NULL, &p, &op), CVY_E_ARGUMENT, "null");
  check_fails(cvy_conv2d_create(d->cl, NULL, &op), CVY_E_ARGUMENT, "null");
  check_fails(cvy_conv2d_output_shape(NULL, &y), CVY_E_ARGUMENT, "null");
  p.k = p.y_pitch = 1 << 28;
  check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_ARGUMENT, "32-bit");
  p = good_params(), p.algos = (cvy_conv_algo_list){1, {CVY_CONV_WINOGRAD4}}, p.stride_h = 2;
  check_fails(cvy_conv2d_create(d->cl, &p, &op), CVY_E_UNSUPPORTED, "winograd4 cannot do forward of 5x5x3");
  assert_null(op);
  p.algos = (cvy_conv_algo_list){2, {CVY_CONV_WINOGRAD4, CVY_CONV_DIRECT}};
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  cvy_conv2d_destroy(&op);
  assert_null(op);
  cvy_conv2d_destroy(&op);
  cvy_conv2d_destroy(NULL);
}

static void test_bad_calls(check_device *d) {
  const cvy_conv2d_params p = good_params();
  cvy_conv2d_params rich = good_params();
  rich.bias = rich.stats = rich.no_backward_data = true, rich.prologue = CVY_CONV_SCALE | CVY_CONV_RESIDUAL;
  cvy_conv2d *op = NULL, *op2 = NULL, *op3 = NULL;
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  check_ok(cvy_conv2d_create(d->cl, &rich, &op2));
  rich.inference = true;
  check_ok(cvy_conv2d_create(d->cl, &rich, &op3));
  const size_t ws_bytes = cvy_conv2d_workspace_bytes(op) > cvy_conv2d_workspace_bytes(op2)
                              ? cvy_conv2d_workspace_bytes(op)
                              : cvy_conv2d_workspace_bytes(op2);
  check_buffer *const bx = check_scratch(d, "x", 2 * 25 * 16 * 4), *const bw = check_scratch(d, "w", 27 * 16 * 4),
                      *const tiny = check_scratch(d, "tiny", 60);
  check_buffer *const ws = check_scratch(d, "workspace", ws_bytes);
  cvy_buffer *const x = bx->cl, *const w = bw->cl, *const s = ws->cl, *const t = tiny->cl;
  cvy_queue *const q = d->queue;
  check_fails(cvy_conv2d_forward(NULL, q, 1, x, NULL, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "null");
  check_fails(cvy_conv2d_forward(op, NULL, 1, x, NULL, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "queue");
  check_fails(cvy_conv2d_forward(op, q, 0, x, NULL, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "0 samples");
  check_fails(cvy_conv2d_forward(op, q, 3, x, NULL, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "3 samples");
  check_fails(cvy_conv2d_forward(op, q, 1, NULL, NULL, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "x is a null pointer");
  check_fails(cvy_conv2d_forward(op, q, 1, x, NULL, NULL, NULL, x, NULL, s), CVY_E_ARGUMENT, "w is a null pointer");
  check_fails(cvy_conv2d_forward(op, q, 1, x, NULL, t, NULL, x, NULL, s), CVY_E_ARGUMENT, "w has 60 bytes");
  check_fails(cvy_conv2d_forward(op, q, 1, x, NULL, w, NULL, t, NULL, s), CVY_E_ARGUMENT, "y has 60 bytes");
  check_fails(cvy_conv2d_forward(op, q, 1, t, NULL, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "x has 60 bytes");
  check_fails(cvy_conv2d_forward(op, q, 1, x, NULL, w, w, x, NULL, s), CVY_E_ARGUMENT, "a bias");
  check_fails(cvy_conv2d_forward(op, q, 1, x, NULL, w, NULL, x, w, s), CVY_E_ARGUMENT, "stats");
  const cvy_conv2d_prologue none = {0}, scale = {.affine = w}, all = {.affine = w, .residual = x},
                            negative = {.group_size = -1};
  check_fails(cvy_conv2d_forward(op, q, 1, x, &none, w, NULL, x, NULL, s), CVY_E_ARGUMENT, "a prologue");
  if (cvy_conv2d_workspace_bytes(op))
    check_fails(cvy_conv2d_backward_weights(op, q, 1, x, NULL, x, w, NULL, false, NULL), CVY_E_ARGUMENT, "workspace");
  check_fails(cvy_conv2d_forward(op2, q, 1, x, NULL, w, w, x, w, s), CVY_E_ARGUMENT, "affine is a null pointer");
  check_fails(cvy_conv2d_forward(op2, q, 1, x, &negative, w, w, x, w, s), CVY_E_ARGUMENT, "groups of -1");
  check_fails(cvy_conv2d_forward(op2, q, 1, x, &scale, w, w, x, w, s), CVY_E_ARGUMENT, "residual is a null pointer");
  check_fails(cvy_conv2d_forward(op2, q, 1, x, &all, w, NULL, x, w, s), CVY_E_ARGUMENT, "bias is a null pointer");
  check_fails(cvy_conv2d_forward(op2, q, 1, x, &all, w, w, x, NULL, s), CVY_E_ARGUMENT, "stats is a null pointer");
  check_fails(cvy_conv2d_backward_data(op2, q, 1, x, w, x, false, s), CVY_E_ARGUMENT, "without backward_data");
  check_fails(cvy_conv2d_backward_weights(op3, q, 1, x, &all, x, w, NULL, false, s), CVY_E_ARGUMENT,
              "without backward_weights");
  check_fails(cvy_conv2d_backward_data(op, q, 1, t, w, x, false, s), CVY_E_ARGUMENT, "dy has 60");
  check_fails(cvy_conv2d_backward_data(op, q, 1, x, w, t, false, s), CVY_E_ARGUMENT, "dx has 60");
  check_fails(cvy_conv2d_backward_weights(op, q, 1, x, NULL, t, w, NULL, false, s), CVY_E_ARGUMENT, "dy has 60");
  check_fails(cvy_conv2d_backward_weights(op, q, 1, x, NULL, x, t, NULL, false, s), CVY_E_ARGUMENT, "dw has 60");
  check_fails(cvy_conv2d_backward_weights(op, q, 1, x, NULL, x, w, t, false, s), CVY_E_ARGUMENT, "db has 60");
  cvy_conv2d_destroy(&op);
  cvy_conv2d_destroy(&op2);
  cvy_conv2d_destroy(&op3);
}

/* What AUTO takes: by the device's shape, and per pass. */
static void test_auto(check_device *d) {
  cvy_conv2d_params p = good_params();
  cvy_conv2d *op = NULL;
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    assert_int_equal(strstr(cvy_conv2d_algorithm_name(op, (cvy_conv_pass)pass), "_cpu") != NULL, d->cpu_shaped);
  cvy_conv2d_destroy(&op);
  p.y_pitch = 5;
  check_ok(cvy_conv2d_create(d->cl, &p, &op));
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++)
    assert_null(strstr(cvy_conv2d_algorithm_name(op, (cvy_conv_pass)pass), "_cpu"));
  cvy_conv2d_destroy(&op);
  case_rng r = check_rng_make(d, 4000);
  conv_case c = {.n = 2, .p = good_params(), .fill = CASE_FILL_NORMAL};
  c.p.x.pitch = 4, c.p.algos = direct_only; /* backward-data cannot be direct_cpu */
  conv_case_run(d, &r, &c);
  assert_string_equal(conv_case_took(CVY_CONV_BACKWARD_DATA), "direct_simt");
}

/* The largest tile of SIMT devices, whose items read quads in pairs: more rows than it holds, a depth that ends within
 * a step. PoCL compiles each of these kernels for 10 s, so backward-data, which has the same loads, is for
 * CVY_TEST_FULL=1. */
static void test_large_tile(check_device *d) {
  const cvy_gemm_tile tile = cvy_gemm_tile_at(0);
  if (d->cpu_shaped || !cvy_gemm_tile_fits(cvy_device_get_capabilities(d->cl), tile)) return;
  case_rng r = check_rng_make(d, 5000);
  conv_case c = {.n = 3, .p = conv_square_3x3(3, 7, 20, 12, 1), .fill = CASE_FILL_INTEGERS};
  c.p.algos = direct_only, c.p.stats = false, c.p.no_backward_data = !getenv("CVY_TEST_FULL");
  for (int pass = 0; pass <= CVY_CONV_BACKWARD_DATA; pass++)
    c.p.choice[pass] = (cvy_conv_choice){CVY_CONV_DIRECT, {tile.m, tile.n, tile.k}};
  run_case(d, &r, &c);
}

static void test_names(check_device *d) {
  cvy_conv_algo_list list;
  (void)d;
  check_ok(cvy_conv_algos_parse("auto", &list));
  assert_int_equal(list.n, 0);
  check_ok(cvy_conv_algos_parse("winograd4,fft,direct", &list));
  assert_int_equal(list.n, 3);
  assert_int_equal(list.algo[0], CVY_CONV_WINOGRAD4);
  assert_int_equal(list.algo[1], CVY_CONV_FFT);
  assert_int_equal(list.algo[2], CVY_CONV_DIRECT);
  static const char *const wrong[] = {"",        "auto,direct",      "winograd", "direct,",
                                      ",direct", "direct winograd4", "gemm,gemm"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    check_fails(cvy_conv_algos_parse(wrong[i], &list), CVY_E_ARGUMENT,
                i == 6 ? "twice" : "expected auto, or a list of direct");
  assert_int_equal(list.n, 3);
}

/* CVY_FORCE_MATRIX=amd-emulated is what it says: products went the way of AMD's matrix units. */
static void test_matrix_unit(check_device *d) {
  const char *const forced = getenv("CVY_FORCE_MATRIX");
  if (!forced || strcmp(forced, "amd-emulated") != 0) return;
  assert_int_equal(cvy_math_resolve(d->cl, CVY_MATH_FP32), CVY_MATH_FP32);
  assert_int_equal(cvy_math_define(d->cl, CVY_MATH_FP32), d->cpu_shaped ? 0 : 4);
  assert_int_equal(cvy_math_define(d->cl, CVY_MATH_TF32), 0);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"layers", test_layers},         {"large_tile", test_large_tile},   {"one_filter", test_one_filter},
      {"prologue", test_prologue},     {"random", test_random},           {"auto", test_auto},
      {"names", test_names},           {"matrix_unit", test_matrix_unit}, {"reference", test_reference},
      {"bad_shapes", test_bad_shapes}, {"bad_calls", test_bad_calls}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
