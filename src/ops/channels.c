/* SPDX-License-Identifier: MIT */
#include "src/ops/channels.h"

#include "cl/channels_args.clh"
#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { VEC = 4 }; /* of a SIMT kernel where everything begins at a multiple of it */

struct cvy_channels {
  cvy_operation base;
  cvy_kernel *vectors, *singles; /* CPU: the first alone */
};

cvy_status cvy_channels_create(cvy_device *device, cvy_channels **out) {
  cvy_status status = CVY_OK;
  cvy_channels *const op = *out = cvy_operation_new(device, "channels", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const bool cpu = op->base.capabilities->cpu_shaped;
  CVY_TRY(cvy_operation_kernel(op, "channels", "channels_copy", NULL, 0, &op->vectors));
  if (!cpu) CVY_TRY(cvy_operation_kernel(op, "channels", "channels_copy", &(cvy_define){"VEC", 1}, 1, &op->singles));
fail:
  if (status != CVY_OK) cvy_channels_destroy(out);
  return status;
}

void cvy_channels_destroy(cvy_channels **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

static int step_of(int step) { return step ? step : 1; }

/* The channel of a row behind the last of `count` from `at` on. */
static int64_t end_of(int at, int count, int step) { return at + (int64_t)(count - 1) * step_of(step) + 1; }

static cvy_status check(const cvy_channels_call *c) {
  cvy_status status = CVY_OK;
  const cvy_shape x = {1, 1, 1, c->x_pitch}, y = {1, 1, 1, c->y_pitch};
  CVY_REQUIRE(c->rows >= 1 && c->count >= 1 && c->fill >= 0 && c->x_at >= 0 && c->y_at >= 0 && c->x_step >= 0 &&
                  c->y_step >= 0 && end_of(c->x_at, c->count, c->x_step) <= c->x_pitch &&
                  end_of(c->y_at, c->count, c->y_step) + c->fill <= c->y_pitch,
              CVY_E_ARGUMENT,
              "channels: %d channels and %d zeros, from %d of %d in steps of %d to %d of %d in steps of %d, in %d "
              "rows: must lie inside of a row",
              c->count, c->fill, c->x_at, c->x_pitch, step_of(c->x_step), c->y_at, c->y_pitch, step_of(c->y_step),
              c->rows);
  CVY_REQUIRE(cvy_fits_int32(&x, c->rows) && cvy_fits_int32(&y, c->rows), CVY_E_ARGUMENT,
              "channels: %d rows with pitches %d and %d: must be fewer than 2^31 floats", c->rows, c->x_pitch,
              c->y_pitch);
  CVY_TRY(cvy_check_buffer("channels", "x", c->x, (size_t)c->rows * (size_t)c->x_pitch * sizeof(float)));
  CVY_TRY(cvy_check_buffer("channels", "y", c->y, (size_t)c->rows * (size_t)c->y_pitch * sizeof(float)));
fail:
  return status;
}

cvy_status cvy_channels_copy(cvy_channels *op, cvy_queue *queue, const cvy_channels_call *c) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  CVY_TRY(check(c));
  const int width = c->accumulate ? c->count : c->count + c->fill;
  const int places = c->count | width | c->x_pitch | c->x_at | c->y_pitch | c->y_at;
  const bool steps = step_of(c->x_step) > 1 || step_of(c->y_step) > 1;
  const int vec = places % VEC == 0 && !steps ? VEC : 1;
  cvy_channels_geometry g = {.rows = c->rows,
                             .count = c->count,
                             .fill = c->fill,
                             .x_pitch = c->x_pitch,
                             .x_at = c->x_at,
                             .x_step = step_of(c->x_step),
                             .y_pitch = c->y_pitch,
                             .y_at = c->y_at,
                             .y_step = step_of(c->y_step),
                             .accumulate = c->accumulate,
                             .chunk = 1,
                             .width = width / vec,
                             .by_width = cvy_divider_make(width / vec)};
  cvy_grid grid = {.local = {CVY_STREAM_LOCAL}};
  if (capabilities->cpu_shaped) {
    const size_t vectors = (size_t)c->rows * (size_t)cvy_ceil_div(width, 16);
    const int groups = (int)cvy_cpu_groups(capabilities, vectors / CVY_STREAM_MIN_CHUNK + 1);
    g.chunk = cvy_ceil_div(c->rows, groups);
    grid = (cvy_grid){.global = {(size_t)cvy_ceil_div(c->rows, g.chunk)}, .local = {1}};
  } else {
    grid.global[0] = cvy_round_up((size_t)c->rows * (size_t)g.width, CVY_STREAM_LOCAL);
  }
  CVY_TRY(CVY_LAUNCH(queue, capabilities->cpu_shaped || vec == VEC ? op->vectors : op->singles, grid, CVY_BUF(c->x),
                     CVY_BUF(c->y), CVY_STRUCT(g)));
fail:
  return status;
}
