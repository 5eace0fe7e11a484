/* SPDX-License-Identifier: MIT
 * The update: bit for bit what fmaf gives on the host, near the reference in double, and PyTorch's formula on small
 * cases by hand. */
#include <math.h>
#include <string.h>

#include "src/ref/cases.h"
#include "tests/support/check.h"

static const int sizes[] = {16, 48, 16 * 255, 16 * 256, 16 * 1021, 16 * 2048};
static const cvy_update_params settings[] = {
    {.lr = 0.1f},
    {.lr = 0.05f, .weight_decay = 5e-4f},
    {.lr = 0.1f, .momentum = 0.9f},
    {.lr = 0.1f, .momentum = 0.9f, .nesterov = true},
    {.lr = 0.3f, .momentum = 0.99f, .weight_decay = 1e-2f},
    {.lr = 0.3f, .momentum = 0.5f, .weight_decay = 1e-2f, .nesterov = true},
    {.lr = 0.0f, .momentum = 0.5f},
    {.lr = 1.0f, .weight_decay = 0.7f},
    {CVY_OPTIMIZER_ADAM, .lr = 0.001f, .betas = {0.9f, 0.999f}, .eps = 1e-8f},
    {CVY_OPTIMIZER_ADAM, .lr = 0.1f, .weight_decay = 0.01f, .betas = {0.5f, 0.9f}, .eps = 1e-3f},
    {CVY_OPTIMIZER_ADAMW, .lr = 0.1f, .weight_decay = 0.3f, .betas = {0.9f, 0.99f}, .eps = 1e-8f, .number = 900},
    {CVY_OPTIMIZER_ADAMW, .lr = 0.01f, .betas = {0.0f, 0.999f}, .eps = 1e-8f, .number = 7},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes, N_SETTINGS = sizeof settings / sizeof *settings, STEPS = 3 };

static void run_case(check_device *d, int stream, update_case c) {
  case_rng r = check_rng_make(d, stream);
  case_update(&c, &r);
  check_op(d, &c.base);
}

static void test_update(check_device *d) {
  for (int i = 0; i < N_SIZES * N_SETTINGS; i++) {
    const update_case c = {.base.n = 1, .p = settings[i % N_SETTINGS], .each = sizes[i / N_SETTINGS], .steps = STEPS};
    if (check_case(d, "update n=%d setting=%d", c.each, i % N_SETTINGS)) run_case(d, i, c);
  }
}

static cvy_status run_once(cvy_update *op, check_device *d, const cvy_update_params *p, size_t n, cvy_buffer *w,
                           cvy_buffer *g, cvy_buffer *first, cvy_buffer *second) {
  return cvy_update_run(
      op, d->queue, p,
      &(cvy_update_args){
          .numbers = cvy_update_prepare(p, 1, true), .n_elems = n, .w = w, .g = g, .moments = {first, second}});
}

/* Two steps of torch.optim.SGD on w = 1, g = 1 with lr 0.5, momentum 0.5, weight decay 0.5: all numbers are exact in
 * binary. */
static void test_known(check_device *d) {
  cvy_update *op = NULL;
  check_ok(cvy_update_create(d->cl, &op));
  for (int nesterov = 0; nesterov < 2; nesterov++) {
    if (!check_case(d, "known nesterov=%d", nesterov)) continue;
    const cvy_update_params p = {.lr = 0.5f, .momentum = 0.5f, .weight_decay = 0.5f, .nesterov = nesterov != 0};
    float ones[16], zeros[16] = {0}, want_w[16], want_v[16];
    /* step 1: d = 1.5, v = 1.5, w = 1 - 0.75 = 0.25;        step 2: d = 1.125, v = 1.875, w = 0.25 - 0.9375 = -0.6875
     * Nesterov: d + v/2 = 2.25, w = 1 - 1.125 = -0.125;
     *           d = 0.9375, v = 1.6875, d + v/2 = 1.78125, w = -0.125 - 0.890625 = -1.015625 */
    for (int j = 0; j < 16; j++) {
      ones[j] = 1.0f;
      want_w[j] = nesterov ? -1.015625f : -0.6875f;
      want_v[j] = nesterov ? 1.6875f : 1.875f;
    }
    check_buffer *const w = check_inout(d, "w", ones, 1, 16, 16), *const v = check_inout(d, "v", zeros, 1, 16, 16);
    check_buffer *const g = check_input(d, "g", ones, 1, 16, 16);
    for (int step = 0; step < 2; step++) check_ok(run_once(op, d, &p, 16, w->cl, g->cl, v->cl, NULL));
    check_same(d, "w", check_download(w), want_w, 1, 16);
    check_same(d, "v", check_download(v), want_v, 1, 16);
    check_case_end(d);
  }
  cvy_update_destroy(&op);
}

/* Values of any magnitude, with denormals, infinities and NaN: quotients and roots must be the host's to the bit, also
 * on devices that do not compute with denormals. With these numbers m becomes g, v stays, and w becomes g / sqrt(v). */
enum { MANY = 1 << 18 };

static float any_bits(uint32_t bits, int kind) {
  float x;
  if (kind == 0) bits = (bits & 0x007fffffu) | 0x3f800000u;             /* [1,2) */
  if (kind == 1) bits = (bits & 0x80ffffffu) | ((bits >> 8) % 4 << 29); /* a few exponents, also the lowest */
  memcpy(&x, &bits, sizeof x);
  return x;
}

static bool same_float(float a, float b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

static void test_exact(check_device *d) {
  static const cvy_update_params p = {CVY_OPTIMIZER_ADAM, .lr = 1, .betas = {0.9f, 0.999f}, .eps = 1e-8f, .number = 1};
  static const cvy_update_numbers plain = {.minus_rate = 1, .keep = 1, .first = 1, .second_keep = 1, .widen = 1},
                                  usual = {.minus_rate = -0.003f,
                                           .decay = 0.01f,
                                           .keep = 0.99f,
                                           .first = 0.1f,
                                           .second_keep = 0.999f,
                                           .second = 0.001f,
                                           .widen = 3,
                                           .eps = 1e-8f};
  static const char *const kinds[] = {"mantissas", "some exponents", "all bits", "roots"};
  cvy_update *op = NULL;
  check_ok(cvy_update_create(d->cl, &op));
  for (int i = 0; i < 2 * 4; i++) {
    const cvy_update_numbers *const u = i < 4 ? &plain : &usual;
    if (!check_case(d, "exact %s %s", i < 4 ? "quotient" : "update", kinds[i % 4])) continue;
    const cvy_rng rng = {.seed = 3, .purpose = CVY_RNG_TEST, .stream = (uint32_t)i};
    float *x[4];
    for (int t = 0; t < 4; t++) {
      x[t] = check_floats(d, MANY);
      for (int j = 0; j < MANY; j++) {
        const uint32_t bits = cvy_rng_u32(&rng, (uint64_t)t * MANY + (uint64_t)j);
        x[t][j] = i % 4 == 3 ? (t == 1 ? 1.0f : any_bits(0x3f800000u + (uint32_t)j * 64 + bits % 64, 2))
                             : any_bits(bits, i % 4);
        if (t == 3) x[t][j] = fabsf(x[t][j]);
      }
    }
    if (i < 4) memset(x[0], 0, MANY * sizeof(float)), memset(x[2], 0, MANY * sizeof(float));
    check_buffer *b[4];
    static const char *const names[] = {"w", "g", "m", "v"};
    for (int t = 0; t < 4; t++) b[t] = check_inout(d, names[t], x[t], 1, MANY, MANY);
    check_ok(cvy_update_run(
        op, d->queue, &p,
        &(cvy_update_args){
            .numbers = *u, .n_elems = MANY, .w = b[0]->cl, .g = b[1]->cl, .moments = {b[2]->cl, b[3]->cl}}));
    const float *const got[] = {check_download(b[0]), check_download(b[2]), check_download(b[3])};
    for (int j = 0, wrong = 0; j < MANY && wrong < 5; j++) {
      float w = x[0][j], m = x[2][j], v = x[3][j];
      case_update_adam(u, x[1][j], &w, &m, &v);
      if (same_float(got[0][j], w) && same_float(got[1][j], m) && same_float(got[2][j], v)) continue;
      wrong++;
      check_fail(d, "w %a g %a m %a v %a: w %a m %a v %a, not %a %a %a", (double)x[0][j], (double)x[1][j],
                 (double)x[2][j], (double)x[3][j], (double)got[0][j], (double)got[1][j], (double)got[2][j], (double)w,
                 (double)m, (double)v);
    }
    check_case_end(d);
  }
  cvy_update_destroy(&op);
}

static void test_running(check_device *d) {
  static const float momenta[] = {0.1f, 0.0f, 1.0f, 0.37f, 0.9f, 0.01f};
  for (int i = 0; i < N_SIZES; i++)
    if (check_case(d, "running n=%d momentum=%g", sizes[i], (double)momenta[i % 6]))
      run_case(d, i, (update_case){.base.n = 1, .p.momentum = momenta[i % 6], .each = sizes[i], .running = true});
}

static void test_arguments(check_device *d) {
  cvy_update *op = NULL;
  check_ok(cvy_update_create(d->cl, &op));
  float zeros[32] = {0};
  check_buffer *const w = check_inout(d, "w", zeros, 1, 32, 32), *const g = check_input(d, "g", zeros, 1, 32, 32);
  const cvy_update_params plain = {.lr = 0.1f}, heavy = {.lr = 0.1f, .momentum = 0.9f};
  const cvy_update_params infinite = {.lr = INFINITY}, lost = {.lr = 0.1f, .nesterov = true};
  const cvy_update_params adam = {CVY_OPTIMIZER_ADAM, .lr = 0.1f, .betas = {0.9f, 0.999f}, .eps = 1e-8f, .number = 1};
  cvy_update_params bad = adam;
  check_fails(run_once(op, d, &plain, 24, w->cl, g->cl, NULL, NULL), CVY_E_ARGUMENT, "24 elements");
  check_fails(run_once(op, d, &plain, 64, w->cl, g->cl, NULL, NULL), CVY_E_ARGUMENT, "needs at least 256");
  check_fails(run_once(op, d, &plain, 32, w->cl, NULL, NULL, NULL), CVY_E_ARGUMENT, "g is NULL");
  check_fails(run_once(op, d, &heavy, 32, w->cl, g->cl, NULL, NULL), CVY_E_ARGUMENT, "the first moment is NULL");
  check_fails(run_once(op, d, &adam, 32, w->cl, g->cl, w->cl, NULL), CVY_E_ARGUMENT, "the second moment is NULL");
  check_fails(run_once(op, d, &infinite, 32, w->cl, g->cl, NULL, NULL), CVY_E_ARGUMENT, "lr inf");
  check_fails(run_once(op, d, &lost, 32, w->cl, g->cl, NULL, NULL), CVY_E_ARGUMENT, "Nesterov needs a momentum");
  bad.betas[1] = 1;
  check_fails(run_once(op, d, &bad, 32, w->cl, g->cl, w->cl, w->cl), CVY_E_ARGUMENT, "beta2 1");
  bad = adam, bad.eps = 0;
  check_fails(run_once(op, d, &bad, 32, w->cl, g->cl, w->cl, w->cl), CVY_E_ARGUMENT, "eps 0");
  bad = adam, bad.number = 0;
  check_fails(run_once(op, d, &bad, 32, w->cl, g->cl, w->cl, w->cl), CVY_E_ARGUMENT, "number 0");
  check_fails(cvy_update_running(op, d->queue, 1.5f, 32, w->cl, g->cl), CVY_E_ARGUMENT, "momentum 1.5");
  check_fails(cvy_update_running(op, d->queue, 0.1f, 0, w->cl, g->cl), CVY_E_ARGUMENT, "0 elements");
  check_case_end(d);
  cvy_update_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"update", test_update},
                                     {"known", test_known},
                                     {"exact", test_exact},
                                     {"running", test_running},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
