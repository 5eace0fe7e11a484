/* SPDX-License-Identifier: MIT
 * First values: distribution, what is constant, and that they depend on seed, tensor and index alone. */
#include "tests/support/check.h"

#include <math.h>

#include "src/nn/graph.h"
#include "src/nn/init.h"

typedef struct drawn {
  cvy_net *net;
  const cvy_layout *layout;
  float *w, *running;
} drawn;

static drawn draw(cvy_init_kind kind, uint64_t seed) {
  drawn v;
  check_ok(cvy_net_resnet18(1, 28, 28, 10, &v.net));
  v.layout = cvy_net_layout(v.net);
  v.w = cvy_calloc(v.layout->n_floats, sizeof *v.w);
  v.running = cvy_calloc(v.layout->n_running_floats, sizeof *v.running);
  for (size_t i = 0; i < v.layout->n_floats; i++) v.w[i] = NAN; /* all of it must be overwritten */
  for (size_t i = 0; i < v.layout->n_running_floats; i++) v.running[i] = NAN;
  check_ok(cvy_init_weights(v.layout, kind, seed, v.w, v.running));
  return v;
}

static void release(drawn *v) {
  cvy_free(v->w);
  cvy_free(v->running);
  cvy_net_destroy(&v->net);
}

static void check_param(check_device *d, const drawn *v, int t, cvy_init_kind kind, uint64_t seed) {
  const cvy_param *const p = &v->layout->params[t];
  float *const dense = cvy_calloc(p->elems, sizeof *dense);
  cvy_param_to_dense(p, v->w, dense);
  const bool bias = p->kind == CVY_PARAM_BIAS;
  if ((bias && kind != CVY_INIT_TORCH) || p->kind == CVY_PARAM_BN_BIAS || p->kind == CVY_PARAM_BN_WEIGHT) {
    for (size_t i = 0; i < p->elems; i++) assert_true(dense[i] == (p->kind == CVY_PARAM_BN_WEIGHT ? 1.0f : 0.0f));
  } else {
    const cvy_param *const weight = bias ? &v->layout->params[t - 1] : p;
    const double fan_in = (double)(weight->elems / (size_t)weight->k),
                 fan_out = (double)weight->k * weight->r * weight->s,
                 /* of torch.nn.init.xavier_uniform_, and of kaiming_uniform_(a=sqrt(5)), whose gain is sqrt(2/6) */
        bound = kind == CVY_INIT_XAVIER ? sqrt(6 / (fan_in + fan_out)) : sqrt(2.0 / 6) * sqrt(3 / fan_in),
                 deviation = kind == CVY_INIT_D2L  ? 0.01
                             : kind == CVY_INIT_HE ? sqrt(2 / fan_in)
                                                   : bound / sqrt(3);
    const bool uniform = kind == CVY_INIT_XAVIER || kind == CVY_INIT_TORCH;
    double largest = 0;
    const cvy_rng rng = {.seed = seed, .purpose = CVY_RNG_INIT, .stream = (uint32_t)t};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < p->elems; i++) {
      sum += dense[i];
      squares += (double)dense[i] * dense[i];
      largest = fmax(largest, fabs((double)dense[i]));
      const double want =
          uniform ? bound * (2 * (double)cvy_rng_uniform(&rng, i) - 1) : deviation * (double)cvy_rng_normal(&rng, i);
      if (i % 97 == 0 && !(fabs((double)dense[i] - want) <= 1e-6 * (fabs((double)dense[i]) + (uniform ? bound : 0))))
        check_fail(d, "%s element %zu is %g, the formula gives %g", p->name, i, (double)dense[i], want);
    }
    if (uniform && (!(largest <= bound * (1 + 1e-6)) || !(largest >= bound * (1 - 25.0 / (double)p->elems))))
      check_fail(d, "%s: the largest is %g, the bound %g", p->name, largest, bound);
    const double n = (double)p->elems, mean = sum / n, measured = sqrt(squares / n);
    if (!(fabs(mean) <= 5 * deviation / sqrt(n)) || !(fabs(measured / deviation - 1) <= 5 / sqrt(2 * n)))
      check_fail(d, "%s: mean %g, deviation %g, wanted 0 and %g", p->name, mean, measured, deviation);
  }
  /* padding behind k, and the gap to the next tensor */
  for (size_t i = 0; i < p->size; i++)
    if ((int)(i % (size_t)p->pitch) >= p->k) assert_true(v->w[p->offset + i] == 0.0f);
  cvy_free(dense);
}

CHECK_TEST(values) {
  for (int kind = CVY_INIT_D2L; kind <= CVY_INIT_TORCH; kind++) {
    drawn v = draw((cvy_init_kind)kind, 7);
    for (int t = 0; t < v.layout->n_params; t++) check_param(d, &v, t, (cvy_init_kind)kind, 7);
    for (size_t i = 0; i < v.layout->n_floats; i++) assert_true(isfinite(v.w[i]));
    for (int r = 0; r < v.layout->n_running; r++) {
      const cvy_running *const running = &v.layout->running[r];
      for (int k = 0; k < running->pitch; k++) {
        assert_true(v.running[running->offset + (size_t)k] == 0.0f);
        assert_true(v.running[running->offset + (size_t)(running->pitch + k)] == (k < running->c ? 1.0f : 0.0f));
      }
    }
    for (size_t i = 0; i < v.layout->n_running_floats; i++) assert_true(isfinite(v.running[i]));
    release(&v);
  }
}

CHECK_TEST(seed) {
  drawn a = draw(CVY_INIT_D2L, 1), b = draw(CVY_INIT_D2L, 1), c = draw(CVY_INIT_D2L, 2);
  assert_memory_equal(a.w, b.w, a.layout->n_floats * sizeof *a.w);
  const cvy_param *const p = &a.layout->params[0], *const q = &a.layout->params[4];
  assert_true(memcmp(a.w + p->offset, c.w + p->offset, p->size * sizeof *a.w) != 0);
  assert_true(memcmp(a.w + p->offset, a.w + q->offset, p->size * sizeof *a.w) != 0); /* tensors differ */
  check_fails(cvy_init_weights(a.layout, (cvy_init_kind)5, 1, a.w, a.running), CVY_E_ARGUMENT, "initialisation 5");
  release(&a);
  release(&b);
  release(&c);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
