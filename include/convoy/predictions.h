/* SPDX-License-Identifier: MIT
 * What a network's answers to a labelled set are worth: classes mixed up, precision and recall, the worst samples. From
 * the probabilities of cvy_team_classify (team.h), n x classes. A sample's answer is the class of its largest
 * probability; a sample whose probabilities are NaN has no answer and counts as wrong. Any thread. */
#ifndef CONVOY_ANSWERS_H
#define CONVOY_ANSWERS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The answer to one sample, of equal probabilities the first; -1: none. */
int cvy_answer(const float *probabilities, int classes);

typedef struct cvy_class_result {
  int samples;  /* that are of the class */
  int answered; /* to which it is the answer */
  int correct;  /* both */
  /* correct / answered, correct / samples, and 2 correct / (answered + samples); negative where that would be 0 / 0. */
  double precision, recall, f1;
} cvy_class_result;
/* results[0..classes) */
void cvy_predictions_count(const uint16_t *labels, int n, const float *probabilities, int classes,
                           cvy_class_result *results);
/* A row of the confusion matrix: row[j] of the samples with this label have the answer j; returns how many have
 * none. */
int cvy_predictions_row(const uint16_t *labels, int n, const float *probabilities, int classes, int label, int *row);

typedef struct cvy_wrong_answer {
  int sample, label, answer; /* -1: none */
  float probability;         /* of the answer; NaN without one */
  float of_label;
} cvy_wrong_answer;
/* The wrong answers whose labels have the smallest probabilities, at most `most`: worst first, of equal ones the lower
 * sample. Returns how many there are in out. */
int cvy_predictions_worst(const uint16_t *labels, int n, const float *probabilities, int classes, int most,
                          cvy_wrong_answer *out);

#ifdef __cplusplus
}
#endif
#endif
