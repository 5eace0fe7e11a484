/* SPDX-License-Identifier: MIT
 * Operators that move a window over pictures: Conv, the pools, and a Pad in front of them; and Resize. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/nn/graph.h"
#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_channels.h"
#include "src/onnx/onnx_constants.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"
#include "src/onnx/operators/onnx_rows.h"

typedef struct window {
  int kernel[2], stride[2], pad[2], pad_more[2], dilation[2];
  bool ceil;
} window;

/* Kernel (known: from the filters), strides, padding. `size`: rows and columns of what it moves over. */
static bool read_window(state *im, const int size[2], const int64_t *known, window *w) {
  int64_t kernel[2], stride[2] = {1, 1}, dilation[2] = {1, 1}, pads[4] = {0};
  const int n_kernel = cvy_onnx_wholes(im, "kernel_shape", kernel, 2),
            n_stride = cvy_onnx_wholes(im, "strides", stride, 2),
            n_dilation = cvy_onnx_wholes(im, "dilations", dilation, 2), n_pads = cvy_onnx_wholes(im, "pads", pads, 4);
  if (n_kernel == 0 && known) memcpy(kernel, known, sizeof kernel);
  else if (n_kernel != 2)
    return cvy_onnx_refuse(im, "attribute kernel_shape: expected two numbers, for two dimensions");
  if (known && (known[0] != kernel[0] || known[1] != kernel[1]))
    return cvy_onnx_refuse(im,
                           "attribute kernel_shape is %" PRId64 "x%" PRId64 ", its filters are %" PRId64 "x%" PRId64,
                           kernel[0], kernel[1], known[0], known[1]);
  if ((n_stride != 0 && n_stride != 2) || (n_dilation != 0 && n_dilation != 2) || (n_pads != 0 && n_pads != 4))
    return cvy_onnx_refuse(im, "strides, dilations or pads are not those of two dimensions");
  const bool upper = cvy_onnx_says(im, "auto_pad", "SAME_UPPER"),
             same = upper || cvy_onnx_says(im, "auto_pad", "SAME_LOWER");
  if (cvy_onnx_attribute(im->node, "auto_pad") && !same && !cvy_onnx_says(im, "auto_pad", "VALID") &&
      !cvy_onnx_says(im, "auto_pad", "NOTSET"))
    return cvy_onnx_refuse(im, "attribute auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER");
  for (int d = 0; d < 2; d++) {
    if (!cvy_onnx_is_size(kernel[d], 1) || !cvy_onnx_is_size(stride[d], 1) || !cvy_onnx_is_size(dilation[d], 1) ||
        !cvy_onnx_is_size(pads[d], 0) || !cvy_onnx_is_size(pads[d + 2], 0))
      return cvy_onnx_refuse(im,
                             "kernel %" PRId64 ", stride %" PRId64 ", dilation %" PRId64 ", pads %" PRId64
                             " and %" PRId64 ": kernel, stride and dilation must be 1 to 65536, pads 0 to 65536",
                             kernel[d], stride[d], dilation[d], pads[d], pads[d + 2]);
    if (same) {
      const int64_t more =
          ((size[d] + stride[d] - 1) / stride[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 - size[d];
      const int64_t all = more > 0 ? more : 0;
      pads[d] = upper ? all / 2 : all - all / 2;
      pads[d + 2] = all - pads[d];
    }
    w->kernel[d] = (int)kernel[d];
    w->stride[d] = (int)stride[d];
    w->pad[d] = (int)pads[d];
    w->pad_more[d] = (int)(pads[d + 2] - pads[d]);
    w->dilation[d] = (int)dilation[d];
  }
  w->ceil = cvy_onnx_whole(im, "ceil_mode", 0) != 0;
  return true;
}

/* The zeros that a Pad in front has put around the input become the window's. */
static void add_pads(const value *x, window *w) {
  for (int d = 0; d < 2; d++) {
    w->pad[d] += x->pad[d];
    w->pad_more[d] += x->pad[d + 2] - x->pad[d];
  }
}

/* Input 0 of what has a window: four dimensions, perhaps with zeros around. `shape` is that with the zeros. */
static const value *window_input(state *im, int shape[3]) {
  const value *const v = cvy_onnx_operand(im, 0), *const x =
                                                      v && v->kind == CVY_ONNX_PADDED ? v : cvy_onnx_pictures(im, 0);
  if (!x) return NULL;
  cvy_onnx_shape_of(im, x, shape);
  for (int d = 0; d < 2; d++) shape[d + 1] += x->pad[d] + x->pad[d + 2];
  return x;
}

void cvy_onnx_take_pad(state *im) {
  const value *const x = cvy_onnx_pictures(im, 0), *const v = cvy_onnx_node_input(im, 1);
  int64_t pads[CVY_ONNX_WHOLE_MOST];
  double fill;
  if (!x || !v || !cvy_onnx_number(im, 2, "its constant_value", 0, &fill)) return;
  if ((cvy_onnx_attribute(im->node, "mode") && !cvy_onnx_says(im, "mode", "constant")) || fill != 0) {
    cvy_onnx_refuse(im, "it pads with something else than zeros");
    return;
  }
  if (cvy_onnx_has_input(im, 3)) {
    cvy_onnx_refuse(im, "its input axes is not supported; expected pads for all four dimensions");
    return;
  }
  const int row = x->last ? 1 : 2;
  bool good = cvy_onnx_wholes_of(v, pads) == 8;
  for (int d = 0; good && d < 8; d++)
    good = (d & 3) == row || (d & 3) == row + 1 ? cvy_onnx_is_size(pads[d], 0) : pads[d] == 0;
  if (!good) {
    cvy_onnx_refuse(im,
                    "its pads '%.100s' are not eight known numbers, 0 for samples and channels and 0 to 65536 for "
                    "rows and columns",
                    v->name);
    return;
  }
  cvy_onnx_same_as(im, x);
  value *const out = cvy_onnx_output(im);
  if (!out || !(pads[row] + pads[row + 1] + pads[row + 4] + pads[row + 5])) return;
  out->kind = CVY_ONNX_PADDED;
  for (int d = 0; d < 2; d++) {
    out->pad[d] = (int)pads[row + d];
    out->pad[d + 2] = (int)pads[row + 4 + d];
  }
}

void cvy_onnx_take_conv(state *im) {
  value *const w = cvy_onnx_operand(im, 1), *const b = cvy_onnx_operand(im, 2);
  int rank;
  const int64_t *const dims = cvy_onnx_dims_of(w, &rank), groups = cvy_onnx_whole(im, "group", 1);
  if (rank != 4) {
    cvy_onnx_refuse(im, "its filters '%.100s' have %d dimensions: expected 4", w->name, rank);
    return;
  }
  int shape[3] = {0};
  const value *const x = window_input(im, shape);
  window win;
  char layer[64];
  if (!read_window(im, shape + 1, dims + 2, &win) || !x) return;
  add_pads(x, &win);
  if (!cvy_onnx_is_size(groups, 1) || !cvy_onnx_is_size(dims[1], 1) || dims[1] * groups != shape[0] ||
      !cvy_onnx_is_size(dims[0], 1) || dims[0] % groups != 0 || (b && !cvy_onnx_is_vector(b, dims[0]))) {
    cvy_onnx_refuse(im,
                    "its filters are %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " in %" PRId64
                    " groups, for an input of %d channels%s: they do not fit",
                    dims[0], dims[1], dims[2], dims[3], groups, shape[0], b ? " and a bias" : "");
    return;
  }
  const bool fixed = cvy_onnx_is_constant_input(im, w, 1, CVY_ONNX_USE_FILTERS),
             fixed_bias = b && cvy_onnx_is_constant_input(im, b, 2, CVY_ONNX_USE_OTHER);
  cvy_onnx_name_layer(im, w, fixed, layer);
  if (!cvy_onnx_take_weight(im, w, 1, layer, "weight", fixed) ||
      (b && !cvy_onnx_take_weight(im, b, 2, layer, "bias", fixed_bias)))
    return;
  const bool put_back = !b && cvy_onnx_noted(im, im->node, 2);
  if (put_back && !cvy_onnx_put_bias_back(im, layer, dims[0])) return;
  const cvy_conv2d_spec spec = {.filters = (int)dims[0],
                                .kernel = {win.kernel[0], win.kernel[1]},
                                .stride = {win.stride[0], win.stride[1]},
                                .pad = {win.pad[0], win.pad[1]},
                                .pad_more = {win.pad_more[0], win.pad_more[1]},
                                .dilation = {win.dilation[0], win.dilation[1]},
                                .groups = (int)groups,
                                .no_bias = !b && !put_back};
  const cvy_node node = cvy_net_conv2d(im->net, x->node, layer, &spec);
  cvy_onnx_settle(im, node, 0, w, CVY_ONNX_USE_FILTERS, fixed);
  if (b) cvy_onnx_settle(im, node, 1, b, CVY_ONNX_USE_BETA, fixed_bias);
  cvy_onnx_make(im, node, false);
}

/* A ConvTranspose's bias is a layer behind it. */
void cvy_onnx_take_deconv(state *im) {
  value *const w = cvy_onnx_operand(im, 1), *const b = cvy_onnx_operand(im, 2);
  int rank, shape[3];
  int64_t more[2] = {0};
  const int64_t *const dims = cvy_onnx_dims_of(w, &rank), groups = cvy_onnx_whole(im, "group", 1);
  const value *const x = cvy_onnx_pictures(im, 0);
  window win;
  char layer[64];
  if (!x) return;
  cvy_onnx_shape_of(im, x, shape);
  const bool same = cvy_onnx_says(im, "auto_pad", "SAME_UPPER") || cvy_onnx_says(im, "auto_pad", "SAME_LOWER");
  const int n_more = cvy_onnx_wholes(im, "output_padding", more, 2);
  if (rank != 4 || same || cvy_onnx_attribute(im->node, "output_shape") || (n_more != 0 && n_more != 2) ||
      !cvy_onnx_is_size(more[0], 0) || !cvy_onnx_is_size(more[1], 0)) {
    cvy_onnx_refuse(im,
                    "only supported with filters of four dimensions, and with pads and output_padding instead of "
                    "output_shape and auto_pad");
    return;
  }
  if (!read_window(im, shape + 1, dims + 2, &win)) return;
  const int64_t channels = cvy_onnx_is_size(groups, 1) && cvy_onnx_is_size(dims[1], 1) ? dims[1] * groups : 0;
  if (!cvy_onnx_is_size(channels, 1) || dims[0] != shape[0] || dims[0] % groups != 0 ||
      (b && !cvy_onnx_is_vector(b, channels))) {
    cvy_onnx_refuse(im, "its filters or its bias do not fit %d channels in %" PRId64 " groups", shape[0], groups);
    return;
  }
  const bool fixed = cvy_onnx_is_constant_input(im, w, 1, CVY_ONNX_USE_FILTERS);
  cvy_onnx_name_layer(im, w, fixed, layer);
  if (!cvy_onnx_take_weight(im, w, 1, layer, "weight", fixed) || (b && !cvy_onnx_claim(im, b, 2))) return;
  const cvy_conv2d_spec spec = {.kernel = {win.kernel[0], win.kernel[1]},
                                .stride = {win.stride[0], win.stride[1]},
                                .pad = {win.pad[0], win.pad[1]},
                                .pad_more = {win.pad_more[0], win.pad_more[1]},
                                .dilation = {win.dilation[0], win.dilation[1]},
                                .groups = (int)groups};
  cvy_node node =
      cvy_net_deconv2d(im->net, x->node, layer, (int)channels, &spec, (const int[]){(int)more[0], (int)more[1]});
  cvy_onnx_settle(im, node, 0, w, CVY_ONNX_USE_FILTERS, fixed);
  if (b && node > 0) node = cvy_onnx_shift(im, node, b);
  if (im->status == CVY_OK) cvy_onnx_make(im, node, false);
}

/* All values of the layer are 0 or more. */
static bool not_negative(const state *im, cvy_node i) {
  const cvy_layer *const l = &im->net->layers[i];
  return l->kind == CVY_LAYER_RELU ||
         (l->kind == CVY_LAYER_ACTIVATION &&
          (l->activation.kind == CVY_ACTIVATION_SIGMOID || l->activation.kind == CVY_ACTIVATION_HARD_SIGMOID ||
           (l->activation.kind == CVY_ACTIVATION_CLIP && l->activation.a >= 0)));
}

static void take_pool(state *im, bool max) {
  int shape[3] = {0};
  const value *const x = window_input(im, shape);
  bool count_pad = cvy_onnx_whole(im, "count_include_pad", 0) != 0, zero_pad = false;
  window w;
  if (!read_window(im, shape + 1, NULL, &w)) return;
  if (w.dilation[0] != 1 || w.dilation[1] != 1) {
    cvy_onnx_refuse(im, "attribute dilations is %d,%d; expected 1,1", w.dilation[0], w.dilation[1]);
    return;
  }
  if (!x) return;
  if (x->kind == CVY_ONNX_PADDED) {
    const bool own = w.pad[0] || w.pad[1] || w.pad_more[0] || w.pad_more[1];
    zero_pad = max && !not_negative(im, x->node); /* behind a Relu any padding loses against the pixels */
    if (w.ceil || (own && (max ? zero_pad : !count_pad))) {
      cvy_onnx_refuse(im,
                      "its input '%.100s' is padded by zeros: only supported without ceil_mode, without other pads%s",
                      x->name, max ? "" : " or with count_include_pad,");
      return;
    }
    count_pad = true;
    add_pads(x, &w);
  }
  const cvy_pool2d_spec spec = {.kernel = {w.kernel[0], w.kernel[1]},
                                .stride = {w.stride[0], w.stride[1]},
                                .pad = {w.pad[0], w.pad[1]},
                                .pad_more = {w.pad_more[0], w.pad_more[1]},
                                .ceil_mode = w.ceil,
                                .exclude_pad = !count_pad,
                                .zero_pad = zero_pad};
  cvy_onnx_make(im, max ? cvy_net_maxpool(im->net, x->node, &spec) : cvy_net_avgpool(im->net, x->node, &spec), false);
}
void cvy_onnx_take_maxpool(state *im) { take_pool(im, true); }
void cvy_onnx_take_avgpool(state *im) { take_pool(im, false); }

void cvy_onnx_take_global_avgpool(state *im) {
  const value *const x = cvy_onnx_pictures(im, 0);
  if (x) cvy_onnx_make(im, cvy_net_global_avgpool(im->net, x->node), false);
}

cvy_node cvy_onnx_global_maxpool(state *im, cvy_node x) {
  int shape[3] = {0};
  (void)cvy_net_shape(im->net, x, &shape[0], &shape[1], &shape[2]);
  return cvy_net_maxpool(im->net, x, &(cvy_pool2d_spec){.kernel = {shape[1], shape[2]}, .stride = {1, 1}});
}

void cvy_onnx_take_global_maxpool(state *im) {
  const value *const x = cvy_onnx_pictures(im, 0);
  if (x) cvy_onnx_make(im, cvy_onnx_global_maxpool(im, x->node), false);
}

/* ---- Resize ---- */

/* Which of the builder's kinds the attributes mean, for these sizes; false: refused. */
static bool resize_kind(state *im, const int in[2], const int out[2], cvy_resample_kind *kind) {
  static const char where[] = "coordinate_transformation_mode";
  const bool nearest = !cvy_onnx_attribute(im->node, "mode") || cvy_onnx_says(im, "mode", "nearest"),
             whole = out[0] % in[0] == 0 && out[1] % in[1] == 0, corners = cvy_onnx_says(im, where, "align_corners"),
             half = !cvy_onnx_attribute(im->node, where) || cvy_onnx_says(im, where, "half_pixel") ||
                    cvy_onnx_says(im, where, "pytorch_half_pixel"),
             floors = cvy_onnx_says(im, "nearest_mode", "floor"),
             rounds = !cvy_onnx_attribute(im->node, "nearest_mode") ||
                      cvy_onnx_says(im, "nearest_mode", "round_prefer_floor");
  *kind = nearest ? CVY_RESAMPLE_NEAREST : corners ? CVY_RESAMPLE_LINEAR_CORNERS : CVY_RESAMPLE_LINEAR;
  if (cvy_onnx_whole(im, "antialias", 0)) return cvy_onnx_refuse(im, "attribute antialias is not supported");
  if (nearest && ((floors && cvy_onnx_says(im, where, "asymmetric")) || (rounds && half && whole))) return true;
  if (!nearest && cvy_onnx_says(im, "mode", "linear") && (corners || half)) return true;
  return cvy_onnx_refuse(im,
                         "its mode is none of PyTorch's: expected nearest (asymmetric, floor) or linear (half_pixel, "
                         "align_corners)");
}

/* Rows and columns of the result; false: refused. */
static bool resize_sizes(state *im, const value *x, const int in[2], int out[2]) {
  int64_t sizes[CVY_ONNX_WHOLE_MOST];
  const bool by_sizes = cvy_onnx_has_input(im, 3);
  const value *const v = cvy_onnx_has_input(im, by_sizes ? 3 : 2) ? cvy_onnx_node_input(im, by_sizes ? 3 : 2) : NULL;
  const cvy_onnx_array *const scales = v && !by_sizes ? cvy_onnx_array_input(im, 2) : NULL;
  const int row = x->last ? 1 : 2, channels = x->last ? 3 : 1;
  int shape[3];
  cvy_onnx_shape_of(im, x, shape);
  bool good =
      v && (by_sizes ? cvy_onnx_wholes_of(v, sizes) == 4 : scales && scales->type != CVY_ONNX_WHOLES && scales->n == 4);
  for (int d = 0; good && d < 4; d++) {
    const int pixels = d == row || d == row + 1 ? in[d - row] : d == channels ? shape[0] : 1;
    const double scaled = by_sizes ? 0 : scales->at[d].real * pixels;
    if (!by_sizes) sizes[d] = scaled >= 0.5 && scaled < 65536 ? (int64_t)rint(scaled) : 0;
    if (d == row || d == row + 1) {
      good = cvy_onnx_is_size(sizes[d], 1) && (by_sizes || fabs(scaled - rint(scaled)) < 1e-3);
      out[d - row] = good ? (int)sizes[d] : 0;
    } else {
      good = sizes[d] == pixels || (d == 0 && (sizes[d] == CVY_ONNX_BATCH || sizes[d] == im->samples));
    }
  }
  return good || cvy_onnx_refuse(im,
                                 "its sizes or scales are not known, of other dimensions than rows and columns, or "
                                 "give no whole pixels");
}

void cvy_onnx_take_resize(state *im) {
  const value *const x = cvy_onnx_pictures(im, 0);
  int shape[3], out[2];
  cvy_resample_kind kind;
  if (!x) return;
  cvy_onnx_shape_of(im, x, shape);
  if (!resize_sizes(im, x, shape + 1, out) || !resize_kind(im, shape + 1, out, &kind)) return;
  const cvy_node node = x->node;
  cvy_onnx_keep_order(im, x);
  if (out[0] == shape[1] && out[1] == shape[2]) cvy_onnx_same_as(im, x);
  else cvy_onnx_make(im, cvy_net_resample(im->net, node, out[0], out[1], kind), false);
}
