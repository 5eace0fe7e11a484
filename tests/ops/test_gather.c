/* SPDX-License-Identifier: MIT
 * Batches from bytes against the reference. */
#include "src/ref/cases.h"
#include "tests/support/check.h"

static void test_all_bytes(check_device *d) {
  for (int pitch = 1; pitch <= 16; pitch += 15) {
    case_rng r = check_rng_make(d, pitch);
    gather_case c = {.base.n = 2, .m = 2, .shape = {16, 16, 1, pitch}, .every_value = true};
    if (!check_case(d, "all bytes pitch=%d", pitch)) continue;
    for (int p = 0; p < 256; p++) /* the reference against the definition */
      if ((float)(p / 255.0) != (float)p / 255.0f) check_fail(d, "the reference of %d/255 is not correctly rounded", p);
    case_gather(&c, &r);
    check_op(d, &c.base);
  }
}

static void test_shapes(check_device *d) {
  static const int layouts[][2] = {{1, 1}, {3, 4}, {4, 4}, {2, 4}, {1, 16}, {5, 16}, {16, 16}, {17, 32}, {3, 3}};
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 90 : getenv("CVY_TEST_OCLGRIND") ? 9 : 27); i++) {
    case_rng r = check_rng_make(d, 100 + i);
    const int *const layout = layouts[i % 9];
    const bool large = i % 9 < 2 && i >= 18; /* more positions than a block of the CPU kernel */
    gather_case c = {.base.n = large ? 2 : case_edge(&r, 8, 40), .shape = {0, 0, layout[0], layout[1]}};
    c.m = case_edge(&r, 16, 60);
    c.shape.h = large ? 70 : case_edge(&r, 16, 29), c.shape.w = large ? 61 : case_edge(&r, 16, 29);
    if (!check_case(d, "shape n=%d m=%d h=%d w=%d c=%d pitch=%d", c.base.n, c.m, c.shape.h, c.shape.w, layout[0],
                    layout[1]))
      continue;
    case_gather(&c, &r);
    check_op(d, &c.base);
  }
}

/* Means and deviations as those of data sets, and others. */
static void draw_moments(case_rng *r, cvy_input_params *input, int channels) {
  input->n_channels = channels;
  for (int c = 0; c < channels; c++) {
    input->mean[c] = (float)case_int(r, 0, 1000) * 1e-3f;
    input->deviation[c] = (float)case_int(r, 1, 1000) * 1e-3f;
  }
}

static void test_normalized(check_device *d) {
  static const int layouts[][2] = {{1, 1}, {3, 4}, {2, 4}, {1, 16}, {5, 16}, {16, 16}, {3, 3}};
  for (int i = 0; i < (getenv("CVY_TEST_OCLGRIND") ? 7 : 21); i++) {
    case_rng r = check_rng_make(d, 200 + i);
    const int *const layout = layouts[i % 7];
    gather_case c = {.base.n = case_edge(&r, 8, 20), .shape = {0, 0, layout[0], layout[1]}, .every_value = i % 3 == 0};
    c.m = case_edge(&r, 8, 20);
    c.shape.h = case_edge(&r, 16, 29), c.shape.w = case_edge(&r, 16, 29);
    draw_moments(&r, &c.input, layout[0]);
    if (!check_case(d, "normalized n=%d m=%d h=%d w=%d c=%d pitch=%d", c.base.n, c.m, c.shape.h, c.shape.w, layout[0],
                    layout[1]))
      continue;
    case_gather(&c, &r);
    check_op(d, &c.base);
  }
}

/* Some of all augmentations; jitter for images that may have it. */
static void draw_augment(case_rng *r, gather_case *c, int i) {
  cvy_augment *const a = &c->input.augment;
  const int h = c->shape.h, w = c->shape.w, least = h < w ? h : w;
  a->flip = i % 2 == 0;
  if (i % 3 == 0) a->crop = case_int(r, 1, least);
  if (i % 3 == 1) {
    a->resized_crop[0] = (float)case_int(r, 1, 80) * 1e-2f;
    a->resized_crop[1] = a->resized_crop[0] + (float)case_int(r, 0, 19) * 1e-2f;
  }
  const bool gray = c->shape.c == 1;
  for (int k = 0; k < (gray ? 2 : 4) && (gray || c->shape.c == 3) && i % 4 < 2; k++)
    a->jitter[k] = (float)case_int(r, 0, 4) * (k == 3 ? 0.125f : 0.25f);
  if (i % 5 == 0) a->cutout = case_int(r, 1, 2 * least);
  if (i % 7 == 0) draw_moments(r, &c->input, c->shape.c);
  c->input.seed = UINT64_C(0x123456789abcdef) * (uint64_t)i;
  c->augmented = true;
  c->number = case_int(r, 0, 1 << 30);
  c->epoch = case_int(r, 0, 1000);
}

static void test_augmented(check_device *d) {
  static const int layouts[][2] = {{1, 1}, {3, 4}, {3, 3}, {1, 16}, {2, 4}};
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 400 : getenv("CVY_TEST_OCLGRIND") ? 12 : 60); i++) {
    case_rng r = check_rng_make(d, 300 + i);
    const int *const layout = layouts[i % 5];
    const bool large = i == 41; /* more rows than a block of the CPU kernel */
    gather_case c = {.base.n = large ? 2 : case_edge(&r, 8, 12), .shape = {0, 0, layout[0], layout[1]}};
    c.m = case_edge(&r, 8, 12);
    c.shape.h = large ? 97 : case_edge(&r, 16, 35), c.shape.w = large ? 61 : case_edge(&r, 16, 35);
    draw_augment(&r, &c, i);
    const cvy_augment *const a = &c.input.augment;
    if (!check_case(d, "augmented %d n=%d h=%d w=%d c=%d pitch=%d%s crop=%d part=%g-%g jitter=%g,%g,%g,%g cutout=%d", i,
                    c.base.n, c.shape.h, c.shape.w, layout[0], layout[1], a->flip ? " flip" : "", a->crop,
                    (double)a->resized_crop[0], (double)a->resized_crop[1], (double)a->jitter[0], (double)a->jitter[1],
                    (double)a->jitter[2], (double)a->jitter[3], a->cutout))
      continue;
    case_gather(&c, &r);
    check_op(d, &c.base);
  }
}

static void test_arguments(check_device *d) {
  cvy_gather *op = NULL;
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){0, 4, 1, 1}, NULL, &op), CVY_E_ARGUMENT, "0x4x1");
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 3, 1}, NULL, &op), CVY_E_ARGUMENT, "pitch 1");
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){1 << 16, 1 << 16, 1, 1}, NULL, &op), CVY_E_ARGUMENT, "2^31");
  const cvy_input_params two = {.n_channels = 2, .deviation = {1, 1}};
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 1, 1}, &two, &op), CVY_E_ARGUMENT, "of 2 channels");
  assert_null(op);
  const cvy_input_params flips = {.augment.flip = true};
  check_ok(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 1, 1}, &flips, &op));
  const int zeros[64] = {0};
  check_buffer *const bytes = check_input_bytes(d, "bytes", zeros, 256), *const x = check_scratch(d, "x", 2 * 16 * 4);
  check_buffer *const labels_out = check_scratch(d, "labels_out", 8);
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_gather_workspace(op, 2));
  const cvy_gather_call right = {.n = 2,
                                 .images = bytes->cl,
                                 .labels = bytes->cl,
                                 .index = bytes->cl,
                                 .x = x->cl,
                                 .labels_out = labels_out->cl,
                                 .samples = bytes->cl,
                                 .workspace = workspace->cl};
  cvy_gather_call wrong = right;
  wrong.n = 0;
  check_fails(cvy_gather_run(op, d->queue, &wrong), CVY_E_ARGUMENT, "0 samples");
  wrong.n = 3;
  check_fails(cvy_gather_run(op, d->queue, &wrong), CVY_E_ARGUMENT, "x has 128 bytes");
  wrong = right, wrong.images = NULL;
  check_fails(cvy_gather_run(op, d->queue, &wrong), CVY_E_ARGUMENT, "images is NULL");
  wrong = right, wrong.labels_out = NULL;
  check_fails(cvy_gather_run(op, d->queue, &wrong), CVY_E_ARGUMENT, "labels_out is NULL");
  wrong = right, wrong.workspace = NULL;
  check_fails(cvy_gather_run(op, d->queue, &wrong), CVY_E_ARGUMENT, "workspace is NULL");
  wrong = right, wrong.epoch = -1;
  check_fails(cvy_gather_run(op, d->queue, &wrong), CVY_E_ARGUMENT, "epoch -1");
  check_ok(cvy_gather_run(op, d->queue, &right));
  check_case_end(d);
  cvy_gather_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"all_bytes", test_all_bytes},
                                     {"shapes", test_shapes},
                                     {"normalized", test_normalized},
                                     {"augmented", test_augmented},
                                     {"arguments", test_arguments}};
  check_plain_in_oclgrind();
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
