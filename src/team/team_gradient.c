/* SPDX-License-Identifier: MIT
 * The gradient of the last step, which the devices keep until the next one. */
#include "src/base/mem.h"
#include "src/protocol/gradient_sum.h"
#include "src/replica/replica_parts.h"
#include "src/team/publish.h"
#include "src/team/team_weights.h"

typedef struct part_args {
  const cvy_param *param;
  long step;
  float *part; /* NULL: the device had no samples in the step, or has lost the gradient */
  int share;
} part_args;

/* The worker owns the memory that the driver writes: if the thread hangs, the driver may still write it later. */
static cvy_status read_part(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  part_args *const a = arg;
  a->share = cvy_step_inputs_share(r->notes, a->step);
  if (a->share == 0) return CVY_OK;
  float *part = cvy_calloc(a->param->size, sizeof *part);
  CVY_REQUIRE(part, CVY_E_MEMORY, "out of host memory for the gradient of '%s'", a->param->name);
  CVY_TRY(cvy_replica_gradient(r, a->param, part));
  a->part = part;
  return CVY_OK;
fail:
  cvy_free(part);
  return status;
}

static cvy_status check(const cvy_team *team, const cvy_param *param) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(!team->params.fleet, CVY_E_UNSUPPORTED,
              "gradients in a fleet are not supported: each node has a part; create a team without a fleet");
  CVY_REQUIRE(!team->params.inference, CVY_E_ARGUMENT, "the team was created for inference: it has no gradients");
  CVY_REQUIRE(!param->frozen, CVY_E_ARGUMENT, "parameter '%s' is %s: it has no gradient", param->name,
              param->fixed ? "a constant of the network" : "frozen (freeze)");
fail:
  return status;
}

cvy_status cvy_team_grad_get(cvy_team *team, const char *name, float *out, size_t n_floats) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  int n, n_parts = 0, found = 0;
  bool lost = false;
  void **parts = NULL;
  float *sum = NULL;
  const cvy_param *param;
  CVY_TRY(cvy_team_find_param(team, name, n_floats, &param));
  CVY_TRY(check(team, param));
  CVY_TRY(cvy_ring_wait(team->ring));
  const long step = cvy_ring_last(team->ring, &n);
  CVY_REQUIRE(step >= 0, CVY_E_ARGUMENT, "no gradient of '%s': the team has done no step with these weights", name);
  parts = cvy_calloc((size_t)n_devices, sizeof *parts);
  sum = cvy_calloc(param->size, sizeof *sum);
  CVY_REQUIRE(parts && sum, CVY_E_MEMORY, "out of host memory for the gradient of '%s'", name);
  for (int i = 0; i < n_devices; i++) {
    part_args a = {.param = param, .step = step};
    bool there;
    CVY_TRY(cvy_team_call(team, i, read_part, &a, &there));
    lost = lost || !there;
    if (a.part) {
      found += a.share;
      parts[n_parts++] = a.part;
    }
  }
  CVY_REQUIRE(found == n || lost, CVY_E_ARGUMENT,
              "no gradient of '%s': the devices were planned anew after step %ld; read it before other calls", name,
              step);
  CVY_REQUIRE(found == n, CVY_E_DEVICE,
              "no gradient of '%s': %d of the %d samples of step %ld were on a device that is lost", name, n - found, n,
              step);
  cvy_gradient_sum(NULL, sum, false, param->size, (const void *const *)parts, n_parts, false);
  cvy_param here = *param; /* `sum` is a part of the flat vector */
  here.offset = 0;
  cvy_param_to_dense(&here, sum, out);
fail:
  for (int i = 0; i < n_parts; i++) cvy_free(parts[i]);
  cvy_free(parts);
  cvy_free(sum);
  return status;
}
