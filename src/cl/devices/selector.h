/* SPDX-License-Identifier: MIT
 * The text after --devices → selected devices. Pure: works on a list, so tests need no device.
 * Grammar: term{,term};  term: (P:D | fragment | auto|all|gpu|cpu | nvidia|amd|intel) {suffix}, words in any case;
 * suffix: *N (replicas) · /a+b+… (sub-devices of a, b, … compute units) · /=N (N equal parts).
 * auto: every usable GPU, else one CPU (then *fell_back_to_cpu is set). CPU runtimes of one host drive the same cores:
 * auto, all and cpu take one of them (native before `software`, then order). A vendor's word: its GPUs, each by
 * one driver; where there are none its CPU, with a warning. A fragment matches device or platform name, any case, every
 * match. The same device (or overlapping parts of it) twice without * is CVY_E_ARGUMENT. */
#ifndef CVY_CL_DEVICES_SELECTOR_H
#define CVY_CL_DEVICES_SELECTOR_H

#include "convoy/device.h"
#include "src/base/failure.h"

/* A device, or a part of one, that the selector chose. */
typedef struct cvy_selected_device {
  int item;           /* position in the list */
  int units;          /* compute units of the sub-device, 0 = the whole device */
  int unit_first;     /* sum of the compute units of earlier parts in the same /a+b+… term */
  int part, n_parts;  /* this is part `part` of n_parts of a partition: created together so that parts do not overlap */
  int part_units[64]; /* units of all parts of that term */
  int place;          /* among all chosen ones, also when others were left out */
  bool by_number;     /* the term was P:D: the caller wants this device or none */
  char label[160];    /* "0:0 NVIDIA H200"; second part "0:0/1 pthread-…"; second replica "0:0#1 …"; for result lines */
} cvy_selected_device;

/* *selected (cvy_free) and *n. CVY_E_ARGUMENT: bad text, too many units, listed twice. CVY_E_NO_DEVICE: matches nothing
 * that is there (message lists those that are). An empty list with auto/all: CVY_E_NO_DEVICE and what to install. */
cvy_status cvy_select(const cvy_device_list *list, const char *text, cvy_selected_device **selected, int *n,
                      bool *fell_back_to_cpu);

/* A term of the text has `gpu` or a vendor's word in it, as a part of a name, too. */
bool cvy_selector_means_gpus(const char *text);

#endif
