/* SPDX-License-Identifier: MIT */
#include "tools/program/node.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/text.h"
#include "tools/program/program_common.h"
#include "tools/program/signals.h"

int fleet_options_check(const char *verb, const fleet_options *o) {
  if (o->nodes && o->none) return options_error(verb, "--nodes %s and --no-fleet: expected one of them", o->nodes);
  if (o->nodes && o->node < 0)
    return options_error(verb, "--nodes %s: --node I is missing: the index of this machine in --nodes, from 0",
                         o->nodes);
  if (!o->nodes && o->node >= 0)
    return options_error(verb, "--node %lld: --nodes A,B,... is missing", (long long)o->node);
  if (!o->nodes && o->key) return options_error(verb, "--fleet-key %s: --nodes A,B,... is missing", o->key);
  return OPTIONS_GO_ON;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double met_first; /* time of the first fleet_meet; 0: not called yet */

/* The whole of --fleet-wait before the first meeting, so that messages have the number that was asked for. Above 0,
 * which means the library's default. */
static double time_left(const fleet_options *o) {
  return met_first == 0 ? o->wait : fmax(0.01, o->wait - (now() - met_first));
}

int fleet_meet(const fleet_options *o, bool quiet, cvy_fleet **out) {
  cvy_status status = CVY_OK;
  *out = NULL;
  if (o->none) return EXIT_DONE;
  const double left = time_left(o);
  if (met_first == 0) met_first = now();
  program_hear_of_waiting(!quiet);
  if (o->nodes)
    status = cvy_fleet_meet(
        &(cvy_fleet_params){
            .nodes = o->nodes, .node = (int)o->node, .port = (int)o->port, .key_file = o->key, .wait_seconds = left},
        out);
  else status = cvy_fleet_meet_started(o->wait, out);
  program_hear_of_waiting(false);
  if (*out && !cvy_fleet_is_head(*out)) program_speak_as(cvy_fleet_name(*out, cvy_fleet_rank(*out)));
  return program_exit_code(status);
}

bool fleet_end(const fleet_options *o, bool quiet, int code, cvy_fleet **fleet) {
  const bool again =
      code == EXIT_FAILED && cvy_fleet_may_meet_again(*fleet) && now() - met_first < o->wait && signals_hard();
  cvy_fleet_close(fleet);
  if (again) program_speak_as(NULL);
  if (again && !quiet) program_say("this node waits for the right nodes again");
  return again;
}

int fleet_repeat(int (*verb)(int argc, char **argv, bool *again), int argc, char **argv) {
  bool again = true;
  int code = EXIT_DONE;
  while (again) {
    again = false;
    code = verb(argc, argv, &again);
  }
  return code;
}

/* Compares node r's output files with the head's. False: the head does not write one of them. */
static bool compare_outputs(const char *verb, const cvy_fleet *fleet, int r, const json_t *its, const json_t *heads) {
  const char *option;
  json_t *path;
  bool ok = true;
  json_object_foreach((json_t *)its, option, path) {
    const char *const text = json_string_value(path), *const other = json_string_value(json_object_get(heads, option));
    if (!other) {
      if (cvy_fleet_is_head(fleet))
        program_say(
            "error: convoy %s: node %d (%s) has %s %s, but node 0, which writes, does not; expected the same options "
            "on all nodes, or --no-fleet",
            verb, r, cvy_fleet_name(fleet, r), option, text);
      ok = false;
    } else if (strcmp(text, other) != 0 && cvy_fleet_rank(fleet) == r) {
      program_warn("%s %s is not written: only node 0 writes, to %s; --no-fleet runs each process alone", option, text,
                   other);
    }
  }
  return ok;
}

int fleet_check_outputs(const char *verb, cvy_fleet *fleet, const program_file *outputs) {
  char **texts = NULL, *dumped;
  json_t *own, *heads = NULL;
  int code = EXIT_DONE;
  if (!fleet) return EXIT_DONE;
  own = json_object();
  for (; outputs->option; outputs++)
    if (outputs->path && strcmp(outputs->option, "--trace") != 0) /* written by each node */
      json_object_set_new(own, outputs->option, program_text_json(outputs->path));
  dumped = json_dumps(own, JSON_COMPACT);
  json_decref(own);
  const cvy_status status = dumped ? cvy_fleet_gather_texts(fleet, dumped, &texts) : CVY_E_MEMORY;
  free(dumped);
  if (status != CVY_OK) return program_exit_code(status);
  int head = 0;
  while (!cvy_fleet_has(fleet, head)) head++; /* this node is one of them */
  heads = json_loads(texts[head], 0, NULL);
  for (int r = head + 1; r < cvy_fleet_size(fleet); r++) {
    json_t *const its = cvy_fleet_has(fleet, r) ? json_loads(texts[r], 0, NULL) : NULL;
    if (!compare_outputs(verb, fleet, r, its, heads)) code = EXIT_USAGE;
    json_decref(its);
  }
  json_decref(heads);
  cvy_fleet_free_texts(fleet, &texts);
  return code;
}

int fleet_refuse(const char *verb) {
  const int n = cvy_fleet_started();
  if (n <= 1) return EXIT_DONE;
  return options_error(verb,
                       "mpirun or srun started %d processes; this verb measures one machine: start it there without a "
                       "launcher",
                       n);
}

static void add_node(FILE *out, const cvy_fleet *fleet, int r) {
  char one[CVY_PLAIN_MOST];
  json_t *const devices = json_loads(cvy_fleet_devices_json(fleet, r), 0, NULL);
  fprintf(out, "%s: ", cvy_fleet_name(fleet, r));
  for (size_t i = 0; i < json_array_size(devices); i++) {
    const char *label = json_string_value(json_object_get(json_array_get(devices, i), "label"));
    if (!label) label = "?";
    if (i) fputs(", ", out);
    for (size_t n; (n = cvy_plain_next(label, "", one)) > 0; label += n) fputs(one, out);
  }
  json_decref(devices);
}

char *fleet_labels(const cvy_fleet *fleet) {
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  const char *between = "";
  for (int r = 0; out && r < cvy_fleet_size(fleet); r++) {
    if (!cvy_fleet_has(fleet, r)) continue;
    fputs(between, out);
    add_node(out, fleet, r);
    between = " | ";
  }
  if (out) fclose(out);
  return text;
}

/* The devices that a node has sent, with control characters replaced. */
static json_t *devices_json(const cvy_fleet *fleet, int r) {
  json_t *const devices = json_loads(cvy_fleet_devices_json(fleet, r), 0, NULL);
  for (size_t i = 0; i < json_array_size(devices); i++) {
    json_t *const device = json_array_get(devices, i);
    const char *key;
    json_t *value;
    json_object_foreach(device, key, value) if (json_is_string(value))
        json_object_set_new_nocheck(device, key, program_text_json(json_string_value(value)));
  }
  return devices;
}

json_t *fleet_json(const cvy_fleet *fleet) {
  json_t *const nodes = json_array();
  for (int r = 0; r < cvy_fleet_size(fleet); r++)
    json_array_append_new(nodes, json_pack("{so so}", "name", program_text_json(cvy_fleet_name(fleet, r)), "devices",
                                           devices_json(fleet, r)));
  return nodes;
}
