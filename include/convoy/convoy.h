/* SPDX-License-Identifier: MIT
 * All public headers. */
#ifndef CONVOY_CONVOY_H
#define CONVOY_CONVOY_H

#include "convoy/activations.h"
#include "convoy/batch.h"
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
#include "convoy/resampling.h"
#include "convoy/status.h"
#include "convoy/stop.h"
#include "convoy/team.h"
#include "convoy/tensor.h"
#include "convoy/train.h"

#ifdef __cplusplus
extern "C" {
#endif
/* The version of this interface, which is the release's. MAJOR changes when programs have to be changed or compiled
 * again (functions have gone, members of structs were added or moved) and is the number in the library's soname, MINOR
 * when functions, types or values were added, PATCH otherwise. */
#define CVY_API_VERSION_MAJOR 1
#define CVY_API_VERSION_MINOR 0
#define CVY_API_VERSION_PATCH 0
#define CVY_API_VERSION (10000 * CVY_API_VERSION_MAJOR + 100 * CVY_API_VERSION_MINOR + CVY_API_VERSION_PATCH)
/* CVY_API_VERSION of the library found at run time. It fits the calling program if MAJOR is the same (cvy_api_version()
 * / 10000 == CVY_API_VERSION_MAJOR) and cvy_api_version() >= CVY_API_VERSION. Any thread. */
int cvy_api_version(void);
/* The version of the release, of program and library alike: "1.0.0-rc1"; borrowed. Any thread. */
const char *cvy_version(void);
#ifdef __cplusplus
}
#endif
#endif
