/* SPDX-License-Identifier: MIT
 * Gradient of 3x3 filters by Winograd's F(3x3, TILE x TILE) on CPU-shaped devices, stride 1.
 *
 * A TILE x TILE tile of dy and the SIDE x SIDE pixels of x that it sees (SIDE = TILE + 2) give a 3x3 part of dw. With the
 * matrices of F(TILE x TILE, 3x3), whose forward form is y = A^T[(G w G^T) * (B^T d B)]A, the same sum of products read
 * as a function of w gives
 *   dw = G^T [ sum over tiles of (B^T d B) * (A dy A^T) ] G           (* element by element)
 * and with channels, the sum in brackets is SIDE*SIDE matrix products (C, tiles) x (tiles, K), one for each place in
 * the tile.
 * Source: S. Winograd, Arithmetic Complexity of Computations (1980), chapter IV; A. Lavin and S. Gray, Fast Algorithms
 * for Convolutional Neural Networks (2016), section 4. winograd.clh has the matrices.
 *
 * Geometry: one work-item per work-group, each with a slice of the workspace and a contiguous range of tasks. A task is
 * block_c input channels, block_k output channels and one of `splits` equal parts of all tiles (images outermost). Its
 * transformed dw stays in the slice, sized for a second-level cache. It takes `strip` tiles at a time: transforms of
 * their x and dy into the slice, then all products in register tiles of 8 x 32 (winograd_wtile_tmpl.clh) whose sums over the strip are
 * added to the task's dw. At the end, dw is transformed back. Parts are summed in order by a kernel of
 * conv2d_direct_cpu.cl.
 *
 * The last tiles of an image may have fewer products (winograd_edge_cpu.clh): a place of a strip has only the tiles
 * that have its products.
 *
 * Slice, in floats (place_floats: distance of two places of the tile):
 *   dw  [place][block of 32 k][c][32]      gradient [place][block of 32 k][tile][32]
 *   x   [place][block of 16 c][tile][16]   sums of dy [k]
 * A last block of k with 16 channels has rows of 16.
 *
 * Parameters: TILE 2 or 4; PROLOGUE 1: x has a load prologue, which one is in `flags`. */
#include "conv2d/conv2d_flags.clh"
#include "register_tile.clh"

#ifndef TILE
#define TILE 4
#endif
#ifndef PROLOGUE
#define PROLOGUE 0
#endif
#if TILE != 2 && TILE != 4
#error "TILE must be 2 or 4"
#endif
#if PROLOGUE != 0 && PROLOGUE != 1
#error "PROLOGUE must be 0 or 1"
#endif

#define SIDE (TILE + 2)
#define PLACES (SIDE * SIDE)
#define TILE_OUT TILE
#define WINOGRAD_VECTOR float16
#include "winograd/winograd.clh"
#include "winograd/winograd_edge_cpu.clh"

/* Everything starts at a multiple of 16 floats, so that vectors are loaded and stored with this alignment: vstore16
 * may become four stores. */
typedef global float16 *vector_out;
typedef global const float16 *vector_in;
#define LOAD(p) (*(vector_in)(p))
#define STORE(v, p) (*(vector_out)(p) = (v))

/* ---- tiles ---- */

/* SIDE (TILE) lines of an image from `first` on: offsets in units of `step`, and -1 where the line is in the image,
 * 0 where it is not; lines outside have the offset of a line inside. */
CVY_ALWAYS_INLINE bool find_lines(int first, int count, int length, int step, int *at, int *inside) {
  for (int i = 0; i < count; i++) {
    const int line = first + i;
    at[i] = clamp(line, 0, length - 1) * step;
    inside[i] = line >= 0 && line < length ? -1 : 0;
  }
  return first >= 0 && first + count <= length;
}

CVY_ALWAYS_INLINE float16 masked(const float16 v, const int mask) { return as_float16(as_int16(v) & (int16)(mask)); }

/* The destination of a tile: its row of each place, the number of outputs of its lines, and the lines of products
 * that it does not have. */
typedef struct {
  int row[PLACES];
  int of_h, of_w, cut_h;
} tile_target;

CVY_ALWAYS_INLINE void find_target(tile_target *t, const tile_rows *rows, cvy_conv_edges edges, bool last_h, bool last_w) {
  for (int i = 0; i < PLACES; i++) t->row[i] = row_of(rows, edges, i / SIDE, i % SIDE);
  t->of_h = last_h ? edges.of_h : TILE, t->of_w = last_w ? edges.of_w : TILE, t->cut_h = last_h ? edges.cut_h : 0;
}

/* Transforms x under a tile, channels c0 … c0+channels-1 (a multiple of 16): rows[], columns[] are offsets in x.
 * whole: all pixels lie in the image; then the tile has TILE x TILE outputs. */
CVY_ALWAYS_INLINE void input_tile(const bool whole, global const float *x, global const float *residual,
                                  global const float *affine, int pitch, const int *rows, const int *columns,
                                  const int *row_inside, const int *column_inside, const tile_target *target, int channels,
                                  int flags, global float *to, int block_floats, int place_floats) {
  const int of_h = whole ? TILE : target->of_h, of_w = whole ? TILE : target->of_w;
  for (int c = 0; c < channels; c += 16, to += block_floats) {
    float16 t[PLACES];
#if PROLOGUE
    const bool has_affine = (flags & FLAG_SCALE) != 0;
    const float16 mean = has_affine ? LOAD(affine + c) : (float16)(0.0f),
                  scale = has_affine ? LOAD(affine + pitch + c) : (float16)(1.0f),
                  shift = has_affine ? LOAD(affine + 2 * pitch + c) : (float16)(0.0f),
                  least = flags & FLAG_RELU ? (float16)(0.0f) : (float16)(-INFINITY);
#endif
    for (int j = 0; j < SIDE; j++) {
      float16 d[SIDE];
#pragma unroll
      for (int i = 0; i < SIDE; i++) {
        const int at = rows[i] + columns[j] + c;
        d[i] = LOAD(x + at);
#if PROLOGUE
        d[i] = fma(d[i] - mean, scale, shift);
        if (flags & FLAG_RESIDUAL) d[i] += LOAD(residual + at);
        d[i] = select(d[i], least, d[i] < least);
#endif
        if (!whole) d[i] = masked(d[i], row_inside[i] & column_inside[j]);
      }
      float16 p[SIDE];
      tile_input_line(d, p, of_h);
#pragma unroll
      for (int i = 0; i < SIDE; i++) t[i * SIDE + j] = p[i];
    }
    for (int i = 0; i < SIDE; i++) {
      if (!whole && (target->cut_h >> i & 1)) continue;
      float16 p[SIDE];
      tile_input_line(t + i * SIDE, p, of_w);
#pragma unroll
      for (int j = 0; j < SIDE; j++) STORE(p[j], to + (i * SIDE + j) * place_floats + target->row[i * SIDE + j] * 16);
    }
  }
}

/* Transforms a tile of dy, block_k channels from dy on: blocks of 32, the last of 16 if channels is an odd multiple
 * of 16. Adds the tile to sums (NULL: not needed). */
CVY_ALWAYS_INLINE void gradient_tile(const bool whole, global const float *dy, const int *rows, const int *columns,
                                     const int *row_inside, const int *column_inside, const tile_target *target,
                                     int channels, int strip, global float *to, int place_floats, global float *sums) {
  const int of_h = whole ? TILE : target->of_h, of_w = whole ? TILE : target->of_w;
  for (int k = 0; k < channels; k += 16) {
    const int block = k / 32, width = min(32, channels - block * 32);
    global float *place = to + block * strip * 32 + k % 32;
    float16 t[SIDE * TILE], sum = (float16)(0.0f);
    for (int j = 0; j < TILE; j++) {
      float16 d[SIDE];
#pragma unroll
      for (int i = 0; i < TILE; i++) {
        d[i] = LOAD(dy + rows[i] + columns[j] + k);
        if (!whole) d[i] = masked(d[i], row_inside[i] & column_inside[j]);
        sum += d[i];
      }
      tile_output_line_turned(d, of_h);
#pragma unroll
      for (int i = 0; i < SIDE; i++) t[i * TILE + j] = d[i];
    }
    if (sums) STORE(LOAD(sums + k) + sum, sums + k);
    for (int i = 0; i < SIDE; i++) {
      if (!whole && (target->cut_h >> i & 1)) continue;
      float16 out[SIDE];
#pragma unroll
      for (int j = 0; j < TILE; j++) out[j] = t[i * TILE + j];
      tile_output_line_turned(out, of_w);
#pragma unroll
      for (int j = 0; j < SIDE; j++)
        STORE(out[j], place + (i * SIDE + j) * place_floats + target->row[i * SIDE + j] * width);
    }
  }
}

/* ---- products ---- */

/* dw[ROWS][WIDTH] (+)= sum over tiles of x[tile][0..ROWS) * dy[tile][WIDTH] */
#if CVY_WIDE_REGISTERS
#define ROWS 8
#define WIDTH 32
#include "winograd/winograd_wtile_tmpl.clh"
#define ROWS 8
#define WIDTH 16
#include "winograd/winograd_wtile_tmpl.clh"
#else
#define ROWS 6
#define WIDTH 16
#include "winograd/winograd_wtile_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "winograd/winograd_wtile_tmpl.clh"
#endif

/* dw of 16 input channels x `width` output channels. */
static void multiply(int width, global const float *x, global const float *dy, int tiles, global float *dw, bool first) {
#if CVY_WIDE_REGISTERS
  for (int c = 0; c < 16; c += 8)
    if (width == 32) wtile_8x32(x + c, dy, 32, tiles, dw + c * 32, first);
    else wtile_8x16(x + c, dy, 16, tiles, dw + c * 16, first);
#else
  for (int k = 0; k < width; k += 16) {
    wtile_6x16(x, dy + k, width, tiles, dw + k, first);
    wtile_6x16(x + 6, dy + k, width, tiles, dw + 6 * width + k, first);
    wtile_4x16(x + 12, dy + k, width, tiles, dw + 12 * width + k, first);
  }
#endif
}

/* ---- the next strip's pixels ---- */

/* While the products of one strip are computed, the pixels of the next are fetched: otherwise transforms wait for
 * memory half of the time. */
typedef struct {
  int in_h, in_w, in_pitch, out_h, out_w, out_pitch, tiles_w, per_image;
} image_shape;

/* Position of a walk over the pixels of tiles: row, column of the image of tile `at`. */
typedef struct {
  int at, end, image, p, q, i, j;
} pixel_walk;

static pixel_walk walk_from(const image_shape *s, int at, int end) {
  const int in_image = at % s->per_image;
  const pixel_walk w = {at, end, at / s->per_image, in_image / s->tiles_w * TILE, in_image % s->tiles_w * TILE, 0, 0};
  return w;
}

/* Fetches the next pixel of x and dy, channels of the task's blocks. */
CVY_ALWAYS_INLINE void fetch_pixel(pixel_walk *w, const image_shape *s, global const float *x, global const float *dy,
                                   int c_floats, int k_floats) {
  if (w->at >= w->end) return;
  const int row = w->p + w->i, column = w->q + w->j;
  if (row < s->in_h && column < s->in_w) {
    global const float *from = x + ((w->image * s->in_h + row) * s->in_w + column) * s->in_pitch;
    for (int c = 0; c < c_floats; c += 16) CVY_FETCH(from + c);
  }
  if (row < s->out_h && column < s->out_w) {
    global const float *from = dy + ((w->image * s->out_h + row) * s->out_w + column) * s->out_pitch;
    for (int k = 0; k < k_floats; k += 16) CVY_FETCH(from + k);
  }
  if (++w->j < TILE) return;
  w->j = 0;
  if (++w->i < TILE) return;
  *w = walk_from(s, w->at + 1, w->end);
}

/* dw of part `split` of the tiles goes to dw + split*part_floats (and db likewise), added if FLAG_ACCUMULATE.
 * FLAG_BIAS: db is computed, too. in_pitch, out_pitch, block_c and block_k are multiples of 16. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_winograd_weights_cpu(
    global const float *restrict x, global const float *restrict affine, global const float *restrict residual,
    global const float *restrict dy, global float *restrict dw,
    global float *restrict db, global float *restrict workspace, int n, int in_h, int in_w, int in_c, int in_pitch,
    int out_h, int out_w, int out_pitch, int pad_h, int pad_w, int strip, int block_c, int block_k, int splits,
    int part_floats, int db_at, int slices_at, int slice_floats, int group_size, int flags, const cvy_conv_edges edges) {
  /* one vector more between places: a power of two would map them to few sets of the cache */
  const int own_place = block_c * block_k + 16, x_place = strip * block_c + 16, dy_place = strip * block_k + 16;
  global float *own = workspace + slices_at + (size_t)CVY_GROUP * (size_t)slice_floats;
  global float *tx = own + PLACES * own_place;
  global float *tdy = tx + PLACES * x_place;
  global float *sums = tdy + PLACES * dy_place;
  const int blocks_c = (in_c + block_c - 1) / block_c, blocks_k = (out_pitch + block_k - 1) / block_k;
  const int tiles_h = (out_h + TILE - 1) / TILE, tiles_w = (out_w + TILE - 1) / TILE, per_image = tiles_h * tiles_w;
  const image_shape shape = {in_h, in_w, in_pitch, out_h, out_w, out_pitch, tiles_w, per_image};
  const int n_tasks = blocks_c * blocks_k * splits;
  const int task_begin = (int)((long)n_tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int task_end = (int)((long)n_tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);

  for (int task = task_begin; task < task_end; task++) {
    /* all blocks of one part of the images in succession: the part's x and dy stay in a cache */
    const int split = task / (blocks_c * blocks_k), block = task % (blocks_c * blocks_k);
    const int c0 = block / blocks_k * block_c, k0 = block % blocks_k * block_k;
    const int c_floats = min(block_c, (in_c - c0 + 15) / 16 * 16), k_floats = min(block_k, out_pitch - k0);
    const bool want_sums = (flags & FLAG_BIAS) != 0 && c0 == 0;
    const int begin = (int)((long)n * per_image * split / splits), end = (int)((long)n * per_image * (split + 1) / splits);
    const int products = PLACES * ((k_floats + 31) / 32) * (c_floats / 16);
    const int fetches = (strip * TILE * TILE + products - 1) / products; /* per product */
    for (int k = 0; k < block_k; k += 16) STORE((float16)(0.0f), sums + k);

    for (int at = begin; at < end; at += strip) {
      const int tiles = min(strip, end - at);
      tile_rows counts = {{{0, 0}, {0, 0}}};
      for (int tile = 0; tile < tiles; tile++) {
        const int image = (at + tile) / per_image, in_image = (at + tile) % per_image;
        const int p = in_image / tiles_w * TILE, q = in_image % tiles_w * TILE;
        const bool last_h = p + TILE >= out_h, last_w = q + TILE >= out_w;
        tile_target target;
        find_target(&target, &counts, edges, last_h, last_w);
        int rows[SIDE], columns[SIDE], row_inside[SIDE], column_inside[SIDE];
        {
          const int image_at = image * in_h * in_w * in_pitch + c0, group = image / group_size * 3 * in_pitch + c0;
          const bool whole = find_lines(p - pad_h, SIDE, in_h, in_w * in_pitch, rows, row_inside) &
                             find_lines(q - pad_w, SIDE, in_w, in_pitch, columns, column_inside);
          if (whole)
            input_tile(true, x + image_at, residual + image_at, affine + group, in_pitch, rows, columns, row_inside,
                       column_inside, &target, c_floats, flags, tx, strip * 16, x_place);
          else
            input_tile(false, x + image_at, residual + image_at, affine + group, in_pitch, rows, columns,
                       row_inside, column_inside, &target, c_floats, flags, tx, strip * 16, x_place);
        }
        {
          global const float *from = dy + image * out_h * out_w * out_pitch + k0;
          const bool whole = find_lines(p, TILE, out_h, out_w * out_pitch, rows, row_inside) &
                             find_lines(q, TILE, out_w, out_pitch, columns, column_inside);
          if (whole)
            gradient_tile(true, from, rows, columns, row_inside, column_inside, &target, k_floats, strip, tdy, dy_place,
                          want_sums ? sums : 0);
          else
            gradient_tile(false, from, rows, columns, row_inside, column_inside, &target, k_floats, strip, tdy, dy_place,
                          want_sums ? sums : 0);
        }
        next_rows(&counts, last_h, last_w);
      }
      pixel_walk next = walk_from(&shape, at + tiles, min(at + tiles + strip, end));
      for (int place = 0; place < PLACES; place++) {
        global const float *pdy = tdy + place * dy_place;
        global float *to = own + place * own_place;
        const int some = row_of(&counts, edges, place / SIDE, place % SIDE);
        for (int k = 0; k < k_floats; k += 32, pdy += strip * 32)
          for (int c = 0; c < c_floats; c += 16) {
            const int width = min(32, k_floats - k);
            for (int i = 0; i < fetches; i++) fetch_pixel(&next, &shape, x + c0, dy + k0, c_floats, k_floats);
            multiply(width, tx + place * x_place + c * strip, pdy, some, to, at == begin);
            to += 16 * width;
          }
      }
    }

    const int channels = min(c_floats, in_c - c0);
    for (int k = 0; k < k_floats; k += 16) {
      const int width = min(32, k_floats - k / 32 * 32);
      for (int c = 0; c < channels; c++) {
        global const float *from = own + k / 32 * 32 * c_floats + c * width + k % 32;
        global float *to = dw + (size_t)split * (size_t)part_floats + (size_t)(c0 + c) * (size_t)out_pitch + k0 + k;
        float16 t[3 * SIDE];
        for (int j = 0; j < SIDE; j++) {
          float16 u[SIDE], out[3];
#pragma unroll
          for (int i = 0; i < SIDE; i++) u[i] = LOAD(from + (i * SIDE + j) * own_place);
          winograd_weight_line_turned(u, 1, out, 1);
#pragma unroll
          for (int i = 0; i < 3; i++) t[i * SIDE + j] = out[i];
        }
        for (int r = 0; r < 3; r++) {
          float16 out[3];
          winograd_weight_line_turned(t + r * SIDE, 1, out, 1);
#pragma unroll
          for (int s = 0; s < 3; s++) {
            global float *here = to + (size_t)((r * 3 + s) * in_c) * (size_t)out_pitch;
            STORE(flags & FLAG_ACCUMULATE ? LOAD(here) + out[s] : out[s], here);
          }
        }
      }
      if (want_sums) {
        global float *to = db + (size_t)split * (size_t)part_floats + db_at + k0 + k;
        const float16 sum = LOAD(sums + k);
        STORE(flags & FLAG_ACCUMULATE ? LOAD(to) + sum : sum, to);
      }
    }
  }
}
