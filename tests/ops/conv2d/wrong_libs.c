/* SPDX-License-Identifier: MIT
 * A library to be opened instead of CLBlast and of clFFT (CVY_CLBLAST, CVY_CLFFT) that fails on every device, as
 * $CVY_WRONG_LIBS says at each call: "build" kernels do not compile; "wrong" calls succeed and compute nothing. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdlib.h>
#include <string.h>

static int outcome(int code) {
  const char *const how = getenv("CVY_WRONG_LIBS");
  return how && !strcmp(how, "build") ? code : 0;
}

#define EXPORT(name, ...) \
  int name(__VA_ARGS__);  \
  int name(__VA_ARGS__)

EXPORT(CLBlastSgemmWithTempBuffer, void) { return outcome(CL_BUILD_PROGRAM_FAILURE); }
EXPORT(CLBlastSGemmTempBufferSize, int layout, int a, int b, size_t m, size_t n, size_t k, size_t a_offset, size_t a_ld,
       size_t b_offset, size_t b_ld, size_t c_offset, size_t c_ld, cl_command_queue *queue, size_t *bytes) {
  (void)layout, (void)a, (void)b, (void)m, (void)n, (void)k, (void)a_offset, (void)a_ld, (void)b_offset, (void)b_ld;
  (void)c_offset, (void)c_ld, (void)queue;
  *bytes = 1024;
  return 0;
}
EXPORT(CLBlastClearCache, void) { return 0; }

EXPORT(clfftGetVersion, cl_uint *major, cl_uint *minor, cl_uint *patch) {
  *major = 2, *minor = 12, *patch = 2;
  return 0;
}
EXPORT(clfftSetup, void) { return 0; }
EXPORT(clfftTeardown, void) { return 0; }
EXPORT(clfftCreateDefaultPlan, size_t *plan) {
  *plan = 1;
  return 0;
}
EXPORT(clfftSetPlanPrecision, void) { return 0; }
EXPORT(clfftSetLayout, void) { return 0; }
EXPORT(clfftSetResultLocation, void) { return 0; }
EXPORT(clfftSetPlanBatchSize, void) { return 0; }
EXPORT(clfftSetPlanInStride, void) { return 0; }
EXPORT(clfftSetPlanOutStride, void) { return 0; }
EXPORT(clfftSetPlanDistance, void) { return 0; }
EXPORT(clfftBakePlan, void) { return outcome(CL_INVALID_PROGRAM); }
EXPORT(clfftGetTmpBufSize, size_t plan, size_t *bytes) {
  (void)plan;
  *bytes = 0;
  return 0;
}
EXPORT(clfftEnqueueTransform, void) { return 0; }
EXPORT(clfftDestroyPlan, size_t *plan) {
  *plan = 0;
  return 0;
}
