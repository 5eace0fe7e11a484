/* SPDX-License-Identifier: MIT
 * The program as a node of a fleet: options and output. */
#ifndef CVY_TOOLS_PROGRAM_NODE_H
#define CVY_TOOLS_PROGRAM_NODE_H

#include <jansson.h>

#include "convoy/fleet.h"
#include "tools/program/options/options.h"

typedef struct fleet_options {
  const char *nodes, *key;
  int64_t node, port;
  double wait;
  bool none;
} fleet_options;

/* OPTIONS_GO_ON, or the exit status of options that do not fit each other. */
int fleet_options_check(const char *verb, const fleet_options *options);
/* Waits for the other nodes. *out NULL: this process is alone. EXIT_DONE, or the exit status, with the reason printed.
 * From now on only the head of the fleet prints; other nodes print warnings and errors with their name as a prefix.
 * quiet: does not print which nodes it waits for. A second call has the remaining time of the first one. */
int fleet_meet(const fleet_options *options, bool quiet, cvy_fleet **out);
/* Closes the fleet, if there is one. code: the verb's exit status. True: the verb must begin again with fleet_meet
 * (printed), since it failed before the first step because another node was lost or refused, and --fleet-wait since the
 * first fleet_meet has not passed. */
bool fleet_end(const fleet_options *options, bool quiet, int code, cvy_fleet **fleet);
/* Runs a verb of a fleet, and again as long as it sets *again: fleet_end has returned true. The last exit status. */
int fleet_repeat(int (*verb)(int argc, char **argv, bool *again), int argc, char **argv);
struct program_file;
/* All nodes call it with the files that their options name. Only the head writes them: EXIT_USAGE on all nodes if one
 * has an option that the head lacks; a warning if a path differs from the head's. */
int fleet_check_outputs(const char *verb, cvy_fleet *fleet, const struct program_file *outputs);
/* For a verb that runs on one machine: EXIT_USAGE, with the reason printed, if a launcher has started several
 * processes. */
int fleet_refuse(const char *verb);
/* "pc1: A, B | pc2: C": the nodes that are not lost, with their devices. NULL when out of memory; free(). */
char *fleet_labels(const cvy_fleet *fleet);
/* [{"name", "devices"}], for logs. */
json_t *fleet_json(const cvy_fleet *fleet);

#endif
