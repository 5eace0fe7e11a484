/* SPDX-License-Identifier: MIT
 * Statistics of a convolution's output (the store epilogue of ops/conv2d/conv2d.h) as a separate pass, for the
 * algorithms whose products a library computes:
 *   stats[image,0,k] = mean over `positions` of y[image,:,k], stats[image,1,k] = sum of squared deviations
 * for n images, 32 channels at a time, each as 8 sums: lane l has positions l, l+8, …; lanes are added in order.
 *
 * Geometry: a group takes every num_groups-th 32 channels of an image. SIMT: 256 work-items, 32 channels x 8 lanes. CPU: one
 * work-item. */
#include "common.clh"

#define COLUMNS 32
#define LANES 8

#if CVY_CPU
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_stats(global const float *restrict y, global float *restrict stats, int n,
                                                     int positions, int pitch) {
  const int tiles = (pitch + COLUMNS - 1) / COLUMNS;
  for (int task = (int)CVY_GROUP; task < n * tiles; task += (int)CVY_GROUPS) {
    const int image = task / tiles, k0 = task % tiles * COLUMNS, width = min(COLUMNS, pitch - k0);
    global const float *from = y + (size_t)image * (size_t)positions * (size_t)pitch + k0;
    global float *to = stats + (size_t)image * 2 * (size_t)pitch + k0;
    float mean[COLUMNS], sums[LANES * COLUMNS];
    for (int pass = 0; pass < 2; pass++) {
      for (int i = 0; i < LANES * COLUMNS; i++) sums[i] = 0.0f;
      for (int i = 0; i < positions; i++) {
        global const float *line = from + (size_t)i * (size_t)pitch;
        float *sum = sums + i % LANES * COLUMNS;
        for (int k = 0; k < width; k++) {
          const float d = pass ? line[k] - mean[k] : line[k];
          sum[k] += pass ? d * d : d;
        }
      }
      for (int k = 0; k < width; k++) {
        float sum = 0.0f;
        for (int l = 0; l < LANES; l++) sum += sums[l * COLUMNS + k];
        if (pass == 0) to[k] = mean[k] = sum / (float)positions;
        else to[pitch + k] = sum;
      }
    }
  }
}
#else
kernel __attribute__((reqd_work_group_size(COLUMNS * LANES, 1, 1))) void
conv2d_stats(global const float *restrict y, global float *restrict stats, int n, int positions, int pitch) {
  local float sums[LANES * COLUMNS];
  const int tiles = (pitch + COLUMNS - 1) / COLUMNS;
  const int column = get_local_id(0) % COLUMNS, lane = get_local_id(0) / COLUMNS;
  for (int task = (int)CVY_GROUP; task < n * tiles; task += (int)CVY_GROUPS) {
    const int image = task / tiles, k = task % tiles * COLUMNS + column;
    global const float *from = y + (size_t)image * (size_t)positions * (size_t)pitch + min(k, pitch - 1);
    float sum = 0.0f, mean = 0.0f, m2 = 0.0f;
    for (int i = lane; i < positions; i += LANES) sum += from[(size_t)i * (size_t)pitch];
    sums[lane * COLUMNS + column] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int l = 0; l < LANES; l++) mean += sums[l * COLUMNS + column];
    mean /= (float)positions;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lane; i < positions; i += LANES) {
      const float d = from[(size_t)i * (size_t)pitch] - mean;
      m2 += d * d;
    }
    sums[lane * COLUMNS + column] = m2;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0 && k < pitch) {
      m2 = 0.0f;
      for (int l = 0; l < LANES; l++) m2 += sums[l * COLUMNS + column];
      stats[(size_t)image * 2 * (size_t)pitch + k] = mean;
      stats[((size_t)image * 2 + 1) * (size_t)pitch + k] = m2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
#endif
