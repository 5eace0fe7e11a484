/* SPDX-License-Identifier: MIT
 * Gradients as bfloat16. Results must be exact, with two exceptions: on devices that flush subnormal numbers they
 * must only be close, and any quiet NaN is accepted as NaN. */
#include <math.h>
#include <string.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { G, RESIDUAL, PACKED };
enum { QUIET_NAN = 0x7fc0 }; /* bits that are set in each */

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_compress_create(device, (cvy_compress **)&base->op);
}
static void destroy(op_case *base) { cvy_compress_destroy((cvy_compress **)&base->op); }
static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_compress_run(base->op, queue, (size_t)base->n, b[G], b[RESIDUAL], b[PACKED]);
}

float case_widen(uint16_t packed) {
  const uint32_t bits = (uint32_t)packed << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void compare(op_case *base) {
  compress_case *const c = (compress_case *)base;
  const float *const g = base->tensors[G].data, *const before = base->tensors[RESIDUAL].data;
  c->sent = base->tensors[PACKED].got, c->residual_left = base->tensors[RESIDUAL].got;
  for (int i = 0; i < base->n; i++) {
    const float sent = case_widen(c->sent[i]), x = g[i] + before[i], residual = c->residual_left[i];
    if (isnan(x)) {
      if ((c->sent[i] & QUIET_NAN) != QUIET_NAN || residual != 0)
        case_wrong(base, "[%d] not a number is sent as %04x, which is no quiet NaN, or residual %g is not 0", i,
                   c->sent[i], (double)residual);
    } else if (fabsf(x) < 0x1p-110f && x != 0) {
      if (!(fabs((double)sent + (double)residual - (double)x) <= 0x1p-126))
        case_wrong(base, "[%d] %a is sent as %a, residual %a", i, (double)x, (double)sent, (double)residual);
    } else if ((double)sent != c->want[i] || (double)residual != c->want_residual[i] ||
               (sent == 0 && signbit(sent) != signbit(x))) {
      case_wrong(base, "[%d] %a is sent as %a, residual %a, not %a, residual %a", i, (double)x, (double)sent,
                 (double)residual, c->want[i], c->want_residual[i]);
    }
  }
}
static const case_calls calls = {
    "compress", create, destroy, {{"forward", CASE_BIT(G), CASE_BIT(RESIDUAL) | CASE_BIT(PACKED), run, compare}}};

void case_compress(compress_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const size_t n = (size_t)base->n;
  base->calls = &calls;
  float *const g = case_in(base, G, "g", 1, base->n, base->n), *const zeros = case_floats(&base->memory, n);
  if (c->g) memcpy(g, c->g, n * sizeof *g);
  else case_fill(r, g, n, CASE_FILL_ANY);
  case_sum_out(base, RESIDUAL, "residual", 1, base->n, base->n, c->residual ? c->residual : zeros);
  c->want_residual = case_values(base, RESIDUAL), c->want = case_doubles(&base->memory, n);
  base->tensors[RESIDUAL].want = NULL;
  case_out(base, PACKED, "packed", n, sizeof(uint16_t), 0);
  ref_compress(n, case_values(base, G), c->want_residual, c->want);
}
