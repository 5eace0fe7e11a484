/* SPDX-License-Identifier: MIT
 * Tries a device's matrix unit: each tile of the core once, through the kernel of Winograd's products, which is the
 * core and nothing else; and direct convolution, where items of a warp take different ways between the products. */
#include "src/ops/conv2d/math.h"

#include "src/ops/conv2d/gemm_tile.h"

/* One product with rows, depth and columns that no tile divides, in whole quads. */
enum { ROWS = 133, DEPTH = 44, COLUMNS = 140 };

/* Integers of 11 bits and of 4, which are exact in TF32; sums of DEPTH products of one each stay below 2^24. */
static float value_of(int row, int column, bool large) {
  const unsigned int mixed =
      ((unsigned int)row * 2654435761u + (unsigned int)column * 40503u + 12345u) * 2246822519u >> 8;
  return (float)((int)(large ? mixed % 4095 : mixed % 31) - (large ? 2047 : 15));
}
static float a_at(int row, int k) { return value_of(row, k, k % 2 == 0); }
static float b_at(int k, int column) { return value_of(k, column + 1000, k % 2 != 0); }

/* Two convolutions. With 5 channels, no quads, loads have branches of their own for each item, and fragments half the
 * depth. With 8, tiles are staged by copies (cl/matrix_core.clh). Sums of 72 products stay below 2^24, too. */
enum { SAMPLES = 2, SIDE = 9, FILTERS = 12, TAPS = 3, PIXELS = SIDE * SIDE };
enum { SINGLES = 5, STAGED = 8 }; /* channels */

/* With TF32, a number that is not representable and is rounded to `exact`, up or down: kernels expect of the unit that
 * it ignores bits behind the tenth. */
static float given(float exact, int i, cvy_math math) {
  return math != CVY_MATH_TF32 ? exact : i % 2 ? exact * (1 + 0x1p-12f) : exact * (1 - 0x1p-12f);
}

typedef struct trial {
  cvy_buffer *a, *b, *c, *workspace;
  float *host;
} trial;

static cvy_status upload(cvy_queue *queue, trial *t) {
  cvy_status status = CVY_OK;
  cvy_device *const device = cvy_queue_device(queue);
  t->host = cvy_calloc(ROWS * COLUMNS, sizeof *t->host);
  CVY_REQUIRE(t->host, CVY_E_MEMORY, "no memory to try products");
  CVY_TRY(cvy_buffer_create(device, ROWS * DEPTH * sizeof(float), &t->a));
  CVY_TRY(cvy_buffer_create(device, DEPTH * COLUMNS * sizeof(float), &t->b));
  CVY_TRY(cvy_buffer_create(device, ROWS * COLUMNS * sizeof(float), &t->c));
  for (int i = 0; i < ROWS * DEPTH; i++) t->host[i] = a_at(i / DEPTH, i % DEPTH);
  CVY_TRY(cvy_buffer_write(queue, t->a, 0, ROWS * DEPTH * sizeof(float), t->host, NULL, NULL));
  for (int i = 0; i < DEPTH * COLUMNS; i++) t->host[i] = b_at(i / COLUMNS, i % COLUMNS);
  CVY_TRY(cvy_buffer_write(queue, t->b, 0, DEPTH * COLUMNS * sizeof(float), t->host, NULL, NULL));
fail:
  return status;
}

/* *right: every result of this tile is exact. */
static cvy_status try_tile(cvy_queue *queue, trial *t, cvy_gemm_tile tile, int math, bool *right) {
  cvy_status status = CVY_OK;
  cvy_kernel *kernel = NULL;
  const cvy_define defines[] = {
      {"STAGE", 1}, {"TILE_M", tile.m}, {"TILE_N", tile.n}, {"TILE_K", tile.k}, {"MATH", math}};
  const int items = cvy_gemm_items(tile), groups = cvy_ceil_div(ROWS, tile.m) * cvy_ceil_div(COLUMNS, tile.n);
  CVY_TRY(cvy_kernel_create(cvy_queue_device(queue), "conv2d_winograd_simt", "winograd_simt_multiply", defines, 5,
                            &kernel));
  CVY_TRY(cvy_buffer_fill(queue, t->c, 0, ROWS * COLUMNS * sizeof(float), UINT32_C(0x7fc00000)));
  CVY_TRY(CVY_LAUNCH(queue, kernel,
                     ((cvy_grid){.global = {(size_t)groups * (size_t)items, 1, 1}, .local = {(size_t)items, 1, 1}}),
                     CVY_BUF(t->a), CVY_BUF(t->b), CVY_BUF(t->c), CVY_INT(0), CVY_INT(0), CVY_INT(0), CVY_INT(ROWS),
                     CVY_INT(DEPTH), CVY_INT(COLUMNS), CVY_INT(DEPTH), CVY_INT(0), CVY_INT(0), CVY_INT(0), CVY_INT(1),
                     CVY_INT(DEPTH), CVY_INT(0), CVY_INT(0)));
  CVY_TRY(cvy_buffer_read(queue, t->c, 0, ROWS * COLUMNS * sizeof(float), t->host, NULL, NULL));
  *right = true;
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    float want = 0.0f;
    for (int k = 0; k < DEPTH; k++) want += a_at(i / COLUMNS, k) * b_at(k, i % COLUMNS);
    *right = *right && t->host[i] == want;
  }
fail:
  (void)cvy_queue_finish(queue);
  cvy_kernel_destroy(&kernel);
  return status;
}

static float pixel_at(int sample, int row, int col, int channel) {
  const bool there = row >= 0 && row < SIDE && col >= 0 && col < SIDE;
  return there ? value_of((sample * SIDE + row) * SIDE + col, channel, channel % 2 == 0) : 0.0f;
}
static float weight_at(int tap, int channel, int filter) {
  return value_of(tap * STAGED + channel, filter + 1000, channel % 2 != 0);
}

/* True if `host` holds the convolution's results. */
static bool convolution_is_right(const float *host, int channels) {
  bool right = true;
  for (int i = 0; i < SAMPLES * PIXELS * FILTERS; i++) {
    const int pixel = i / FILTERS, row = pixel % PIXELS / SIDE, col = pixel % SIDE;
    float want = 0.0f;
    for (int e = 0; e < TAPS * TAPS * channels; e++) {
      const int tap = e / channels, c = e % channels;
      want += pixel_at(pixel / PIXELS, row + tap / TAPS - 1, col + tap % TAPS - 1, c) * weight_at(tap, c, i % FILTERS);
    }
    right = right && host[i] == want;
  }
  return right;
}

/* The same for a convolution, with the largest tile. Its kernels use the unit already. */
static cvy_status try_direct(cvy_queue *queue, trial *t, cvy_math math, int channels, bool *right) {
  cvy_status status = CVY_OK;
  cvy_conv_job *state = NULL;
  cvy_device *const device = cvy_queue_device(queue);
  const cvy_shape y = {SIDE, SIDE, FILTERS, FILTERS};
  const cvy_conv2d_params p = {.n_max = SAMPLES,
                               .x = {SIDE, SIDE, channels, channels},
                               .k = FILTERS,
                               .y_pitch = FILTERS,
                               .r = TAPS,
                               .s = TAPS,
                               .stride_h = 1,
                               .stride_w = 1,
                               .pad_h = 1,
                               .pad_w = 1,
                               .inference = true,
                               .math = math};
  _Static_assert(SAMPLES * PIXELS * STAGED <= ROWS * DEPTH && TAPS * TAPS * STAGED * FILTERS <= DEPTH * COLUMNS &&
                     SAMPLES * PIXELS * FILTERS <= ROWS * COLUMNS,
                 "the products' buffers are large enough");
  cvy_conv_job job = cvy_conv_job_of(device, &p, &y, CVY_CONV_FORWARD);
  job.algorithm = &cvy_conv_direct_simt;
  CVY_TRY(cvy_conv_create(&job, cvy_gemm_tiles[0], &state));
  if (state->workspace_bytes) CVY_TRY(cvy_buffer_create(device, state->workspace_bytes, &t->workspace));
  for (int i = 0; i < SAMPLES * PIXELS * channels; i++)
    t->host[i] = given(pixel_at(i / channels / PIXELS, i / channels % PIXELS / SIDE, i / channels % SIDE, i % channels),
                       i, math);
  CVY_TRY(cvy_buffer_write(queue, t->a, 0, SAMPLES * PIXELS * channels * sizeof(float), t->host, NULL, NULL));
  for (int i = 0; i < TAPS * TAPS * channels * FILTERS; i++)
    t->host[i] = given(weight_at(i / FILTERS / channels, i / FILTERS % channels, i % FILTERS), i, math);
  CVY_TRY(cvy_buffer_write(queue, t->b, 0, TAPS * TAPS * channels * FILTERS * sizeof(float), t->host, NULL, NULL));
  cvy_conv_call call = {.n = SAMPLES, .group_size = 1, .x = t->a, .w = t->b, .y = t->c, .workspace = t->workspace};
  CVY_TRY(cvy_conv_run(state, queue, &call));
  CVY_TRY(cvy_buffer_read(queue, t->c, 0, SAMPLES * PIXELS * FILTERS * sizeof(float), t->host, NULL, NULL));
  *right = convolution_is_right(t->host, channels);
fail:
  (void)cvy_queue_finish(queue);
  cvy_conv_destroy(&state);
  cvy_buffer_destroy(&t->workspace);
  return status;
}

static int define_of(const cvy_capabilities *capabilities) {
  return (capabilities->matrix_unit == CVY_MATRIX_NVIDIA ? 1 : 3) + capabilities->emulates_matrix;
}

/* NULL if the unit works, else the reason why not. */
static const char *try_device(cvy_device *device, cvy_math math) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  cvy_queue *const queue = cvy_device_compute_queue(device);
  trial t = {0};
  bool right = true;
  CVY_TRY(upload(queue, &t));
  for (int i = 0; i < CVY_GEMM_TILES && right; i++) {
    const cvy_gemm_tile tile = {cvy_gemm_tiles[i][0], cvy_gemm_tiles[i][1], cvy_gemm_tiles[i][2]};
    if (cvy_gemm_tile_fits(capabilities, tile)) CVY_TRY(try_tile(queue, &t, tile, define_of(capabilities), &right));
  }
  const bool fits = cvy_gemm_tile_fits(capabilities, cvy_gemm_tile_at(0));
  if (right && fits) CVY_TRY(try_direct(queue, &t, math, SINGLES, &right));
  if (right && fits) CVY_TRY(try_direct(queue, &t, math, STAGED, &right));
fail:
  cvy_buffer_destroy(&t.a);
  cvy_buffer_destroy(&t.b);
  cvy_buffer_destroy(&t.c);
  cvy_free(t.host);
  return status != CVY_OK ? "a trial of it failed" : right ? NULL : "products of a trial came out wrong";
}

int cvy_math_define(const cvy_device *device, cvy_math math) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  const bool mine = math == CVY_MATH_TF32 ? capabilities->matrix_unit == CVY_MATRIX_NVIDIA
                                          : capabilities->matrix_unit == CVY_MATRIX_AMD;
  return mine && cvy_device_get_matrix(device)->works ? define_of(capabilities) : 0;
}

cvy_math cvy_math_resolve(cvy_device *device, cvy_math wanted) {
  cvy_matrix_state *const state = cvy_device_matrix(device);
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  const bool tf32 = wanted == CVY_MATH_TF32, amd = capabilities->matrix_unit == CVY_MATRIX_AMD;
  const char *why = NULL;
  if (!tf32 && !amd) return CVY_MATH_FP32;
  if (capabilities->matrix_unit != CVY_MATRIX_NONE && !state->tried) {
    cvy_log_attempt_begin();
    state->works = true; /* cvy_math_define answers for the trial's own kernels */
    why = try_device(device, wanted);
    cvy_log_attempt_end(false);
    state->tried = true, state->works = !why;
    if (amd && why) cvy_log_warning("%s: products do without its matrix units: %s", cvy_device_label(device), why);
    if (!why)
      cvy_log_info("%s: its matrix units were tried and are used, with %s", cvy_device_label(device),
                   amd ? "float32" : "TF32");
  }
  if (tf32 && (amd || !state->works) && !state->warned) {
    if (capabilities->cpu_shaped) why = "its kernels are those for CPUs, which know float32 only";
    else if (capabilities->matrix_unit != CVY_MATRIX_NVIDIA)
      why = "the kernels know matrix units for it on NVIDIA's GPUs of compute capability 8.0 and up";
    cvy_log_warning("%s: no TF32 here, products are float32: %s", cvy_device_label(device), why);
    state->warned = true;
  }
  return tf32 && !amd && state->works ? CVY_MATH_TF32 : CVY_MATH_FP32;
}
