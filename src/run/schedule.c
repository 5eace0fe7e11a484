/* SPDX-License-Identifier: MIT
 * The learning rate of each step (convoy/train.h). */
#include <math.h>

#include "convoy/train.h"
#include "src/base/failure.h"

static long in_steps(long n, bool epochs, long steps_per_epoch) { return epochs ? n * steps_per_epoch : n; }

static cvy_status check_schedule(const cvy_lr_schedule *s) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(s->kind == CVY_LR_CONST || s->kind == CVY_LR_COSINE || s->kind == CVY_LR_LINEAR || s->kind == CVY_LR_STEP,
              CVY_E_ARGUMENT, "learning rate schedule %d; expected const, cosine, linear or step", (int)s->kind);
  CVY_REQUIRE(s->kind != CVY_LR_STEP || (s->every >= 1 && isfinite(s->gamma) && s->gamma > 0), CVY_E_ARGUMENT,
              "learning rate times %g every %ld; expected a factor above 0 and an interval of 1 or more",
              (double)s->gamma, s->every);
fail:
  return status;
}

cvy_status cvy_lr_check(const cvy_lr_schedule *s, long steps_per_epoch, long steps) {
  cvy_status status = CVY_OK;
  CVY_TRY(check_schedule(s));
  CVY_REQUIRE(s->warmup >= 0, CVY_E_ARGUMENT, "warm-up of %ld; expected 0 or more", s->warmup);
  CVY_REQUIRE(s->warmup == 0 || !s->warmup_epochs || s->warmup <= steps / steps_per_epoch, CVY_E_ARGUMENT,
              "warm-up of %lde; expected less than the run's %ld epochs", s->warmup, steps / steps_per_epoch);
  const long warmup = in_steps(s->warmup, s->warmup_epochs, steps_per_epoch);
  CVY_REQUIRE(warmup == 0 || warmup < steps, CVY_E_ARGUMENT,
              "warm-up of %ld%s (%ld steps); expected less than the run's %ld steps", s->warmup,
              s->warmup_epochs ? "e" : "", warmup, steps);
fail:
  return status;
}

float cvy_lr_at(const cvy_lr_schedule *s, float lr, long step, long steps_per_epoch, long steps) {
  const long warmup = in_steps(s->warmup, s->warmup_epochs, steps_per_epoch);
  if (step < warmup) return (float)((double)lr * (double)(step + 1) / (double)warmup);
  const double part = steps > warmup ? (double)(step - warmup) / (double)(steps - warmup) : 0;
  switch (s->kind) {
    case CVY_LR_COSINE: return (float)(0.5 * (double)lr * (1 + cos(3.14159265358979323846 * part)));
    case CVY_LR_LINEAR: return (float)((double)lr * (1 - part));
    case CVY_LR_STEP: {
      /* no pow, whose last digit differs between libraries */
      double factor = 1, power = (double)s->gamma;
      for (long i = step / in_steps(s->every, s->every_epochs, steps_per_epoch); i > 0; i /= 2, power *= power)
        if (i % 2) factor *= power;
      return (float)((double)lr * factor);
    }
    case CVY_LR_CONST: break;
  }
  return lr;
}
