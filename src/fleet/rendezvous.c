/* SPDX-License-Identifier: MIT
 * Connecting the nodes of a fleet (convoy/fleet.h). */
#include "src/link/mpi_link.h"
#include "src/link/mpi_open.h"
#include "src/link/tcp.h"
#include "src/link/tcp_key.h"
#include "src/fleet/nodes.h"

/* The nodes have met; each of their words in the opening is waited for as long as they were. */
static cvy_status make_fleet(cvy_link *link, double wait_seconds, cvy_fleet **out) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_fleet_create(link, out));
  if (link->size > 1) CVY_TRY(cvy_fleet_be_patient(*out, wait_seconds > 0 ? wait_seconds : 600));
fail:
  if (status != CVY_OK) cvy_fleet_close(out);
  return status;
}

cvy_status cvy_fleet_meet(const cvy_fleet_params *params, cvy_fleet **out) {
  cvy_status status = CVY_OK;
  cvy_link *link = NULL;
  cvy_link_tcp_params p = {.nodes = params->nodes,
                           .rank = params->node,
                           .port = params->port,
                           .wait_seconds = params->wait_seconds,
                           .silent_seconds = params->silent_seconds,
                           .stop = params->stop};
  cvy_fleet_key key = {0};
  *out = NULL;
  if (params->key_file) {
    CVY_TRY(cvy_fleet_key_read(params->key_file, &key));
    p.key = key.bytes;
    p.key_bytes = key.n;
  }
  CVY_TRY(cvy_link_tcp_open(&p, &link));
  CVY_TRY(make_fleet(link, params->wait_seconds, out));
  cvy_fleet_set_meets_again(*out);
fail:
  cvy_fleet_key_forget(&key);
  return status;
}

cvy_status cvy_fleet_meet_started(double wait_seconds, cvy_fleet **out) {
  cvy_status status = CVY_OK;
  cvy_started started;
  cvy_link *link = NULL;
  *out = NULL;
  CVY_TRY(cvy_started_find(&started));
  if (started.starter == CVY_STARTED_ALONE) return CVY_OK;
  CVY_TRY(cvy_link_mpi_open(&started, wait_seconds, &link));
  CVY_TRY(make_fleet(link, wait_seconds, out));
fail:
  return status;
}

bool cvy_fleet_abandoned(void) { return cvy_mpi_link_abandoned(); }

int cvy_fleet_started(void) {
  cvy_started started;
  return cvy_started_find(&started) == CVY_OK ? started.size : 1;
}
