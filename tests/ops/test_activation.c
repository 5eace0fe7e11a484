/* SPDX-License-Identifier: MIT
 * Activations against the reference, and the reference against difference quotients. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

static const cvy_activation_params kinds[] = {{.kind = CVY_ACTIVATION_LEAKY_RELU, .a = 0.01f},
                                              {.kind = CVY_ACTIVATION_LEAKY_RELU, .a = -0.5f},
                                              {.kind = CVY_ACTIVATION_CLIP, .a = 0, .b = 6},
                                              {.kind = CVY_ACTIVATION_CLIP, .a = 0.25f, .b = INFINITY},
                                              {.kind = CVY_ACTIVATION_CLIP, .a = -2, .b = -1},
                                              {.kind = CVY_ACTIVATION_SIGMOID},
                                              {.kind = CVY_ACTIVATION_TANH},
                                              {.kind = CVY_ACTIVATION_HARD_SIGMOID, .a = 1.0f / 6, .b = 0.5f},
                                              {.kind = CVY_ACTIVATION_HARD_SIGMOID, .a = 0.2f, .b = 0.5f},
                                              {.kind = CVY_ACTIVATION_HARD_SWISH},
                                              {.kind = CVY_ACTIVATION_SILU},
                                              {.kind = CVY_ACTIVATION_GELU},
                                              {.kind = CVY_ACTIVATION_GELU_TANH},
                                              {.kind = CVY_ACTIVATION_ELU, .a = 1, .b = 1},
                                              {.kind = CVY_ACTIVATION_ELU, .a = 1.7580993f, .b = 1.0507010f},
                                              {.kind = CVY_ACTIVATION_CELU, .a = 1},
                                              {.kind = CVY_ACTIVATION_CELU, .a = 0.4f},
                                              {.kind = CVY_ACTIVATION_SOFTPLUS, .a = 1},
                                              {.kind = CVY_ACTIVATION_SOFTPLUS, .a = 2.5f},
                                              {.kind = CVY_ACTIVATION_MISH},
                                              {.kind = CVY_ACTIVATION_SWISH, .a = 1.702f},
                                              {.kind = CVY_ACTIVATION_SWISH, .a = -0.5f}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* One rows x channels with whole vectors, and with padding that f(0) must not reach. */
CHECK_TEST(shapes) {
  const int shapes[][2] = {{1, 16}, {37, 20}, {3, 1}, {300, 48}, {129, 130}};
  for (int k = 0; k < N_KINDS; k++)
    for (int i = 0; i < 5; i++) {
      if (getenv("CVY_TEST_OCLGRIND") && i > 2) continue;
      activation_case c = {.base.n = shapes[i][0], .p = kinds[k], .accumulate = i % 3 == 2};
      c.p.c = shapes[i][1], c.p.pitch = cvy_pitch_of(c.p.c);
      c.y_in_x = i % 2, c.dx_in_dy = i % 3 == 1;
      case_rng r = check_rng_make(d, 10 * k + i);
      if (!check_case(d, "%s a=%g b=%g rows=%d c=%d", cvy_activation_name(c.p.kind), (double)c.p.a, (double)c.p.b,
                      c.base.n, c.p.c))
        continue;
      case_activation(&c, &r);
      check_op(d, &c.base);
    }
}

CHECK_TEST(reference) {
  const double step = 1e-6, one = 1;
  for (int k = 0; k < N_KINDS; k++)
    for (double x = -7.03; x < 7; x += 0.11) {
      double side[2], here, slope;
      for (int i = 0; i < 2; i++) {
        const double at = x + (i ? step : -step);
        ref_activation(&kinds[k], 1, &at, &side[i]);
      }
      ref_activation(&kinds[k], 1, &x, &here);
      ref_activation_backward(&kinds[k], 1, cvy_activation_keeps_x(&kinds[k]) ? &x : &here, &one, &slope);
      const double quotient = (side[1] - side[0]) / (2 * step);
      if (!(fabs(slope - quotient) <= 1e-8))
        check_fail(d, "kind %d at %g: slope %.12g, difference quotient %.12g", (int)kinds[k].kind, x, slope, quotient);
    }
}

/* The gradient at corners, as PyTorch has it. */
CHECK_TEST(corners) {
  const struct {
    cvy_activation_params p;
    float kept, slope;
  } corners[] = {{kinds[0], 0, 0.01f}, {kinds[2], 0, 0}, {kinds[2], 6, 0},  {kinds[7], 0, 0}, {kinds[7], 1, 0},
                 {kinds[9], -3, 0},    {kinds[9], 3, 1}, {kinds[13], 0, 1}, {kinds[15], 0, 1}};
  for (int i = 0; i < 9; i++) {
    cvy_activation_params p = corners[i].p;
    cvy_activation *op;
    float kept[16], dy[16];
    double want[16];
    p.c = p.pitch = 16;
    if (!check_case(d, "corner %d", i)) continue;
    for (int k = 0; k < 16; k++)
      kept[k] = corners[i].kept, dy[k] = (float)k, want[k] = (double)(corners[i].slope * (float)k);
    check_ok(cvy_activation_create(d->cl, &p, &op));
    check_buffer *const dx = check_output(d, "dx", 1, 16, 16);
    check_ok(cvy_activation_backward(op, d->queue, 1, check_input(d, "kept", kept, 1, 16, 16)->cl,
                                     check_input(d, "dy", dy, 1, 16, 16)->cl, dx->cl, false));
    check_close_mag(d, "dx", check_download(dx), want, want, 2, 1, 16);
    cvy_activation_destroy(&op);
    check_case_end(d);
  }
}

CHECK_TEST(arguments) {
  cvy_activation *op = NULL;
  cvy_activation_params p = {.kind = CVY_ACTIVATION_SILU, .c = 3, .pitch = 16};
  float zeros[64] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 1, 64, 64), *const y = check_inout(d, "y", zeros, 1, 64, 64);
  check_ok(cvy_activation_create(d->cl, &p, &op));
  check_fails(cvy_activation_forward(op, d->queue, 0, x->cl, y->cl), CVY_E_ARGUMENT, "0 rows");
  check_fails(cvy_activation_forward(op, d->queue, 5, x->cl, y->cl), CVY_E_ARGUMENT, "256 bytes, needs at least 320");
  check_fails(cvy_activation_forward(op, d->queue, 4, x->cl, NULL), CVY_E_ARGUMENT, "y is NULL");
  check_fails(cvy_activation_backward(op, d->queue, 4, NULL, x->cl, y->cl, false), CVY_E_ARGUMENT, "kept is NULL");
  check_fails(cvy_activation_forward(op, d->queue, 1 << 27, x->cl, y->cl), CVY_E_ARGUMENT, "2^31");
  cvy_activation_destroy(&op);
  cvy_activation_destroy(&op); /* NULL is fine */
  const struct {
    cvy_activation_params p;
    const char *text;
  } bad[] = {{{.kind = CVY_ACTIVATION_RELU, .c = 3, .pitch = 16}, "eltwise"},
             {{.kind = (cvy_activation_kind)15, .c = 3, .pitch = 16}, "no kind 15"},
             {{.kind = CVY_ACTIVATION_CLIP, .a = 2, .b = 1, .c = 3, .pitch = 16}, "2 and 1"},
             {{.kind = CVY_ACTIVATION_CLIP, .a = NAN, .b = 1, .c = 3, .pitch = 16}, "clip"},
             {{.kind = CVY_ACTIVATION_LEAKY_RELU, .a = INFINITY, .c = 3, .pitch = 16}, "finite"},
             {{.kind = CVY_ACTIVATION_ELU, .a = 1, .c = 3, .pitch = 16}, "the second above"},
             {{.kind = CVY_ACTIVATION_CELU, .c = 3, .pitch = 16}, "the first must be above 0"},
             {{.kind = CVY_ACTIVATION_SOFTPLUS, .a = -1, .c = 3, .pitch = 16}, "the first must be above 0"},
             {{.kind = CVY_ACTIVATION_TANH, .c = 17, .pitch = 16}, "17 channels"},
             {{.kind = CVY_ACTIVATION_TANH, .c = 3, .pitch = 4}, "pitch 4"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    check_fails(cvy_activation_create(d->cl, &bad[i].p, &op), CVY_E_ARGUMENT, bad[i].text);
    assert_null(op);
  }
  check_case_end(d);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
