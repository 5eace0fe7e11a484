/* SPDX-License-Identifier: MIT
 * Channels of samples that are joined, cut or shuffled: Concat, Slice, Split, and a channel shuffle, which is a Reshape
 * into groups of channels, a Transpose of both dimensions, and a Reshape back. */
#include <inttypes.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/operators/onnx_rows.h"

enum { MOST = CVY_ONNX_WHOLE_MOST };

/* Of tensors of samples, along their channels. */
void cvy_onnx_take_concat(state *im) {
  const size_t n = im->node->n_input;
  const int64_t axis = cvy_onnx_whole(im, "axis", INT64_MIN);
  cvy_node *const nodes = cvy_calloc(n, sizeof *nodes);
  bool good = nodes != NULL, flat = false;
  const value *const front = cvy_onnx_operand(im, 0);
  if (!nodes) im->status = CVY_E_MEMORY;
  for (size_t i = 0; i < n && good; i++) {
    const value *const x = cvy_onnx_samples(im, i);
    int shape[3];
    good = x != NULL;
    if (!good) break;
    cvy_onnx_shape_of(im, x, shape);
    if (i == 0) flat = x->flat;
    if (x->flat != flat || x->last != front->last || x->tokens != front->tokens ||
        (flat && (shape[1] > 1 || shape[2] > 1)) || !cvy_onnx_along_channels(x, axis))
      good = cvy_onnx_refuse(im,
                             "it joins tensors by something else than their channels (axis %" PRId64
                             "); expected axis %d of equal numbers and orders of dimensions",
                             axis, cvy_onnx_channel_axis(x));
    nodes[i] = x->node;
  }
  if (good) cvy_onnx_keep_order(im, front);
  if (good) cvy_onnx_make(im, cvy_net_concat(im->net, nodes, (int)n), flat);
  cvy_free(nodes);
}

/* ---- parts ---- */

/* A tensor of samples whose channels can be cut; NULL: refused. */
static const value *cuttable(state *im, int shape[3]) {
  const value *const x = cvy_onnx_samples(im, 0);
  if (!x) return NULL;
  cvy_onnx_shape_of(im, x, shape);
  if (!x->flat || (shape[1] == 1 && shape[2] == 1)) return x;
  cvy_onnx_refuse(im, "it cuts rows of values that were pictures of %dx%d: expected channels", shape[1], shape[2]);
  return NULL;
}

/* Input i, up to MOST whole numbers; how many, 0: it has no such input, -1: refused. */
static int list_of(state *im, size_t i, const char *what, int64_t list[MOST]) {
  if (!cvy_onnx_has_input(im, i)) return 0;
  const value *const v = cvy_onnx_node_input(im, i);
  const int n = v ? cvy_onnx_wholes_of(v, list) : -1;
  if (v && n < 0) cvy_onnx_refuse(im, "input %zu, %s, is not up to %d known whole numbers", i, what, MOST);
  return n;
}

/* The size of a dimension of x; 0: the samples'. */
static int size_of(const value *x, const int shape[3], int axis) {
  if (axis == 0) return 0;
  if (axis == cvy_onnx_channel_axis(x)) return shape[0];
  if (x->tokens) return shape[1] * shape[2];
  return shape[(x->last ? axis : axis - 1) == 1 ? 1 : 2];
}

/* Some channels, forwards; other dimensions are taken as a whole. */
void cvy_onnx_take_slice(state *im) {
  int64_t starts[MOST], ends[MOST], axes[MOST], steps[MOST];
  int shape[3], first = 0, step = 1;
  const value *const x = cuttable(im, shape);
  if (!x) return;
  const int n = list_of(im, 1, "the starts", starts), m = list_of(im, 2, "the ends", ends),
            n_axes = list_of(im, 3, "the axes", axes), n_steps = list_of(im, 4, "the steps", steps);
  if (n < 0 || m < 0 || n_axes < 0 || n_steps < 0) return;
  if (m != n || (n_axes && n_axes != n) || (n_steps && n_steps != n)) {
    cvy_onnx_refuse(im, "it has %d starts, %d ends, %d axes and %d steps: expected as many of each", n, m, n_axes,
                    n_steps);
    return;
  }
  int count = shape[0];
  for (int i = 0; i < n; i++) {
    const int axis = cvy_onnx_axis(n_axes ? axes[i] : i, cvy_onnx_rank(x)), channels = cvy_onnx_channel_axis(x);
    const int64_t by = n_steps ? steps[i] : 1;
    const int size = axis > 0 ? size_of(x, shape, axis) : 0;
    const int64_t from = size ? cvy_onnx_place(starts[i], size) : starts[i],
                  to = size ? cvy_onnx_place(ends[i], size) : ends[i];
    if (axis == channels && by >= 1 && by <= shape[0] && from < to) {
      first = (int)from, step = (int)by, count = (int)((to - from + by - 1) / by);
    } else if (axis < 0 || axis == channels || by != 1 || from != 0 || to < (size ? size : INT32_MAX)) {
      cvy_onnx_refuse(im,
                      "it takes %" PRId64 " to %" PRId64 " in steps of %" PRId64 " along axis %" PRId64
                      ": only supported along channels (%d), forwards",
                      starts[i], ends[i], by, n_axes ? axes[i] : i, channels);
      return;
    }
  }
  cvy_onnx_keep_order(im, x);
  if (count == shape[0] && step == 1) cvy_onnx_same_as(im, x);
  else cvy_onnx_make(im, cvy_net_slice(im->net, x->node, first, count, step), x->flat);
}

/* Output k has sizes[k] channels; false: refused. */
static bool find_sizes(state *im, int channels, int64_t *sizes) {
  const int parts = (int)im->node->n_output;
  const int n =
      cvy_onnx_has_input(im, 1) ? list_of(im, 1, "the sizes", sizes) : cvy_onnx_wholes(im, "split", sizes, MOST);
  const int64_t given = cvy_onnx_whole(im, "num_outputs", parts);
  int64_t all = 0;
  if (n < 0 && cvy_onnx_has_input(im, 1)) return false;
  /* equal parts, the last one fewer; before opset 18 all equal */
  const int each = (channels + parts - 1) / parts;
  for (int k = 0; k < parts && n == 0; k++) sizes[k] = k + 1 < parts ? each : channels - (int64_t)each * (parts - 1);
  bool good = given == parts && (n == parts || (n == 0 && (im->file->opset >= 18 || channels % parts == 0)));
  for (int k = 0; good && k < parts; k++) {
    good = sizes[k] >= 1 && sizes[k] <= channels;
    all += sizes[k];
  }
  if (good && all == channels) return true;
  return cvy_onnx_refuse(im, "it cuts %d channels into %d parts of other sizes", channels, parts);
}

void cvy_onnx_take_split(state *im) {
  int shape[3];
  int64_t few[MOST] = {0}, *sizes = few;
  const value *const x = cuttable(im, shape);
  const int64_t axis = cvy_onnx_whole(im, "axis", 0);
  const size_t parts = im->node->n_output;
  if (!x) return;
  if (!cvy_onnx_along_channels(x, axis)) {
    cvy_onnx_refuse(im, "attribute axis is %" PRId64 ": expected %d, the channels", axis, cvy_onnx_channel_axis(x));
    return;
  }
  if (parts < 1 || parts > (size_t)shape[0]) {
    cvy_onnx_refuse(im, "it cuts %d channels into %zu parts", shape[0], parts);
    return;
  }
  if (parts > MOST) sizes = cvy_calloc(parts, sizeof *sizes);
  if (!sizes) im->status = CVY_E_MEMORY;
  cvy_onnx_keep_order(im, x);
  const cvy_node node = x->node;
  const bool flat = x->flat, good = sizes && find_sizes(im, shape[0], sizes);
  int64_t first = 0;
  for (size_t k = 0; good && k < parts && im->status == CVY_OK; first += sizes[k++])
    if (cvy_onnx_needed_output(im, k))
      cvy_onnx_make_output(im, k, cvy_net_slice(im->net, node, (int)first, (int)sizes[k], 1), flat);
  if (sizes != few) cvy_free(sizes);
}

/* ---- channel shuffle ---- */

/* A dimension of a Reshape: the one that is wanted, or the one that is left to be computed. */
static bool is_size(int64_t dim, int64_t wanted, int *open) {
  *open += dim == -1;
  return dim == wanted || dim == -1;
}
static bool is_samples(const state *im, int64_t dim, int *open) {
  return dim == 0 || dim == CVY_ONNX_BATCH || is_size(dim, im->samples ? im->samples : 1, open);
}

/* Groups of channels back to pictures; true: taken, or refused. */
static bool shape_pictures(state *im, const value *x, const int64_t *dims, int n) {
  int shape[3], open = 0;
  cvy_onnx_shape_of(im, x, shape);
  if (n != 4 || !is_samples(im, dims[0], &open) || !is_size(dims[1], shape[0], &open) ||
      !is_size(dims[2], shape[1], &open) || !is_size(dims[3], shape[2], &open) || open > 1)
    return !cvy_onnx_refuse(im, "it shapes groups of channels as something else than (samples, %d, %d, %d)", shape[0],
                            shape[1], shape[2]);
  im->last = im->tokens = false;
  const cvy_node node = x->node;
  cvy_onnx_make(im, x->swapped ? cvy_net_shuffle(im->net, node, x->groups) : node, false);
  return true;
}

bool cvy_onnx_shape_groups(state *im, const value *s) {
  int64_t dims[MOST];
  int shape[3], open = 0;
  const value *x = cvy_onnx_operand(im, 0);
  const int n = cvy_onnx_wholes_of(s, dims);
  value *const out = cvy_onnx_output(im);
  if (!x || !out) return false;
  if (x->kind == CVY_ONNX_GROUPS) return shape_pictures(im, x, dims, n);
  if ((n != 5 && n != 3) || !cvy_onnx_of_samples(x) || x->last || x->flat || x->tokens) return false;
  cvy_onnx_shape_of(im, x, shape);
  const int pixels = shape[1] * shape[2];
  const int64_t groups = dims[1] > 0 ? dims[1] : n == 5 && dims[2] > 0 ? shape[0] / dims[2] : 0;
  if (n == 3 && groups == shape[0]) return false; /* rows and columns as one dimension */
  if (groups < 1 || groups > shape[0] || shape[0] % groups != 0 || !is_samples(im, dims[0], &open) ||
      !is_size(dims[1], groups, &open))
    return false;
  const int64_t each = shape[0] / groups;
  if (n == 3
          ? !is_size(dims[2], each * pixels, &open)
          : !is_size(dims[2], each, &open) || !is_size(dims[3], shape[1], &open) || !is_size(dims[4], shape[2], &open))
    return false;
  if (open > 1) return false;
  x = cvy_onnx_samples(im, 0);
  if (!x) return true;
  cvy_onnx_same_as(im, x);
  out->kind = CVY_ONNX_GROUPS;
  out->groups = (int)groups;
  out->in_rows = n == 3;
  out->swapped = false;
  return true;
}

bool cvy_onnx_swap_groups(state *im, const int64_t *perm, int n) {
  static const int64_t swap[5] = {0, 2, 1, 3, 4}, as_it_is[5] = {0, 1, 2, 3, 4};
  const value *const x = cvy_onnx_operand(im, 0);
  value *const out = cvy_onnx_output(im);
  if (!x || !out || x->kind != CVY_ONNX_GROUPS) return false;
  const bool swaps = n == 5 && !x->in_rows && !memcmp(perm, swap, sizeof swap);
  if (!swaps && !(n == 5 && !memcmp(perm, as_it_is, sizeof as_it_is)))
    return !cvy_onnx_refuse(im, "it turns groups of channels in another way than a channel shuffle (0, 2, 1, 3, 4)");
  cvy_onnx_same_as(im, x);
  out->swapped = x->swapped != swaps;
  return true;
}
