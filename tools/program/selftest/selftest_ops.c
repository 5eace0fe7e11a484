/* SPDX-License-Identifier: MIT
 * Operations other than layers as cases of the selftest: gather, elementwise, sums, softmax, cross-entropy, updates,
 * gradients as bfloat16. */
#include "src/ref/cases.h"
#include "tools/program/selftest/selftest.h"

static void gather_run(selftest *t, int channels) {
  case_rng r = case_rng_make(1, 0);
  gather_case c = {.base.n = 5, .m = 7, .shape = {28, 28, channels, cvy_input_pitch_of(channels)}};
  case_gather(&c, &r);
  selftest_op(t, &c.base, "5 images 28x28x%d of 7", channels);
}

static void eltwise_run(selftest *t, eltwise_kind kind, bool relu) {
  case_rng r = case_rng_make(1, 0);
  eltwise_case c = {.base.n = 64, .kind = kind, .each = 28 * 28, .relu = relu};
  case_eltwise(&c, &r);
  selftest_op(t, &c.base, "%s%s, %d values", c.base.calls->passes[0].name, relu ? " with relu" : "", 64 * 28 * 28);
}

static void reduce_run(selftest *t, reduce_kind kind, int rows, int columns) {
  case_rng r = case_rng_make(1, 0);
  reduce_case c = {.base.n = 1, .kind = kind, .rows = rows, .c = columns, .pitch = columns};
  case_reduce(&c, &r);
  selftest_op(t, &c.base, "%s, %d rows of %d",
              kind == CASE_REDUCE_COLUMNS ? "columns"
              : kind == CASE_REDUCE_SUM   ? "sum"
                                          : "parts",
              rows, columns);
}

static void softmax_run(selftest *t, int channels) {
  case_rng r = case_rng_make(1, 0);
  softmax_case c = {.base.n = 33, .c = channels, .pitch = cvy_pitch_of(channels)};
  case_softmax(&c, &r);
  selftest_op(t, &c.base, "33 rows of %d", channels);
}

static void xent_run(selftest *t, int rows, int channels, float smoothing) {
  case_rng r = case_rng_make(1, 0);
  xent_case c = {.base.n = rows,
                 .n_max = rows,
                 .c = channels,
                 .pitch = cvy_pitch_of(channels),
                 .scale = 1.0f / 256,
                 .smoothing = smoothing};
  case_softmax_xent(&c, &r);
  selftest_op(t, &c.base, "%d rows of %d%s", rows, channels, smoothing > 0 ? ", smoothed labels" : "");
}

static void update_run(selftest *t, const cvy_update_params *p, bool running) {
  case_rng r = case_rng_make(1, 0);
  update_case c = {.base.n = 1, .p = *p, .each = 4096, .steps = 2, .running = running};
  case_update(&c, &r);
  if (p->kind != CVY_OPTIMIZER_SGD)
    selftest_op(t, &c.base, "%s lr %g weight decay %g, 4096 values", p->kind == CVY_OPTIMIZER_ADAM ? "adam" : "adamw",
                (double)p->lr, (double)p->weight_decay);
  else
    selftest_op(t, &c.base, "lr %g momentum %g weight decay %g%s, 4096 values", (double)p->lr, (double)p->momentum,
                (double)p->weight_decay, p->nesterov ? ", nesterov" : "");
}

static void compress_run(selftest *t) {
  case_rng r = case_rng_make(1, 0);
  float residual[4096];
  compress_case c = {.base.n = 4096, .residual = residual};
  case_fill(&r, residual, 4096, CASE_FILL_SMALL);
  case_compress(&c, &r);
  selftest_op(t, &c.base, "4096 values to bfloat16");
}

static void norm_run(selftest *t, int blocks, float clip) {
  case_rng r = case_rng_make(1, 0);
  norm_case c = {.base.n = blocks, .clip = clip};
  case_norm(&c, &r);
  selftest_op(t, &c.base, "%d values%s", blocks * CVY_NORM_BLOCK, clip > 0 ? ", with a limit" : "");
}

void selftest_activation(selftest *t, const char *of, int rows, const cvy_activation_params *p) {
  case_rng r = case_rng_make(1, 0);
  activation_case c = {.base.n = rows, .p = *p};
  case_activation(&c, &r);
  selftest_op(t, &c.base, "%s%s of %d x %d", of, cvy_activation_name(p->kind), rows, p->c);
}

void selftest_broadcast(selftest *t, const char *of, const cvy_broadcast_params *p) {
  case_rng r = case_rng_make(1, 0);
  broadcast_case c = {.base.n = p->n_max, .p = *p};
  case_broadcast(&c, &r);
  selftest_op(t, &c.base, "%s%s of one value per channel, %d x %dx%dx%d", of,
              p->mul    ? "product"
              : p->relu ? "sum, ReLU"
                        : "sum",
              p->n_max, p->x.h, p->x.w, p->x.c);
}

void selftest_channels(selftest *t, const char *of, int rows, const cvy_channels_call *call) {
  case_rng r = case_rng_make(1, 0);
  channels_case c = {.base.n = rows, .call = *call};
  case_channels(&c, &r);
  selftest_op(t, &c.base, "%s%d channels behind %d", of, call->count, call->y_at);
}

void selftest_groupnorm(selftest *t, const char *of, const cvy_groupnorm_params *p) {
  case_rng r = case_rng_make(1, 0);
  groupnorm_case c = {.base.n = p->n_max, .p = *p};
  case_groupnorm(&c, &r);
  selftest_op(t, &c.base, "%snormalisation of %d x %dx%dx%d in %d groups", of, p->n_max, p->x.h, p->x.w, p->x.c,
              p->groups);
}

void selftest_resample(selftest *t, const char *of, const cvy_resample_params *p) {
  case_rng r = case_rng_make(1, 0);
  resample_case c = {.base.n = p->n_max, .p = *p};
  case_resample(&c, &r);
  selftest_op(t, &c.base, "%s%d x %dx%dx%d to %dx%d", of, p->n_max, p->x.h, p->x.w, p->x.c, p->out_h, p->out_w);
}

static void dropout_run(selftest *t) {
  case_rng r = case_rng_make(1, 0);
  dropout_case c = {.base.n = 3, .p = {.n_max = 3, .x = {7, 7, 40, 48}, .p = 0.5f, .layer = 2, .seed = 3}, .epoch = 1};
  case_dropout(&c, &r);
  selftest_op(t, &c.base, "dropout of 3 x 7x7x40");
}

void selftest_other_operations(selftest *t) {
  gather_run(t, 1);
  gather_run(t, 3);
  for (int kind = CASE_RELU; kind <= CASE_MUL; kind++) eltwise_run(t, (eltwise_kind)kind, false);
  eltwise_run(t, CASE_ADD, true);
  reduce_run(t, CASE_REDUCE_COLUMNS, 784, 64);
  reduce_run(t, CASE_REDUCE_SUM, 784 * 64, 1);
  reduce_run(t, CASE_REDUCE_PARTS, 7, 4096);
  softmax_run(t, 10);
  xent_run(t, 64, 10, 0);
  xent_run(t, 5, 10, 0.1f);
  update_run(t, &(cvy_update_params){.lr = 0.1f}, false);
  update_run(t, &(cvy_update_params){.lr = 0.1f, .momentum = 0.9f, .weight_decay = 5e-4f}, false);
  update_run(t, &(cvy_update_params){.lr = 0.1f, .momentum = 0.9f, .nesterov = true}, false);
  update_run(t,
             &(cvy_update_params){CVY_OPTIMIZER_ADAM, .lr = 0.01f, .weight_decay = 5e-4f, .betas = {0.9f, 0.999f},
                                  .eps = 1e-8f},
             false);
  update_run(t,
             &(cvy_update_params){CVY_OPTIMIZER_ADAMW, .lr = 0.01f, .weight_decay = 0.01f, .betas = {0.9f, 0.999f},
                                  .eps = 1e-8f},
             false);
  update_run(t, &(cvy_update_params){.momentum = 0.1f}, true);
  for (int kind = CVY_ACTIVATION_LEAKY_RELU; kind <= CVY_ACTIVATION_SWISH; kind++)
    selftest_activation(t, "", 49,
                        &(cvy_activation_params){.kind = (cvy_activation_kind)kind,
                                                 .a = kind == CVY_ACTIVATION_CLIP ? 0 : 0.25f,
                                                 .b = kind == CVY_ACTIVATION_CLIP ? 6 : 0.5f,
                                                 .c = 40,
                                                 .pitch = 48});
  selftest_broadcast(t, "", &(cvy_broadcast_params){.n_max = 3, .x = {7, 7, 40, 48}, .mul = true});
  selftest_broadcast(t, "", &(cvy_broadcast_params){.n_max = 3, .x = {7, 7, 40, 48}, .relu = true});
  /* the last 24 of 44 channels, not aligned to a vector, and the last 32 of 64 */
  selftest_channels(t, "", 98, &(cvy_channels_call){.count = 24, .x_pitch = 32, .y_pitch = 48, .y_at = 20, .fill = 4});
  selftest_channels(t, "", 98, &(cvy_channels_call){.count = 32, .x_pitch = 32, .y_pitch = 64, .y_at = 32});
  selftest_groupnorm(t, "", &(cvy_groupnorm_params){.n_max = 3, .x = {7, 7, 40, 48}, .groups = 8, .eps = 1e-5f});
  selftest_groupnorm(t, "", &(cvy_groupnorm_params){.n_max = 147, .x = {1, 1, 40, 48}, .groups = 1, .eps = 1e-6f});
  for (int kind = CVY_RESAMPLE_NEAREST; kind <= CVY_RESAMPLE_LINEAR_CORNERS; kind++)
    selftest_resample(t, "",
                      &(cvy_resample_params){
                          .n_max = 3, .x = {7, 7, 40, 48}, .out_h = 14, .out_w = 9, .kind = (cvy_resample_kind)kind});
  dropout_run(t);
  compress_run(t);
  norm_run(t, 32, 0);
  norm_run(t, 130, 1e-3f);
}
