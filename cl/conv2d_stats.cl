/* SPDX-License-Identifier: MIT
 * Statistics of a convolution's output (the store epilogue of ops/conv2d.h) as a pass of its own, for the algorithms whose
 * products a library makes. Any device that has 256 work-items in a group. */
#include "common.clh"

/* stats[image,0,k] = mean over `positions` of y[image,:,k], stats[image,1,k] = sum of squared deviations. Group (256
 * items) = 32 channels x 8 lanes of an image: lane l takes positions l, l+8, …; lanes are added in order. */
kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
conv2d_stats(global const float *restrict y, global float *restrict stats, int positions, int pitch) {
  local float sums[8 * 32];
  const int tiles = (pitch + 31) / 32, image = get_group_id(0) / tiles;
  const int column = get_local_id(0) % 32, lane = get_local_id(0) / 32,
            k = (int)(get_group_id(0) % tiles) * 32 + column;
  global const float *from = y + (size_t)image * (size_t)positions * (size_t)pitch + min(k, pitch - 1);
  float sum = 0.0f, mean = 0.0f, m2 = 0.0f;
  for (int i = lane; i < positions; i += 8) sum += from[(size_t)i * (size_t)pitch];
  sums[lane * 32 + column] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int l = 0; l < 8; l++) mean += sums[l * 32 + column];
  mean /= (float)positions;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = lane; i < positions; i += 8) {
    const float d = from[(size_t)i * (size_t)pitch] - mean;
    m2 += d * d;
  }
  sums[lane * 32 + column] = m2;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0 && k < pitch) {
    m2 = 0.0f;
    for (int l = 0; l < 8; l++) m2 += sums[l * 32 + column];
    stats[(size_t)image * 2 * (size_t)pitch + k] = mean;
    stats[((size_t)image * 2 + 1) * (size_t)pitch + k] = m2;
  }
}
