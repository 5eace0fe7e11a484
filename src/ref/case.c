/* SPDX-License-Identifier: MIT */
#include "src/ref/case.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/failure.h"
#include "src/base/mem.h"
#include "src/base/text.h"

/* ---- memory ---- */

struct case_block {
  struct case_block *next;
};

void *case_alloc(case_memory *m, size_t count, size_t elem_bytes) {
  struct case_block *const b = cvy_calloc(count * elem_bytes + 64, 1);
  CVY_ASSERT(b != NULL); /* small beside device memory; the caller cannot continue without it */
  b->next = m->blocks;
  m->blocks = b;
  return (char *)b + 64;
}

float *case_floats(case_memory *m, size_t n) { return case_alloc(m, n, sizeof(float)); }
double *case_doubles(case_memory *m, size_t n) { return case_alloc(m, n, sizeof(double)); }

double *case_to_doubles(case_memory *m, const float *x, size_t n) {
  double *const out = case_doubles(m, n);
  for (size_t i = 0; i < n; i++) out[i] = (double)x[i];
  return out;
}

double *case_magnitudes(case_memory *m, const double *x, size_t n) {
  double *const out = case_doubles(m, n);
  for (size_t i = 0; i < n; i++) out[i] = fabs(x[i]);
  return out;
}

void case_memory_free(case_memory *m) {
  for (struct case_block *b = m->blocks, *next; b; b = next) {
    next = b->next;
    cvy_free(b);
  }
  m->blocks = NULL;
}

/* ---- random ---- */

case_rng case_rng_make(uint64_t seed, int stream) {
  return (case_rng){.rng = {.seed = seed, .purpose = CVY_RNG_TEST, .stream = (uint32_t)stream}};
}

int case_int(case_rng *r, int min, int max) {
  return min + (int)cvy_rng_below(&r->rng, r->next++, (uint32_t)(max - min) + 1u);
}

int case_pick(case_rng *r, const int *values, int n) { return values[case_int(r, 0, n - 1)]; }

int case_edge(case_rng *r, int tile, int max) {
  const int primes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  int value;
  switch (case_int(r, 0, 6)) {
    case 0: value = 1; break;
    case 1: value = case_pick(r, primes, 12); break;
    case 2: value = tile - 1; break;
    case 3: value = tile; break;
    case 4: value = tile + 1; break;
    case 5: value = 2 * tile + 1; break;
    default: value = case_int(r, 1, max);
  }
  return value < 1 ? 1 : value > max ? max : value;
}

case_fill_kind case_fill(case_rng *r, float *x, size_t n, case_fill_kind kind) {
  if (kind == CASE_FILL_ANY) kind = (case_fill_kind)case_int(r, 0, CASE_FILL_ANY - 1);
  const cvy_rng values = {
      .seed = r->rng.seed + 1000003u * (r->next++ + 1), .purpose = CVY_RNG_TEST, .stream = r->rng.stream};
  for (size_t i = 0; i < n; i++) {
    const float normal = cvy_rng_normal(&values, i);
    switch (kind) {
      case CASE_FILL_SMALL: x[i] = 1e-4f * normal; break;
      case CASE_FILL_LARGE: x[i] = 1e4f * normal; break;
      case CASE_FILL_CANCEL: x[i] = i % 2 ? -x[i - 1] * (1.0f + 1e-5f * normal) : normal; break;
      case CASE_FILL_OUTLIERS:
        x[i] = normal * (cvy_rng_u32(&values, i ^ 0x10000000u) % 64 == 0 ? 1000.0f : 1.0f);
        break;
      case CASE_FILL_INTEGERS: x[i] = (float)((int)cvy_rng_below(&values, i, 9) - 4); break;
      case CASE_FILL_OFFSET: x[i] = 1000.0f + normal; break;
      default: x[i] = normal;
    }
  }
  return kind;
}

/* ---- tensors ---- */

size_t case_size(const case_tensor *t) { return (size_t)t->rows * (size_t)t->cols; }

case_tensor *case_find(op_case *c, const char *name) {
  for (int i = 0; i < CASE_TENSORS; i++)
    if (c->tensors[i].role != CASE_NONE && strcmp(c->tensors[i].name, name) == 0) return &c->tensors[i];
  CVY_ASSERT(!"a tensor of the case");
}

static case_tensor *add(op_case *c, int at, const char *name, case_role role, size_t rows, int cols, int pitch) {
  CVY_ASSERT(at >= 0 && at < CASE_TENSORS && rows > 0 && rows <= INT32_MAX);
  c->tensors[at] = (case_tensor){.name = name, .role = role, .rows = (int)rows, .cols = cols, .pitch = pitch};
  return &c->tensors[at];
}

float *case_in(op_case *c, int at, const char *name, size_t rows, int cols, int pitch) {
  case_tensor *const t = add(c, at, name, CASE_IN, rows, cols, pitch);
  return t->data = case_floats(&c->memory, case_size(t));
}

void *case_in_bytes(op_case *c, int at, const char *name, size_t count, size_t elem_bytes) {
  return add(c, at, name, CASE_IN, count, (int)elem_bytes, 0)->data = case_alloc(&c->memory, count, elem_bytes);
}

case_tensor *case_out(op_case *c, int at, const char *name, size_t rows, int cols, int pitch) {
  case_tensor *const t = add(c, at, name, CASE_OUT, rows, cols, pitch);
  if (pitch > 0) {
    t->want = case_doubles(&c->memory, case_size(t));
    t->bound = case_doubles(&c->memory, case_size(t));
  }
  return t;
}

case_tensor *case_sum_out(op_case *c, int at, const char *name, size_t rows, int cols, int pitch, const float *old) {
  case_tensor *const t = case_out(c, at, name, rows, cols, pitch);
  if (!old) return t;
  t->role = CASE_INOUT;
  t->data = case_floats(&c->memory, case_size(t));
  memcpy(t->data, old, case_size(t) * sizeof *old);
  return t;
}

void case_add_old(case_tensor *t) {
  const float *const old = t->data;
  for (size_t i = 0; old && i < case_size(t); i++) {
    t->want[i] += (double)old[i];
    if (t->bound) t->bound[i] += fabs((double)old[i]);
  }
}

void case_bound(case_tensor *t, double factor) {
  for (size_t i = 0; i < case_size(t); i++) t->bound[i] = factor * (double)FLT_EPSILON * t->bound[i] + (double)FLT_MIN;
}

double *case_values(op_case *c, int at) {
  return case_to_doubles(&c->memory, c->tensors[at].data, case_size(&c->tensors[at]));
}

void case_wrong(op_case *c, const char *format, ...) {
  va_list args;
  if (c->why[0]) return;
  va_start(args, format);
  vsnprintf(c->why, sizeof c->why, format, args);
  va_end(args);
}

void case_end(op_case *c) { case_memory_free(&c->memory); }

/* ---- comparison ---- */

/* Error of an element in units of its bound. */
static double error_of(float got, double want, const double *bound) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (!bound) return got == (float)want ? 0 : INFINITY;
  if (!isfinite(want) && (double)got == want) return 0;
  if (!isfinite(got)) return INFINITY;
  const double error = fabs((double)got - want);
  return error == 0 ? 0 : error <= *bound ? error / *bound : fmax(error / *bound, nextafter(1, 2));
}

double case_compare(const char *what, const float *got, const double *want, const double *bound, size_t rows, int cols,
                    char *text, size_t text_bytes) {
  const size_t n = rows * (size_t)cols;
  size_t n_wrong = 0, worst = 0, first = 0;
  double largest = -1;
  for (size_t i = 0; i < n; i++) {
    const double error = error_of(got[i], want[i], bound ? &bound[i] : NULL);
    if (!(error <= 1) && n_wrong++ == 0) first = i;
    if (!(error <= largest)) largest = error, worst = i;
  }
  if (n_wrong == 0) return largest;
  const size_t row = first / (size_t)cols;
  int used = snprintf(text, text_bytes,
                      "%s: %zu of %zu elements are wrong, first at row %zu, column %zu; worst at row %zu, column %zu: "
                      "got %.9g, want %.9g, error %.3g, bound %.3g",
                      what, n_wrong, n, row, first % (size_t)cols, worst / (size_t)cols, worst % (size_t)cols,
                      cvy_unsigned_nan(got[worst]), want[worst], fabs((double)got[worst] - want[worst]),
                      bound ? bound[worst] : 0.0);
  for (size_t r = row; r < rows && r < row + 8 && (size_t)used + 110 < text_bytes; r++) {
    used += sprintf(text + used, "\n    ");
    for (int c = 0; c < cols && c < 96; c++) {
      const size_t i = r * (size_t)cols + (size_t)c;
      text[used++] = error_of(got[i], want[i], bound ? &bound[i] : NULL) <= 1 ? '.' : '#';
    }
    text[used] = '\0';
  }
  return largest;
}
