/* SPDX-License-Identifier: MIT */
#include "tools/program/options/train_values.h"

#include <stdio.h>
#include <string.h>

#include "src/base/text.h"
#include "tools/program/options/option_rows.h"

const char *train_parse_split(const char *text, void *target) {
  split_option *const split = target;
  double sum = 0;
  *split = (split_option){.kind = CVY_SPLIT_EVEN, .text = text};
  if (strcmp(text, "even") == 0) return NULL;
  if (strcmp(text, "auto") == 0) {
    split->kind = CVY_SPLIT_AUTO;
    return NULL;
  }
  if (!parse_list(text, false, &split->values))
    return "expected even, auto, or weights W1,W2,...: numbers of 0 or more, one per device";
  for (int i = 0; i < split->values.n; i++) sum += split->values.values[i];
  if (!(sum > 0)) return "all weights are 0; expected at least one above 0";
  split->kind = CVY_SPLIT_WEIGHTS;
  return NULL;
}

const char *train_parse_bn(const char *text, void *target) {
  bn_option *const bn = target;
  int64_t group;
  *bn = (bn_option){.mode = CVY_BN_DEVICE, .text = text};
  if (strcmp(text, "device") == 0) return NULL;
  if (strcmp(text, "sync") == 0) {
    bn->mode = CVY_BN_SYNC;
    return NULL;
  }
  if (strncmp(text, "ghost:", 6) != 0 || !cvy_parse_int(text + 6, 1, 1 << 24, &group)) {
    return "expected device, sync, or ghost:G with a whole number G of 1 or more (images in a group)";
  }
  bn->mode = CVY_BN_GHOST;
  bn->ghost = (int)group;
  return NULL;
}

/* N or Ne in the first `length` characters, N from `least`. */
static bool parse_steps(const char *text, size_t length, int least, every_option *every) {
  char number[16];
  int64_t n;
  const bool epochs = length > 1 && text[length - 1] == 'e';
  if (length >= sizeof number) return false;
  snprintf(number, sizeof number, "%.*s", (int)(length - epochs), text);
  if (!cvy_parse_int(number, least, INT32_MAX, &n)) return false;
  *every = (every_option){.n = (int)n, .epochs = epochs, .text = text};
  return true;
}

const char *train_parse_every(const char *text, void *target) {
  return parse_steps(text, strlen(text), 1, target) ? NULL
                                                    : "expected N (steps) or Ne (epochs) with a whole number N of 1 or "
                                                      "more";
}

const char *train_parse_bucket(const char *text, void *target) {
  double *const mib = target;
  *mib = 0;
  if (strcmp(text, "auto") == 0 || cvy_parse_float(text, 0.001, 4096, mib)) return NULL;
  return "expected auto, or a size from 0.001 to 4096 MiB";
}

const char *train_parse_warmup(const char *text, void *target) {
  return parse_steps(text, strlen(text), 0, target) ? NULL
                                                    : "expected N (steps) or Ne (epochs) with a whole number N of 0 or "
                                                      "more";
}

const char *train_parse_schedule(const char *text, void *target) {
  schedule_option *const s = target;
  static const char *const simple[] = {
      [CVY_LR_CONST] = "const", [CVY_LR_COSINE] = "cosine", [CVY_LR_LINEAR] = "linear"};
  *s = (schedule_option){.text = text};
  for (int kind = CVY_LR_CONST; kind <= CVY_LR_LINEAR; kind++) {
    s->kind = (cvy_lr_kind)kind;
    if (strcmp(text, simple[kind]) == 0) return NULL;
  }
  s->kind = CVY_LR_STEP;
  static number_list gamma; /* large: not on the stack */
  const char *const comma = strchr(text, ',');
  if (strncmp(text, "step:", 5) != 0 || !comma || !parse_steps(text + 5, (size_t)(comma - text - 5), 1, &s->every) ||
      !parse_list(comma + 1, false, &gamma) || gamma.n != 1 || !(gamma.values[0] > 1e-6) || gamma.values[0] > 1e6)
    return "expected const, cosine, linear, or step:N,G or step:Ne,G: times G (above 1e-6, at most 1e6) every N steps "
           "or epochs";
  s->gamma = gamma.values[0];
  return NULL;
}

const char *train_parse_betas(const char *text, void *target) {
  betas_option *const betas = target;
  static number_list list; /* large: not on the stack */
  const char *const expected = "expected B1,B2: two numbers from 0 to below 1, not both 0";
  if (!parse_list(text, false, &list) || list.n != 2) return expected;
  for (int i = 0; i < 2; i++) {
    betas->values[i] = (float)list.values[i];
    if (!(betas->values[i] < 1)) return expected;
  }
  betas->text = text;
  return betas->values[0] > 0 || betas->values[1] > 0 ? NULL : expected;
}

const char *train_parse_rates(const char *text, void *target) {
  rates_option *const rates = target;
  const char *const expected =
      "expected a number above 0 (as a double), at most 1e6, or several of them for a sweep: X1,X2,...";
  if (!strchr(text, ',')) {
    rates->list.n = 1;
    if (!cvy_parse_float(text, 0, 1e6, &rates->list.values[0])) return expected;
  } else if (!parse_list(text, false, &rates->list)) {
    return expected;
  }
  for (int i = 0; i < rates->list.n; i++) {
    if (!(rates->list.values[i] > 0) || rates->list.values[i] > 1e6) return expected;
    for (int j = 0; j < i; j++)
      if (rates->list.values[j] == rates->list.values[i]) return "a rate appears twice; expected each rate once";
  }
  return NULL;
}

enum { SEED_LENGTH = 24 };

/* N or A-B in the first `length` characters. */
static bool parse_seed_range(const char *text, size_t length, int64_t *first, int64_t *last) {
  const int64_t most = INT64_C(9200000000000000000);
  char item[2 * SEED_LENGTH];
  if (length >= sizeof item) return false;
  snprintf(item, sizeof item, "%.*s", (int)length, text);
  char *const dash = strchr(item, '-');
  if (dash) *dash = '\0';
  if (!cvy_parse_int(item, 0, most, first)) return false;
  *last = *first;
  return !dash || cvy_parse_int(dash + 1, *first, most, last);
}

const char *train_parse_seeds(const char *text, void *target) {
  seeds_option *const seeds = target;
  seeds->n = 0;
  for (const char *at = text;;) {
    const size_t length = strcspn(at, ",");
    int64_t first, last;
    if (!parse_seed_range(at, length, &first, &last))
      return "expected a whole number from 0 to 9.2e18, or several of them for a sweep: N1,N2 or A-B";
    if (last - first >= NUMBER_LIST_MAX - seeds->n) return "too many seeds; expected at most 1024";
    for (int64_t seed = first; seed <= last; seed++) {
      for (int i = 0; i < seeds->n; i++)
        if (seeds->values[i] == seed) return "a seed appears twice; expected each seed once";
      seeds->values[seeds->n++] = seed;
    }
    if (at[length] == '\0') return NULL;
    at += length + 1;
  }
}
