/* SPDX-License-Identifier: MIT
 * The finished steps that the ledger lacks: a device that updates its own weights has them alone. The journal keeps
 * what is needed to do them again, in order, on the devices that are left when that one is lost. The roster's lock
 * guards it. */
#ifndef CVY_PROTOCOL_JOURNAL_H
#define CVY_PROTOCOL_JOURNAL_H

#include "src/base/failure.h"

struct cvy_step;
typedef struct cvy_journal cvy_journal;

enum { CVY_JOURNAL_STEPS = 1024 };

/* For steps of up to `batch` samples. CVY_E_MEMORY. */
cvy_status cvy_journal_create(int batch, cvy_journal **out);
void cvy_journal_destroy(cvy_journal **journal);
/* How many steps are there. */
int cvy_journal_size(const cvy_journal *journal);
/* The most that there may be: CVY_JOURNAL_STEPS, fewer of large batches. */
int cvy_journal_room(const cvy_journal *journal);
/* The step behind the last one; there must be room. */
void cvy_journal_add(cvy_journal *journal, const struct cvy_step *step);
/* Fills in the number, samples, update, groups and epoch of a step that is there. */
void cvy_journal_get(const cvy_journal *journal, long number, struct cvy_step *out);
/* The ledger has the steps in front of `step`. */
void cvy_journal_drop(cvy_journal *journal, long step);

#endif
