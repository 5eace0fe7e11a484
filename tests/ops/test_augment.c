/* SPDX-License-Identifier: MIT
 * Augmented pictures beside torchvision's (tests/data/make_augment.py), on devices and on the host, and how numbers are
 * spread. */
#include <math.h>

#include "convoy/data.h"
#include "src/ops/gather/gather.h"
#include "tests/support/check.h"

/* ---- torchvision ---- */

enum { SAMPLES = 12, FIRST = 1000, EPOCH = 3 };
#define SEED UINT64_C(0x0123456789abcdef)

static const struct {
  int h, w, c;
  cvy_augment augment;
  int apart; /* from torchvision's bytes, at most */
} golden[] = {
    {14, 11, 3, {.flip = true}, 0},
    {12, 13, 1, {.flip = true, .crop = 4}, 0},
    {16, 12, 3, {.flip = true, .resized_crop = {0.64f, 1}}, 1},
    {13, 17, 1, {.resized_crop = {0.08f, 1}}, 1},
    {12, 12, 3, {.jitter = {0.4f, 0.3f, 0.5f, 0}}, 0},
    {12, 12, 1, {.jitter = {0.4f, 0.7f, 0, 0}}, 0},
    {12, 12, 3, {.jitter = {0, 0, 0, 0.5f}}, 1},
    {14, 14, 3, {.flip = true, .crop = 2, .jitter = {0.2f, 0.2f, 0.2f, 0}, .cutout = 6}, 0},
};

/* picture() of the script. */
static void draw_picture(int h, int w, int c, uint8_t *out) {
  for (int y = 0; y < h; y++) {
    for (int x = 0; x < w; x++) {
      for (int i = 0; i < c; i++) {
        const int at = (y * w + x) * c + i;
        const uint8_t noise = (uint8_t)((uint64_t)at * UINT64_C(2654435761) >> 7);
        out[at] = (x + y) % 3 == 0 ? noise : (uint8_t)(x * 37 + y * 23 + i * 71);
        if (y < h / 4 && x < w / 4) out[at] = 200;
      }
    }
  }
}

/* SAMPLES samples, floats, as the device makes them. */
static const float *make_on_device(check_device *d, const cvy_input_params *input, int h, int w, int c,
                                   const uint8_t *picture) {
  const size_t bytes = (size_t)(h * w * c), n = SAMPLES;
  int32_t samples[SAMPLES], zeros[SAMPLES] = {0};
  cvy_gather *op;
  for (int i = 0; i < SAMPLES; i++) samples[i] = FIRST + i;
  check_ok(cvy_gather_create(d->cl, &(cvy_shape){h, w, c, c}, input, &op));
  check_buffer *const images = check_input_bytes(d, "images", picture, bytes);
  check_buffer *const index = check_input_bytes(d, "index", zeros, sizeof zeros);
  check_buffer *const numbers = check_input_bytes(d, "samples", samples, sizeof samples);
  check_buffer *const x = check_output(d, "x", (int)n * h * w, c, c);
  check_buffer *const labels = check_scratch(d, "labels", sizeof zeros);
  const size_t workspace_bytes = cvy_gather_workspace(op, SAMPLES);
  check_buffer *const workspace = workspace_bytes ? check_scratch(d, "workspace", workspace_bytes) : NULL;
  check_ok(cvy_gather_run(op, d->queue,
                          &(cvy_gather_call){.n = SAMPLES,
                                             .images = images->cl,
                                             .labels = index->cl,
                                             .index = index->cl,
                                             .x = x->cl,
                                             .labels_out = labels->cl,
                                             .samples = numbers->cl,
                                             .epoch = EPOCH,
                                             .workspace = workspace ? workspace->cl : NULL}));
  cvy_gather_destroy(&op);
  return check_download(x);
}

CHECK_TEST(torchvision) {
  size_t size, at = 0;
  const uint8_t *const want = (const uint8_t *)check_read(check_text("%s/augment.bin", getenv("CVY_TEST_DATA")), &size);
  for (size_t g = 0; g < sizeof golden / sizeof golden[0]; g++) {
    const int h = golden[g].h, w = golden[g].w, c = golden[g].c;
    const size_t bytes = (size_t)(h * w * c);
    const cvy_input_params input = {.augment = golden[g].augment, .seed = SEED};
    uint8_t *const picture = check_own(d, cvy_calloc(bytes, 1), cvy_free);
    uint8_t *const got = check_own(d, cvy_calloc(SAMPLES * bytes, 1), cvy_free);
    uint8_t *const host = check_own(d, cvy_calloc(bytes, 1), cvy_free);
    assert_true(at + SAMPLES * bytes <= size);
    at += SAMPLES * bytes;
    if (!check_case(d, "picture %zu", g)) continue;
    draw_picture(h, w, c, picture);
    const float *const values = make_on_device(d, &input, h, w, c, picture);
    for (size_t i = 0; i < SAMPLES * bytes; i++) got[i] = (uint8_t)lrintf(255 * values[i]);
    for (int s = 0; s < SAMPLES; s++) {
      const uint8_t *const mine = got + (size_t)s * bytes, *const its = want + at - SAMPLES * bytes + (size_t)s * bytes;
      check_ok(cvy_input_picture(&input, h, w, c, picture, FIRST + s, EPOCH, host));
      if (memcmp(mine, host, bytes) != 0) check_fail(d, "sample %d: the host makes other bytes than the device", s);
      for (size_t i = 0; i < bytes; i++)
        if (abs(mine[i] - its[i]) > golden[g].apart)
          check_fail(d, "sample %d: byte %zu is %d, torchvision's is %d, at most %d apart is right", s, i, mine[i],
                     its[i], golden[g].apart);
    }
    check_case_end(d);
  }
  assert_int_equal(at, size);
}

/* Every byte in every channel, plain as in tests and through the kernel that augments. */
CHECK_TEST(normalized) {
  static const cvy_input_params inputs[] = {
      {.n_channels = 3, .mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}},
      {.n_channels = 3, .mean = {0.25f, 0.5f, 0.75f}, .deviation = {0.1f, 1, 3}},
      {.n_channels = 1, .mean = {0.286f}, .deviation = {0.353f}}};
  enum { BYTES = 256, INPUTS = sizeof inputs / sizeof inputs[0] };
  size_t size, at = 0;
  const float *const want = (const float *)check_read(check_text("%s/normalize.bin", getenv("CVY_TEST_DATA")), &size);
  for (int k = 0; k < 2 * INPUTS; k++) {
    cvy_input_params input = inputs[k % INPUTS];
    const int c = input.n_channels;
    uint8_t picture[3 * BYTES];
    if (k == INPUTS) at = 0;
    at += (size_t)(BYTES * c);
    assert_true(at * sizeof *want <= size);
    if (!check_case(d, "normalized %d", k)) continue;
    if (k >= INPUTS) input.augment.crop = 1, input.augment.cutout = 1;
    for (int i = 0; i < BYTES * c; i++) picture[i] = (uint8_t)(i / c + 85 * (i % c));
    cvy_input_params shown = input;
    uint8_t moved[3 * BYTES];
    shown.n_channels = 0;
    const float *const got = make_on_device(d, &input, 1, BYTES, c, picture);
    for (int s = 0; s < SAMPLES; s++) {
      check_ok(cvy_input_picture(&shown, 1, BYTES, c, picture, FIRST + s, EPOCH, moved));
      for (int i = 0; i < BYTES * c; i++) {
        /* a byte that was moved here has the value of its own place; what is cut out has 0 */
        const int pixel = (uint8_t)(moved[i] - 85 * (i % c)), from = pixel * c + i % c;
        const double value = (double)got[s * BYTES * c + i],
                     its = (double)want[at - (size_t)(BYTES * c) + (size_t)from];
        const bool cut = value == 0 && moved[i] == 0;
        if (!(fabs(value - its) <= 1e-6 * fmax(1, fabs(its))) && !cut)
          check_fail(d, "sample %d: byte %d of channel %d is %.9g, torchvision's is %.9g", s, moved[i], i % c, value,
                     its);
      }
    }
    check_case_end(d);
  }
  assert_int_equal(at * sizeof *want, size);
}

/* ---- how numbers are spread: of a picture whose bytes all differ ---- */

enum { SIDE = 15, PAD = 4, PLACES = 2 * PAD + 1, DRAWS = 40000 };

static double chi_squared(const int *counts, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += pow(counts[i] - (double)DRAWS / n, 2) / ((double)DRAWS / n);
  return sum;
}

CHECK_TEST(offsets_and_flips) {
  uint8_t picture[SIDE * SIDE], out[SIDE * SIDE];
  int counts[PLACES * PLACES * 2] = {0};
  const cvy_input_params input = {.augment = {.flip = true, .crop = PAD}, .seed = 5};
  if (d->cl && !d->cpu_shaped) return; /* on the host: once is enough */
  for (int i = 0; i < SIDE * SIDE; i++) picture[i] = (uint8_t)(i + 1);
  for (int s = 0; s < DRAWS; s++) { /* two epochs of half as many samples */
    check_ok(cvy_input_picture(&input, SIDE, SIDE, 1, picture, s / 2, s % 2, out));
    const int middle = SIDE / 2 * SIDE + SIDE / 2, from = out[middle] - 1;
    const int top = from / SIDE - SIDE / 2 + PAD, left = from % SIDE - SIDE / 2 + PAD;
    const bool flipped = out[middle + 1] < out[middle];
    assert_in_range(top, 0, PLACES - 1);
    assert_in_range(left, 0, PLACES - 1);
    counts[(top * PLACES + left) * 2 + flipped]++;
  }
  const double chi = chi_squared(counts, PLACES * PLACES * 2);
  if (!(chi > 161 - 5 * 18 && chi < 161 + 5 * 18)) /* mean and deviation of 161 degrees of freedom: 161, 17.9 */
    check_fail(d, "chi squared of offsets and flips is %g, 161 expected", chi);
}

CHECK_TEST(cutouts) {
  uint8_t picture[SIDE * SIDE], out[SIDE * SIDE];
  int counts[SIDE * SIDE] = {0};
  const cvy_input_params input = {.augment = {.cutout = 1}, .seed = 6};
  if (d->cl && !d->cpu_shaped) return; /* on the host: once is enough */
  memset(picture, 1, sizeof picture);
  for (int s = 0; s < DRAWS; s++) {
    check_ok(cvy_input_picture(&input, SIDE, SIDE, 1, picture, s, 0, out));
    for (int i = 0; i < SIDE * SIDE; i++) counts[i] += out[i] == 0;
  }
  const double chi = chi_squared(counts, SIDE * SIDE);
  if (!(chi > 224 - 5 * 21.2 && chi < 224 + 5 * 21.2))
    check_fail(d, "chi squared of cut out places is %g, 224 expected", chi);
}

/* ---- settings ---- */

CHECK_TEST(settings) {
  uint8_t bytes[3 * 16] = {0}, out[3 * 16];
  if (d->cl && !d->cpu_shaped) return; /* on the host: once is enough */
  const struct {
    cvy_input_params p;
    int c;
    const char *why;
  } wrong[] = {
      {{.augment.crop = 5}, 3, "crop:5 of images of 4x4: must be 1 to the shorter side, 4"},
      {{.augment.resized_crop = {0.5f, 0.4f}}, 3, "the smaller one first"},
      {{.augment.resized_crop = {0, 1}}, 3, "above 0"},
      {{.augment = {.crop = 1, .resized_crop = {0.5f, 1}}}, 3, "expected one of them"},
      {{.augment.jitter = {1.5f}}, 3, "brightness 1.5: must be 0 to 1"},
      {{.augment.jitter = {0, 0, 0, 0.6f}}, 3, "hue 0.6: must be 0 to 0.5"},
      {{.augment.jitter = {0, 0, 0, 0.1f}}, 1, "no hue"},
      {{.augment.jitter = {0.1f}}, 2, "must have 1 or 3"},
      {{.augment.cutout = 9}, 1, "twice the longer side, 8"},
      {{.n_channels = 3, .deviation = {1, 0, 1}}, 3, "deviation 0 of channel 1"},
      {{.n_channels = 3, .deviation = {1, 1, 1}}, 1, "but the images have 1"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    check_fails(cvy_input_picture(&wrong[i].p, 4, 4, wrong[i].c, bytes, 0, 0, out), CVY_E_ARGUMENT, wrong[i].why);
}

CHECK_TEST(moments) {
  const uint8_t images[] = {0, 7, 255, 7, 255, 7, 0, 7, 51, 7, 52, 7}; /* 2x1 pixels of 2 channels */
  const uint16_t labels[] = {0, 0, 0};
  const cvy_samples train = {3, images, labels};
  cvy_data *data;
  double mean[2], deviation[2];
  if (d->cl && !d->cpu_shaped) return; /* on the host: once is enough */
  check_ok(cvy_data_from_memory(2, 1, 2, 1, &train, NULL, &data));
  check_ok(cvy_data_moments(data, mean, deviation));
  const double last = 52 / 255.0, want = (0 + 1 + 1 + 0 + 0.2 + last) / 6; /* no whole byte */
  assert_true(fabs(mean[0] - want) < 1e-15);
  assert_true(fabs(deviation[0] - sqrt((1 + 1 + 0.04 + last * last) / 6 - want * want)) < 1e-15);
  assert_true(mean[1] == 7 / 255.0 && deviation[1] == 1);
  cvy_data_destroy(&data);
}

int main(int argc, char **argv) {
  check_plain_in_oclgrind();
  return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
