/* SPDX-License-Identifier: MIT
 * Detects a jump of the training loss: the trainer keeps the checkpoint written before it. Pure. */
#ifndef CVY_RUN_LOSS_WATCH_H
#define CVY_RUN_LOSS_WATCH_H

#include <stdbool.h>

enum { CVY_LOSS_STEPS = 100, CVY_LOSS_JUMP = 10 };
/* Zero-initialise. */
typedef struct cvy_loss_watch {
  double losses[CVY_LOSS_STEPS]; /* of the last steps that were no jump, in a ring */
  int n, next;
  double median; /* of them, before the newest loss; 0: there were none */
  bool high;     /* since a jump */
} cvy_loss_watch;

/* Takes the loss of the next step. True in the step that jumps: it is not finite, or more than CVY_LOSS_JUMP times the
 * median of the last CVY_LOSS_STEPS; not again until a loss was below that, so that the kept checkpoint precedes the
 * first high loss. */
bool cvy_loss_jumps(cvy_loss_watch *watch, double loss);

#endif
