/* SPDX-License-Identifier: MIT
 * The labels of a data set as its source has read them: the number of classes, and labels that do not fit. */
#include "src/base/mem.h"
#include "src/data/dataset.h"

cvy_status data_check_classes(int classes) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(classes >= 0 && classes <= CVY_MAX_CLASSES, CVY_E_ARGUMENT,
              "%d classes: expected 1 to %d (0: largest label + 1)", classes, CVY_MAX_CLASSES);
fail:
  return status;
}

/* Labels that a network is not trained for: each kind gets one warning. inferred: the classes are, from the labels. */
static cvy_status say_odd_labels(const dataset *d, bool inferred, const char *const where[CVY_SETS]) {
  cvy_status status = CVY_OK;
  const int classes = d->data.classes;
  int n_unknown = 0, first = 0;
  uint8_t *const seen = cvy_calloc((size_t)classes, 1); /* bit `set`: the label occurs in that set */
  CVY_REQUIRE(seen, CVY_E_MEMORY, "no memory for %d classes", classes);
  for (int set = 0; set < CVY_SETS; set++)
    for (int i = 0; i < d->raw[set].n; i++) seen[d->raw[set].labels[i]] |= (uint8_t)(1 << set);
  for (int label = 0; label < classes && d->raw[CVY_SET_OF_TRAIN].n; label++)
    if (seen[label] && !(seen[label] & 1 << CVY_SET_OF_TRAIN) && n_unknown++ == 0) first = label;
  const char *const file = where[CVY_SET_OF_TRAIN], *const colon = *file ? ": " : "";
  if (inferred && classes > 2 && !seen[0] && seen[1])
    cvy_log_warning(
        "%s%sthe labels run from 1 to %d and none is 0: the network gets %d classes, one of which never occurs; "
        "expected labels from 0 to %d",
        file, colon, classes - 1, classes, classes - 2);
  if (n_unknown)
    cvy_log_warning(
        "%s%s%d label%s of the test images %s not occur among the training images, the first is %d: the network "
        "cannot learn %s",
        file, colon, n_unknown, n_unknown > 1 ? "s" : "", n_unknown > 1 ? "do" : "does", first,
        n_unknown > 1 ? "them" : "it");
fail:
  cvy_free(seen);
  return status;
}

cvy_status data_check_labels(dataset *d, int wanted, const char *const where[CVY_SETS], size_t base,
                             const size_t each[CVY_SETS]) {
  cvy_status status = CVY_OK;
  int own = 0;
  CVY_TRY(data_check_classes(wanted));
  for (int set = 0; set < CVY_SETS; set++)
    for (int i = 0; i < d->raw[set].n; i++)
      if (d->raw[set].labels[i] >= own) own = d->raw[set].labels[i] + 1;
  d->data.classes = wanted ? wanted : own < CVY_MAX_CLASSES ? own : CVY_MAX_CLASSES;
  for (int set = 0; set < CVY_SETS; set++) {
    const raw_set *const s = &d->raw[set];
    for (int i = 0; i < s->n; i++)
      CVY_REQUIRE(s->labels[i] < d->data.classes, CVY_E_FORMAT,
                  "%s%sthe label of %s image %d (offset %zu) is %d, with %d classes 0 to %d are expected", where[set],
                  *where[set] ? ": " : "", data_set_names[set], i, base + (size_t)i * each[set], s->labels[i],
                  d->data.classes, d->data.classes - 1);
  }
  CVY_TRY(say_odd_labels(d, wanted == 0, where));
fail:
  return status;
}
