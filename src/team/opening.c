/* SPDX-License-Identifier: MIT */
#include "src/team/opening.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "src/base/mem.h"
#include "src/nn/choices.h"
#include "src/fleet/node_messages.h"
#include "src/team/inside.h"
#include "src/team/noted_devices.h"

/* --tune quick: seconds for measuring, all devices together. The tuner finishes a measurement that has begun. */
enum { QUICK_BUDGET_S = 15 };
/* The tuner takes about so long for a pass of a layer on a fast device (four times as long was seen on a slow one), and
 * by default at most TUNE_MOST_S in all. */
#define TUNE_PASS_S 0.6
enum { TUNE_MOST_S = 60 };

struct cvy_opening {
  const cvy_devices *devices;
  cvy_devices *everyone; /* in a fleet; else NULL */
  int first;             /* the place of this team's first device among everyone's */
  const cvy_net *net;
  cvy_team_params params;
  const cvy_input_params *input; /* the team's, which attaching completes */
  cvy_conv_algo_list algos;      /* that the caller asks for; n == 0: none */
  cvy_conv_choices *resumed;     /* devices x layers of the net, from a checkpoint; NULL: none */
  int *resumed_rows;      /* of everyone: the checkpointed one whose algorithms it takes (noted_devices.h), or -1 */
  cvy_tune_table **tuned; /* --tune quick: each device's fastest algorithms; else NULL */
  cvy_status *faults;     /* of each device */
  bool again;
  char *choices; /* the algorithms that the layers took, JSON */
};

static cvy_status describe_fleet(cvy_opening *o, const cvy_fleet *fleet) {
  cvy_status status = CVY_OK;
  const char *texts[CVY_NODES_MOST];
  for (int r = 0; r < cvy_fleet_size(fleet); r++) texts[r] = cvy_fleet_devices_json(fleet, r);
  CVY_TRY(cvy_noted_devices(texts, cvy_fleet_size(fleet), &o->everyone));
  o->first = cvy_fleet_first_device(fleet);
fail:
  return status;
}

cvy_status cvy_opening_create(const cvy_devices *devices, const cvy_net *net, const cvy_team_params *params,
                              cvy_opening **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)devices->n;
  const cvy_resume_values *const resume = params->resume;
  cvy_opening *o = cvy_calloc(1, sizeof *o);
  *out = NULL;
  CVY_REQUIRE(o, CVY_E_MEMORY, "out of host memory");
  *o = (cvy_opening){.devices = devices, .net = net, .params = *params, .input = &params->input};
  o->faults = cvy_calloc(n, sizeof *o->faults);
  CVY_REQUIRE(o->faults, CVY_E_MEMORY, "out of host memory");
  if (params->fleet) CVY_TRY(describe_fleet(o, params->fleet));
  if (params->conv_algo) CVY_TRY(cvy_conv_algos_parse(params->conv_algo, &o->algos));
  if (resume && resume->choices) {
    o->resumed = cvy_calloc(n * (size_t)net->n_layers, sizeof *o->resumed);
    o->resumed_rows = cvy_calloc((size_t)cvy_opening_everyone(o)->n, sizeof *o->resumed_rows);
    CVY_REQUIRE(o->resumed && o->resumed_rows, CVY_E_MEMORY, "out of host memory");
    CVY_TRY(cvy_noted_rows(resume->devices, cvy_opening_everyone(o), o->resumed_rows));
    CVY_TRY(cvy_choices_read(resume->choices, net, devices->n, o->resumed_rows + o->first, o->resumed));
  }
  if (params->tune == CVY_TUNE_QUICK) {
    o->tuned = cvy_calloc(n, sizeof *o->tuned);
    CVY_REQUIRE(o->tuned, CVY_E_MEMORY, "out of host memory");
  }
  *out = o;
  return CVY_OK;
fail:
  cvy_opening_destroy(&o);
  return status;
}

void cvy_opening_destroy(cvy_opening **opening) {
  cvy_opening *const o = *opening;
  if (!o) return;
  for (int i = 0; o->tuned && i < o->devices->n; i++) cvy_tune_table_destroy(&o->tuned[i]);
  cvy_noted_devices_destroy(&o->everyone);
  cvy_free(o->tuned);
  cvy_free(o->faults);
  cvy_free(o->resumed);
  cvy_free(o->resumed_rows);
  cvy_free(o->choices);
  cvy_free(o);
  *opening = NULL;
}

const cvy_devices *cvy_opening_everyone(const cvy_opening *o) { return o->everyone ? o->everyone : o->devices; }

static bool is_resumed(const cvy_opening *o, int i) { return o->resumed && o->resumed_rows[o->first + i] >= 0; }

static bool uses_tuned(const cvy_opening *o, int i) {
  return o->algos.n == 0 && !is_resumed(o, i) && o->params.tune != CVY_TUNE_OFF;
}

/* Counts the team's replicas that share device i's memory: on the same device, on its sub-devices, or on the same CPU
 * by another driver. */
static int count_sharers(const cvy_opening *o, int i) {
  const cvy_device_info *const items = o->devices->list->items;
  const int mine = o->devices->selected[i].item;
  int n = 0;
  for (int d = 0; d < o->devices->n; d++) {
    const int other = o->devices->selected[d].item;
    n += other == mine || items[mine].same_as == other || items[other].same_as == mine;
  }
  return n;
}

bool cvy_opening_keeps_times(const cvy_team_params *p) { return !p->inference && !p->untimed && !p->profile; }

cvy_replica_params cvy_opening_params(const cvy_opening *o, int i) {
  const size_t first = (size_t)i * (size_t)o->net->n_layers;
  return (cvy_replica_params){.list = o->devices->list,
                              .selected = &o->devices->selected[i],
                              .group_size = o->params.bn == CVY_BN_GHOST ? o->params.ghost : 0,
                              .sharers = count_sharers(o, i),
                              .inference = o->params.inference,
                              .recompute = o->params.recompute,
                              .waits_asleep = cvy_devices_waits_asleep(o->devices, i),
                              .moments = cvy_team_moments(&o->params),
                              .label_smoothing = o->params.label_smoothing,
                              .clip_norm = o->params.clip_norm,
                              .grad_norm = o->params.grad_norm,
                              .profile = o->params.profile || cvy_opening_keeps_times(&o->params),
                              .algos = o->algos,
                              .math = o->params.math,
                              .input = o->input,
                              .choices = is_resumed(o, i) ? o->resumed + first : NULL,
                              .use_tuned = uses_tuned(o, i),
                              .tuned = o->tuned ? o->tuned[i] : NULL};
}

typedef struct tune_args {
  cvy_opening *opening;
  const int *share_max;
} tune_args;

static cvy_status tune_replica(void *device, void *arg) {
  cvy_replica *const r = device;
  const tune_args *const a = arg;
  cvy_opening *const o = a->opening;
  const int i = r->setup.index;
  const cvy_replica_params params = cvy_opening_params(o, i);
  return cvy_replica_tune(r, &params, a->share_max[i], (double)QUICK_BUDGET_S / o->devices->n, &o->tuned[i]);
}

void cvy_opening_tune(cvy_opening *o, cvy_roster *roster, const int *share_max) {
  tune_args args = {.opening = o, .share_max = share_max};
  for (int i = 0; o->tuned && i < o->devices->n; i++)
    if (uses_tuned(o, i)) o->faults[i] = cvy_worker_call(cvy_roster_worker(roster, i), tune_replica, &args);
}

/* Logs once per process, for all devices and reasons: bench scaling opens many teams. */
static void say_untuned(const cvy_opening *o, const cvy_replica *replicas) {
  static atomic_bool said;
  int untuned = 0, most = 0;
  bool tf32 = false;
  const char *wrong = NULL;
  char file[160] = "no tuned kernels for this network and batch here";
  for (int i = 0; i < o->devices->n; i++) {
    const int here = cvy_instance_untuned(replicas[i].instance);
    untuned += here;
    if (here > 0 && !wrong) wrong = replicas[i].tuned_wrong;
    tf32 |= here > 0 && cvy_instance_math(replicas[i].instance) == CVY_MATH_TF32;
    if (here > most) most = here;
  }
  if (untuned == 0 || atomic_exchange(&said, true)) return;
  const double seconds = ceil(TUNE_PASS_S * most);
  char takes[32] = "";
  if (seconds < TUNE_MOST_S) snprintf(takes, sizeof takes, "%.0f to ", seconds);
  if (wrong) snprintf(file, sizeof file, "the file of tuned kernels %s", wrong);
  cvy_log_info("%s: the shipped defaults are used; 'convoy tune%s' may find faster ones, and takes about %s%d s", file,
               tf32 ? " --math tf32" : "", takes, TUNE_MOST_S);
}

/* The other nodes' choices before and behind this one's. */
static cvy_status gather_choices(cvy_opening *o) {
  cvy_status status = CVY_OK;
  char *all;
  CVY_TRY(cvy_fleet_gather_list(o->params.fleet, o->choices, &all));
  cvy_free(o->choices);
  o->choices = all;
fail:
  return status;
}

cvy_status cvy_opening_note(cvy_opening *o, const cvy_replica *replicas) {
  cvy_status status = CVY_OK;
  const size_t layers = (size_t)o->net->n_layers;
  cvy_conv_choices *const table = cvy_calloc((size_t)o->devices->n * layers, sizeof *table);
  CVY_REQUIRE(table, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < o->devices->n; i++)
    for (size_t l = 0; l < layers; l++)
      (void)cvy_instance_choices(replicas[i].instance, (int)l, &table[(size_t)i * layers + l]);
  cvy_free(o->choices);
  CVY_TRY(cvy_choices_write(o->net, table, o->devices->n, &o->choices));
  if (o->params.fleet) CVY_TRY(gather_choices(o));
  say_untuned(o, replicas);
fail:
  cvy_free(table);
  return status;
}

cvy_status *cvy_opening_faults(cvy_opening *o) { return o->faults; }
void cvy_opening_set_again(cvy_opening *o) { o->again = true; }
bool cvy_opening_is_again(const cvy_opening *o) { return o->again; }
const char *cvy_opening_choices(const cvy_opening *o) { return o->choices; }
