/* SPDX-License-Identifier: MIT
 * The host's state: update formulas, generations, and the same bits as the device's update. */
#include <math.h>

#include <string.h>

#include "src/ref/cases.h"
#include "src/protocol/ledger.h"
#include "tests/support/check.h"

enum { FLOATS = 5 * 1024 + 128, RUNNING = 2 * 48 + 2 * 16 };

static cvy_running running_layers[2] = {{.c = 40, .pitch = 48, .offset = 0, .momentum = 0.1f},
                                        {.c = 3, .pitch = 16, .offset = 96, .momentum = 0.25f}};
static cvy_bucket bucket = {.offset = 0, .size = FLOATS};
static const cvy_layout layout = {.n_running = 2,
                                  .n_buckets = 1,
                                  .running = running_layers,
                                  .buckets = &bucket,
                                  .n_floats = FLOATS,
                                  .n_running_floats = RUNNING};

static const cvy_update_params settings[] = {
    {.lr = 0.1f},
    {.lr = 0.1f, .weight_decay = 1e-3f},
    {.lr = 0.03f, .momentum = 0.9f},
    {.lr = 0.03f, .momentum = 0.9f, .nesterov = true, .weight_decay = 5e-4f},
    {.kind = CVY_OPTIMIZER_ADAM, .lr = 0.03f, .weight_decay = 5e-4f, .betas = {0.9f, 0.999f}, .eps = 1e-8f},
    {.kind = CVY_OPTIMIZER_ADAMW, .lr = 0.03f, .weight_decay = 0.01f, .betas = {0.9f, 0.99f}, .eps = 1e-4f}};
enum { SETTINGS = sizeof settings / sizeof *settings, PARTS = 3, STEPS = 3 };

static cvy_update_params numbered(const cvy_update_params *p, int step) {
  cvy_update_params update = *p;
  update.number = step + 1;
  return update;
}

/* One element by the text of torch.optim, each multiply-add one fma (ops/update.h). */
static void expect(const cvy_update_params *p, float g, float *w, float *v, float *second) {
  if (p->kind != CVY_OPTIMIZER_SGD) {
    const cvy_update_numbers u = cvy_update_prepare(p, 1, true);
    case_update_adam(&u, g, w, v, second);
    return;
  }
  float d = p->weight_decay != 0 ? fmaf(p->weight_decay, *w, g) : g;
  if (p->momentum != 0) {
    *v = fmaf(p->momentum, *v, d);
    d = p->nesterov ? fmaf(p->momentum, *v, d) : *v;
  }
  *w = fmaf(-p->lr, d, *w);
}

static void update_piece(cvy_ledger *s, cvy_pool *pool, const cvy_update_params *update, size_t offset, size_t size,
                         const void *const *parts, int n_parts, bool packed) {
  cvy_ledger_update(
      s, pool, update,
      &(cvy_ledger_piece){
          .offset = offset, .size = size, .parts = parts, .n_parts = n_parts, .packed = packed, .scale = 1});
}

/* Several steps of updates by the pool against the formula; `w` and `v` get the last truth. */
static void run_host(check_device *d, const cvy_update_params *p, int threads, const float *w0, float *const *g,
                     float *w, float *const *v) {
  cvy_ledger *s;
  cvy_pool *pool;
  check_ok(cvy_ledger_create(&layout, cvy_update_moments(p), false, &s));
  check_ok(cvy_pool_create(threads, &pool));
  memcpy(cvy_ledger_w(s), w0, FLOATS * sizeof(float));
  for (int step = 0; step < STEPS; step++) {
    const void *const whole[PARTS] = {g[0], g[1], g[2]};
    const size_t cut = 2048;
    const void *const rest[PARTS] = {g[0] + cut, g[1] + cut, g[2] + cut};
    float *const before = check_floats(d, FLOATS);
    memcpy(before, cvy_ledger_w(s), FLOATS * sizeof(float));
    const cvy_update_params update = numbered(p, step);
    update_piece(s, pool, &update, 0, cut, whole, PARTS, false);
    update_piece(s, pool, &update, cut, FLOATS - cut, rest, PARTS, false);
    check_same(d, "truth before advance", cvy_ledger_w(s), before, 1, FLOATS);
    cvy_ledger_advance(s);
  }
  memcpy(w, cvy_ledger_w(s), FLOATS * sizeof(float));
  for (int m = 0; v && m < cvy_ledger_moments(s); m++) memcpy(v[m], cvy_ledger_moment(s, m), FLOATS * sizeof(float));
  cvy_pool_destroy(&pool);
  cvy_ledger_destroy(&s);
}

static float *const *make_gradients(check_device *d, case_rng *r) {
  static float *g[PARTS];
  for (int i = 0; i < PARTS; i++) {
    g[i] = check_floats(d, FLOATS);
    case_fill(r, g[i], FLOATS, CASE_FILL_NORMAL);
  }
  return g;
}

CHECK_TEST(formula) {
  for (int i = 0; i < SETTINGS; i++) {
    case_rng r = check_rng_make(d, i);
    if (!check_case(d, "formula %d", i)) continue;
    float *const w0 = check_floats(d, FLOATS), *const w = check_floats(d, FLOATS), *const w1 = check_floats(d, FLOATS);
    float *const v[] = {check_floats(d, FLOATS), check_floats(d, FLOATS)};
    float *const want = check_floats(d, FLOATS), *const want_v[] = {check_floats(d, FLOATS), check_floats(d, FLOATS)};
    case_fill(&r, w0, FLOATS, CASE_FILL_NORMAL);
    float *const *const g = make_gradients(d, &r);
    run_host(d, &settings[i], 2, w0, g, w, v);
    run_host(d, &settings[i], 1, w0, g, w1, NULL);
    memcpy(want, w0, FLOATS * sizeof(float));
    for (int step = 0; step < STEPS; step++) {
      const cvy_update_params update = numbered(&settings[i], step);
      for (int j = 0; j < FLOATS; j++)
        expect(&update, (g[0][j] + g[1][j]) + g[2][j], &want[j], &want_v[0][j], &want_v[1][j]);
    }
    check_same(d, "w", w, want, 1, FLOATS);
    check_same(d, "first moment", v[0], want_v[0], 1, FLOATS);
    check_same(d, "second moment", v[1], want_v[1], 1, FLOATS);
    check_same(d, "one thread", w1, want, 1, FLOATS);
    check_case_end(d);
  }
}

/* Any number of devices: the sum is from the first to the last, one after the other. */
CHECK_TEST(parts) {
  static const int counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17};
  enum { MOST = 17 };
  const cvy_update_params update = {.lr = 1};
  const float *parts[MOST];
  const void *at[MOST];
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    case_rng r = check_rng_make(d, (int)i);
    if (!check_case(d, "parts %d", counts[i])) continue;
    for (int p = 0; p < MOST; p++) {
      float *const part = check_floats(d, FLOATS);
      case_fill(&r, part, FLOATS, CASE_FILL_NORMAL);
      at[p] = parts[p] = part;
    }
    float *const want = check_floats(d, FLOATS);
    cvy_ledger *s;
    check_ok(cvy_ledger_create(&layout, 0, false, &s));
    for (int j = 0; j < FLOATS; j++) {
      float sum = parts[0][j];
      for (int p = 1; p < counts[i]; p++) sum += parts[p][j];
      want[j] = -sum;
    }
    update_piece(s, NULL, &update, 0, FLOATS, at, counts[i], false);
    cvy_ledger_advance(s);
    check_same(d, "w", cvy_ledger_w(s), want, 1, FLOATS);
    cvy_ledger_destroy(&s);
    check_case_end(d);
  }
}

/* New weights go to every copy as they go to the ledger, and to nothing around it, also by several threads. */
CHECK_TEST(copies) {
  enum { MOST = 3, AT = 1000, SIZE = FLOATS - 2 * AT };
  const cvy_update_params update = {.lr = 0.1f, .momentum = 0.9f};
  case_rng r = check_rng_make(d, 0);
  float *const *const g = make_gradients(d, &r);
  const void *const parts[PARTS] = {g[0], g[1], g[2]};
  for (int n = 0; n <= MOST; n++) {
    float *copies[MOST], *inner[MOST];
    cvy_ledger *s;
    cvy_pool *pool;
    check_ok(cvy_pool_create(3, &pool));
    check_ok(cvy_ledger_create(&layout, cvy_update_moments(&update), false, &s));
    for (int c = 0; c < MOST; c++) {
      copies[c] = check_floats(d, FLOATS);
      inner[c] = copies[c] + AT;
      for (int i = 0; i < FLOATS; i++) copies[c][i] = -1;
    }
    cvy_ledger_update(
        s, pool, &update,
        &(cvy_ledger_piece){
            .offset = AT, .size = SIZE, .parts = parts, .n_parts = PARTS, .scale = 1, .copies = inner, .n_copies = n});
    for (int c = 0; c < MOST; c++)
      for (int i = 0; i < FLOATS; i++) {
        const float want = c < n && i >= AT && i < AT + SIZE ? cvy_ledger_next_w(s)[i] : -1;
        if (memcmp(&copies[c][i], &want, sizeof want) != 0)
          check_fail(d, "copy %d of %d has %g at %d, not %g", c, n, (double)copies[c][i], i, (double)want);
      }
    cvy_ledger_destroy(&s);
    cvy_pool_destroy(&pool);
  }
}

/* Parts of bfloat16 count as the floats that they are the upper half of. */
CHECK_TEST(packed) {
  enum { MOST = 7 };
  for (int n_parts = 1; n_parts <= MOST; n_parts++) {
    case_rng r = check_rng_make(d, n_parts);
    if (!check_case(d, "packed %d", n_parts)) continue;
    const cvy_update_params *const update = &settings[n_parts % SETTINGS];
    const void *wide[MOST], *packed[MOST];
    for (int p = 0; p < MOST; p++) {
      float *const part = check_floats(d, FLOATS);
      uint16_t *const upper = (uint16_t *)check_floats(d, FLOATS);
      case_fill(&r, part, FLOATS, CASE_FILL_NORMAL);
      for (int j = 0; j < FLOATS; j++) {
        uint32_t bits;
        memcpy(&bits, &part[j], sizeof bits);
        upper[j] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(&part[j], &bits, sizeof bits);
      }
      wide[p] = part;
      packed[p] = upper;
    }
    cvy_ledger *s[2];
    cvy_pool *pool;
    check_ok(cvy_pool_create(2, &pool));
    for (int i = 0; i < 2; i++) check_ok(cvy_ledger_create(&layout, cvy_update_moments(update), false, &s[i]));
    for (int step = 0; step < STEPS; step++) {
      const cvy_update_params now = numbered(update, step);
      update_piece(s[0], NULL, &now, 0, FLOATS, wide, n_parts, false);
      update_piece(s[1], pool, &now, 0, FLOATS, packed, n_parts, true);
      for (int i = 0; i < 2; i++) cvy_ledger_advance(s[i]);
    }
    check_same(d, "w", cvy_ledger_w(s[1]), cvy_ledger_w(s[0]), 1, FLOATS);
    for (int i = 0; i < 2; i++) cvy_ledger_destroy(&s[i]);
    cvy_pool_destroy(&pool);
    check_case_end(d);
  }
}

CHECK_TEST(running) {
  cvy_ledger *s;
  check_ok(cvy_ledger_create(&layout, 0, false, &s));
  float parts[2][RUNNING];
  for (int i = 0; i < RUNNING; i++) {
    cvy_ledger_running(s)[i] = (float)i;
    parts[0][i] = 0.5f * (float)i;
    parts[1][i] = 7.0f;
  }
  const void *const at[2] = {parts[0], parts[1]};
  cvy_ledger_update_running(s, at, 2);
  cvy_ledger_advance(s);
  for (int i = 0; i < RUNNING; i++) {
    const float m = i < 96 ? 0.1f : 0.25f;
    const float want = fmaf(m, 0.5f * (float)i + 7.0f, (1.0f - m) * (float)i);
    if (cvy_ledger_running(s)[i] != want)
      check_fail(d, "running[%d] = %g, not %g", i, (double)cvy_ledger_running(s)[i], (double)want);
  }
  cvy_ledger_destroy(&s);
}

/* A team of one updates on its device: the bits must be the host's. */
CHECK_TEST(device_bits) {
  cvy_update *op;
  check_ok(cvy_update_create(d->cl, &op));
  for (int i = 0; i < SETTINGS; i++) {
    case_rng r = check_rng_make(d, i);
    if (!check_case(d, "device bits %d", i)) continue;
    float *const w0 = check_floats(d, FLOATS), *const w = check_floats(d, FLOATS), *const sum = check_floats(d, FLOATS);
    case_fill(&r, w0, FLOATS, CASE_FILL_NORMAL);
    float *const *const g = make_gradients(d, &r);
    float *const v[] = {check_floats(d, FLOATS), check_floats(d, FLOATS)};
    for (int j = 0; j < FLOATS; j++) sum[j] = (g[0][j] + g[1][j]) + g[2][j];
    run_host(d, &settings[i], 2, w0, g, w, v);
    check_buffer *const bw = check_inout(d, "w", w0, 1, FLOATS, FLOATS), *const bg = check_input(d, "g", sum, 1, FLOATS,
                                                                                                 FLOATS);
    float *const zero = check_floats(d, FLOATS);
    check_buffer *const bm = check_inout(d, "first moment", zero, 1, FLOATS, FLOATS);
    check_buffer *const bv = check_inout(d, "second moment", zero, 1, FLOATS, FLOATS);
    for (int step = 0; step < STEPS; step++) {
      const cvy_update_params update = numbered(&settings[i], step);
      check_ok(cvy_update_run(op, d->queue, &update,
                              &(cvy_update_args){.numbers = cvy_update_prepare(&update, 1, true),
                                                 .n_elems = FLOATS,
                                                 .w = bw->cl,
                                                 .g = bg->cl,
                                                 .moments = {bm->cl, bv->cl}}));
    }
    check_same(d, "w", check_download(bw), w, 1, FLOATS);
    check_same(d, "first moment", check_download(bm), v[0], 1, FLOATS);
    check_same(d, "second moment", check_download(bv), v[1], 1, FLOATS);
    check_case_end(d);
  }
  cvy_update_destroy(&op);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
