/* SPDX-License-Identifier: MIT
 * A batch from the bytes of a data set: augmentations change a whole picture, one after the other, in real numbers
 * that are rounded where the contract requires it. Rounding x to float gives the correctly rounded quotient: no n/255
 * lies within a double's rounding error of the midpoint of two floats.
 * TIE: a result that is exactly between two bytes may come out a little below it. */
#include <math.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/rng.h"
#include "src/ref/ref.h"

#define TIE 1e-9
#define CIRCLE 65536.0
#define FACTOR 16384.0
#define PART 1073741824.0

typedef struct picture {
  int h, w, c;
  unsigned char *now, *next;
} picture;

typedef struct dice {
  cvy_rng rng;
  uint32_t sample;
} dice;

static uint32_t word(const dice *d, int draw, int i) {
  uint32_t words[4];
  cvy_rng_block(&d->rng, (uint64_t)draw << 32 | d->sample, words);
  return words[i];
}
static int below(uint32_t from, int64_t n) { return (int)((uint64_t)from * (uint64_t)n >> 32); }
static int around(uint32_t from, int most) { return below(from, 2 * (int64_t)most + 1) - most; }

static int get(const picture *p, int row, int col, int c) {
  if (row < 0 || row >= p->h || col < 0 || col >= p->w) return 0;
  return p->now[((size_t)row * (size_t)p->w + (size_t)col) * (size_t)p->c + (size_t)c];
}
static void put(picture *p, int row, int col, int c, double value) {
  p->next[((size_t)row * (size_t)p->w + (size_t)col) * (size_t)p->c + (size_t)c] = (unsigned char)value;
}
static void turn_page(picture *p) {
  unsigned char *const old = p->now;
  p->now = p->next;
  p->next = old;
}

/* ---- crops and flip ---- */

static void crop(picture *p, const dice *d, int pad) {
  const int top = around(word(d, 0, 1), pad), left = around(word(d, 0, 2), pad);
  for (int row = 0; row < p->h; row++)
    for (int col = 0; col < p->w; col++)
      for (int c = 0; c < p->c; c++) put(p, row, col, c, get(p, top + row, left + col, c));
  turn_page(p);
}

typedef struct window {
  int top, left, height, width;
} window;

static window draw_window(const picture *p, const dice *d, const float *part) {
  const int from = (int)lrint((double)part[0] * PART), to = (int)lrint((double)part[1] * PART);
  window v;
  for (int draw = 3; draw < 13; draw++) {
    const double area = (double)p->h * p->w * (from + below(word(d, draw, 0), to - (int64_t)from + 1)) / PART;
    const double ratio = exp(around(word(d, draw, 1), (int)lrint(log(4.0 / 3) * PART)) / PART);
    v.width = (int)floor(sqrt(area * ratio) + 0.5);
    v.height = (int)floor(sqrt(area / ratio) + 0.5);
    if (v.width < 1 || v.width > p->w || v.height < 1 || v.height > p->h) continue;
    v.top = below(word(d, draw, 2), p->h - v.height + 1);
    v.left = below(word(d, draw, 3), p->w - v.width + 1);
    return v;
  }
  v.width = p->w;
  v.height = p->h;
  if ((double)p->w / p->h < 3.0 / 4) v.height = (int)floor(p->w * 4.0 / 3 + 0.5 + TIE);
  if ((double)p->w / p->h > 4.0 / 3) v.width = (int)floor(p->h * 4.0 / 3 + 0.5 + TIE);
  v.top = (p->h - v.height) / 2;
  v.left = (p->w - v.width) / 2;
  return v;
}

/* The source position of the centre of pixel `at` of `size` among the centres of `window` pixels: between *first and
 * *second. */
static double place(int at, int size, int window, int *first, int *second) {
  const double middle = fmax((at + 0.5) * window / size - 0.5, 0);
  *first = (int)floor(middle);
  *second = *first + 1 < window ? *first + 1 : window - 1;
  return middle - *first;
}

static void resize(picture *p, window v) {
  for (int row = 0; row < p->h; row++) {
    for (int col = 0; col < p->w; col++) {
      int upper, lower, left, right;
      const double down = place(row, p->h, v.height, &upper, &lower), along = place(col, p->w, v.width, &left, &right);
      for (int c = 0; c < p->c; c++) {
        const int a = get(p, v.top + upper, v.left + left, c), b = get(p, v.top + upper, v.left + right, c);
        const int e = get(p, v.top + lower, v.left + left, c), f = get(p, v.top + lower, v.left + right, c);
        const double above = a + along * (b - a), under = e + along * (f - e);
        put(p, row, col, c, floor(above + down * (under - above) + 0.5 + TIE));
      }
    }
  }
  turn_page(p);
}

static void flip(picture *p) {
  for (int row = 0; row < p->h; row++)
    for (int col = 0; col < p->w; col++)
      for (int c = 0; c < p->c; c++) put(p, row, col, c, get(p, row, p->w - 1 - col, c));
  turn_page(p);
}

/* ---- jitter ---- */

static int luma(const int *rgb) {
  return (int)floor((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2]) / 65536.0 + 0.5);
}

static int mean_luma(const picture *p) {
  double sum = 0;
  for (int row = 0; row < p->h; row++)
    for (int col = 0; col < p->w; col++)
      sum += luma((const int[]){get(p, row, col, 0), get(p, row, col, p->c == 3), get(p, row, col, p->c == 3 ? 2 : 0)});
  return (int)floor(sum / ((double)p->h * p->w) + 0.5);
}

static int blend(int from, int to, int factor) {
  return (int)floor(fmin(fmax(from + factor / FACTOR * (to - from), 0), 255));
}

static void turn_hue(int *rgb, int turn) {
  const int most = (int)fmax(rgb[0], fmax(rgb[1], rgb[2])), least = (int)fmin(rgb[0], fmin(rgb[1], rgb[2]));
  const double span = most - least;
  if (span == 0) return;
  double h = rgb[0] == most   ? (rgb[1] - rgb[2]) / span
             : rgb[1] == most ? 2 + (rgb[2] - rgb[0]) / span
                              : 4 + (rgb[0] - rgb[1]) / span;
  h += 6 * turn / CIRCLE;
  h -= 6 * floor(h / 6);
  /* each colour is full within one sixth of the circle from its place, and zero beyond one third */
  static const double places[] = {0, 2, 4};
  for (int i = 0; i < 3; i++) {
    const double apart = fabs(h - places[i]), away = fmin(apart, 6 - apart);
    rgb[i] = (int)floor(least + span * fmin(fmax(2 - away, 0), 1) + 0.5 + TIE);
  }
}

static void jitter_one(picture *p, const dice *d, const float *most, int operation) {
  const double unit = operation == 3 ? CIRCLE : FACTOR;
  const int by = around(word(d, 1, operation), (int)lrint((double)most[operation] * unit));
  const int mean = operation == 1 ? mean_luma(p) : 0, factor = (int)FACTOR + by;
  for (int row = 0; row < p->h; row++) {
    for (int col = 0; col < p->w; col++) {
      int rgb[3];
      for (int c = 0; c < 3; c++) rgb[c] = get(p, row, col, p->c == 3 ? c : 0);
      const int from = operation == 0 ? 0 : operation == 1 ? mean : luma(rgb);
      if (operation == 3) turn_hue(rgb, by);
      for (int c = 0; c < 3 && operation < 3; c++) rgb[c] = blend(from, rgb[c], factor);
      for (int c = 0; c < p->c; c++) put(p, row, col, c, rgb[c]);
    }
  }
  turn_page(p);
}

static void jitter(picture *p, const dice *d, const float *most) {
  int number = below(word(d, 0, 3), 24);
  for (int i = 0; i < 256; i++) { /* in lexicographic order, those whose four digits differ */
    const int order[] = {i / 64, i / 16 % 4, i / 4 % 4, i % 4};
    if (((1 << order[0]) | (1 << order[1]) | (1 << order[2]) | (1 << order[3])) != 15) continue;
    if (number-- != 0) continue;
    for (int k = 0; k < 4; k++) jitter_one(p, d, most, order[k]);
  }
}

/* ---- a batch ---- */

static void augment(picture *p, const dice *d, const cvy_augment *a) {
  if (a->resized_crop[1] > 0) resize(p, draw_window(p, d, a->resized_crop));
  else crop(p, d, a->crop);
  if (a->flip && word(d, 0, 0) >= UINT32_C(1) << 31) flip(p);
  if (a->jitter[0] > 0 || a->jitter[1] > 0 || a->jitter[2] > 0 || a->jitter[3] > 0) jitter(p, d, a->jitter);
}

static bool is_cut(const dice *d, int h, int w, int cutout, int row, int col) {
  const int top = below(word(d, 2, 0), h) - cutout / 2, left = below(word(d, 2, 1), w) - cutout / 2;
  return row >= top && row < top + cutout && col >= left && col < left + cutout;
}

void ref_gather(int n, int h, int w, int c, const cvy_input_params *input, int epoch, const unsigned char *images,
                const unsigned short *labels, const int *index, const int *samples, double *x, int *labels_out) {
  const size_t image_bytes = (size_t)h * (size_t)w * (size_t)c;
  unsigned char *const pages = cvy_calloc(2, image_bytes);
  if (!pages) return;
  for (int i = 0; i < n; i++) {
    picture p = {h, w, c, pages, pages + image_bytes};
    const dice d = {{input->seed, CVY_RNG_AUGMENT, (uint32_t)epoch}, samples ? (uint32_t)samples[i] : 0};
    memcpy(p.now, images + (size_t)index[i] * image_bytes, image_bytes);
    if (samples) augment(&p, &d, &input->augment);
    for (size_t j = 0; j < image_bytes; j++) {
      const int channel = (int)(j % (size_t)c), position = (int)(j / (size_t)c);
      const double mean = input->n_channels ? (double)input->mean[channel] : 0;
      const double deviation = input->n_channels ? (double)input->deviation[channel] : 1;
      const bool cut = samples && is_cut(&d, h, w, input->augment.cutout, position / w, position % w);
      x[(size_t)i * image_bytes + j] = cut ? 0 : (p.now[j] / 255.0 - mean) / deviation;
    }
    labels_out[i] = labels[index[i]];
  }
  cvy_free(pages);
}
