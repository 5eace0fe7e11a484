/* SPDX-License-Identifier: MIT
 * The finished steps that the ledger lacks: only a device that updates its own weights has them. If that device is
 * lost, the remaining devices repeat them in order from the journal. The roster's lock guards it. */
#ifndef CVY_PROTOCOL_JOURNAL_H
#define CVY_PROTOCOL_JOURNAL_H

#include "src/base/failure.h"

struct cvy_step;
typedef struct cvy_journal cvy_journal;

enum { CVY_JOURNAL_STEPS = 1024 };

/* For steps of up to `batch` samples. CVY_E_MEMORY. */
cvy_status cvy_journal_create(int batch, cvy_journal **out);
void cvy_journal_destroy(cvy_journal **journal);
/* Number of steps in the journal. */
int cvy_journal_size(const cvy_journal *journal);
/* Limit of steps: CVY_JOURNAL_STEPS, fewer with large batches, and fewer with images of the caller's of so many floats
 * (0: none). */
int cvy_journal_room(const cvy_journal *journal, size_t image_floats);
/* Appends a step; there must be room. It takes the memory of the step's images, and the step gets other memory, or
 * none. */
void cvy_journal_add(cvy_journal *journal, struct cvy_step *step);
/* Fills in the number, samples, update, groups and epoch of a step in the journal; its images are borrowed until it is
 * removed. */
void cvy_journal_get(const cvy_journal *journal, long number, struct cvy_step *out);
/* Removes the steps before `step`, which the ledger has. */
void cvy_journal_drop(cvy_journal *journal, long step);

#endif
