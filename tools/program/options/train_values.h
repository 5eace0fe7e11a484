/* SPDX-License-Identifier: MIT
 * Structured values of `convoy train`'s options, and their parsers (option_parse_fn). */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_TRAIN_VALUES_H
#define CVY_TOOLS_PROGRAM_OPTIONS_TRAIN_VALUES_H

#include "convoy/convoy.h"
#include "tools/program/options/options.h"

typedef struct split_option {
  cvy_split_kind kind;
  number_list values;
  const char *text;
} split_option;
typedef struct bn_option {
  cvy_bn_mode mode;
  int ghost;
  const char *text;
} bn_option;
typedef struct every_option {
  int n;
  bool epochs;
  const char *text;
} every_option;
typedef struct schedule_option {
  cvy_lr_kind kind;
  every_option every;
  double gamma;
  const char *text;
} schedule_option;

/* --betas; text NULL: not given. */
typedef struct betas_option {
  float values[2];
  const char *text;
} betas_option;

/* --lr and --seed; several: a sweep. */
typedef struct rates_option {
  number_list list;
} rates_option;
typedef struct seeds_option {
  int n;
  int64_t values[NUMBER_LIST_MAX];
} seeds_option;

const char *train_parse_rates(const char *text, void *target);    /* rates_option, none twice */
const char *train_parse_seeds(const char *text, void *target);    /* seeds_option, none twice */
const char *train_parse_split(const char *text, void *target);    /* split_option */
const char *train_parse_bn(const char *text, void *target);       /* bn_option */
const char *train_parse_bucket(const char *text, void *target);   /* double: MiB, 0: auto */
const char *train_parse_every(const char *text, void *target);    /* every_option of 1 or more */
const char *train_parse_warmup(const char *text, void *target);   /* every_option of 0 or more */
const char *train_parse_schedule(const char *text, void *target); /* schedule_option */
const char *train_parse_betas(const char *text, void *target);    /* betas_option */

#endif
