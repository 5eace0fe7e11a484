/* SPDX-License-Identifier: MIT
 * Batches from bytes: every value is p/255 correctly rounded, so all comparisons are bit for bit. */
#include "src/ops/gather.h"
#include "src/ref/ref.h"
#include "tests/check.h"

typedef struct sizes {
  int n, m, h, w, c, pitch;
} sizes;

static void run_case(check_device *d, case_rng *r, const sizes *s, bool every_value) {
  const cvy_shape shape = {s->h, s->w, s->c, s->pitch};
  const size_t image = (size_t)s->h * (size_t)s->w * (size_t)s->c, total = (size_t)s->n * image;
  unsigned char *const images = (unsigned char *)check_floats(d, ((size_t)s->m * image + 3) / 4);
  unsigned short *const labels = (unsigned short *)check_floats(d, (size_t)s->m);
  int *const index = (int *)check_floats(d, (size_t)s->n), *const want_labels = (int *)check_floats(d, (size_t)s->n);
  int *const got_labels = (int *)check_floats(d, (size_t)s->n);
  double *const want = check_doubles(d, total);
  float *const rounded = check_floats(d, total);
  for (size_t i = 0; i < (size_t)s->m * image; i++)
    images[i] = (unsigned char)(every_value ? (int)(i % 256) : case_int(r, 0, 255));
  for (int i = 0; i < s->m; i++) labels[i] = (unsigned short)case_int(r, 0, 65535);
  for (int i = 0; i < s->n; i++) index[i] = i == 0 ? s->m - 1 : i == 1 ? 0 : case_int(r, 0, s->m - 1);
  ref_gather(s->n, s->h, s->w, s->c, images, labels, index, want, want_labels);
  for (size_t i = 0; i < total; i++) rounded[i] = (float)want[i];
  cvy_gather *op = NULL;
  check_ok(cvy_gather_create(d->cl, &shape, &op));
  check_buffer *const b_images = check_input_bytes(d, "images", images, (size_t)s->m * image);
  check_buffer *const b_labels = check_input_bytes(d, "labels", labels, (size_t)s->m * sizeof *labels);
  check_buffer *const b_index = check_input_bytes(d, "index", index, (size_t)s->n * sizeof(int));
  check_buffer *const x = check_output(d, "x", s->n * s->h * s->w, s->c, s->pitch);
  check_buffer *const labels_out = check_scratch(d, "labels_out", (size_t)s->n * sizeof(int));
  check_ok(cvy_gather_run(op, d->queue, s->n, b_images->cl, b_labels->cl, b_index->cl, x->cl, labels_out->cl));
  check_same(d, "x", check_download(x), rounded, (size_t)s->n * (size_t)s->h * (size_t)s->w, s->c);
  check_download_bytes(labels_out, got_labels, (size_t)s->n * sizeof(int));
  for (int i = 0; i < s->n; i++)
    if (got_labels[i] != want_labels[i])
      check_fail(d, "label of sample %d is %d, must be %d", i, got_labels[i], want_labels[i]);
  check_case_end(d);
  cvy_gather_destroy(&op);
}

static void test_all_bytes(check_device *d) {
  for (int pitch = 1; pitch <= 16; pitch += 15) {
    case_rng r = check_rng_make(d, pitch);
    const sizes s = {.n = 2, .m = 2, .h = 16, .w = 16, .c = 1, .pitch = pitch};
    if (!check_case(d, "all bytes pitch=%d", pitch)) continue;
    for (int p = 0; p < 256; p++) /* the reference against the definition */
      if ((float)(p / 255.0) != (float)p / 255.0f) check_fail(d, "the reference of %d/255 is not correctly rounded", p);
    run_case(d, &r, &s, true);
  }
}

static void test_shapes(check_device *d) {
  static const int layouts[][2] = {{1, 1}, {3, 4}, {4, 4}, {2, 4}, {1, 16}, {5, 16}, {16, 16}, {17, 32}, {3, 3}};
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 90 : getenv("CVY_TEST_OCLGRIND") ? 9 : 27); i++) {
    case_rng r = check_rng_make(d, 100 + i);
    const int *const layout = layouts[i % 9];
    const bool large = i % 9 < 2 && i >= 18; /* more positions than a block of the CPU kernel */
    const sizes s = {.n = large ? 2 : case_edge(&r, 8, 40),
                     .m = case_edge(&r, 16, 60),
                     .h = large ? 70 : case_edge(&r, 16, 29),
                     .w = large ? 61 : case_edge(&r, 16, 29),
                     .c = layout[0],
                     .pitch = layout[1]};
    if (!check_case(d, "shape n=%d m=%d h=%d w=%d c=%d pitch=%d", s.n, s.m, s.h, s.w, s.c, s.pitch)) continue;
    run_case(d, &r, &s, false);
  }
}

static void test_arguments(check_device *d) {
  cvy_gather *op = NULL;
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){0, 4, 1, 1}, &op), CVY_E_ARGUMENT, "0x4x1");
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 3, 1}, &op), CVY_E_ARGUMENT, "pitch 1");
  check_fails(cvy_gather_create(d->cl, &(cvy_shape){1 << 16, 1 << 16, 1, 1}, &op), CVY_E_ARGUMENT, "2^31");
  assert_null(op);
  check_ok(cvy_gather_create(d->cl, &(cvy_shape){4, 4, 1, 1}, &op));
  const int zeros[64] = {0};
  check_buffer *const bytes = check_input_bytes(d, "bytes", zeros, 256), *const x = check_scratch(d, "x", 2 * 16 * 4);
  check_buffer *const labels_out = check_scratch(d, "labels_out", 8);
  check_fails(cvy_gather_run(op, d->queue, 0, bytes->cl, bytes->cl, bytes->cl, x->cl, labels_out->cl), CVY_E_ARGUMENT,
              "0 samples");
  check_fails(cvy_gather_run(op, d->queue, 3, bytes->cl, bytes->cl, bytes->cl, x->cl, labels_out->cl), CVY_E_ARGUMENT,
              "x has 128 bytes");
  check_fails(cvy_gather_run(op, d->queue, 2, NULL, bytes->cl, bytes->cl, x->cl, labels_out->cl), CVY_E_ARGUMENT,
              "images is NULL");
  check_fails(cvy_gather_run(op, d->queue, 2, bytes->cl, bytes->cl, bytes->cl, x->cl, NULL), CVY_E_ARGUMENT,
              "labels_out is NULL");
  check_ok(cvy_gather_run(op, d->queue, 2, bytes->cl, bytes->cl, bytes->cl, x->cl, labels_out->cl));
  check_case_end(d);
  cvy_gather_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"all_bytes", test_all_bytes}, {"shapes", test_shapes}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
