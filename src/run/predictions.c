/* SPDX-License-Identifier: MIT */
#include "convoy/predictions.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

int cvy_predicted_class(const float *probabilities, int classes) {
  int best = 0;
  for (int i = 0; i < classes; i++) {
    if (isnan(probabilities[i])) return -1;
    if (probabilities[i] > probabilities[best]) best = i;
  }
  return best;
}

static const float *row_of(const float *probabilities, int classes, int sample) {
  return probabilities + (size_t)sample * (size_t)classes;
}

static double part(double x, double of) { return of > 0 ? x / of : -1; }

void cvy_predictions_count(const uint16_t *labels, int n, const float *probabilities, int classes,
                           cvy_class_result *results) {
  memset(results, 0, (size_t)classes * sizeof *results);
  for (int i = 0; i < n; i++) {
    const int predicted = cvy_predicted_class(row_of(probabilities, classes, i), classes);
    results[labels[i]].samples++;
    if (predicted < 0) continue;
    results[predicted].predicted++;
    results[predicted].correct += predicted == labels[i];
  }
  for (int c = 0; c < classes; c++) {
    cvy_class_result *const r = &results[c];
    r->precision = part(r->correct, r->predicted);
    r->recall = part(r->correct, r->samples);
    r->f1 = part(2.0 * r->correct, (double)r->predicted + r->samples);
  }
}

int cvy_predictions_row(const uint16_t *labels, int n, const float *probabilities, int classes, int label, int *row) {
  int none = 0;
  memset(row, 0, (size_t)classes * sizeof *row);
  for (int i = 0; i < n; i++) {
    if (labels[i] != label) continue;
    const int predicted = cvy_predicted_class(row_of(probabilities, classes, i), classes);
    if (predicted < 0) none++;
    else row[predicted]++;
  }
  return none;
}

/* NaN is worse than any number. */
static bool is_worse(const cvy_wrong_prediction *a, const cvy_wrong_prediction *b) {
  if (isnan(a->of_label) || isnan(b->of_label)) return isnan(a->of_label) && !isnan(b->of_label);
  return a->of_label < b->of_label;
}

int cvy_predictions_worst(const uint16_t *labels, int n, const float *probabilities, int classes, int most,
                          cvy_wrong_prediction *out) {
  int found = 0;
  for (int i = 0; i < n; i++) {
    const float *const row = row_of(probabilities, classes, i);
    const int predicted = cvy_predicted_class(row, classes);
    if (predicted == labels[i]) continue;
    const cvy_wrong_prediction wrong = {.sample = i,
                                        .label = labels[i],
                                        .predicted = predicted,
                                        .probability = predicted < 0 ? NAN : row[predicted],
                                        .of_label = row[labels[i]]};
    int at = found;
    while (at > 0 && is_worse(&wrong, &out[at - 1])) at--;
    if (at >= most) continue;
    const int moved = (found < most ? found : most - 1) - at;
    memmove(&out[at + 1], &out[at], (size_t)moved * sizeof *out);
    out[at] = wrong;
    if (found < most) found++;
  }
  return found;
}
