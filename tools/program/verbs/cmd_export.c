/* SPDX-License-Identifier: MIT
 * convoy export: a trained network as an ONNX file. */
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/weights_info.h"

typedef struct export_options {
  const char *weights, *model, *out;
  int64_t input[3], classes;
  bool softmax, logits, quiet;
} export_options;

#define FIELD(name) .offset = offsetof(export_options, name)
static const option_row rows[] = {
    {OPT_TEXT("weights", FIELD(weights), "safetensors file", "the trained weights, or a checkpoint"), .required = true},
    ROW_MODEL_OF_WEIGHTS(FIELD,
                         "network of the weights, if their file does not name it, or if its ONNX file has "
                         "moved"),
    {OPT_TEXT("out", FIELD(out), "ONNX file", "the file to write"), .required = true},
    {OPT_FLAG("softmax", FIELD(softmax), "end the file with probabilities"), .absent = "as in the network's ONNX file, "
                                                                                       "else logits"},
    {OPT_FLAG("logits", FIELD(logits),
              "end the file with logits, also if the network's ONNX file ends in Softmax, LogSoftmax or Sigmoid")},
    ROW_NET_INPUT(FIELD, ABSENT_OF_WEIGHTS, "size of its images, if the weights file does not have it"),
    ROW_NET_CLASSES(FIELD, ABSENT_OF_WEIGHTS, "number of its classes, if the weights file does not have it"),
    ROW_QUIET(FIELD),
};
static const option_table table = {
    .verb = "export",
    .usage = "--weights F --out F.onnx [options]",
    OPTION_ROWS(rows),
    .about =
        "Writes a trained network as an ONNX file (opset 17, inference, any number of images at a time), for "
        "onnxruntime and others. Its input is float32 images: pixels / 255, normalised as in training.",
};

int cmd_export(int argc, char **argv) {
  export_options o = {0};
  int code = options_parse(&table, argc, argv, &o, NULL);
  if (code != OPTIONS_GO_ON) return code;
  if (!cvy_onnx_is_file(o.out))
    return options_error("export", "--out %s: expected a name with the extension .onnx", o.out);
  if (o.softmax && o.logits) return options_error("export", "--softmax and --logits: expected one of them");
  const program_file outputs[] = {{"--out", o.out}, {0}},
                     inputs[] = {
                         {"--weights", o.weights}, {"--model", cvy_onnx_is_file(o.model) ? o.model : NULL}, {0}};
  code = program_check_outputs("export", outputs, inputs);
  if (code == EXIT_DONE) code = program_try_output("export", "--out", o.out, false);
  cvy_model_info *info = NULL;
  if (code == EXIT_DONE) code = weights_info("export", o.weights, &o.model, &info);
  if (code != EXIT_DONE) return code;
  const bool file = cvy_onnx_is_file(o.model);
  const int h = (int)o.input[0], w = (int)o.input[1], c = (int)o.input[2];
  if (!info && !file && (!h || !o.classes))
    return options_error(
        "export", "%s has no size of input and number of classes; expected --input HxWxC and --classes N", o.weights);
  cvy_net *net = NULL;
  cvy_status status =
      info ? cvy_model_net(o.weights, info, &net) : cvy_net_open(o.model, c, h, w, (int)o.classes, &net);
  const cvy_onnx_end end = o.softmax ? CVY_ONNX_PROBABILITIES : o.logits ? CVY_ONNX_LOGITS : CVY_ONNX_AS_READ;
  if (status == CVY_OK) status = cvy_onnx_export(net, o.weights, end, o.out);
  if (status == CVY_OK && !o.quiet) program_say("saved: %s", o.out);
  cvy_net_destroy(&net);
  cvy_model_info_free(&info);
  return program_exit_code(status);
}
