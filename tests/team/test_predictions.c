/* SPDX-License-Identifier: MIT
 * Answers to labelled sets: counted by hand, and by scikit-learn (data/confusion.json). */
#include "tests/support/check.h"

#include <jansson.h>
#include <math.h>

#include "convoy/predictions.h"

enum { N = 7, CLASSES = 4 };
static const uint16_t labels[N] = {0, 0, 1, 1, 1, 2, 0};
/* Class 3 is nobody's label and no answer; sample 6 has no answer; sample 1 is a tie. */
static const float p[N * CLASSES] = {
    0.7f, 0.1f, 0.1f, 0.1f, /* right */
    0.4f, 0.4f, 0.1f, 0.1f, /* right: the first of equals */
    0.6f, 0.3f, 0.1f, 0,    /* 0 for 1 */
    0.1f, 0.8f, 0.1f, 0,    /* right */
    0.0f, 0.1f, 0.9f, 0,    /* 2 for 1 */
    0.0f, 0.7f, 0.3f, 0,    /* 1 for 2 */
    0.5f, NAN,  0,    0,    /* none for 0 */
};

CHECK_TEST(counts) {
  cvy_class_result r[CLASSES];
  (void)d;
  cvy_predictions_count(labels, N, p, CLASSES, r);
  assert_true(r[0].samples == 3 && r[0].predicted == 3 && r[0].correct == 2);
  assert_true(r[1].samples == 3 && r[1].predicted == 2 && r[1].correct == 1);
  assert_true(r[2].samples == 1 && r[2].predicted == 1 && r[2].correct == 0);
  assert_true(r[3].samples == 0 && r[3].predicted == 0 && r[3].correct == 0);
  assert_true(r[0].precision == 2.0 / 3 && r[0].recall == 2.0 / 3 && r[0].f1 == 4.0 / 6);
  assert_true(r[1].precision == 0.5 && r[1].recall == 1.0 / 3 && r[1].f1 == 2.0 / 5);
  assert_true(r[2].precision == 0 && r[2].recall == 0 && r[2].f1 == 0);
  assert_true(r[3].precision < 0 && r[3].recall < 0 && r[3].f1 < 0);
}

CHECK_TEST(rows) {
  static const int want[CLASSES][CLASSES] = {{2, 0, 0, 0}, {1, 1, 1, 0}, {0, 1, 0, 0}, {0}};
  (void)d;
  for (int label = 0; label < CLASSES; label++) {
    int row[CLASSES] = {9, 9, 9, 9};
    assert_int_equal(cvy_predictions_row(labels, N, p, CLASSES, label, row), label == 0);
    assert_memory_equal(row, want[label], sizeof row);
  }
}

CHECK_TEST(worst) {
  static const int want[] = {4, 2, 5}, shown[] = {2, 0, 1};
  cvy_wrong_prediction w[8];
  (void)d;
  assert_int_equal(cvy_predictions_worst(labels, N, p, CLASSES, 8, w), 4);
  assert_true(w[3].sample == 6 && w[3].predicted == -1 && isnan(w[3].probability) && w[3].of_label == 0.5f);
  for (int i = 0; i < 3; i++) assert_true(w[i].sample == want[i] && w[i].predicted == shown[i]);
  assert_true(w[0].label == 1 && w[0].probability == 0.9f && w[0].of_label == 0.1f);
  w[2].sample = -7;
  assert_int_equal(cvy_predictions_worst(labels, N, p, CLASSES, 2, w), 2);
  assert_true(w[0].sample == 4 && w[1].sample == 2 && w[2].sample == -7);
  assert_int_equal(cvy_predictions_worst(labels, N, p, CLASSES, 0, w), 0);
}

/* scikit-learn's number, where null says 0 / 0. */
static bool is_near(double found, const json_t *all, int class) {
  const json_t *const want = json_array_get(all, (size_t)class);
  return json_is_null(want) ? found < 0 : fabs(found - json_number_value(want)) < 1e-12;
}

CHECK_TEST(scikit_learn) {
  enum { SAMPLES = 300, MANY = 7 };
  static const char *const keys[] = {"precision", "recall", "f1"};
  static uint16_t true_labels[SAMPLES];
  static float sure[SAMPLES * MANY];
  char path[512];
  const char *const folder = getenv("CVY_TEST_DATA");
  snprintf(path, sizeof path, "%s/confusion.json", folder ? folder : "tests/data");
  json_t *const root = json_load_file(path, 0, NULL);
  if (!root) check_fail(d, "%s cannot be read", path);
  const json_t *const labels_of = json_object_get(root, "labels"), *const answers = json_object_get(root, "answers");
  assert_int_equal(json_array_size(labels_of), SAMPLES);
  for (int i = 0; i < SAMPLES; i++) {
    true_labels[i] = (uint16_t)json_integer_value(json_array_get(labels_of, (size_t)i));
    sure[i * MANY + json_integer_value(json_array_get(answers, (size_t)i))] = 1;
  }
  cvy_class_result r[MANY];
  cvy_predictions_count(true_labels, SAMPLES, sure, MANY, r);
  for (int class = 0; class < MANY; class ++) {
    int row[MANY];
    const double values[] = {r[class].precision, r[class].recall, r[class].f1};
    const json_t *const want = json_array_get(json_object_get(root, "matrix"), (size_t)class);
    assert_int_equal(cvy_predictions_row(true_labels, SAMPLES, sure, MANY, class, row), 0);
    for (int j = 0; j < MANY; j++) assert_int_equal(row[j], json_integer_value(json_array_get(want, (size_t)j)));
    for (int k = 0; k < 3; k++)
      if (!is_near(values[k], json_object_get(root, keys[k]), class))
        check_fail(d, "%s of class %d: %g", keys[k], class, values[k]);
  }
  json_decref(root);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
