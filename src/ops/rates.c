/* SPDX-License-Identifier: MIT */
#include "src/ops/rates.h"

/* Of a card that is not known, for one compute unit: an RX 6800's unit makes 135e9 multiply-adds a second, an RTX
 * 3060's 228e9. FMA_PER_BYTE multiply-adds in the time of a byte: V100 8.7, A100 6.3, H100 10, MI210 7, RX 6800 16. */
static const double UNIT_FMA_PER_S = 150e9, FMA_PER_BYTE = 10, LAUNCH_S = 4e-6;

cvy_device_rates cvy_rates_of(cvy_device *device) {
  cvy_device_rates *const rates = cvy_device_get_rates(device);
  if (rates->fma_per_s <= 0) {
    const double fma_per_s = UNIT_FMA_PER_S * cvy_device_get_facts(device)->compute_units;
    *rates = (cvy_device_rates){fma_per_s, fma_per_s / FMA_PER_BYTE, LAUNCH_S};
  }
  return *rates;
}
