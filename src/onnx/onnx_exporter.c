/* SPDX-License-Identifier: MIT
 * Outline: the notes · a node's call and its parameters · names of layers · parameters of several layers · losses. */
#include "src/onnx/onnx_exporter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/graph.h"
#include "src/onnx/onnx_node.h"

/* A line of the signature, "p_bn1_weight: PARAMETER target='bn1.weight'". */
typedef struct listed {
  const char *token, *name;
  bool is_parameter; /* else a buffer */
  bool claimed;      /* a layer has it */
  int place;         /* in the module's order */
} listed;

struct cvy_onnx_notes {
  cvy_onnx_maker maker;
  char *text; /* the signature, its lines cut into words */
  size_t n;
  listed *list;   /* sorted by token */
  listed **names; /* the same by name */
};

enum { MOST_LISTED = 1 << 16 }; /* of a signature with more nothing is taken */

/* ---- the notes ---- */

static const char *note(const cvy_onnx_node *n, const char *key) {
  return cvy_onnx_entry(n->metadata_props, n->n_metadata_props, key);
}

static cvy_onnx_maker find_maker(const cvy_onnx_file *file) {
  const cvy_onnx_graph *const g = file->model->graph;
  if (!file->model->producer_name || strcmp(file->model->producer_name, "pytorch")) return CVY_ONNX_OTHER;
  if (g->n_metadata_props) return CVY_ONNX_DYNAMO;
  for (size_t i = 0; i < g->n_node; i++)
    if (g->node[i]->n_metadata_props || (g->node[i]->name && !strncmp(g->node[i]->name, "node_", 5)))
      return CVY_ONNX_DYNAMO;
  return CVY_ONNX_TORCHSCRIPT;
}

static int by_token(const void *a, const void *b) {
  return strcmp(((const listed *)a)->token, ((const listed *)b)->token);
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(listed *const *)a)->name, (*(listed *const *)b)->name);
}

/* Cuts "p_x: PARAMETER target='x'" into its words; false: the line is another. */
static bool read_line(char *line, listed *out) {
  char *const colon = strchr(line, ':'), *const target = colon ? strstr(colon, " target='") : NULL;
  char *const name = target ? target + strlen(" target='") : NULL, *const end = name ? strchr(name, '\'') : NULL;
  if (!end) return false;
  const bool parameter = !strncmp(colon, ": PARAMETER ", 12), buffer = !strncmp(colon, ": BUFFER ", 9);
  *colon = *end = '\0';
  *out = (listed){.token = line, .name = name, .is_parameter = parameter};
  return parameter || buffer;
}

cvy_status cvy_onnx_notes_read(state *im) {
  cvy_status status = CVY_OK;
  const cvy_onnx_graph *const g = im->graph;
  const char *const signature =
      cvy_onnx_entry(g->metadata_props, g->n_metadata_props, "pkg.torch.export.ExportedProgram.graph_signature");
  struct cvy_onnx_notes *const notes = im->notes = cvy_calloc(1, sizeof *notes);
  CVY_REQUIRE(notes, CVY_E_MEMORY, "out of host memory");
  notes->maker = find_maker(im->file);
  if (!signature) return CVY_OK;
  notes->text = cvy_strdup(signature);
  size_t n_lines = 1;
  for (const char *c = signature; *c; c++) n_lines += *c == '\n';
  if (n_lines > MOST_LISTED) return CVY_OK;
  notes->list = cvy_calloc(n_lines, sizeof *notes->list);
  notes->names = cvy_calloc(n_lines, sizeof(listed *));
  CVY_REQUIRE(notes->text && notes->list && notes->names, CVY_E_MEMORY, "out of host memory");
  char *rest = NULL;
  for (char *line = strtok_r(notes->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (read_line(line, &notes->list[notes->n])) {
      notes->list[notes->n].place = (int)notes->n;
      notes->n++;
    }
  qsort(notes->list, notes->n, sizeof *notes->list, by_token);
  for (size_t i = 0; i < notes->n; i++) notes->names[i] = &notes->list[i];
  qsort(notes->names, notes->n, sizeof(listed *), by_name);
fail:
  return status;
}

void cvy_onnx_notes_free(state *im) {
  if (!im->notes) return;
  cvy_free(im->notes->text);
  cvy_free(im->notes->list);
  cvy_free(im->notes->names);
  cvy_free(im->notes);
  im->notes = NULL;
}

cvy_onnx_maker cvy_onnx_made_by(const state *im) { return im->notes->maker; }

/* ---- a node's call and its parameters ---- */

static listed *find_token(const state *im, const char *token) {
  const struct cvy_onnx_notes *const notes = im->notes;
  return notes->n ? bsearch(&(listed){.token = token}, notes->list, notes->n, sizeof *notes->list, by_token) : NULL;
}

static listed *find_name(const state *im, const char *name) {
  const struct cvy_onnx_notes *const notes = im->notes;
  const listed key = {.name = name}, *const wanted = &key;
  listed **const found = notes->n ? bsearch(&wanted, notes->names, notes->n, sizeof(listed *), by_name) : NULL;
  return found ? *found : NULL;
}

/* The call, as torch.fx prints it, is of the kind that the node is: "… call_function[target=torch.ops.aten.conv2d…". A
 * node that the exporter made of two calls has the second one's note. */
static bool is_call_of(const char *call, const char *op) {
  static const char *const kinds[][2] = {{"Conv", ".conv"},
                                         {"BatchNormalization", "batch_norm"},
                                         {"Gemm", ".linear"},
                                         {"MatMul", ".linear"},
                                         {"Transpose", ".linear"}};
  const char *const target = strstr(call, "[target="), *const end = target ? strchr(target, ']') : NULL;
  for (size_t i = 0; end && op && i < sizeof kinds / sizeof *kinds; i++) {
    const char *const found = strcmp(op, kinds[i][0]) ? NULL : strstr(target, kinds[i][1]);
    if (found && found < end) return true;
  }
  return false;
}

/* Argument i of "…(args = (%x, %p_bn1_weight, [1, 1]), kwargs = …" if it is a name: → out, without the '%'. */
static bool argument(const char *call, size_t i, char *out, size_t size) {
  const char *c = strstr(call, "(args = (");
  int depth = 0;
  if (!c) return false;
  for (c += strlen("(args = ("); i > 0; c++) {
    if (!*c || (depth == 0 && *c == ')')) return false;
    if (*c == '(' || *c == '[') depth++;
    if (*c == ')' || *c == ']') depth--;
    if (*c == ',' && depth == 0) i--;
  }
  while (*c == ' ') c++;
  const size_t n = strcspn(c, ",)");
  if (*c != '%' || n < 2 || n > size) return false;
  memcpy(out, c + 1, n - 1);
  out[n - 1] = '\0';
  return true;
}

static listed *parameter_of(const state *im, const cvy_onnx_node *n, size_t input) {
  const char *const call = im->notes->n ? note(n, "pkg.torch.onnx.fx_node") : NULL;
  char token[256];
  if (!call || !is_call_of(call, n->op_type) || !argument(call, input, token, sizeof token)) return NULL;
  listed *const l = find_token(im, token);
  return l && l->is_parameter ? l : NULL;
}

const char *cvy_onnx_noted(const state *im, const cvy_onnx_node *n, size_t input) {
  const listed *const l = parameter_of(im, n, input);
  return l ? l->name : NULL;
}

int cvy_onnx_noted_place(const state *im, const cvy_onnx_node *n, size_t input) {
  const listed *const l = parameter_of(im, n, input);
  return l ? l->place : -1;
}

/* ---- names of layers ---- */

/* The module of a node, "features.norm0": the one before the last of its scopes, "['', 'features', 'features.norm0',
 * 'call']", or what the path of its name says, "/features/features.norm0/BatchNormalization". */
static bool module_of(const cvy_onnx_node *n, char *out, size_t size) {
  const char *const scopes = note(n, "pkg.torch.onnx.name_scopes"), *begin = NULL, *end = NULL;
  if (scopes) {
    const char *last = NULL;
    for (const char *c = strchr(scopes, '\''); c; c = strchr(c + 1, '\'')) {
      const char *const close = strchr(c + 1, '\'');
      if (!close) break;
      begin = last, last = c + 1;
      c = close;
    }
    end = begin ? strchr(begin, '\'') : NULL;
    if (!end || end == begin || (size_t)(end - begin) >= size) return false;
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = '\0';
    return true;
  }
  size_t length = 0, part = 0; /* of the last word: where it begins in out */
  if (!n->name || *n->name != '/') return false;
  for (begin = n->name + 1; (end = strchr(begin, '/')); begin = end + 1) {
    const size_t more = (size_t)(end - begin), before = length - part;
    const bool whole = length && more > before && !memcmp(begin, out + part, before) && begin[before] == '.';
    if (!whole) part = length ? length + 1 : 0; /* "layer1", "layer1.0": the second is all of it */
    if (part + more + 1 > size) return false;
    if (!whole && length) out[length] = '.';
    memcpy(out + part, begin, more);
    length = part + more;
    out[length] = '\0';
  }
  return length > 0;
}

const char *cvy_onnx_layer_label(const state *im, const cvy_onnx_node *n, const value *weight, char room[128]) {
  const value *const root = weight->root ? weight->root : weight;
  const char *const noted = cvy_onnx_noted(im, n, 1);
  int own = 0;
  if (noted) return noted;
  for (size_t i = 0; i < n->n_input; i++) own += !strcmp(n->input[i], weight->name);
  const bool shared = weight->n_readers > own || (root != weight && root->n_readers > 1);
  if (!cvy_onnx_is_norm(n) || !shared || cvy_onnx_made_by(im) == CVY_ONNX_TORCHSCRIPT) return root->label;
  char module[112];
  if (!module_of(n, module, sizeof module) &&
      (size_t)snprintf(module, sizeof module, "%s", cvy_onnx_node_name(n)) >= sizeof module)
    return root->label;
  snprintf(room, 128, "%s.weight", module);
  return room;
}

/* ---- parameters of several layers ---- */

bool cvy_onnx_claim(state *im, value *v, size_t input) {
  listed *const l = parameter_of(im, im->node, input);
  int rank;
  value *const root = cvy_onnx_root(v);
  (void)cvy_onnx_dims_of(v, &rank);
  const bool own_name = rank > 1 || cvy_onnx_made_by(im) == CVY_ONNX_TORCHSCRIPT;
  const bool taken = l ? l->claimed : root->used && own_name;
  if (l) l->claimed = true;
  else root->used = true;
  im->n_lasting += taken;
  if (taken)
    cvy_onnx_refuse(im, "'%.100s' is a parameter of another layer already: no two layers can share one",
                    l ? l->name : root->name);
  return !taken;
}

bool cvy_onnx_is_trained(const state *im, const value *v) {
  const char *const name = v->tensor ? v->name : NULL;
  if (!name || cvy_onnx_made_by(im) == CVY_ONNX_OTHER || v->kind != CVY_ONNX_TENSOR) return false;
  const listed *const l = find_name(im, name);
  if (l) return l->is_parameter;
  if (im->notes->n || !v->tensor->name || strcmp(v->tensor->name, name)) return false; /* not an initialiser */
  return !strchr(name, ':') && !strchr(name, '/') && strncmp(name, "val_", 4) != 0 &&
         name[strspn(name, "0123456789")] != '\0';
}

/* ---- momentum ---- */

/* 1/n of a count n, but no number that users write: of three digits, or 1/64. `error`: the weight's. */
static bool is_of_count(double weight, double error) {
  const double n = rint(1 / weight);
  double digits = weight;
  if (n < 3 || n > 1e6 || fabs(1 / n - weight) > error || ((long)n & ((long)n - 1)) == 0) return false;
  while (digits < 100) digits *= 10;
  return fabs(digits - rint(digits)) > error * digits / weight;
}

float cvy_onnx_momentum(state *im, const char *layer, bool training, double momentum) {
  static const double error = 1.2e-7;
  /* 1 - 0.9 in float32 is 0.10000002: the file's digits, of which 7 count, become those of PyTorch again */
  const double weight = rint((1 - momentum) * 1e7) * 1e-7;
  if (weight > 0 && !(training && (weight >= 1 || is_of_count(weight, error)))) return (float)weight;
  if (!im->no_momentum[0]) snprintf(im->no_momentum, sizeof im->no_momentum, "%s", layer);
  return 0.1f;
}

/* ---- losses ---- */

/* A list of names for a message, the first few. */
typedef struct names {
  cvy_text text;
  int n;
} names;

static void add_name(names *list, const char *name, size_t length) {
  enum { MOST = 4 };
  if (list->n < MOST) cvy_text_add(&list->text, "%s%.*s", list->n ? ", " : "", length > 80 ? 80 : (int)length, name);
  if (list->n == MOST) cvy_text_add(&list->text, ", ...");
  list->n++;
}

static bool has_running(const cvy_layout *layout, const char *module, size_t length) {
  for (int i = 0; i < layout->n_running; i++)
    if (strlen(layout->running[i].name) == length && !memcmp(layout->running[i].name, module, length)) return true;
  return false;
}

/* A parameter of one of the normalisations, whose buffers are listed, too. */
static bool is_of_norm(const state *im, const char *name) {
  const char *const dot = strrchr(name, '.');
  char buffer[256];
  if (!dot || (size_t)snprintf(buffer, sizeof buffer, "%.*s" CVY_ONNX_MEAN, (int)(dot - name), name) >= sizeof buffer)
    return false;
  const listed *const l = find_name(im, buffer);
  return l && !l->is_parameter;
}

static bool is_there(const state *im, const char *name) {
  const value *const v = cvy_onnx_find(im, name);
  return (v && v->tensor && v->needed) || cvy_layout_find(&im->net->layout, name) >= 0;
}

/* The module's normalisations and parameters that the file lacks, by the signature. */
static void compare_signature(const state *im, names *norms, names *others) {
  for (size_t i = 0; i < im->notes->n; i++) {
    const listed *const l = &im->notes->list[i];
    const size_t length = cvy_onnx_stem(l->name, CVY_ONNX_MEAN);
    if (!l->is_parameter && length && !has_running(&im->net->layout, l->name, length)) add_name(norms, l->name, length);
    if (l->is_parameter && !l->claimed && !is_there(im, l->name) && !is_of_norm(im, l->name))
      add_name(others, l->name, strlen(l->name));
  }
}

static bool is_input_of(const cvy_net *net, int layer) {
  for (int i = 0; i < net->n_layers; i++) {
    int n;
    const cvy_node *const inputs = cvy_layer_inputs(net, i, &n);
    for (int k = 0; k < n; k++)
      if (inputs[k] == layer && (net->layers[i].kind == CVY_LAYER_RELU || net->layers[i].kind == CVY_LAYER_ADD ||
                                 net->layers[i].kind == CVY_LAYER_ACTIVATION))
        return true;
  }
  return false;
}

/* In a network without any normalisation: convolutions without a bias that feed an activation or a sum. A folding
 * whose shifts were zeros leaves such ones. */
static void look_at_layers(const cvy_net *net, names *norms) {
  int n_convs = 0, n_bare = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < net->n_layers; i++) {
      const cvy_layer *const l = &net->layers[i];
      if (l->kind == CVY_LAYER_BATCHNORM) return;
      if (l->kind != CVY_LAYER_CONV2D || l->more[0].fixed) continue;
      const bool bare = !l->bias && is_input_of(net, i);
      if (pass == 0) n_convs++, n_bare += bare;
      else if (bare && n_bare > 1 && 2 * n_bare >= n_convs) add_name(norms, l->name, strlen(l->name));
    }
}

/* Files without a signature: nodes with a note that a normalisation was folded into them, biases that only such a
 * folding makes, and filters that the older exporter has computed ("onnx::Conv_193"). */
static void look_at_nodes(const state *im, names *norms) {
  for (size_t i = 0; i < im->graph->n_node; i++) {
    const cvy_onnx_node *const n = im->graph->node[i];
    const char *const rules = note(n, "pkg.onnxscript.rewriter.rule_name"), *name = cvy_onnx_node_name(n);
    const bool noted = rules && strstr(rules, "FuseBatchNorm");
    const bool conv = n->op_type && !strcmp(n->op_type, "Conv") && n->n_input > 1;
    const size_t length = conv ? strlen(n->input[1]) : 0;
    const bool biased =
        conv && n->n_input > 2 && !strncmp(n->input[2], n->input[1], length) && !strcmp(n->input[2] + length, "_bias");
    char module[112];
    if (!noted && !biased && !(conv && !strncmp(n->input[1], "onnx::Conv_", 11))) continue;
    if (noted && module_of(n, module, sizeof module)) name = module;
    add_name(norms, name, strlen(name));
  }
  if (norms->n == 0 && cvy_onnx_made_by(im) == CVY_ONNX_DYNAMO) look_at_layers(im->net, norms);
}

/* A momentum that is not known is a reason not to train at all: the running values would be wrong without a sign. */
static cvy_status check_momentum(const state *im) {
  char text[400];
  if (!im->no_momentum[0]) return CVY_OK;
  snprintf(text, sizeof text,
           "the momentum of batch normalisation '%s' is not in the file (momentum=None, 0 or 1 in PyTorch), so its "
           "running values would not be PyTorch's; predictions are right. Set one in front of the export: 0.1 is usual",
           im->no_momentum);
  return cvy_net_set_caveat(im->net, text, true);
}

cvy_status cvy_onnx_find_losses(const state *im) {
  cvy_status status = CVY_OK;
  names norms = {0}, others = {0};
  cvy_text text = {0};
  CVY_TRY(check_momentum(im));
  if (cvy_onnx_made_by(im) == CVY_ONNX_OTHER) return CVY_OK;
  if (im->notes->n) compare_signature(im, &norms, &others);
  else look_at_nodes(im, &norms);
  if (norms.n)
    cvy_text_add(&text, "PyTorch's exporter has left out %d batch normalisation%s, folded into other layers (%s); ",
                 norms.n, norms.n > 1 ? "s" : "", cvy_text_get(&norms.text));
  if (others.n)
    cvy_text_add(&text, "PyTorch's exporter has left out %d parameter%s (%s); ", others.n, others.n > 1 ? "s" : "",
                 cvy_text_get(&others.text));
  if (text.size)
    cvy_text_add(&text,
                 "predictions are right, but training this file trains another network, without them. To keep "
                 "them: " CVY_ONNX_EXPORT_LINE);
  CVY_REQUIRE(!text.failed && !norms.text.failed && !others.text.failed, CVY_E_MEMORY, "out of host memory");
  if (text.size) CVY_TRY(cvy_net_set_caveat(im->net, cvy_text_get(&text), false));
fail:
  cvy_text_clear(&norms.text);
  cvy_text_clear(&others.text);
  cvy_text_clear(&text);
  return status;
}
