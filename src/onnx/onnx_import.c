/* SPDX-License-Identifier: MIT
 * From a file to a network. Outline: the graph's input · names of layers · nodes in the file's order, which is a
 * topological one, or the file is refused: first those that depend on the file alone, then the others. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "convoy/onnx.h"
#include "src/base/mem.h"
#include "src/onnx/onnx_array.h"
#include "src/onnx/onnx_constants.h"
#include "src/onnx/onnx_ending.h"
#include "src/onnx/onnx_exporter.h"
#include "src/onnx/onnx_node.h"
#include "src/onnx/onnx_parameters.h"
#include "src/onnx/operators/onnx_operators.h"

static const char NEWER_EXPORTER[] =
    "; PyTorch's newer exporter (dynamo=True) made the file, the older one writes fewer "
    "operators: " CVY_ONNX_EXPORT_LINE;
enum { MOST_PAIRS = 1 << 28 };

bool cvy_onnx_is_here(void) { return true; }

/* ---- the graph's input ---- */

/* Keras's input, (samples, rows, columns, channels): the first node that reads it, or what steps on each of its numbers
 * make of it, and wants an order, is a Transpose; or of one channel behind the pixels a Reshape. */
static bool has_channels_last(const cvy_onnx_graph *g, const Onnx__ValueInfoProto *input) {
  static const char *const steps[] = {"Add", "Cast", "Div", "Identity", "Mul", "Pad", "Sub"};
  static const int64_t turn[4] = {0, 3, 1, 2};
  Onnx__ValueInfoProto__Dimension *const *const dims = input->type->tensor_type->shape->dim;
  const char *name = cvy_onnx_text(input->name);
  for (size_t i = 0; i < g->n_node; i++) {
    const cvy_onnx_node *const n = g->node[i];
    const char *const op = cvy_onnx_text(n->op_type);
    bool reads = false, is_step = false;
    for (size_t k = 0; k < n->n_input; k++) reads = reads || !strcmp(n->input[k], name);
    if (!reads || !strcmp(op, "Shape")) continue;
    if (!strcmp(op, "Transpose")) {
      const Onnx__AttributeProto *const perm = cvy_onnx_attribute(n, "perm");
      return perm && perm->n_ints == 4 && !memcmp(perm->ints, turn, sizeof turn);
    }
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) is_step = is_step || !strcmp(op, steps[k]);
    if (!is_step || n->n_output != 1)
      return !strcmp(op, "Reshape") && dims[3]->dim_value == 1 && dims[1]->dim_value > 1 && dims[2]->dim_value > 1;
    name = n->output[0];
  }
  return false;
}

/* The one input that is no initialiser, and its channels, height and width; 0: open. */
static cvy_status read_input(const cvy_onnx_file *file, const Onnx__ValueInfoProto **out, int shape[3],
                             bool *channels_last) {
  cvy_status status = CVY_OK;
  const cvy_onnx_graph *const g = file->model->graph;
  const Onnx__ValueInfoProto *input = NULL;
  CVY_REQUIRE((double)g->n_input * (double)g->n_initializer <= MOST_PAIRS, CVY_E_UNSUPPORTED,
              "%s has %zu inputs and %zu initialisers: too many", file->path, g->n_input, g->n_initializer);
  for (size_t i = 0; i < g->n_input; i++) {
    bool is_initializer = false;
    for (size_t k = 0; k < g->n_initializer && !is_initializer; k++)
      is_initializer = !strcmp(cvy_onnx_text(g->initializer[k]->name), cvy_onnx_text(g->input[i]->name));
    if (is_initializer) continue;
    CVY_REQUIRE(!input, CVY_E_UNSUPPORTED, "%s has several inputs, '%.100s' and '%.100s'; expected one, the pictures",
                file->path, cvy_onnx_text(input->name), cvy_onnx_text(g->input[i]->name));
    input = g->input[i];
  }
  CVY_REQUIRE(input, CVY_E_FORMAT, "%s: its graph has no input", file->path);
  const Onnx__ValueInfoProto__Tensor *const t = input->type ? input->type->tensor_type : NULL;
  CVY_REQUIRE(t && t->shape && t->shape->n_dim == 4, CVY_E_UNSUPPORTED,
              "%s: its input '%.100s' has no four dimensions (samples, channels, height, width)", file->path,
              cvy_onnx_text(input->name));
  CVY_REQUIRE(t->elem_type == CVY_ONNX_FLOAT, CVY_E_UNSUPPORTED, "%s: its input '%.100s' is of type %s: expected FLOAT",
              file->path, cvy_onnx_text(input->name), cvy_onnx_type_name(t->elem_type));
  *channels_last = has_channels_last(g, input);
  for (int d = 0; d < 3; d++) {
    const int64_t size = t->shape->dim[d + 1]->dim_value;
    CVY_REQUIRE(size >= 0 && size <= 65536, CVY_E_UNSUPPORTED,
                "%s: its input '%.100s' has %" PRId64 " in dimension %d; expected up to 65536", file->path,
                cvy_onnx_text(input->name), size, d + 1);
    shape[*channels_last ? (d + 1) % 3 : d] = (int)size;
  }
  *out = input;
fail:
  return status;
}

cvy_status cvy_onnx_input(const char *path, int shape[3]) {
  cvy_onnx_file file = {0};
  const Onnx__ValueInfoProto *input;
  bool channels_last;
  cvy_status status = cvy_onnx_file_open(path, &file);
  if (status == CVY_OK) status = read_input(&file, &input, shape, &channels_last);
  cvy_onnx_file_close(&file);
  return status;
}

/* Begins the network with an input of this size. */
static cvy_status begin(cvy_onnx_import_state *im, const int wanted[3]) {
  cvy_status status = CVY_OK;
  const Onnx__ValueInfoProto *input;
  int shape[3];
  bool last;
  CVY_TRY(read_input(im->file, &input, shape, &last));
  for (int d = 0; d < 3; d++) {
    CVY_REQUIRE(!wanted[d] || !shape[d] || wanted[d] == shape[d], CVY_E_MISMATCH,
                "%s has an input of %dx%dx%d (channels, height, width; 0: open), the data are %dx%dx%d: --size changes "
                "the data's, or "
                "export the network for them",
                im->file->path, shape[0], shape[1], shape[2], wanted[0], wanted[1], wanted[2]);
    if (wanted[d]) shape[d] = wanted[d];
    CVY_REQUIRE(shape[d], CVY_E_ARGUMENT, "%s leaves the size of its input open: say it (--input HxWxC)",
                im->file->path);
  }
  im->samples = input->type->tensor_type->shape->dim[0]->dim_value;
  cvy_onnx_value *const v = cvy_onnx_add_value(im, cvy_onnx_text(input->name));
  CVY_REQUIRE(v, CVY_E_FORMAT, "%s: a node makes the input, '%.100s'", im->file->path, cvy_onnx_text(input->name));
  CVY_TRY(cvy_net_create(shape[0], shape[1], shape[2], &im->net));
  v->kind = CVY_ONNX_NODE;
  v->node = cvy_net_input(im->net);
  v->last = last;
fail:
  return status;
}

/* ---- names of layers ---- */

/* TensorFlow's "net/conv2d_1/convolution/ReadVariableOp:0" → "conv2d_1", the layer's name; another name as it is. NULL:
 * the memory is short. */
static char *short_name(const char *name) {
  static const char *const ends[] = {"BiasAdd",     "Cast",      "MatMul",       "ReadVariableOp",  "ReadVariableOp_1",
                                     "convolution", "depthwise", "merged_input", "separable_conv2d"};
  const char *const slash = strchr(name, '/'), *const colon = slash ? strrchr(slash, ':') : NULL;
  if (!colon || slash == name) return cvy_strdup(name);
  const char *const begin = slash + 1, *end = colon;
  for (bool cut = true; cut;) {
    const char *last = end;
    while (last > begin && last[-1] != '/') last--;
    cut = false;
    for (size_t i = 0; last > begin && i < sizeof ends / sizeof *ends; i++)
      cut = cut || ((size_t)(end - last) == strlen(ends[i]) && !memcmp(last, ends[i], strlen(ends[i])));
    if (cut) end = last - 1;
  }
  return end > begin ? cvy_strndup(begin, (size_t)(end - begin)) : cvy_strdup(name);
}

static int by_text(const void *a, const void *b) {
  return strcmp(((const cvy_onnx_label *)a)->text, ((const cvy_onnx_label *)b)->text);
}

/* Weights that are no layer's yet get its name for a label: short, where no two are the same. */
static cvy_status label_weights(cvy_onnx_import_state *im) {
  cvy_status status = CVY_OK;
  size_t n = 0;
  for (size_t i = 0; i < im->n_values; i++) n += im->values[i].used;
  im->labels = cvy_calloc(n, sizeof *im->labels);
  CVY_REQUIRE(im->labels, CVY_E_MEMORY, "out of host memory");
  for (size_t i = 0; i < im->n_values; i++) {
    if (!im->values[i].used) continue;
    cvy_onnx_label *const label = &im->labels[im->n_labels++];
    *label = (cvy_onnx_label){&im->values[i], short_name(im->values[i].name)};
    CVY_REQUIRE(label->text, CVY_E_MEMORY, "out of host memory");
  }
  if (n) qsort(im->labels, n, sizeof *im->labels, by_text);
  for (size_t i = 0; i < n; i++) {
    const char *const text = im->labels[i].text;
    if (i > 0 && !strcmp(text, im->labels[i - 1].text)) continue;
    if (i + 1 < n && !strcmp(text, im->labels[i + 1].text)) continue;
    im->labels[i].value->label = text;
  }
  for (size_t i = 0; i < im->n_values; i++)
    if (im->values[i].root) im->values[i].label = im->values[i].root->label;
fail:
  return status;
}

/* A layer's name, and its place among them. */
typedef struct declared {
  int place;
  const char *label;
  char room[128];
} declared;

static int by_place(const void *a, const void *b) {
  const int x = ((const declared *)a)->place, y = ((const declared *)b)->place;
  return (x > y) - (x < y);
}

/* Layers get the order of their weights in the file, which is that of PyTorch's state_dict, or that of its notes. */
static cvy_status declare_layers(cvy_onnx_import_state *im) {
  cvy_status status = CVY_OK;
  const cvy_onnx_graph *const g = im->graph;
  declared *const list = cvy_calloc(g->n_node, sizeof *list);
  size_t n = 0;
  CVY_REQUIRE(list, CVY_E_MEMORY, "out of host memory");
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < g->n_node; i++) {
      const cvy_onnx_node *const node = g->node[i];
      const int input = cvy_onnx_makes_needed(im, node) ? cvy_onnx_weight_input(node) : -1;
      if (input < 0 || (size_t)input >= node->n_input) continue;
      cvy_onnx_value *const v = cvy_onnx_names_layer(im, node, (size_t)input);
      if (!v || !v->tensor || v->kind != CVY_ONNX_TENSOR) continue;
      cvy_onnx_value *const root = cvy_onnx_root(v);
      root->used = pass == 0;
      if (pass == 0) continue;
      declared *const d = &list[n++];
      const int noted = cvy_onnx_noted_place(im, node, 1);
      d->place = noted >= 0 ? noted - INT_MAX : (int)(root - im->values);
      d->label = cvy_onnx_layer_label(im, node, v, d->room);
    }
    if (pass == 0) CVY_TRY(label_weights(im));
  }
  if (n) qsort(list, n, sizeof *list, by_place);
  for (size_t i = 0; i < n; i++) {
    char name[64];
    if (i > 0 && !strcmp(list[i].label, list[i - 1].label)) continue; /* it is refused where the second layer comes */
    cvy_onnx_layer_name(list[i].label, name);
    cvy_net_declare(im->net, name);
  }
fail:
  cvy_free(list);
  return status;
}

/* ---- nodes ---- */

/* Whether the file has weights as initialisers; behind what depends on the file alone. */
static void find_weights(cvy_onnx_import_state *im) {
  for (size_t i = 0; i < im->graph->n_node && !im->has_weights; i++) {
    const cvy_onnx_node *const n = im->graph->node[i];
    const int input = cvy_onnx_weight_input(n);
    const cvy_onnx_value *const v =
        input >= 0 && (size_t)input < n->n_input ? cvy_onnx_find(im, n->input[input]) : NULL;
    int rank;
    im->has_weights =
        v && v->needed && v->kind == CVY_ONNX_TENSOR && !v->by_node && cvy_onnx_dims_of(v, &rank) && rank > 1;
  }
}

/* A normalisation as for training makes those that are as for inference fixed ones; a file without it is as for
 * inference altogether. */
static bool has_training_norms(const cvy_onnx_import_state *im) {
  for (size_t i = 0; i < im->graph->n_node; i++) {
    const cvy_onnx_node *const n = im->graph->node[i];
    if (!cvy_onnx_is_norm(n) || !cvy_onnx_makes_needed(im, n)) continue;
    const Onnx__AttributeProto *const a = cvy_onnx_attribute(n, "training_mode");
    if (a && a->has_i && a->i) return true;
  }
  return false;
}

/* Random numbers that no Dropout node draws: one refusal for all of them and for all that is computed from them. */
static cvy_status refuse_draws(const cvy_onnx_import_state *im) {
  static const char *const draws[] = {"RandomUniformLike", "RandomUniform", "RandomNormalLike", "RandomNormal",
                                      "Bernoulli"};
  cvy_status status = CVY_OK;
  const cvy_onnx_node *first = NULL;
  int n = 0;
  for (size_t i = 0; i < im->graph->n_node; i++) {
    const cvy_onnx_node *const node = im->graph->node[i];
    bool is_draw = false;
    for (size_t k = 0; node->op_type && k < sizeof draws / sizeof *draws; k++)
      is_draw = is_draw || !strcmp(node->op_type, draws[k]);
    if (!is_draw || !cvy_onnx_makes_needed(im, node)) continue;
    if (!first) first = node;
    n++;
  }
  CVY_REQUIRE(!first, CVY_E_UNSUPPORTED,
              "%s: node '%.100s' (%.60s) draws random numbers%s: the network has stochastic depth (torchvision's "
              "StochasticDepth, timm's DropPath), which convoy does not train with. This leaves it out: for m in "
              "net.modules(): m.training = m is net or isinstance(m, torch.nn.Dropout); then "
              "torch.onnx.export(net, x, \"net.onnx\", training=torch.onnx.TrainingMode.PRESERVE, "
              "do_constant_folding=False, dynamo=False)",
              im->file->path, cvy_onnx_node_name(first), first->op_type, n > 1 ? ", as others do" : "");
fail:
  return status;
}

static bool is_taken(const cvy_onnx_import_state *im, const cvy_onnx_node *n) {
  const cvy_onnx_value *const v = n->n_output && *n->output[0] ? cvy_onnx_find(im, n->output[0]) : NULL;
  return v && v->kind != CVY_ONNX_UNMADE;
}

/* `known`: only nodes that depend on the file alone, so that layers can be named by what they read. */
static void take_nodes(cvy_onnx_import_state *im, bool known) {
  const cvy_onnx_graph *const g = im->graph;
  for (size_t i = 0; i < g->n_node && im->status == CVY_OK; i++) {
    im->node = g->node[i];
    if (!cvy_onnx_makes_needed(im, im->node) || is_taken(im, im->node) || (known && !cvy_onnx_is_known(im, im->node)))
      continue;
    for (size_t k = 0; k < im->node->n_output; k++)
      if (*im->node->output[k]) {
        cvy_onnx_value *const v = cvy_onnx_find(im, im->node->output[k]);
        if (v->kind == CVY_ONNX_UNMADE) v->kind = CVY_ONNX_BAD;
      }
    cvy_onnx_take_node(im);
  }
}

static void tell(const cvy_onnx_import_state *im) {
  if (im->n_dropouts)
    cvy_log_warning(
        "%s: %d Dropout nodes are there as for inference and do nothing: export with training=TrainingMode.TRAINING "
        "to train with dropout",
        im->file->path, im->n_dropouts);
  if (im->n_fixed)
    cvy_log_info("%s: %d batch normalisations are fixed, as in evaluation: their running values stay", im->file->path,
                 im->n_fixed);
  if (im->n_put_back)
    cvy_log_info("%s: %d biases of zeros that PyTorch's exporter has left out are put back", im->file->path,
                 im->n_put_back);
  if (im->n_unnamed && !im->has_torch_names)
    cvy_log_info(
        "%s: the weights of %d layers have other names in weights files than in this one, which has no plain names for "
        "them or computes them from others; convoy export writes what is trained",
        im->file->path, im->n_unnamed);
  else if (im->n_unnamed && !cvy_net_caveat(im->net, NULL))
    cvy_log_warning(
        "%s: the weights of %d layers have lost their names: the exporter has folded batch normalisation into them, or "
        "computed them. What is trained here goes back by convoy export; load_state_dict takes it only where PyTorch "
        "exported with training=TrainingMode.TRAINING, do_constant_folding=False, dynamo=False",
        im->file->path, im->n_unnamed);
}

cvy_status cvy_onnx_import(const char *path, int channels, int height, int width, cvy_net **out) {
  cvy_status status = CVY_OK;
  cvy_onnx_file file = {0};
  cvy_onnx_import_state im = {.file = &file};
  cvy_onnx_value *output;
  *out = NULL;
  CVY_TRY(cvy_onnx_file_open(path, &file));
  im.graph = file.model->graph;
  CVY_TRY(cvy_onnx_notes_read(&im));
  CVY_TRY(cvy_onnx_list_values(&im));
  CVY_TRY(begin(&im, (const int[]){channels, height, width}));
  CVY_TRY(cvy_onnx_find_needed(&im, &output));
  CVY_TRY(refuse_draws(&im));
  cvy_onnx_read_origins(&im);
  take_nodes(&im, true);
  find_weights(&im);
  CVY_TRY(declare_layers(&im));
  im.has_training_norms = has_training_norms(&im);
  take_nodes(&im, false);
  if (output->kind == CVY_ONNX_FORMULA || output->kind == CVY_ONNX_CHANNELS) (void)output->make(&im, output);
  CVY_REQUIRE(im.n_refused == 0, CVY_E_UNSUPPORTED, "%s: %d of its %zu nodes are not supported%s", path, im.n_refused,
              im.graph->n_node,
              im.n_refused > im.n_lasting && cvy_onnx_made_by(&im) == CVY_ONNX_DYNAMO ? NEWER_EXPORTER : "");
  CVY_TRY(im.status);
  CVY_REQUIRE(output->kind == CVY_ONNX_NODE, CVY_E_FORMAT, "%s: its output '%.100s' does not depend on its input", path,
              output->name);
  CVY_REQUIRE(output->node > 0, CVY_E_FORMAT, "%s: its output '%.100s' is its input: no node computes anything", path,
              output->name);
  CVY_REQUIRE(!output->flat || !output->last, CVY_E_UNSUPPORTED,
              "%s: its output '%.100s' is a row of pixels with channels last; expected one of classes", path,
              output->name);
  cvy_node last;
  CVY_TRY(cvy_onnx_take_end(&im, output, &last));
  CVY_TRY(cvy_net_finish(im.net, last));
  CVY_TRY(cvy_onnx_set_values(&im));
  CVY_TRY(cvy_onnx_find_losses(&im));
  tell(&im);
  *out = im.net;
  im.net = NULL;
fail:
  cvy_net_destroy(&im.net);
  while (im.channels) {
    cvy_onnx_channels *const c = im.channels;
    im.channels = c->next;
    cvy_free(c);
  }
  while (im.formulas) {
    cvy_onnx_formula *const f = im.formulas;
    im.formulas = f->next;
    cvy_free(f);
  }
  while (im.arrays) {
    cvy_onnx_array *const a = im.arrays;
    im.arrays = a->next;
    cvy_free(a);
  }
  for (size_t i = 0; i < im.n_labels; i++) cvy_free(im.labels[i].text);
  cvy_free(im.labels);
  cvy_onnx_notes_free(&im);
  cvy_free(im.values);
  cvy_free(im.index);
  cvy_free(im.weights);
  cvy_onnx_file_close(&file);
  return status;
}
