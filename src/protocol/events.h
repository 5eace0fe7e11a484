/* SPDX-License-Identifier: MIT
 * Events of a team (shares changed, device or node lost), until the caller takes them (cvy_team_next_event). The queue
 * has its own lock. */
#ifndef CVY_PROTOCOL_EVENTS_H
#define CVY_PROTOCOL_EVENTS_H

#include "convoy/team.h"

typedef struct cvy_events cvy_events;

/* Of a team of n devices. CVY_E_MEMORY. */
cvy_status cvy_events_create(int n, cvy_events **out);
void cvy_events_destroy(cvy_events **events);
/* Copies arrays and texts, except names, labels and reasons, which stay valid. CVY_E_MEMORY: the event is not in the
 * queue. */
cvy_status cvy_events_add(cvy_events *events, const cvy_team_event *event);
/* The oldest event, borrowed until the next call. False: none. */
bool cvy_events_take(cvy_events *events, cvy_team_event *out);

#endif
