/* SPDX-License-Identifier: MIT
 * Quality of a network's predictions on a labelled set: confusion matrix, precision and recall, the worst samples. The
 * input is the probabilities of cvy_team_classify (team.h), n x classes. A sample's prediction is the class of its
 * largest probability. A sample whose probabilities are NaN has no prediction and counts as wrong. Any thread. */
#ifndef CONVOY_PREDICTIONS_H
#define CONVOY_PREDICTIONS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The predicted class of one sample, of equal probabilities the first; -1: none. */
int cvy_predicted_class(const float *probabilities, int classes);

typedef struct cvy_class_result {
  int samples;   /* with this label */
  int predicted; /* with this prediction */
  int correct;   /* both */
  /* correct / predicted, correct / samples, and 2 correct / (predicted + samples); negative where that would be
   * 0 / 0. */
  double precision, recall, f1;
} cvy_class_result;
/* results[0..classes) */
void cvy_predictions_count(const uint16_t *labels, int n, const float *probabilities, int classes,
                           cvy_class_result *results);
/* A row of the confusion matrix: row[j] is the number of samples with this label and prediction j. Returns how many
 * have no prediction. */
int cvy_predictions_row(const uint16_t *labels, int n, const float *probabilities, int classes, int label, int *row);

typedef struct cvy_wrong_prediction {
  int sample, label, predicted; /* -1: none */
  float probability;            /* of the prediction; NaN without one */
  float of_label;
} cvy_wrong_prediction;
/* The wrong predictions whose labels have the smallest probabilities, at most `most`: worst first, of equal ones the
 * lower sample. Returns their number. */
int cvy_predictions_worst(const uint16_t *labels, int n, const float *probabilities, int classes, int most,
                          cvy_wrong_prediction *out);

#ifdef __cplusplus
}
#endif
#endif
