/* SPDX-License-Identifier: MIT
 * convoy net: the layers of a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/text.h"
#include "tools/program/view/class_table.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"

typedef struct net_options {
  bool strict;
  const char *dot;
  int64_t input[3], classes; /* height, width, channels */
} net_options;

#define FIELD(name) .offset = offsetof(net_options, name)
static const option_row rows[] = {
    ROW_NET_INPUT(FIELD, ABSENT_OF_FILE("28x28x1"), "size of its images"),
    ROW_NET_CLASSES(FIELD, ABSENT_OF_FILE("10"), "number of its classes"),
    {OPT_SINK("dot", FIELD(dot), "Graphviz file", "write the graph, for dot -Tsvg")},
    {OPT_FLAG("strict", FIELD(strict), "exit with status 2 if " HELP_OF_CAVEAT)},
};
static const option_table table = {
    .verb = "net",
    .usage = "NAME|F.onnx [options]",
    OPTION_ROWS(rows),
    .operand = "NAME|F.onnx",
    .least_operands = 1,
    .most_operands = 1,
    .about =
        "Lists the layers of a network: kind with kernel, stride and groups, its input layers, the shape of\n"
        "its output (channels, height, width), parameters, and millions of multiply-adds of a forward pass per\n"
        "image. Prints the memory of training and evaluation on a device: once for the weights, and for each\n"
        "image of its share. For an ONNX file it also lists tensors that could be parameters or constants (a factor\n"
        "for each channel, blur filters, mean and deviation of pictures) and their use: constants are not trained.\n"
        "train --freeze also keeps the layer of a parameter unchanged.\n"
        "If an ONNX file has nodes that are not supported, all of them are listed, and the exit status is 2.",
};

/* "conv2d 3x3/2 g32": kernel, stride and groups if they are not the default. */
static void kind_text(const cvy_layer_info *l, char *room, size_t size) {
  int n = snprintf(room, size, "%s", l->kind);
  if (l->kernel[0]) n += snprintf(room + n, size - (size_t)n, " %dx%d", l->kernel[0], l->kernel[1]);
  if (l->stride[0] != l->stride[1]) n += snprintf(room + n, size - (size_t)n, "/%dx%d", l->stride[0], l->stride[1]);
  else if (l->stride[0] > 1) n += snprintf(room + n, size - (size_t)n, "/%d", l->stride[0]);
  if (l->groups > 1) snprintf(room + n, size - (size_t)n, " g%d", l->groups);
}

enum { KIND_MOST = 64 };

/* A string of the DOT language. */
static void put_dot_text(FILE *out, const char *text) {
  char one[CVY_PLAIN_MOST];
  for (size_t n; (n = cvy_plain_next(text, "", one)) > 0; text += n)
    for (const char *c = one; *c; c++) fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
}

static bool write_dot(const cvy_net *net, const char *path) {
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  if (!out) return false;
  fprintf(out, "digraph net {\n  node [shape=box];\n");
  for (int i = 0; i < cvy_net_layer_count(net); i++) {
    cvy_layer_info l;
    char kind[KIND_MOST];
    if (!cvy_net_layer(net, i, &l)) continue;
    kind_text(&l, kind, sizeof kind);
    fprintf(out, "  n%d [label=\"%s%s", i, kind, *l.name ? " " : "");
    put_dot_text(out, l.name);
    fprintf(out, "\\n%d x %d x %d\"];\n", l.channels, l.height, l.width);
    for (int k = 0; k < l.n_inputs; k++) fprintf(out, "  n%d -> n%d;\n", l.inputs[k], i);
  }
  fprintf(out, "}\n");
  const bool ok = fclose(out) == 0 && program_write(path, text);
  free(text);
  return ok;
}

/* "3,5", or "3,5,+22" of many. */
static void reads_text(const cvy_layer_info *l, char *room, size_t size) {
  enum { MOST = 2 };
  int n = 0;
  room[0] = '\0';
  for (int k = 0; k < l->n_inputs && k < MOST; k++)
    n += snprintf(room + n, size - (size_t)n, "%s%d", k ? "," : "", l->inputs[k]);
  if (l->n_inputs > MOST) snprintf(room + n, size - (size_t)n, ",+%d", l->n_inputs - MOST);
}

enum { OTHER_COLUMNS = 4 + 1 + 1 + 1 + 10 + 1 + 12 + 1 + 9 + 1 + 8, NAME_LEAST = 12 };

/* Widths of the columns of kinds and names. Names are cut at the front on a narrow terminal, never in a file. */
static void widths_of(const cvy_net *net, int *kinds, int *names) {
  char kind[KIND_MOST];
  *kinds = *names = 4;
  for (int i = 0; i < cvy_net_layer_count(net); i++) {
    cvy_layer_info l;
    if (!cvy_net_layer(net, i, &l)) continue;
    kind_text(&l, kind, sizeof kind);
    if ((int)strlen(kind) > *kinds) *kinds = (int)strlen(kind);
    if (class_width(l.name) > *names) *names = class_width(l.name);
  }
  if (!isatty(STDOUT_FILENO)) return;
  const int room = progress_columns() - OTHER_COLUMNS - *kinds;
  if (*names > room) *names = room > NAME_LEAST ? room : NAME_LEAST;
}

static int count_parameters(const cvy_net *net) {
  int n = 0;
  for (int i = 0; i < cvy_net_param_count(net); i++) {
    cvy_param_info info;
    n += cvy_net_param(net, i, &info) && !info.fixed;
  }
  return n;
}

/* "constants taken as fixed: mean (3x1x1), std (3x1x1)" */
static void print_constants(const cvy_net *net, bool fixed) {
  int n = 0;
  for (int i = 0; i < cvy_net_constant_count(net); i++) {
    cvy_constant_info c;
    if (!cvy_net_constant(net, i, &c) || c.fixed != fixed) continue;
    printf("%s", n++ ? ", " : fixed ? "constants taken as fixed, not trained: " : "constants taken as parameters: ");
    class_cell(stdout, c.name, (int)strlen(c.name), true);
    printf(" (");
    for (int d = 0; d < c.rank; d++) printf("%s%d", d ? "x" : "", c.dims[d]);
    printf("%s)", c.rank ? "" : "one number");
  }
  if (n) printf("\n");
}

static int print(const cvy_net *net) {
  enum { IMAGES = 32 };
  static const char *const uses[] = {"training", "training with --recompute", "evaluation"};
  size_t params = 0;
  double multiply_adds = 0;
  int kinds, names;
  widths_of(net, &kinds, &names);
  printf("%4s %-*s %-*s %-10s %12s %9s %8s\n", "", kinds, "kind", names, "name", "reads", "makes", "params", "MMACs");
  for (int i = 0; i < cvy_net_layer_count(net); i++) {
    cvy_layer_info l;
    char kind[KIND_MOST], reads[48], makes[48];
    if (!cvy_net_layer(net, i, &l)) continue;
    kind_text(&l, kind, sizeof kind);
    reads_text(&l, reads, sizeof reads);
    snprintf(makes, sizeof makes, "%dx%dx%d", l.channels, l.height, l.width);
    printf("%4d %-*s ", i, kinds, kind);
    class_cell(stdout, l.name, names, true);
    printf(" %-10s %12s %9zu %8.2f\n", reads, makes, l.params, l.multiply_adds / 1e6);
    params += l.params;
    multiply_adds += l.multiply_adds;
  }
  printf("\n%zu parameters in %d tensors, %.0f multiply-adds forward per image\n", params, count_parameters(net),
         multiply_adds);
  print_constants(net, true);
  print_constants(net, false);
  printf("memory of a device: %.1f MiB for weights, gradients and momentum; for each image of its share\n",
         3 * 4.0 * (double)params / (1 << 20));
  for (int use = 0; use < 3; use++) {
    size_t bytes;
    const cvy_status status = cvy_net_memory(net, IMAGES, (cvy_memory_use)use, &bytes);
    if (status != CVY_OK) return program_exit_code(status);
    printf("  %8.2f MiB in %s\n", (double)bytes / IMAGES / (1 << 20), uses[use]);
  }
  return EXIT_DONE;
}

int cmd_net(int argc, char **argv) {
  net_options o = {0};
  int n, code = options_parse(&table, argc, argv, &o, NULL);
  if (code != OPTIONS_GO_ON) return code;
  const char *model = NULL;
  const char *const wrong = options_parse_model(options_operands(&n)[0], &model);
  if (wrong) return options_error("net", "%s: %s", options_operands(&n)[0], wrong);
  const bool file = cvy_onnx_is_file(model);
  const program_file outputs[] = {{"--dot", o.dot}, {0}}, inputs[] = {{"the network", file ? model : NULL}, {0}};
  code = program_check_outputs("net", outputs, inputs);
  if (code == EXIT_DONE) code = program_try_output("net", "--dot", o.dot, true);
  if (code != EXIT_DONE) return code;
  cvy_net *net = NULL;
  const cvy_status status = program_model_net(model, o.input, o.classes, &net);
  if (status != CVY_OK) return program_exit_code(status);
  code = o.dot && strcmp(o.dot, "-") == 0 ? EXIT_DONE : print(net);
  program_flush(); /* after the layers, where users see it */
  if (code == EXIT_DONE) code = program_check_caveat(model, net, false, o.strict);
  if (code == EXIT_DONE && o.dot && !write_dot(net, o.dot)) code = EXIT_FAILED;
  cvy_net_destroy(&net);
  return code;
}
