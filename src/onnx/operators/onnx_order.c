/* SPDX-License-Identifier: MIT
 * Shapes of samples: rows of values, means of pixels, and the order of dimensions. A layer's tensor has no order in a
 * network of Convoy's; the file's may have channels in front of rows and columns, as PyTorch does, or behind them, as
 * Keras does (`last` of a value). Transpose alone changes from one to the other, and a Reshape where there is one
 * channel. Rows of values made of the second order are turned where a matrix takes them. */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

/* The first output is x with these dimensions. In a row, or in an order, of one pixel or channel both are the same. */
static void view(state *im, const value *x, bool flat, bool last) {
  int shape[3];
  cvy_onnx_shape_of(im, x, shape);
  cvy_onnx_same_as(im, x);
  value *const out = cvy_onnx_output(im);
  if (!out) return;
  out->flat = flat;
  out->tokens = false;
  out->last = last && !(flat && (shape[0] == 1 || shape[1] * shape[2] == 1));
}

/* The same with rows and columns as one dimension. */
static void view_tokens(state *im, const value *x, bool last) {
  value *const out = cvy_onnx_output(im);
  cvy_onnx_same_as(im, x);
  if (out) out->tokens = true, out->flat = false, out->last = last;
}

/* Rows and columns, in any order; of tokens the one dimension. */
static bool are_rows_and_columns(const value *x, const int64_t *axes, int n) {
  const int rank = cvy_onnx_rank(x), row = x->last ? 1 : 2, a = n >= 1 ? cvy_onnx_axis(axes[0], rank) : -1,
            b = n == 2 ? cvy_onnx_axis(axes[1], rank) : -1;
  if (x->tokens) return n == 1 && a == row;
  return n == 2 && ((a == row && b == row + 1) || (a == row + 1 && b == row));
}

/* ReduceMean, ReduceMax: of all pixels. */
void cvy_onnx_take_mean(state *im) {
  int64_t axes[CVY_ONNX_WHOLE_MOST];
  const value *const v = cvy_onnx_samples(im, 0), *const x = v && v->tokens ? v : cvy_onnx_pictures(im, 0);
  const int n = cvy_onnx_axes(im, axes);
  const bool max = !strcmp(im->node->op_type, "ReduceMax");
  if (!x) return;
  if (!are_rows_and_columns(x, axes, n)) {
    cvy_onnx_refuse(im, "its axes are not rows and columns (%s); only the %s of these is supported",
                    x->tokens ? (x->last ? "1" : "2")
                    : x->last ? "1, 2"
                              : "2, 3",
                    max ? "maximum" : "mean");
    return;
  }
  const bool keep = cvy_onnx_whole(im, "keepdims", 1) != 0;
  cvy_onnx_keep_order(im, x);
  im->last = keep && x->last;
  const cvy_node node = x->node;
  cvy_onnx_make(im, max ? cvy_onnx_global_maxpool(im, node) : cvy_net_global_avgpool(im->net, node), !keep);
}

void cvy_onnx_take_squeeze(state *im) {
  int64_t axes[CVY_ONNX_WHOLE_MOST];
  const value *const x = cvy_onnx_node_input(im, 0);
  const int n = cvy_onnx_axes(im, axes);
  int shape[3] = {0};
  if (!x) return;
  if (x->kind == CVY_ONNX_NODE) cvy_onnx_shape_of(im, x, shape);
  if (x->kind != CVY_ONNX_NODE || x->flat || x->tokens || !are_rows_and_columns(x, axes, n) || shape[1] != 1 ||
      shape[2] != 1) {
    cvy_onnx_refuse(im, "it takes other dimensions away than the rows and columns of 1x1 pixels");
    return;
  }
  view(im, x, true, false);
}

/* Behind everything else it is left out in the end (onnx_ending.c): the loss has a softmax of its own. */
void cvy_onnx_take_softmax(state *im) {
  const value *const x = cvy_onnx_samples(im, 0);
  const bool is_log = !strcmp(im->node->op_type, "LogSoftmax");
  const int64_t axis = cvy_onnx_whole(im, "axis", im->file->opset < 13 ? 1 : -1);
  const value *const out = cvy_onnx_output(im);
  int shape[3];
  if (!x) return;
  cvy_onnx_shape_of(im, x, shape);
  if (!cvy_onnx_along_channels(x, axis) || (x->flat && (shape[1] > 1 || shape[2] > 1))) {
    cvy_onnx_refuse(im, "attribute axis is %" PRId64 ": expected %d, the channels", axis, cvy_onnx_channel_axis(x));
    return;
  }
  cvy_onnx_keep_order(im, x);
  if (is_log && out && out->n_readers == 0) {
    cvy_onnx_same_as(im, x);
    im->ending = CVY_ENDING_LOG_SOFTMAX;
  } else if (is_log) cvy_onnx_refuse(im, "only supported as the network's output");
  else cvy_onnx_make(im, cvy_net_softmax(im->net, x->node), x->flat);
}

void cvy_onnx_take_flatten(state *im) {
  const value *const x = cvy_onnx_samples(im, 0);
  const int64_t axis = cvy_onnx_whole(im, "axis", 1);
  if (!x) return;
  if (cvy_onnx_axis(axis, cvy_onnx_rank(x)) == 1) view(im, x, true, x->last);
  else cvy_onnx_refuse(im, "attribute axis is %" PRId64 ": expected 1, all values of a sample in a row", axis);
}

/* dims: four, a -1 among them is computed. They are those of x in an order that it has, too: *last. */
static bool is_order_of(const state *im, const value *x, const int64_t *dims, const int shape[3], bool *last) {
  const bool samples_known = dims[0] == 0 || dims[0] == CVY_ONNX_BATCH || dims[0] == im->samples;
  const int64_t front[3] = {shape[0], shape[1], shape[2]}, behind[3] = {shape[1], shape[2], shape[0]};
  bool fits[2] = {true, true};
  int open = dims[0] == -1;
  for (int d = 0; d < 3; d++) {
    open += dims[d + 1] == -1;
    fits[0] = fits[0] && (dims[d + 1] == -1 || dims[d + 1] == front[d]);
    fits[1] = fits[1] && (dims[d + 1] == -1 || dims[d + 1] == behind[d]);
  }
  if (open > 1 || !(samples_known || dims[0] == -1)) return false;
  const bool free = shape[0] == 1 || shape[1] * shape[2] == 1; /* both orders hold the same */
  if (x->flat && shape[1] * shape[2] > 1) return false;
  *last = fits[x->last] ? x->last : !x->last;
  return fits[x->last] || (free && fits[!x->last]);
}

/* dims: three, a -1 among them is computed. They are those of x with rows and columns as one, in its order. */
static bool is_tokens(const state *im, const value *x, const int64_t *dims, const int shape[3], bool *last) {
  const int64_t pixels = (int64_t)shape[1] * shape[2], front[2] = {shape[0], pixels},
                behind[2] = {pixels, shape[0]}, *const wanted = x->last ? behind : front;
  int open = dims[0] == -1;
  bool fits = dims[0] == 0 || dims[0] == CVY_ONNX_BATCH || dims[0] == im->samples || dims[0] == -1;
  for (int d = 0; d < 2; d++) {
    open += dims[d + 1] == -1;
    fits = fits && (dims[d + 1] == -1 || dims[d + 1] == wanted[d]);
  }
  *last = x->last;
  return fits && open <= 1 && (!x->flat || pixels == 1);
}

/* Rows of samples, (samples, values), either of which may be left to be computed; or one order of dimensions from
 * another where there is one channel, or one pixel. */
void cvy_onnx_take_reshape(state *im) {
  const value *const s = cvy_onnx_has_input(im, 1) ? cvy_onnx_node_input(im, 1) : NULL;
  if (s && cvy_onnx_shape_groups(im, s)) return;
  const value *const x = !cvy_onnx_has_input(im, 1) || s ? cvy_onnx_samples(im, 0) : NULL;
  int64_t dims[CVY_ONNX_WHOLE_MOST];
  int shape[3];
  bool last;
  if (!x) return;
  const int n = s ? cvy_onnx_wholes_of(s, dims) : -1;
  cvy_onnx_shape_of(im, x, shape);
  const int64_t all = (int64_t)shape[0] * shape[1] * shape[2];
  const bool rows_first = n == 2 && (dims[0] == 0 || dims[0] == CVY_ONNX_BATCH || dims[0] == 1 ||
                                     dims[0] == im->samples || (dims[0] == -1 && dims[1] == all));
  if (n == 3 && is_tokens(im, x, dims, shape, &last)) view_tokens(im, x, last);
  else if (rows_first && (dims[1] == -1 || dims[1] == all)) view(im, x, true, x->last);
  else if (n == 4 && is_order_of(im, x, dims, shape, &last)) view(im, x, false, last);
  else cvy_onnx_refuse(im, "its shape is not (samples, %" PRId64 "): expected all values of a sample in a row", all);
}

void cvy_onnx_take_transpose(state *im) {
  static const int64_t to_front[4] = {0, 3, 1, 2}, to_back[4] = {0, 2, 3, 1}, as_it_is[4] = {0, 1, 2, 3},
                       swap[3] = {0, 2, 1};
  const value *const v = cvy_onnx_operand(im, 0), *const x = v ? v : cvy_onnx_node_input(im, 0);
  int64_t perm[CVY_ONNX_WHOLE_MOST];
  const int n = cvy_onnx_wholes(im, "perm", perm, CVY_ONNX_WHOLE_MOST);
  if (!x || cvy_onnx_swap_groups(im, perm, n)) return;
  const bool four = n == 4 && cvy_onnx_rank(x) == 4, three = n == 3 && cvy_onnx_rank(x) == 3,
             turns = four && !memcmp(perm, x->last ? to_front : to_back, sizeof to_front);
  if (turns || (four && !memcmp(perm, as_it_is, sizeof as_it_is))) view(im, x, false, x->last != turns);
  else if (three && (!memcmp(perm, swap, sizeof swap) || !memcmp(perm, as_it_is, sizeof swap)))
    view_tokens(im, x, x->last != (perm[1] == 2));
  else
    cvy_onnx_refuse(im,
                    "it turns samples, which have their channels %s rows and columns here, in another way than to "
                    "have them %s",
                    x->last ? "behind" : "in front of", x->last ? "in front (0, 3, 1, 2)" : "behind (0, 2, 3, 1)");
}

/* Samples are of float32 and stay so. */
void cvy_onnx_take_cast(state *im) {
  const value *const v = cvy_onnx_operand(im, 0), *const like = cvy_onnx_operand(im, 1);
  const bool to_float = !like                           ? cvy_onnx_whole(im, "to", 0) == CVY_ONNX_FLOAT
                        : like->kind == CVY_ONNX_TENSOR ? like->tensor->data_type == CVY_ONNX_FLOAT
                        : like->kind == CVY_ONNX_ARRAY  ? like->array->type == CVY_ONNX_FLOATS
                                                        : true;
  if (v && cvy_onnx_of_samples(v) && to_float) cvy_onnx_same_as(im, v);
  else if (cvy_onnx_node_input(im, 0))
    cvy_onnx_refuse(im, "it changes the type of something else than a few numbers of the file");
}

void cvy_onnx_take_identity(state *im) {
  const value *const x = cvy_onnx_samples(im, 0);
  if (x) cvy_onnx_same_as(im, x);
}

void cvy_onnx_take_shape(state *im) {
  const value *const x = cvy_onnx_samples(im, 0);
  int shape[3];
  if (!x) return;
  cvy_onnx_shape_of(im, x, shape);
  const int64_t pixels = (int64_t)shape[1] * shape[2], rows[2] = {CVY_ONNX_BATCH, shape[0] * pixels},
                tokens[3] = {CVY_ONNX_BATCH, x->last ? pixels : shape[0], x->last ? shape[0] : pixels},
                dims[4] = {CVY_ONNX_BATCH, shape[x->last ? 1 : 0], shape[x->last ? 2 : 1], shape[x->last ? 0 : 2]};
  cvy_onnx_make_shape(im, x->flat ? rows : x->tokens ? tokens : dims, cvy_onnx_rank(x));
}
