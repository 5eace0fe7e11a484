/* SPDX-License-Identifier: MIT
 * All public headers. */
#ifndef CONVOY_CONVOY_H
#define CONVOY_CONVOY_H

#include "convoy/activations.h"
#include "convoy/predictions.h"
#include "convoy/compile.h"
#include "convoy/data.h"
#include "convoy/device.h"
#include "convoy/about.h"
#include "convoy/fleet.h"
#include "convoy/input.h"
#include "convoy/log.h"
#include "convoy/model.h"
#include "convoy/net.h"
#include "convoy/onnx.h"
#include "convoy/optimizer.h"
#include "convoy/picture.h"
#include "convoy/profile.h"
#include "convoy/status.h"
#include "convoy/stop.h"
#include "convoy/team.h"
#include "convoy/tensor.h"
#include "convoy/train.h"

#ifdef __cplusplus
extern "C" {
#endif
/* The version of this interface. MAJOR changes when programs have to be changed, MINOR when they have to be compiled
 * again (members of structs or values were added), PATCH otherwise. */
#define CVY_API_VERSION_MAJOR 0
#define CVY_API_VERSION_MINOR 4
#define CVY_API_VERSION_PATCH 0
#define CVY_API_VERSION (10000 * CVY_API_VERSION_MAJOR + 100 * CVY_API_VERSION_MINOR + CVY_API_VERSION_PATCH)
/* CVY_API_VERSION of the library found at run time. It fits the calling program if cvy_api_version() / 100 ==
 * CVY_API_VERSION / 100. Any thread. */
int cvy_api_version(void);
/* The version of the release, of program and library alike: "0.1.0"; borrowed. Any thread. */
const char *cvy_version(void);
#ifdef __cplusplus
}
#endif
#endif
