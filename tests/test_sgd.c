/* SPDX-License-Identifier: MIT
 * The update: bit for bit what fmaf gives on the host, near the reference in double, and PyTorch's formula on small
 * cases by hand. */
#include <math.h>

#include "src/ref/cases.h"
#include "tests/check.h"

static const int sizes[] = {16, 48, 16 * 255, 16 * 256, 16 * 1021, 16 * 2048};
static const cvy_sgd_params settings[] = {
    {.lr = 0.1f},
    {.lr = 0.05f, .weight_decay = 5e-4f},
    {.lr = 0.1f, .momentum = 0.9f},
    {.lr = 0.1f, .momentum = 0.9f, .nesterov = true},
    {.lr = 0.3f, .momentum = 0.99f, .weight_decay = 1e-2f},
    {.lr = 0.3f, .momentum = 0.5f, .weight_decay = 1e-2f, .nesterov = true},
    {.lr = 0.0f, .momentum = 0.5f},
    {.lr = 1.0f, .weight_decay = 0.7f},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes, N_SETTINGS = sizeof settings / sizeof *settings, STEPS = 3 };

static void run_case(check_device *d, int stream, sgd_case c) {
  case_rng r = check_rng_make(d, stream);
  case_sgd(&c, &r);
  check_op(d, &c.base);
}

static void test_update(check_device *d) {
  for (int i = 0; i < N_SIZES * N_SETTINGS; i++) {
    const sgd_case c = {.base.n = 1, .p = settings[i % N_SETTINGS], .each = sizes[i / N_SETTINGS], .steps = STEPS};
    if (check_case(d, "update n=%d setting=%d", c.each, i % N_SETTINGS)) run_case(d, i, c);
  }
}

/* Two steps of torch.optim.SGD on w = 1, g = 1 with lr 0.5, momentum 0.5, weight decay 0.5: all numbers are exact in
 * binary. */
static void test_known(check_device *d) {
  cvy_sgd *op = NULL;
  check_ok(cvy_sgd_create(d->cl, &op));
  for (int nesterov = 0; nesterov < 2; nesterov++) {
    if (!check_case(d, "known nesterov=%d", nesterov)) continue;
    const cvy_sgd_params p = {.lr = 0.5f, .momentum = 0.5f, .weight_decay = 0.5f, .nesterov = nesterov != 0};
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
    for (int step = 0; step < 2; step++) check_ok(cvy_sgd_update(op, d->queue, &p, 16, w->cl, g->cl, v->cl));
    check_same(d, "w", check_download(w), want_w, 1, 16);
    check_same(d, "v", check_download(v), want_v, 1, 16);
    check_case_end(d);
  }
  cvy_sgd_destroy(&op);
}

static void test_running(check_device *d) {
  static const float momenta[] = {0.1f, 0.0f, 1.0f, 0.37f, 0.9f, 0.01f};
  for (int i = 0; i < N_SIZES; i++)
    if (check_case(d, "running n=%d momentum=%g", sizes[i], (double)momenta[i % 6]))
      run_case(d, i, (sgd_case){.base.n = 1, .p.momentum = momenta[i % 6], .each = sizes[i], .running = true});
}

static void test_arguments(check_device *d) {
  cvy_sgd *op = NULL;
  check_ok(cvy_sgd_create(d->cl, &op));
  float zeros[32] = {0};
  check_buffer *const w = check_inout(d, "w", zeros, 1, 32, 32), *const g = check_input(d, "g", zeros, 1, 32, 32);
  const cvy_sgd_params plain = {.lr = 0.1f}, heavy = {.lr = 0.1f, .momentum = 0.9f};
  const cvy_sgd_params infinite = {.lr = INFINITY}, lost = {.lr = 0.1f, .nesterov = true};
  check_fails(cvy_sgd_update(op, d->queue, &plain, 24, w->cl, g->cl, NULL), CVY_E_ARGUMENT, "24 elements");
  check_fails(cvy_sgd_update(op, d->queue, &plain, 64, w->cl, g->cl, NULL), CVY_E_ARGUMENT, "needs at least 256");
  check_fails(cvy_sgd_update(op, d->queue, &plain, 32, w->cl, NULL, NULL), CVY_E_ARGUMENT, "g is NULL");
  check_fails(cvy_sgd_update(op, d->queue, &heavy, 32, w->cl, g->cl, NULL), CVY_E_ARGUMENT, "v is NULL");
  check_fails(cvy_sgd_update(op, d->queue, &infinite, 32, w->cl, g->cl, NULL), CVY_E_ARGUMENT, "lr inf");
  check_fails(cvy_sgd_update(op, d->queue, &lost, 32, w->cl, g->cl, NULL), CVY_E_ARGUMENT, "Nesterov needs a momentum");
  check_fails(cvy_sgd_running(op, d->queue, 1.5f, 32, w->cl, g->cl), CVY_E_ARGUMENT, "momentum 1.5");
  check_fails(cvy_sgd_running(op, d->queue, 0.1f, 0, w->cl, g->cl), CVY_E_ARGUMENT, "0 elements");
  check_case_end(d);
  cvy_sgd_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"update", test_update}, {"known", test_known}, {"running", test_running}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
