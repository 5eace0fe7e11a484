/* SPDX-License-Identifier: MIT
 * The program as a node of a fleet: options, and who prints. */
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
/* Waits for the other nodes. *out NULL: this process is alone. EXIT_DONE, or the exit status with the reason said. From
 * now on only the head of the fleet prints; warnings and errors of others have their node's name in front. quiet: no
 * word about nodes that are waited for. A second call has the time that the first one has left. */
int fleet_meet(const fleet_options *options, bool quiet, cvy_fleet **out);
/* Closes the fleet, if there is one. code: the verb's exit status. True: it is to begin anew with fleet_meet, which is
 * said: it has failed before the first step since another node was lost, or was refused, and --fleet-wait, since the
 * first call of fleet_meet, is not over. */
bool fleet_end(const fleet_options *options, bool quiet, int code, cvy_fleet **fleet);
struct program_file;
/* All nodes call it with the files that their options name. The head alone writes them: EXIT_USAGE on all nodes if one
 * has an option that the head lacks; a path that differs from the head's gives a warning. */
int fleet_check_outputs(const char *verb, cvy_fleet *fleet, const struct program_file *outputs);
/* For a verb that is for one machine: EXIT_USAGE with the reason if a launcher has started several processes. */
int fleet_refuse(const char *verb);
/* "pc1: A, B | pc2: C": the nodes that are there, with their devices. NULL when out of memory; free(). */
char *fleet_labels(const cvy_fleet *fleet);
/* [{"name", "devices"}], for logs. */
json_t *fleet_json(const cvy_fleet *fleet);

#endif
