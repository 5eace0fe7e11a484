/* SPDX-License-Identifier: MIT
 * y (+)= keep ? x * scale : 0, where `keep` is drawn for each value (ops/layers/dropout.h): value `place` of a sample is
 * kept if word place % 4 of Philox4x32-10's block {sample, place / 4, purpose, epoch} under the key `seed` is at
 * least the threshold. The bits are the same on every device and for every division of a batch; forward and backward
 * draw the same values.
 *
 * n: vectors of VEC floats, per_sample in each sample, whose numbers in the data set are in `samples`. A vector of 4
 * takes one block of words; a vector of 16 takes four blocks, drawn together. In place: every element is read before
 * it is written, by the same work-item. Geometry: vector.clh. */
#include "dropout_args.clh"
#include "fastdiv.clh"
#include "vector.clh"

#if VEC == 16
typedef uint4 blocks; /* one word of each block */
#elif VEC == 4
typedef uint blocks;
#else
#error "dropout walks over whole vectors: VEC must be 4 or 16"
#endif

/* The words of blocks `block` of the sample (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC11). */
static inline floatv kept(const floatv x, const uint sample, const blocks block, const cvy_dropout_numbers d) {
  blocks a = sample, b = block, c = d.purpose, e = d.epoch;
  uint low = d.seed_low, high = d.seed_high;
  for (int round = 0; round < 10; round++) {
    const blocks first = mul_hi((blocks)(0xD2511F53u), a), second = mul_hi((blocks)(0xCD9E8D57u), c);
    const blocks next_b = 0xCD9E8D57u * c, next_e = 0xD2511F53u * a;
    a = second ^ b ^ low;
    c = first ^ e ^ high;
    b = next_b;
    e = next_e;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
#if VEC == 16
  const uint16 words = (uint16)(a.x, b.x, c.x, e.x, a.y, b.y, c.y, e.y, a.z, b.z, c.z, e.z, a.w, b.w, c.w, e.w);
#else
  const uint4 words = (uint4)(a, b, c, e);
#endif
  return words >= d.threshold ? x * d.scale : (floatv)(0.0f);
}

static inline floatv vector_kept(const floatv x, const size_t i, global const int *samples, const uint per_sample,
                                 const cvy_divider by_sample, const cvy_dropout_numbers d) {
  const int sample = fast_div((int)i, by_sample);
  const uint at = (uint)i - (uint)sample * per_sample;
#if VEC == 16
  return kept(x, (uint)samples[sample], at * 4 + (uint4)(0, 1, 2, 3), d);
#else
  return kept(x, (uint)samples[sample], at, d);
#endif
}

CVY_KERNEL dropout_apply(global const floatv *x, global floatv *y, global const int *restrict samples, const uint n,
                         const uint chunk, const uint per_sample, const cvy_divider by_sample,
                         const cvy_dropout_numbers d) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = vector_kept(x[i], i, samples, per_sample, by_sample, d);
}

CVY_KERNEL dropout_apply_add(global const floatv *x, global floatv *y, global const int *restrict samples, const uint n,
                             const uint chunk, const uint per_sample, const cvy_divider by_sample,
                             const cvy_dropout_numbers d) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] += vector_kept(x[i], i, samples, per_sample, by_sample, d);
}
