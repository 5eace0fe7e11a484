/* SPDX-License-Identifier: MIT
 * Teams and what they are made of, as objects of a case (check.h): check_case_end closes them, the last one first. */
#ifndef CVY_TESTS_SUPPORT_CHECK_TEAM_H
#define CVY_TESTS_SUPPORT_CHECK_TEAM_H

#include "convoy/convoy.h"
#include "tests/support/check.h"

static inline void check_close_net(void *net) { cvy_net_destroy(&(cvy_net *){net}); }
static inline void check_close_data(void *data) { cvy_data_destroy(&(cvy_data *){data}); }
static inline void check_close_devices(void *devices) { cvy_devices_destroy(&(cvy_devices *){devices}); }
static inline void check_close_team(void *team) { cvy_team_destroy(&(cvy_team *){team}); }

/* A network for images of the size, still without layers, and one of the library's. */
static inline cvy_net *check_net(check_device *d, int channels, int h, int w) {
  cvy_net *net;
  check_ok(cvy_net_create(channels, h, w, &net));
  return check_own(d, net, check_close_net);
}

static inline cvy_net *check_model(check_device *d, const char *model, int channels, int size) {
  cvy_net *net;
  check_ok(cvy_net_model(model, channels, size, size, 10, &net));
  return check_own(d, net, check_close_net);
}

static inline cvy_data *check_data(check_device *d, const char *spec) {
  cvy_data *data;
  check_ok(cvy_data_load(spec, NULL, &data));
  return check_own(d, data, check_close_data);
}

/* The device under test alone (""), replicas of it ("*2"), parts ("/1+1"). */
static inline cvy_devices *check_devices(check_device *d, const char *suffix) {
  cvy_devices *devices;
  check_ok(cvy_devices_select(check_text("%s%s", d->place, suffix), &devices));
  return check_own(d, devices, check_close_devices);
}

/* A team without weights and data. */
static inline cvy_team *check_bare_team(check_device *d, cvy_devices *devices, const cvy_net *net,
                                        const cvy_team_params *params) {
  cvy_team *team;
  check_ok(cvy_team_create(devices, net, params, &team));
  return check_own(d, team, check_close_team);
}

/* seed 0: the library's default weights. */
static inline cvy_team *check_team(check_device *d, cvy_devices *devices, const cvy_net *net,
                                   const cvy_team_params *params, uint64_t seed, const cvy_data *data) {
  cvy_team *const team = check_bare_team(d, devices, net, params);
  check_ok(cvy_team_init(team, seed ? &(cvy_init_params){.kind = CVY_INIT_HE, .seed = seed} : NULL));
  check_ok(cvy_team_attach(team, data));
  return team;
}

#endif
