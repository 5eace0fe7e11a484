/* SPDX-License-Identifier: MIT */
#include "src/cl/devices/cards.h"

#include <string.h>

/* Estimates, not measured. Products reach 0.65 of the multiply-adds that a maker states (by a timing simulator 54 to
 * 78 %, conv2d_winograd_simt and conv2d_direct); winograd2_fused 0.78 of that, with a prologue 0.67, by the
 * multiply-adds among all instructions of both loops (PTX as ptxas makes it for sm_80: 66 %, with a prologue 57 %,
 * against 85 %); winograd4_fused 0.72, by its products among all instructions of its loop (machine code for sm_90:
 * 61 %, with a prologue 55 %). Tiles: a simulation of two cards' timing: steps of 4 wait for more barriers, and
 * 128 x 64 reads more for each product than 128 x 128, with fewer groups on a unit than 64 x 64. TF32: by data sheets
 * A100 8, H100 7; half of that, since tiles pass through local memory; no other for `staged`. */
static const cvy_simt_constants any = {.launch = 1,
                                       .bytes = 1,
                                       .products = {[CVY_PRODUCTS_DIRECT] = {0.65, 0.65, 0.65},
                                                    [CVY_PRODUCTS_WINOGRAD2] = {0.65, 0.65, 0.65},
                                                    [CVY_PRODUCTS_WINOGRAD4] = {0.65, 0.65, 0.65},
                                                    [CVY_PRODUCTS_FUSED2] = {0.507, 0.507, 0},
                                                    [CVY_PRODUCTS_FUSED4] = {0.47, 0.47, 0}},
                                       .fused_prologue = 0.67 / 0.78,
                                       .tiles = {1.0, 0.83, 0.88},
                                       .alone = 0.35,
                                       .extra_depth = 12,
                                       .cache_time = 0.5,
                                       .tf32 = 4,
                                       .staged = 4};

/* Fitted to tests/data/operations_h200.csv by convoy bench plan --as h200 --measured (tests/data/make_measured.py says
 * how; the test step_plan does it again and compares). Expected beside measured there: 8 % off in the middle. The
 * bench overwrites caches before each launch, which a step does not: hence what a launch costs. winograd4_fused has not
 * been measured: its estimates, times what the measurements make of those of winograd2_fused. `tf32` is of kernels
 * without stages, which that table has. Estimates below; `staged`: a plain kernel with the same instructions, tile and
 * stages made 64 to 90 TFLOP/s of 3x3 convolutions with 64 to 512 channels and 117 of a product, against 39 that
 * `products` gives float32; Convoy's own kernels were not measured yet. */
static const cvy_simt_constants h200 = {.launch = 1.55,
                                        .bytes = 0.58,
                                        .products = {[CVY_PRODUCTS_DIRECT] = {0.62, 0.53, 0.65},
                                                     [CVY_PRODUCTS_WINOGRAD2] = {0.76, 0.77, 0.75},
                                                     [CVY_PRODUCTS_WINOGRAD4] = {0.83, 0.83, 0.56},
                                                     [CVY_PRODUCTS_FUSED2] = {0.37, 0.44, 0},
                                                     [CVY_PRODUCTS_FUSED4] = {0.34, 0.41, 0}},
                                        .tf32 = 1.71,
                                        .staged = 2.2,
                                        .fused_prologue = 0.67 / 0.78,
                                        .tiles = {1.0, 0.83, 0.88},
                                        .alone = 0.35,
                                        .extra_depth = 12,
                                        .cache_time = 0.5};

/* Units are counted as by cvy_capabilities_find: streaming multiprocessors, AMD's compute units (two to a work-group
 * processor), eight of Intel's vector engines. FMA: multiply-adds of float32 per second without matrix units; of the RX
 * 7900 XTX without dual issue, which compilers seldom find. The H200's rates are measured (bench peak, driver
 * 580.159). */
static const cvy_known_device known_devices[] = {
    {"h200", "NVIDIA H200", 132, 48 << 10, 1024, 50 << 20, 139, true, {31.27e12, 4.27e12, 4.3e-6}, &h200},
    {"h100", "NVIDIA H100 SXM", 132, 48 << 10, 1024, 50 << 20, 80, false, {33.5e12, 3.35e12, 3e-6}, &any},
    {"a100", "NVIDIA A100 SXM", 108, 48 << 10, 1024, 40 << 20, 40, false, {9.75e12, 1.555e12, 3e-6}, &any},
    {"rtx3060", "NVIDIA GeForce RTX 3060", 28, 48 << 10, 1024, 3 << 20, 12, false, {6.37e12, 360e9, 3e-6}, &any},
    {"rx6800", "AMD Radeon RX 6800", 60, 64 << 10, 256, 4 << 20, 16, false, {8.08e12, 512e9, 5e-6}, &any},
    {"rx7900xtx", "AMD Radeon RX 7900 XTX", 96, 64 << 10, 256, 6 << 20, 24, false, {15.4e12, 960e9, 5e-6}, &any},
    {"arc-a770", "Intel Arc A770", 64, 64 << 10, 1024, 16 << 20, 16, false, {9.83e12, 560e9, 5e-6}, &any},
};
enum { N_KNOWN = sizeof known_devices / sizeof *known_devices };

const cvy_known_device *cvy_known_device_find(const char *word) {
  for (int i = 0; i < N_KNOWN; i++)
    if (!strcmp(known_devices[i].word, word)) return &known_devices[i];
  return NULL;
}

const cvy_known_device *cvy_known_device_at(int i) { return &known_devices[i]; }

/* A copy reaches about 85 % of the stated bandwidth. */
cvy_device_rates cvy_known_device_rates(const cvy_known_device *known) {
  cvy_device_rates rates = known->rates;
  if (!known->is_measured) rates.bytes_per_s *= 0.85;
  return rates;
}

const cvy_simt_constants *cvy_simt_estimates(void) { return &any; }

const cvy_simt_constants *cvy_simt_constants_of(const char *device_name) {
  for (int i = 0; i < N_KNOWN; i++)
    if (strstr(device_name, known_devices[i].name)) return known_devices[i].constants;
  return &any;
}
