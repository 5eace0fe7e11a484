/* SPDX-License-Identifier: MIT
 * A device that is none: it implements the table of src/protocol/member.h with whole numbers, on the simulated clock of
 * sim_sync.h, and fails, hangs and comes back as its plan says. */
#ifndef CVY_TESTS_FLEET_SIM_SIM_DEVICE_H
#define CVY_TESTS_FLEET_SIM_SIM_DEVICE_H

#include "src/nn/layout.h"
#include "src/protocol/mail.h"
#include "src/protocol/ring.h"

enum { SIM_DEVICES = 8, SIM_BUCKETS = 3, SIM_FLOATS = 6, SIM_BATCH = 24 };

typedef enum sim_fault { SIM_HEALTHY, SIM_FAILS, SIM_HANGS, SIM_HANGS_LATE } sim_fault;

/* All devices of a schedule have one net. */
typedef struct sim_net {
  cvy_layout layout; /* a few buckets of a few floats, and perhaps running values */
  int staleness;
  bool packed;      /* gradients cross as bfloat16 */
  bool alone;       /* a team of one: no mail */
  const long *told; /* in a fleet: of so many steps the head's caller has the result; NULL: alone */
} sim_net;

/* An in-order queue of a device. A transfer happens between its enqueueing and the end of a wait for its event: at
 * once or as late as it may, which is drawn. */
typedef struct sim_queue {
  struct {
    void *to;
    const void *from; /* read when the transfer happens; NULL: `content` */
    size_t bytes;
    unsigned char content[SIM_FLOATS * sizeof(float)];
  } transfers[16];
  long next, done;
} sim_queue;

typedef struct sim_result {
  double loss;
  int correct;
} sim_result;

typedef struct sim_device {
  int index, first; /* in its team; the place of the team's first one among all of the fleet */
  const sim_net *net;
  cvy_roster *roster;
  cvy_mail *mail;
  /* its plan */
  sim_fault fault;
  int fault_at; /* the operation that fails */
  cvy_status fails_with;
  int slow;  /* so many times slower than others; 0: as they */
  int limit; /* the first plan for more samples than these is one too many for its memory; 0: none is */
  /* its life */
  int operations;
  unsigned long beats;
  bool open, broken, given_up;
  bool lone; /* it updates its own weights */
  int lone_steps, redone_steps;
  int share_max;
  /* its memory */
  float w[2][SIM_FLOATS], running[2], grad[SIM_FLOATS], sums[2];
  uint16_t packed[SIM_FLOATS];
  bool mapped[SIM_BUCKETS + 1]; /* parcels that the device must not write */
  sim_queue down, up;
  /* the host's, which its transfers write */
  float host_grad[SIM_FLOATS], host_sums[2], sent[2][SIM_FLOATS], sent_running[2][2]; /* what goes up, by parity */
  uint16_t host_packed[SIM_FLOATS];
  sim_result results[4]; /* of steps in turn */
} sim_device;

extern const cvy_member_fns sim_device_fns;

/* The loss of a sample in a step, and its gradient of element i at a weight w: whole numbers, so that sums are exact in
 * any order, and small enough for bfloat16. */
double sim_loss(long step, int sample);
float sim_gradient(long step, int sample, int i, float w);
float sim_running_sum(long step, int sample, int i);
/* [exchange thread] cvy_exchange_params.read_result. */
void sim_read_result(void *device, long step, double *loss_sum, int *correct);
/* [worker] Everything that step number `step` starts from is on the device. */
cvy_status sim_settle_device(sim_device *device, long step);
/* Events of the running fiber's node that are alive. */
long sim_events(void);
void sim_events_begin(void);

#endif
