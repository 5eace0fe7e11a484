/* SPDX-License-Identifier: MIT */
#include "src/protocol/journal.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/protocol/ring.h"

typedef struct entry {
  int n, group_size, epoch;
  cvy_update_params update;
  bool given;
  cvy_step_images images; /* given */
} entry;

/* Of all sample numbers, 16 MiB, and of all images of the caller's, 256 MiB. A few steps of any batch. */
enum { SAMPLES_MOST = 4 << 20, STEPS_LEAST = 16, FLOATS_MOST = 64 << 20, GIVEN_LEAST = 4 };

struct cvy_journal {
  int batch, room, size;
  long first;
  entry entries[CVY_JOURNAL_STEPS];         /* step t at t % room */
  int32_t *samples;                         /* `batch` of each */
  cvy_step_images spare[CVY_JOURNAL_STEPS]; /* memory of removed steps */
  int n_spare;
};

cvy_status cvy_journal_create(int batch, cvy_journal **out) {
  cvy_status status = CVY_OK;
  cvy_journal *j = cvy_calloc(1, sizeof *j);
  *out = NULL;
  CVY_REQUIRE(j, CVY_E_MEMORY, "out of host memory");
  j->batch = batch;
  j->room = SAMPLES_MOST / batch;
  if (j->room > CVY_JOURNAL_STEPS) j->room = CVY_JOURNAL_STEPS;
  if (j->room < STEPS_LEAST) j->room = STEPS_LEAST;
  j->samples = cvy_calloc((size_t)batch * (size_t)j->room, sizeof *j->samples);
  CVY_REQUIRE(j->samples, CVY_E_MEMORY, "out of host memory for the sample numbers of %d steps", j->room);
  *out = j;
  return CVY_OK;
fail:
  cvy_journal_destroy(&j);
  return status;
}

void cvy_journal_destroy(cvy_journal **journal) {
  cvy_journal *const j = *journal;
  if (!j) return;
  cvy_journal_drop(j, j->first + j->size);
  while (j->n_spare > 0) cvy_step_images_free(&j->spare[--j->n_spare]);
  cvy_free(j->samples);
  cvy_free(j);
  *journal = NULL;
}

int cvy_journal_size(const cvy_journal *j) { return j->size; }

int cvy_journal_room(const cvy_journal *j, size_t image_floats) {
  const size_t most = image_floats ? FLOATS_MOST / image_floats / (size_t)j->batch : (size_t)j->room;
  return most < GIVEN_LEAST ? GIVEN_LEAST : most < (size_t)j->room ? (int)most : j->room;
}

static int32_t *samples_of(const cvy_journal *j, long step) {
  return j->samples + (size_t)(step % j->room) * (size_t)j->batch;
}

void cvy_journal_add(cvy_journal *j, cvy_step *step) {
  if (j->size == 0) j->first = step->number;
  CVY_ASSERT(j->size < j->room && step->number == j->first + j->size);
  entry *const e = &j->entries[step->number % j->room];
  *e = (entry){
      .n = step->n, .group_size = step->group_size, .epoch = step->epoch, .update = step->update, .given = step->given};
  if (step->given) {
    e->images = step->images;
    step->images = j->n_spare > 0 ? j->spare[--j->n_spare] : (cvy_step_images){0};
  }
  memcpy(samples_of(j, step->number), step->samples, (size_t)step->n * sizeof *step->samples);
  j->size++;
}

void cvy_journal_get(const cvy_journal *j, long number, cvy_step *out) {
  CVY_ASSERT(number >= j->first && number < j->first + j->size);
  const entry *const e = &j->entries[number % j->room];
  out->number = number;
  out->n = e->n;
  out->group_size = e->group_size;
  out->epoch = e->epoch;
  out->update = e->update;
  out->given = e->given;
  out->images = e->images;
  memcpy(out->samples, samples_of(j, number), (size_t)e->n * sizeof *out->samples);
}

void cvy_journal_drop(cvy_journal *j, long step) {
  const long gone = step - j->first;
  if (gone <= 0) return;
  for (long s = j->first; s < j->first + j->size && s < step; s++) {
    const entry *const e = &j->entries[s % j->room];
    if (e->given) j->spare[j->n_spare++] = e->images;
  }
  j->size = gone < j->size ? j->size - (int)gone : 0;
  j->first = step;
}
