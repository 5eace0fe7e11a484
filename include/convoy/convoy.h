/* SPDX-License-Identifier: MIT
 * Everything. */
#ifndef CONVOY_CONVOY_H
#define CONVOY_CONVOY_H

#include "convoy/data.h"
#include "convoy/device.h"
#include "convoy/log.h"
#include "convoy/net.h"
#include "convoy/profile.h"
#include "convoy/status.h"
#include "convoy/team.h"
#include "convoy/tensor.h"
#include "convoy/train.h"

#ifdef __cplusplus
extern "C" {
#endif
/* "0.1.0"; borrowed. */
const char *cvy_version(void);
#ifdef __cplusplus
}
#endif
#endif
