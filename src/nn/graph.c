/* SPDX-License-Identifier: MIT
 * The builder of convoy/net.h. Errors stick: net->status is the first one, and after it every call does nothing. All
 * activations but the input have the pitch of whole vectors; finish gives the input its own, narrower one where only
 * convolutions and linear layers read it. */
#include "src/nn/graph.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/text.h"

enum { LARGEST_SIZE = 65536, FIRST_LAYERS = 16 };

/* ---- messages ---- */

const char *cvy_layer_kind_name(cvy_layer_kind kind) {
  static const char *const names[] = {"input",   "conv2d", "batchnorm", "relu",       "add",      "maxpool",
                                      "avgpool", "linear", "softmax",   "activation", "concat",   "mul",
                                      "dropout", "slice",  "shuffle",   "groupnorm",  "resample", "deconv2d"};
  return names[kind];
}

const char *cvy_layer_title(const cvy_net *net, int layer, char *out, size_t out_bytes) {
  const cvy_layer *const l = &net->layers[layer];
  const char *const kind =
      l->kind == CVY_LAYER_ACTIVATION ? cvy_activation_name(l->activation.kind) : cvy_layer_kind_name(l->kind);
  if (l->name[0]) {
    char name[96];
    cvy_plain_copy(l->name, "", name, sizeof name);
    snprintf(out, out_bytes, "%s '%s'", kind, name);
  } else snprintf(out, out_bytes, "%s (layer %d)", kind, layer);
  return out;
}

cvy_pool2d_params cvy_layer_pool(const cvy_net *net, const cvy_layer *l, int n) {
  return (cvy_pool2d_params){.n_max = n,
                             .kind = l->kind == CVY_LAYER_MAXPOOL ? CVY_POOL_MAX : CVY_POOL_AVG,
                             .x = net->layers[l->input[0]].shape,
                             .r = l->kernel[0],
                             .s = l->kernel[1],
                             .stride_h = l->stride[0],
                             .stride_w = l->stride[1],
                             .pad_h = l->pad[0],
                             .pad_w = l->pad[1],
                             .pad_more_h = l->pad_more[0],
                             .pad_more_w = l->pad_more[1],
                             .ceil_mode = l->ceil_mode,
                             .exclude_pad = l->exclude_pad,
                             .zero_pad = l->zero_pad};
}

cvy_groupnorm_params cvy_layer_groupnorm(const cvy_layer *l, int n) {
  cvy_groupnorm_params p = {
      .n_max = cvy_layer_groupnorm_samples(l, n), .x = l->shape, .groups = l->groups, .eps = l->eps};
  if (l->by_position) p.x.h = p.x.w = 1;
  return p;
}

void cvy_layer_window(const cvy_layer *l, cvy_conv2d_params *p) {
  p->r = l->kernel[0], p->s = l->kernel[1];
  p->stride_h = l->stride[0], p->stride_w = l->stride[1];
  p->pad_h = l->pad[0], p->pad_w = l->pad[1];
  p->groups = l->groups;
  p->dilation_h = l->dilation[0], p->dilation_w = l->dilation[1];
  p->pad_more_h = l->pad_more[0], p->pad_more_w = l->pad_more[1];
}

cvy_conv2d_params cvy_layer_deconv2d(const cvy_net *net, const cvy_layer *l, int n) {
  const cvy_shape *const x = &net->layers[l->input[0]].shape;
  cvy_conv2d_params p = {.n_max = n, .x = l->shape, .k = x->c, .y_pitch = x->pitch, .layer = l->name};
  cvy_layer_window(l, &p);
  return p;
}

cvy_resample_params cvy_layer_resample(const cvy_net *net, const cvy_layer *l, int n) {
  return (cvy_resample_params){
      .n_max = n, .x = net->layers[l->input[0]].shape, .out_h = l->shape.h, .out_w = l->shape.w, .kind = l->resample};
}

bool cvy_layer_alike(const cvy_layer *a, const cvy_layer *b) {
  return a->kind == b->kind && a->bias == b->bias && a->groups == b->groups && a->ceil_mode == b->ceil_mode &&
         a->exclude_pad == b->exclude_pad && a->zero_pad == b->zero_pad && a->fixed == b->fixed &&
         a->activation.kind == b->activation.kind && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 &&
         memcmp(a->kernel, b->kernel, sizeof a->kernel) == 0 && memcmp(a->stride, b->stride, sizeof a->stride) == 0 &&
         memcmp(a->pad, b->pad, sizeof a->pad) == 0 && memcmp(a->pad_more, b->pad_more, sizeof a->pad_more) == 0 &&
         memcmp(a->dilation, b->dilation, sizeof a->dilation) == 0 && a->first == b->first && a->step == b->step &&
         a->by_position == b->by_position && a->resample == b->resample;
}

const cvy_node *cvy_layer_inputs(const cvy_net *net, int layer, int *n) {
  const cvy_layer *const l = &net->layers[layer];
  if (l->kind == CVY_LAYER_CONCAT) {
    *n = l->n_inputs;
    return net->concat_inputs + l->inputs_at;
  }
  *n = (l->input[0] >= 0) + (l->input[1] >= 0);
  return l->input;
}

bool cvy_layer_next_copy(const cvy_net *net, int layer, cvy_channel_copy *copy) {
  const cvy_layer *const l = &net->layers[layer];
  const int number = copy->number;
  int n;
  const cvy_node *const inputs = cvy_layer_inputs(net, layer, &n);
  if (l->kind == CVY_LAYER_CONCAT && number < n) {
    *copy = (cvy_channel_copy){.number = number + 1,
                               .x = inputs[number],
                               .count = net->layers[inputs[number]].shape.c,
                               .x_step = 1,
                               .y_at = copy->y_at + copy->count,
                               .y_step = 1};
  } else if (l->kind == CVY_LAYER_SLICE && number == 0) {
    *copy = (cvy_channel_copy){
        .number = 1, .x = l->input[0], .count = l->shape.c, .x_at = l->first, .x_step = l->step, .y_step = 1};
  } else if (l->kind == CVY_LAYER_SHUFFLE) {
    const int each = l->shape.c / l->groups;
    const bool by_group = l->groups < each; /* else by the channels of a group: whichever are fewer */
    if (number == (by_group ? l->groups : each)) return false;
    if (by_group)
      *copy =
          (cvy_channel_copy){.count = each, .x_at = number * each, .x_step = 1, .y_at = number, .y_step = l->groups};
    else
      *copy = (cvy_channel_copy){
          .count = l->groups, .x_at = number, .x_step = each, .y_at = number * l->groups, .y_step = 1};
    copy->number = number + 1, copy->x = l->input[0];
  } else {
    return false;
  }
  return true;
}

/* Notes the first failure, whose message the caller has logged. */
static cvy_node spoil(cvy_net *net, cvy_status status) {
  if (net && net->status == CVY_OK) net->status = status;
  return -1;
}

#define SPOIL(net, ...) (cvy_log_error(__VA_ARGS__), spoil((net), CVY_E_ARGUMENT))

/* ---- life ---- */

cvy_status cvy_net_create(int channels, int height, int width, cvy_net **out) {
  cvy_status status = CVY_OK;
  cvy_net *net = NULL;
  CVY_REQUIRE(out, CVY_E_ARGUMENT, "cvy_net_create: out is NULL");
  *out = NULL;
  CVY_REQUIRE(channels >= 1 && channels <= LARGEST_SIZE && height >= 1 && height <= LARGEST_SIZE && width >= 1 &&
                  width <= LARGEST_SIZE,
              CVY_E_ARGUMENT, "input of a network: %d channels, %dx%d pixels: each must be 1 to %d", channels, height,
              width, LARGEST_SIZE);
  const cvy_shape shape = {.h = height, .w = width, .c = channels, .pitch = cvy_pitch_of(channels)};
  CVY_REQUIRE(cvy_fits_int32(&shape, 1), CVY_E_ARGUMENT, "input of a network: %dx%dx%d is more than 2^31 values",
              channels, height, width);
  net = cvy_calloc(1, sizeof *net);
  CVY_REQUIRE(net, CVY_E_MEMORY, "out of host memory");
  net->output = -1;
  net->layers = cvy_grow(NULL, 0, &net->capacity, FIRST_LAYERS, sizeof *net->layers);
  CVY_REQUIRE(net->layers, CVY_E_MEMORY, "out of host memory");
  net->layers[0] = (cvy_layer){
      .kind = CVY_LAYER_INPUT, .input = {-1, -1}, .shape = shape, .param = {-1, -1}, .running = -1, .order = -1};
  net->n_layers = 1;
  *out = net;
  return CVY_OK;
fail:
  cvy_net_destroy(&net);
  return status;
}

void cvy_net_destroy(cvy_net **net) {
  if (!net || !*net) return;
  cvy_layout_clear(&(*net)->layout);
  for (size_t i = 0; i < (*net)->n_initial_values; i++) cvy_free((*net)->initial_values[i]);
  for (int i = 0; i < (*net)->n_constants; i++) cvy_free((*net)->constants[i].values);
  cvy_free((*net)->constants);
  cvy_free((*net)->initial_values);
  cvy_free((*net)->caveat);
  cvy_free((*net)->layers);
  cvy_free((*net)->names);
  cvy_free((*net)->concat_inputs);
  cvy_free(*net);
  *net = NULL;
}

cvy_node cvy_net_input(cvy_net *net) { return net && net->status == CVY_OK ? 0 : -1; }

/* ---- names ---- */

static bool name_is_good(const char *name) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  return name && name[0] && strlen(name) < 64 && strspn(name, allowed) == strlen(name);
}

static int find_name(const cvy_net *net, const char *name) {
  for (int i = 0; i < net->n_names; i++)
    if (!strcmp(net->names[i], name)) return i;
  return -1;
}

static int append_name(cvy_net *net, const char *name) {
  char(*const names)[64] = cvy_grow(net->names, (size_t)net->n_names, &net->names_capacity, 16, sizeof *names);
  if (!names) {
    cvy_log_error("out of host memory");
    return spoil(net, CVY_E_MEMORY);
  }
  net->names = names;
  snprintf(net->names[net->n_names], sizeof net->names[0], "%s", name);
  return net->n_names++;
}

void cvy_net_declare(cvy_net *net, const char *name) {
  if (!net || net->status != CVY_OK) return;
  if (net->finished) (void)SPOIL(net, "cvy_net_declare after cvy_net_finish");
  else if (!name_is_good(name))
    (void)SPOIL(net, "layer name '%s': 1 to 63 characters of A-Z a-z 0-9 _ . - are allowed", name ? name : "(null)");
  else if (find_name(net, name) >= 0) (void)SPOIL(net, "layer name '%s' is declared or used twice", name);
  else (void)append_name(net, name);
}

/* Place of the name of a new layer, -1 on failure. */
static int claim_name(cvy_net *net, const char *name, cvy_layer_kind kind) {
  if (!name_is_good(name))
    return SPOIL(net, "%s: layer name '%s': 1 to 63 characters of A-Z a-z 0-9 _ . - are allowed",
                 cvy_layer_kind_name(kind), name ? name : "(null)");
  for (int i = 0; i < net->n_layers; i++)
    if (!strcmp(net->layers[i].name, name))
      return SPOIL(net, "%s: there is a layer named '%s' already", cvy_layer_kind_name(kind), name);
  const int declared = find_name(net, name);
  return declared >= 0 ? declared : append_name(net, name);
}

/* ---- layers ---- */

/* False if the call has nothing to do (an input is -1 by an earlier error) or is wrong. */
static bool input_is_good(cvy_net *net, cvy_node x, cvy_layer_kind kind) {
  if (!net || net->status != CVY_OK) return false;
  if (net->finished) {
    (void)SPOIL(net, "%s: the network is finished, nothing can be added", cvy_layer_kind_name(kind));
    return false;
  }
  if (x < 0 || x >= net->n_layers) {
    (void)SPOIL(net, "%s: input node %d does not exist, there are nodes 0 to %d", cvy_layer_kind_name(kind), x,
                net->n_layers - 1);
    return false;
  }
  return true;
}

static cvy_node append(cvy_net *net, const char *name, cvy_layer layer) {
  char title[96];
  snprintf(title, sizeof title, "%s '%s'", cvy_layer_kind_name(layer.kind), name ? name : "");
  layer.shape.pitch = cvy_pitch_of(layer.shape.c);
  if (!cvy_fits_int32(&layer.shape, 1))
    return SPOIL(net, "%s: one sample of its output, %dx%dx%d, is more than 2^31 values", title, layer.shape.c,
                 layer.shape.h, layer.shape.w);
  layer.order = -1;
  if (name) {
    layer.order = claim_name(net, name, layer.kind);
    if (layer.order < 0) return -1;
    snprintf(layer.name, sizeof layer.name, "%s", name);
  }
  layer.param[0] = layer.param[1] = layer.running = -1;
  cvy_layer *const layers = cvy_grow(net->layers, (size_t)net->n_layers, &net->capacity, FIRST_LAYERS, sizeof *layers);
  if (!layers) {
    cvy_log_error("out of host memory");
    return spoil(net, CVY_E_MEMORY);
  }
  net->layers = layers;
  net->layers[net->n_layers] = layer;
  return net->n_layers++;
}

static bool size_in(int value, int least) { return value >= least && value <= LARGEST_SIZE; }

/* Checks the window and fills the layer's geometry and output height and width. `title`: for messages; `more`: padding
 * behind beyond pad, `dilation`: from one row of the kernel to the next (0: 1). */
static bool set_window(cvy_net *net, cvy_layer *layer, const char *title, const cvy_shape *x, const int kernel[2],
                       const int stride[2], const int pad[2], const int more[2], const int dilation[2]) {
  for (int d = 0; d < 2; d++) {
    const int size = d == 0 ? x->h : x->w, apart = dilation[d] ? dilation[d] : 1;
    if (!size_in(kernel[d], 1) || !size_in(stride[d], 1) || !size_in(pad[d], 0)) {
      (void)SPOIL(net,
                  "%s: kernel %dx%d, stride %d,%d, padding %d,%d: kernel and stride must be 1 to %d, padding 0 to %d",
                  title, kernel[0], kernel[1], stride[0], stride[1], pad[0], pad[1], LARGEST_SIZE, LARGEST_SIZE);
      return false;
    }
    if (!size_in(apart, 1) || !size_in(more[d], -pad[d])) {
      (void)SPOIL(net,
                  "%s: dilation %d,%d, padding behind %d,%d more than %d,%d in front: dilation must be 1 to %d, and "
                  "padding behind 0 to %d",
                  title, dilation[0], dilation[1], more[0], more[1], pad[0], pad[1], LARGEST_SIZE, LARGEST_SIZE);
      return false;
    }
    const int64_t reach = (int64_t)(kernel[d] - 1) * apart + 1, padded = (int64_t)size + 2 * (int64_t)pad[d] + more[d];
    if (reach > padded) {
      (void)SPOIL(net, "%s: a kernel of %dx%d does not fit into %dx%d pixels with padding %d,%d%s", title, kernel[0],
                  kernel[1], x->h, x->w, pad[0], pad[1],
                  apart > 1 || more[d] ? ", this dilation and this padding behind" : "");
      return false;
    }
    layer->kernel[d] = kernel[d];
    layer->stride[d] = stride[d];
    layer->pad[d] = pad[d];
    layer->pad_more[d] = more[d];
    layer->dilation[d] = apart;
    *(d == 0 ? &layer->shape.h : &layer->shape.w) = (int)((padded - reach) / stride[d] + 1);
  }
  return true;
}

/* Weights of (r,s,c,pitch of k) must be countable with 32 bits. */
static bool weights_fit(cvy_net *net, const char *title, int r, int s, int c, int k) {
  const cvy_shape one_row = {.h = s, .w = c, .c = k, .pitch = cvy_pitch_of(k)};
  if (cvy_fits_int32(&one_row, r)) return true;
  (void)SPOIL(net, "%s: its weights, %dx%dx%dx%d, are more than 2^31 values", title, k, c, r, s);
  return false;
}

cvy_node cvy_net_conv2d(cvy_net *net, cvy_node x, const char *name, const cvy_conv2d_spec *spec) {
  if (!input_is_good(net, x, CVY_LAYER_CONV2D)) return -1;
  char title[96];
  snprintf(title, sizeof title, "conv2d '%.63s'", name ? name : "");
  if (!spec) return SPOIL(net, "%s: spec is NULL", title);
  const cvy_shape *const in = &net->layers[x].shape;
  if (!size_in(spec->filters, 1))
    return SPOIL(net, "%s: %d filters: must be 1 to %d", title, spec->filters, LARGEST_SIZE);
  cvy_layer layer = {.kind = CVY_LAYER_CONV2D, .input = {x, -1}, .shape = {.c = spec->filters}, .bias = !spec->no_bias};
  const int stride[2] = {spec->stride[0] ? spec->stride[0] : 1, spec->stride[1] ? spec->stride[1] : 1};
  if (!set_window(net, &layer, title, in, spec->kernel, stride, spec->pad, spec->pad_more, spec->dilation)) return -1;
  layer.groups = spec->groups ? spec->groups : 1;
  if (layer.groups < 0 || in->c % layer.groups != 0 || spec->filters % layer.groups != 0)
    return SPOIL(net, "%s: %d groups: the number must divide its %d channels and %d filters", title, spec->groups,
                 in->c, spec->filters);
  if (!weights_fit(net, title, spec->kernel[0], spec->kernel[1], in->c / layer.groups, spec->filters)) return -1;
  return append(net, name ? name : "", layer);
}

cvy_node cvy_net_deconv2d(cvy_net *net, cvy_node x, const char *name, int channels, const cvy_conv2d_spec *spec,
                          const int output_pad[2]) {
  if (!input_is_good(net, x, CVY_LAYER_DECONV2D)) return -1;
  char title[96];
  snprintf(title, sizeof title, "deconv2d '%.63s'", name ? name : "");
  if (!spec) return SPOIL(net, "%s: spec is NULL", title);
  const cvy_shape in = net->layers[x].shape;
  if (!size_in(channels, 1)) return SPOIL(net, "%s: %d channels: must be 1 to %d", title, channels, LARGEST_SIZE);
  cvy_layer layer = {.kind = CVY_LAYER_DECONV2D, .input = {x, -1}};
  cvy_shape made = {.c = channels};
  int stride[2];
  for (int d = 0; d < 2; d++) {
    const int apart = spec->dilation[d] ? spec->dilation[d] : 1, more = output_pad ? output_pad[d] : 0;
    stride[d] = spec->stride[d] ? spec->stride[d] : 1;
    const int64_t size = (int64_t)((d ? in.w : in.h) - 1) * stride[d] - 2 * (int64_t)spec->pad[d] - spec->pad_more[d] +
                         (int64_t)(spec->kernel[d] - 1) * apart + 1 + more;
    if (more < 0 || more >= (stride[d] > apart ? stride[d] : apart) || size < 1 || size > LARGEST_SIZE)
      return SPOIL(net, "%s: %lld rows or columns, %d of them behind: must be 1 to %d, and those less than the stride",
                   title, (long long)size, more, LARGEST_SIZE);
    *(d ? &made.w : &made.h) = (int)size;
  }
  if (!set_window(net, &layer, title, &made, spec->kernel, stride, spec->pad, spec->pad_more, spec->dilation))
    return -1;
  layer.groups = spec->groups ? spec->groups : 1;
  if (layer.shape.h != in.h || layer.shape.w != in.w || layer.groups < 0 || in.c % layer.groups != 0 ||
      channels % layer.groups != 0)
    return SPOIL(net, "%s: %d groups of %d and %d channels, or a window that gives no %dx%d pixels back", title,
                 spec->groups, in.c, channels, in.h, in.w);
  if (!weights_fit(net, title, spec->kernel[0], spec->kernel[1], channels / layer.groups, in.c)) return -1;
  layer.shape = made;
  return append(net, name ? name : "", layer);
}

cvy_node cvy_net_batchnorm(cvy_net *net, cvy_node x, const char *name, const cvy_batchnorm_spec *spec) {
  if (!input_is_good(net, x, CVY_LAYER_BATCHNORM)) return -1;
  const float eps = spec && spec->eps != 0 ? spec->eps : 1e-5f,
              momentum = spec && spec->momentum != 0 ? spec->momentum : 0.1f;
  if (!(eps > 0) || !(eps <= 1e30f) || !(momentum > 0) || !(momentum <= 1))
    return SPOIL(net, "batchnorm '%.63s': eps %g, momentum %g: eps must be positive, momentum in (0,1]",
                 name ? name : "", (double)eps, (double)momentum);
  return append(net, name ? name : "",
                (cvy_layer){.kind = CVY_LAYER_BATCHNORM,
                            .input = {x, -1},
                            .shape = net->layers[x].shape,
                            .bias = true,
                            .eps = eps,
                            .momentum = momentum,
                            .fixed = spec && spec->fixed});
}

cvy_node cvy_net_groupnorm(cvy_net *net, cvy_node x, const char *name, const cvy_groupnorm_spec *spec) {
  static const cvy_groupnorm_spec usual = {0};
  if (!input_is_good(net, x, CVY_LAYER_GROUPNORM)) return -1;
  const cvy_groupnorm_spec *const s = spec ? spec : &usual;
  const cvy_shape *const shape = &net->layers[x].shape;
  const int groups = s->groups ? s->groups : 1;
  const float eps = s->eps != 0 ? s->eps : 1e-5f;
  if (groups < 1 || shape->c % groups != 0 || (s->by_position && groups > 1) || !(eps > 0) || !(eps <= 1e30f))
    return SPOIL(net,
                 "groupnorm '%.63s': %d groups of %d channels%s, eps %g: groups must divide the channels, be 1 by "
                 "position, and eps positive",
                 name ? name : "", groups, shape->c, s->by_position ? " by position" : "", (double)eps);
  return append(net, name ? name : "",
                (cvy_layer){.kind = CVY_LAYER_GROUPNORM,
                            .input = {x, -1},
                            .shape = *shape,
                            .groups = groups,
                            .bias = !s->no_bias,
                            .eps = eps,
                            .by_position = s->by_position});
}

cvy_node cvy_net_relu(cvy_net *net, cvy_node x) {
  if (!input_is_good(net, x, CVY_LAYER_RELU)) return -1;
  return append(net, NULL, (cvy_layer){.kind = CVY_LAYER_RELU, .input = {x, -1}, .shape = net->layers[x].shape});
}

cvy_node cvy_net_activation(cvy_net *net, cvy_node x, cvy_activation_kind kind, float a, float b) {
  if (!input_is_good(net, x, CVY_LAYER_ACTIVATION)) return -1;
  if (kind == CVY_ACTIVATION_RELU) return cvy_net_relu(net, x);
  const cvy_activation_params params = {.kind = kind, .a = a, .b = b};
  if (cvy_activation_check(&params) != CVY_OK) return spoil(net, CVY_E_ARGUMENT);
  return append(
      net, NULL,
      (cvy_layer){.kind = CVY_LAYER_ACTIVATION, .input = {x, -1}, .shape = net->layers[x].shape, .activation = params});
}

static cvy_node add_pair(cvy_net *net, cvy_layer_kind kind, cvy_node a, cvy_node b) {
  if (!input_is_good(net, a, kind) || !input_is_good(net, b, kind)) return -1;
  const cvy_shape *const sa = &net->layers[a].shape, *const sb = &net->layers[b].shape;
  const bool equal = sa->h == sb->h && sa->w == sb->w, single_a = sa->h == 1 && sa->w == 1,
             single_b = sb->h == 1 && sb->w == 1;
  if (sa->c != sb->c || !(equal || single_a || single_b)) {
    char ta[96], tb[96];
    return SPOIL(net,
                 "%s: the output of %s is %dx%dx%d and that of %s is %dx%dx%d: they must be equal, or one of them the "
                 "other's channels x 1 x 1",
                 cvy_layer_kind_name(kind), cvy_layer_title(net, a, ta, sizeof ta), sa->c, sa->h, sa->w,
                 cvy_layer_title(net, b, tb, sizeof tb), sb->c, sb->h, sb->w);
  }
  return append(net, NULL, (cvy_layer){.kind = kind, .input = {a, b}, .shape = single_a ? *sb : *sa});
}

cvy_node cvy_net_add(cvy_net *net, cvy_node a, cvy_node b) { return add_pair(net, CVY_LAYER_ADD, a, b); }
cvy_node cvy_net_mul(cvy_net *net, cvy_node a, cvy_node b) { return add_pair(net, CVY_LAYER_MUL, a, b); }

cvy_node cvy_net_dropout(cvy_net *net, cvy_node x, float p) {
  if (!input_is_good(net, x, CVY_LAYER_DROPOUT)) return -1;
  if (!(p >= 0) || !(p < 1)) return SPOIL(net, "dropout: p %g: must be at least 0 and below 1", (double)p);
  if (p == 0) return x;
  return append(net, NULL,
                (cvy_layer){.kind = CVY_LAYER_DROPOUT, .input = {x, -1}, .shape = net->layers[x].shape, .drop = p});
}

cvy_node cvy_net_concat(cvy_net *net, const cvy_node *nodes, int n) {
  char ta[96], tb[96];
  if (!net || net->status != CVY_OK) return -1;
  if (!nodes || n < 1) return SPOIL(net, "concat: %d nodes: must be 1 or more", nodes ? n : 0);
  int channels = 0;
  for (int i = 0; i < n; i++) {
    if (!input_is_good(net, nodes[i], CVY_LAYER_CONCAT)) return -1;
    const cvy_shape *const first = &net->layers[nodes[0]].shape, *const s = &net->layers[nodes[i]].shape;
    if (s->h != first->h || s->w != first->w)
      return SPOIL(net,
                   "concat: the output of %s is %dx%dx%d and that of %s is %dx%dx%d: height and width must be equal",
                   cvy_layer_title(net, nodes[0], ta, sizeof ta), first->c, first->h, first->w,
                   cvy_layer_title(net, nodes[i], tb, sizeof tb), s->c, s->h, s->w);
    if (s->c > LARGEST_SIZE - channels)
      return SPOIL(net, "concat: %d nodes have more than %d channels together", n, LARGEST_SIZE);
    channels += s->c;
  }
  const int at = net->n_concat_inputs;
  for (int i = 0; i < n; i++) {
    cvy_node *const grown = cvy_grow(net->concat_inputs, (size_t)net->n_concat_inputs, &net->concat_inputs_capacity,
                                     FIRST_LAYERS, sizeof *grown);
    if (!grown) {
      cvy_log_error("out of host memory");
      return spoil(net, CVY_E_MEMORY);
    }
    net->concat_inputs = grown;
    net->concat_inputs[net->n_concat_inputs++] = nodes[i];
  }
  cvy_layer layer = {.kind = CVY_LAYER_CONCAT,
                     .input = {nodes[0], n > 1 ? nodes[1] : -1},
                     .shape = net->layers[nodes[0]].shape,
                     .inputs_at = at,
                     .n_inputs = n};
  layer.shape.c = channels;
  return append(net, NULL, layer);
}

cvy_node cvy_net_slice(cvy_net *net, cvy_node x, int first, int count, int step) {
  char title[96];
  if (!input_is_good(net, x, CVY_LAYER_SLICE)) return -1;
  cvy_layer layer = {.kind = CVY_LAYER_SLICE, .input = {x, -1}, .shape = net->layers[x].shape, .first = first};
  layer.step = step ? step : 1;
  if (first < 0 || count < 1 || step < 0 || (int64_t)first + (int64_t)(count - 1) * layer.step >= layer.shape.c)
    return SPOIL(net, "slice: %d channels from %d on in steps of %d, of the %d of %s: must lie inside", count, first,
                 layer.step, layer.shape.c, cvy_layer_title(net, x, title, sizeof title));
  layer.shape.c = count;
  return append(net, NULL, layer);
}

cvy_node cvy_net_shuffle(cvy_net *net, cvy_node x, int groups) {
  char title[96];
  if (!input_is_good(net, x, CVY_LAYER_SHUFFLE)) return -1;
  const cvy_shape *const shape = &net->layers[x].shape;
  if (groups < 1 || shape->c % groups != 0)
    return SPOIL(net, "shuffle: %d groups of the %d channels of %s: must divide them", groups, shape->c,
                 cvy_layer_title(net, x, title, sizeof title));
  return append(net, NULL, (cvy_layer){.kind = CVY_LAYER_SHUFFLE, .input = {x, -1}, .shape = *shape, .groups = groups});
}

static cvy_node add_pool(cvy_net *net, cvy_layer_kind kind, cvy_node x, const cvy_pool2d_spec *spec) {
  if (!input_is_good(net, x, kind)) return -1;
  if (!spec) return SPOIL(net, "%s: spec is NULL", cvy_layer_kind_name(kind));
  cvy_layer layer = {.kind = kind,
                     .input = {x, -1},
                     .shape = net->layers[x].shape,
                     .ceil_mode = spec->ceil_mode,
                     .exclude_pad = spec->exclude_pad && kind == CVY_LAYER_AVGPOOL,
                     .zero_pad = spec->zero_pad && kind == CVY_LAYER_MAXPOOL};
  for (int d = 0; d < 2; d++) {
    layer.kernel[d] = spec->kernel[d];
    layer.stride[d] = spec->stride[d] ? spec->stride[d] : spec->kernel[d];
    layer.pad[d] = spec->pad[d];
    layer.pad_more[d] = spec->pad_more[d];
    if (!size_in(layer.kernel[d], 1) || !size_in(layer.stride[d], 1))
      return SPOIL(net, "%s: kernel %dx%d, stride %d,%d: must be 1 to %d", cvy_layer_kind_name(kind), spec->kernel[0],
                   spec->kernel[1], spec->stride[0], spec->stride[1], LARGEST_SIZE);
  }
  const cvy_pool2d_params params = cvy_layer_pool(net, &layer, 1);
  cvy_shape y;
  if (cvy_pool2d_output_shape(&params, &y) != CVY_OK) return spoil(net, CVY_E_ARGUMENT);
  layer.shape = y;
  return append(net, NULL, layer);
}

cvy_node cvy_net_maxpool(cvy_net *net, cvy_node x, const cvy_pool2d_spec *spec) {
  return add_pool(net, CVY_LAYER_MAXPOOL, x, spec);
}
cvy_node cvy_net_avgpool(cvy_net *net, cvy_node x, const cvy_pool2d_spec *spec) {
  return add_pool(net, CVY_LAYER_AVGPOOL, x, spec);
}

cvy_node cvy_net_global_avgpool(cvy_net *net, cvy_node x) {
  if (!input_is_good(net, x, CVY_LAYER_AVGPOOL)) return -1;
  const cvy_shape *const in = &net->layers[x].shape;
  return add_pool(net, CVY_LAYER_AVGPOOL, x, &(cvy_pool2d_spec){.kernel = {in->h, in->w}, .stride = {1, 1}});
}

cvy_node cvy_net_resample(cvy_net *net, cvy_node x, int height, int width, cvy_resample_kind kind) {
  if (!input_is_good(net, x, CVY_LAYER_RESAMPLE)) return -1;
  cvy_layer layer = {.kind = CVY_LAYER_RESAMPLE, .input = {x, -1}, .shape = net->layers[x].shape, .resample = kind};
  layer.shape.h = height, layer.shape.w = width;
  if (!size_in(height, 1) || !size_in(width, 1))
    return SPOIL(net, "resample: %dx%d pixels: must be 1 to %d", height, width, LARGEST_SIZE);
  const cvy_resample_params params = cvy_layer_resample(net, &layer, 1);
  if (cvy_resample_check(&params) != CVY_OK) return spoil(net, CVY_E_ARGUMENT);
  return append(net, NULL, layer);
}

cvy_node cvy_net_linear(cvy_net *net, cvy_node x, const char *name, int outputs, bool no_bias) {
  if (!input_is_good(net, x, CVY_LAYER_LINEAR)) return -1;
  char title[96];
  snprintf(title, sizeof title, "linear '%.63s'", name ? name : "");
  if (!size_in(outputs, 1)) return SPOIL(net, "%s: %d outputs: must be 1 to %d", title, outputs, LARGEST_SIZE);
  const cvy_shape *const in = &net->layers[x].shape;
  if (!weights_fit(net, title, in->h, in->w, in->c, outputs)) return -1;
  return append(
      net, name ? name : "",
      (cvy_layer){
          .kind = CVY_LAYER_LINEAR, .input = {x, -1}, .shape = {.h = 1, .w = 1, .c = outputs}, .bias = !no_bias});
}

cvy_node cvy_net_softmax(cvy_net *net, cvy_node x) {
  if (!input_is_good(net, x, CVY_LAYER_SOFTMAX)) return -1;
  return append(net, NULL, (cvy_layer){.kind = CVY_LAYER_SOFTMAX, .input = {x, -1}, .shape = net->layers[x].shape});
}

bool cvy_net_shape(const cvy_net *net, cvy_node x, int *channels, int *height, int *width) {
  if (!net || x < 0 || x >= net->n_layers) return false;
  const cvy_shape *const s = &net->layers[x].shape;
  if (channels) *channels = s->c;
  if (height) *height = s->h;
  if (width) *width = s->w;
  return true;
}

cvy_node cvy_net_take_back(cvy_net *net) {
  const cvy_layer *const last = &net->layers[net->n_layers - 1];
  CVY_ASSERT(!net->finished && net->n_layers > 1 && last->order < 0);
  net->n_layers--;
  return last->input[0];
}

/* ---- finish ---- */

static cvy_status check_all_used(const cvy_net *net) {
  cvy_status status = CVY_OK;
  bool *const used = cvy_calloc((size_t)net->n_layers, sizeof *used);
  CVY_REQUIRE(used, CVY_E_MEMORY, "out of host memory");
  used[net->output] = true;
  for (int i = net->n_layers - 1; i >= 0; i--) {
    char title[96];
    CVY_REQUIRE(used[i], CVY_E_ARGUMENT, "%s does not lead to the output, %s",
                cvy_layer_title(net, i, title, sizeof title), cvy_layer_title(net, net->output, (char[96]){0}, 96));
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(net, i, &n);
    for (int k = 0; k < n; k++) used[inputs[k]] = true;
  }
  for (int i = 0; i < net->n_names; i++) {
    bool built = false;
    for (int l = 0; l < net->n_layers; l++) built = built || net->layers[l].order == i;
    CVY_REQUIRE(built, CVY_E_ARGUMENT, "layer '%s' was declared but not built", net->names[i]);
  }
fail:
  cvy_free(used);
  return status;
}

/* Convolutions and linear layers take any pitch of their input; everything else wants whole vectors. */
static void set_input_pitch(cvy_net *net) {
  bool narrow = true;
  for (int i = 1; i < net->n_layers; i++) {
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(net, i, &n);
    for (int k = 0; k < n; k++)
      if (inputs[k] == 0)
        narrow = narrow && (net->layers[i].kind == CVY_LAYER_CONV2D || net->layers[i].kind == CVY_LAYER_LINEAR);
  }
  cvy_shape *const input = &net->layers[0].shape;
  if (narrow) input->pitch = cvy_input_pitch_of(input->c);
}

void cvy_net_give_bias(cvy_net *net, cvy_node node) {
  CVY_ASSERT(!net->finished && node > 0 && node < net->n_layers);
  net->layers[node].bias = true;
}

cvy_status cvy_net_finish(cvy_net *net, cvy_node output) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(net, CVY_E_ARGUMENT, "cvy_net_finish: net is NULL");
  CVY_TRY(net->status);
  CVY_REQUIRE(!net->finished, CVY_E_ARGUMENT, "cvy_net_finish: the network is finished already");
  CVY_REQUIRE(output > 0 && output < net->n_layers, CVY_E_ARGUMENT,
              "output node %d: must be one of the layers, 1 to %d", output, net->n_layers - 1);
  const cvy_shape *const shape = &net->layers[output].shape;
  char title[96];
  CVY_REQUIRE(shape->h == 1 && shape->w == 1, CVY_E_ARGUMENT, "the output, %s, is %dx%dx%d: it must be classes x 1 x 1",
              cvy_layer_title(net, output, title, sizeof title), shape->c, shape->h, shape->w);
  net->output = output;
  CVY_TRY(check_all_used(net));
  set_input_pitch(net);
  CVY_TRY(cvy_layout_make(net));
  net->finished = true;
  return CVY_OK;
fail:
  (void)spoil(net, status);
  return status;
}

/* ---- after finish ---- */

const cvy_layout *cvy_net_layout(const cvy_net *net) { return net && net->finished ? &net->layout : NULL; }

int cvy_net_param_count(const cvy_net *net) { return net && net->finished ? net->layout.n_params : 0; }

bool cvy_net_param(const cvy_net *net, int i, cvy_param_info *out) {
  if (!out || i < 0 || i >= cvy_net_param_count(net)) return false;
  const cvy_param *const p = &net->layout.params[i];
  *out = (cvy_param_info){.name = p->name, .rank = p->rank, .elems = p->elems, .fixed = p->fixed};
  memcpy(out->dims, p->dims, sizeof out->dims);
  return true;
}

int cvy_net_classes(const cvy_net *net) { return net && net->finished ? net->layers[net->output].shape.c : 0; }
