/* SPDX-License-Identifier: MIT
 * The arithmetic of the products on a device: TF32 on NVIDIA's matrix units if the user wants it, float32 on AMD's
 * always. Before any product uses a unit (cl/gemm_core.clh, MATH) it is tried with numbers that it represents exactly:
 * a unit that is wrong, or whose kernel does not compile, is not used. */
#ifndef CVY_OPS_CONV2D_MATH_H
#define CVY_OPS_CONV2D_MATH_H

#include "src/cl/opened_device.h"

/* Rounding both factors to 10 bits of mantissa costs a product at most 2^-10 of its magnitude; sums are float32.
 * Relative L2 of a result whose terms do not cancel: 3e-4 by simulation, 5e-4 through Winograd's F(2x2,3x3). Where a
 * large mean meets a filter that cancels it, it is larger in the same measure as with float32. */
#define CVY_TF32_ERROR_BOUND 2e-3

/* The arithmetic that the device uses if `wanted` is: that, or CVY_MATH_FP32 with one warning per opened device, with
 * the reason. The first call for the arithmetic of the device's matrix unit (TF32 NVIDIA's, float32 AMD's) compiles and
 * runs small products on its compute queue, and stores the answer with the device. */
cvy_math cvy_math_resolve(cvy_device *device, cvy_math wanted);
/* Value of -D MATH for kernels on the core; 0: leave it out. `math` is one that cvy_math_resolve gave. */
int cvy_math_define(const cvy_device *device, cvy_math math);

#endif
