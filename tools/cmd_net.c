/* SPDX-License-Identifier: MIT
 * convoy net: the layers of a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/option_rows.h"
#include "tools/program_common.h"

typedef struct net_options {
  const char *dot;
  int64_t input[3], classes; /* height, width, channels */
} net_options;

#define FIELD(name) .offset = offsetof(net_options, name)
static const option_row rows[] = {
    ROW_NET_INPUT(FIELD, ABSENT_OF_FILE("28x28x1"), "the images that it sees"),
    ROW_NET_CLASSES(FIELD, ABSENT_OF_FILE("10"), "how many it tells apart"),
    {.kind = OPTION_SINK, .name = "dot", FIELD(dot), .unit = "Graphviz file", .help = "write the graph, for dot -Tsvg"},
};
static const option_table table = {
    .verb = "net",
    .usage = "NAME|F.onnx [options]",
    .rows = rows,
    .n_rows = sizeof rows / sizeof rows[0],
    .operand = "NAME|F.onnx",
    .least_operands = 1,
    .most_operands = 1,
    .about =
        "Lists the layers of a network with the shapes of what they make (channels, height, width), their parameters "
        "and "
        "the multiply-adds of a forward pass per image, and says how much memory training and evaluation take on a "
        "device: "
        "for the weights once, and for each image of a share.\n"
        "Nodes of an ONNX file that cannot be taken are all named, with exit status 2.",
};

static bool write_dot(const cvy_net *net, const char *path) {
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  if (!out) return false;
  fprintf(out, "digraph net {\n  node [shape=box];\n");
  for (int i = 0; i < cvy_net_layer_count(net); i++) {
    cvy_layer_info l;
    if (!cvy_net_layer(net, i, &l)) continue;
    fprintf(out, "  n%d [label=\"%s%s%s\\n%d x %d x %d\"];\n", i, l.kind, *l.name ? " " : "", l.name, l.channels,
            l.height, l.width);
    for (int k = 0; k < 2; k++)
      if (l.input[k] >= 0) fprintf(out, "  n%d -> n%d;\n", l.input[k], i);
  }
  fprintf(out, "}\n");
  const bool ok = fclose(out) == 0 && program_write(path, text);
  free(text);
  return ok;
}

static int print(const cvy_net *net) {
  enum { IMAGES = 32 };
  size_t params = 0, training, inference;
  double multiply_adds = 0;
  printf("%-5s %-10s %-34s %-10s %16s %12s %14s\n", "layer", "kind", "name", "reads", "makes", "parameters",
         "multiply-adds");
  for (int i = 0; i < cvy_net_layer_count(net); i++) {
    cvy_layer_info l;
    char reads[32] = "", makes[48];
    if (!cvy_net_layer(net, i, &l)) continue;
    if (l.input[1] >= 0) snprintf(reads, sizeof reads, "%d,%d", l.input[0], l.input[1]);
    else if (l.input[0] >= 0) snprintf(reads, sizeof reads, "%d", l.input[0]);
    snprintf(makes, sizeof makes, "%dx%dx%d", l.channels, l.height, l.width);
    printf("%-5d %-10s %-34s %-10s %16s %12zu %14.0f\n", i, l.kind, l.name, reads, makes, l.params, l.multiply_adds);
    params += l.params;
    multiply_adds += l.multiply_adds;
  }
  cvy_status status = cvy_net_memory(net, IMAGES, false, &training);
  if (status == CVY_OK) status = cvy_net_memory(net, IMAGES, true, &inference);
  if (status != CVY_OK) return program_exit_code(status);
  printf("\n%zu parameters in %d tensors, %.0f multiply-adds forward per image\n", params, cvy_net_param_count(net),
         multiply_adds);
  printf(
      "memory: %.1f MiB for weights, gradients and momentum on each device; per image %.2f MiB in training, %.2f MiB "
      "in evaluation\n",
      3 * 4.0 * (double)params / (1 << 20), (double)training / IMAGES / (1 << 20),
      (double)inference / IMAGES / (1 << 20));
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
  if (code == EXIT_DONE && o.dot && !write_dot(net, o.dot)) code = EXIT_FAILED;
  cvy_net_destroy(&net);
  return code;
}
