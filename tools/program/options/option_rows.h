/* SPDX-License-Identifier: MIT
 * Rows of option tables that several verbs have. F(name): offset of the verb's field; HELP where the verbs differ. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_OPTION_ROWS_H
#define CVY_TOOLS_PROGRAM_OPTIONS_OPTION_ROWS_H

#include "convoy/data.h"
#include "tools/program/options/options.h"
#include "tools/program/program_common.h"

/* const char *: one of program_models (program_common.h), or the name of an ONNX file. */
#define UNIT_MODEL "resnet18, lenet, resnet34, resnet50, or an ONNX file"
#define ROW_MODEL(F, HELP)                                                                                           \
  {.kind = OPTION_PARSE, .name = "model", F(model), .value = "NAME", .deflt = "resnet18", .unit = UNIT_MODEL,   \
   .parse = options_parse_model, .help = HELP}
#define ROW_MODEL_REQUIRED(F, HELP)                                                                                  \
  {.kind = OPTION_PARSE, .name = "model", F(model), .value = "NAME", .required = true, .unit = UNIT_MODEL,      \
   .parse = options_parse_model, .help = HELP}

/* The same; NULL if it is not given: the verb takes it from the weights file. */
#define ROW_MODEL_OF_WEIGHTS(F, HELP)                                                                                \
  {.kind = OPTION_PARSE, .name = "model", F(model), .value = "NAME", .unit = UNIT_MODEL,                        \
   .parse = options_parse_model, .absent = ABSENT_OF_WEIGHTS, .help = HELP}

#define OR_CHANNELS_FIRST "; or CxHxW with up to 4 channels, such as 3x32x32"
/* The input and the classes of a network for verbs without data. F(input): int64_t[3], height, width, channels; zeros
 * and 0: not given. */
#define ROW_NET_INPUT(F, ABSENT, HELP)                                                                                \
  {.kind = OPTION_PARSE, .name = "input", F(input), .value = "HxWxC", .absent = ABSENT, .unit = "pixels and channels", \
   .parse = options_parse_input, .help = HELP OR_CHANNELS_FIRST}
#define ROW_NET_CLASSES(F, ABSENT, HELP)                                                                              \
  {.kind = OPTION_INT, .name = "classes", F(classes), .absent = ABSENT, .unit = "classes",                            \
   .range = {1, CVY_MAX_CLASSES}, .help = HELP}
#define ABSENT_OF_FILE(SIZE) SIZE ", or as in the ONNX file"
#define ABSENT_OF_WEIGHTS "as in the weights file"

#define ROW_DATA(F, HELP)                                                                                            \
  {.kind = OPTION_TEXT, .name = "data", F(data), .value = "DATA", .required = true, .unit = "data set", .help = HELP}
#define ROW_DATA_DIR(F)                                                                                              \
  {.kind = OPTION_TEXT, .name = "data-dir", F(data_dir), .value = "DIR", .absent = "$CONVOY_DATA, then Debian's folder", \
   .unit = "folder", .help = "folder of fashion-mnist"}
#define ROW_CLASSES(F)                                                                                               \
  {.kind = OPTION_INT, .name = "classes", F(classes), .deflt = "0",                                                   \
   .unit = "classes, 0: largest label + 1, synthetic: 10", .range = {0, CVY_MAX_CLASSES}, .help = "classes of the data"}
#define HELP_DATA                                                                                                    \
  "fashion-mnist; a folder with idx files, CIFAR's binary files, or pictures (JPEG, PNG) in train/CLASS/ and test/CLASS/, " \
  "or in CLASS/; or synthetic[:N[:HxWxC]] (N images, needs no files)"
/* Options of the images: F(images.size) and so on. */
#define ROW_SIZE(F)                                                                                                  \
  {.kind = OPTION_PARSE, .name = "size", F(images.size), .value = "N|HxW", .absent = "no resizing",         \
   .unit = "pixels", .parse = options_parse_size,                                                                    \
   .help = "resize every image (bilinear, antialiased, as Pillow): N resizes the shorter side to N and crops the centre" \
  "NxN, HxW resizes to H x W"}
#define ROW_GRAY(F) {.kind = OPTION_FLAG, .name = "gray", F(images.gray), .help = "convert images to one channel (ITU-R 601)"}
#define ROW_PNG16(F, FIELD)                                                                                          \
  {.kind = OPTION_CHOICE, .name = "png16", F(FIELD), .choices = "clip|scale", .deflt = "clip",                        \
   .help = "16-bit gray PNGs: clip values above 255, as torchvision's ImageFolder does, or scale 0 to 65535 to" \
  "0 to 255"}
#define ROW_EXIF(F, FIELD)                                                                                           \
  {.kind = OPTION_CHOICE, .name = "exif", F(FIELD), .choices = "ignore|rotate", .deflt = "ignore",                    \
   .help = "EXIF orientation of pictures: ignore it, as torchvision's ImageFolder does, or rotate pictures upright"}
#define ROW_VAL_SPLIT(F, HELP)                                                                                       \
  {.kind = OPTION_REAL, .name = "val-split", F(images.val_split), .value = "X", .absent = "none", .unit = "part",     \
   .range = {0, 0.999999}, .help = HELP}
#define ROW_NO_DATA_CACHE(F)                                                                                         \
  {.kind = OPTION_FLAG, .name = "no-data-cache", F(images.no_cache),                                                  \
   .help = "do not read or write decoded pictures in the user's cache folder"}
#define HELP_STRICT "exit if a picture cannot be decoded; by default it is left out, with a warning"
#define HELP_OF_CAVEAT "an ONNX file lacks parts of the network it was exported from (PyTorch's exporter folds them)"
#define ROW_STRICT(F, HELP) {.kind = OPTION_FLAG, .name = "strict", F(images.strict), .help = HELP}
#define HELP_HOLD_OUT "fraction of each class of the training images that is held out for validation, chosen by --seed"
#define ROWS_IMAGES(F, STRICT)                                                                                       \
  ROW_SIZE(F), ROW_GRAY(F), ROW_PNG16(F, images.png16), ROW_EXIF(F, images.exif), ROW_VAL_SPLIT(F, HELP_HOLD_OUT), ROW_NO_DATA_CACHE(F),        \
    ROW_STRICT(F, STRICT)
#define ROW_SEED(F, HELP)                                                                                            \
  {.kind = OPTION_INT, .name = "seed", F(seed), .deflt = "0", .unit = "number", .range = {0, 9.2e18}, .help = HELP}

#define ROW_DEVICES(F, HELP)                                                                                         \
  {.kind = OPTION_TEXT, .name = "devices", .letter = 'd', F(devices), .value = "SEL", .deflt = "auto",                \
   .unit = "selector", .help = HELP}
#define HELP_DEVICES_TOGETHER "devices that share the work; see convoy train --help"
#define HELP_DEVICES_IN_TURN "devices, measured one after the other; see convoy train --help"
#define ROW_SHARES(F, ABSENT)                                                                                        \
  {.kind = OPTION_PARSE, .name = "shares", F(shares), .value = "N1,N2,...", .absent = ABSENT, .unit = "images",        \
   .parse = options_parse_shares, .help = "images of a batch for each device; their sum is --batch"}
#define ROW_BATCH(F, MOST, HELP)                                                                                     \
  {.kind = OPTION_INT, .name = "batch", .letter = 'b', F(batch), .deflt = "256", .unit = "images",                    \
   .range = {1, MOST}, .help = HELP}

#define ROW_RECOMPUTE(F, HELP) {.kind = OPTION_FLAG, .name = "recompute", F(recompute), .help = HELP}
#define ROW_CONV_ALGO(F, HELP)                                                                                       \
  {.kind = OPTION_PARSE, .name = "conv-algo", F(conv_algo), .value = "LIST", .deflt = "auto",                         \
   .unit = "auto, direct, winograd2, winograd2_fused, winograd4, gemm, fft", .parse = options_parse_conv_algo, .help = HELP}
#define HELP_CONV_ALGO                                                                                               \
  "algorithms of convolutions and linear layers; each layer uses the first in the list that supports it"
#define ROW_MATH(F, HELP)                                                                                            \
  {.kind = OPTION_CHOICE, .name = "math", F(math), .choices = "fp32|tf32", .deflt = "fp32", .help = HELP}
#define HELP_MATH                                                                                                    \
  "products of convolutions and linear layers: float32, or TF32 (factors with 10 bits of mantissa) on NVIDIA's" \
  "matrix units, compute capability 8.0 and up. Devices whose test of TF32 fails use float32. Relative error of" \
  "tf32: 2e-3; float32's error bounds do not hold"
#define HELP_MATH_SHORT "arithmetic of products, as in convoy train"
/* For verbs where --math has no effect: refused, with the reason. */
#define ROW_NO_MATH(WHY) {.kind = OPTION_REFUSED, .name = "math", .help = WHY}
#define ROW_TUNE(F, HELP)                                                                                            \
  {.kind = OPTION_CHOICE, .name = "tune", F(tune), .choices = "cached|off|quick", .deflt = "cached", .help = HELP}
#define HELP_TUNE "with --conv-algo auto: results of convoy tune, the shipped defaults, or measure missing entries now"

#define ROW_EXCHANGE(F)                                                                                              \
  {.kind = OPTION_CHOICE, .name = "exchange", F(exchange), .choices = "fp32|bf16", .deflt = "fp32",                    \
   .help = "format of gradients on their way to the host. bf16: half the bytes; the residual of rounding is added to the" \
  "next gradient; weights stay fp32. For a slow connection to the host; changes results; needs several devices"}

#define ROW_JSON(F, ABSENT, HELP) {.kind = OPTION_SINK, .name = "json", F(json), .absent = ABSENT, .help = HELP}
#define ROW_JSON_OR_TABLE(F) ROW_JSON(F, "none: prints a table", "write the result as JSON")
#define ROW_QUIET(F)                                                                                                 \
  {.kind = OPTION_FLAG, .name = "quiet", .letter = 'q', F(quiet),                                                     \
   .help = "print only errors and warnings on stderr"}

/* For verbs that run on one machine. */
#define ROW_NO_NODES(WHY) {.kind = OPTION_REFUSED, .name = "nodes", .help = WHY}
#define NODES_ONE_EACH "this verb runs on one machine: start it on each machine"

/* Options of a node (node.h): F(fleet.nodes) and so on. */
#define ROW_NODES(F)                                                                                                 \
  {.kind = OPTION_TEXT, .name = "nodes", F(fleet.nodes), .value = "A,B,...", .unit = "addresses",                     \
   .help = "machines that train together over TCP, the same list on each: host names or IP addresses, with an optional" \
  "port (pc1,pc2:7071,[fd00::2]). Their devices form one team, in this order. Processes started by mpirun or" \
  "srun are a fleet without this option"}
#define ROW_NODE(F)                                                                                                  \
  {.kind = OPTION_INT, .name = "node", F(fleet.node), .value = "I", .deflt = "-1", .unit = "index from 0", \
   .range = {-1, 63}, .help = "index of this machine in --nodes"}
#define ROW_PORT(F)                                                                                                  \
  {.kind = OPTION_INT, .name = "port", F(fleet.port), .value = "P", .deflt = "7070", .unit = "TCP port",              \
   .range = {1, 65535}, .help = "port of nodes that have none in --nodes"}
#define ROW_FLEET_KEY(F)                                                                                             \
  {.kind = OPTION_TEXT, .name = "fleet-key", F(fleet.key), .unit = "file",                                            \
   .help = "only programs with the same key in this file may join; by default any program that reaches the port"}
#define ROW_FLEET_WAIT(F)                                                                                            \
  {.kind = OPTION_REAL, .name = "fleet-wait", F(fleet.wait), .value = "S", .deflt = "600", .unit = "seconds",         \
   .range = {1, 1e6}, .help = "time limit for the other machines before the first step"}
#define ROW_NO_FLEET(F)                                                                                              \
  {.kind = OPTION_FLAG, .name = "no-fleet", F(fleet.none),                                                            \
   .help = "run this process alone, although mpirun or srun started several"}
#define ROWS_FLEET(F)                                                                                                \
  {.kind = OPTION_GROUP, .help = "Several machines"}, ROW_NODES(F), ROW_NODE(F), ROW_PORT(F), ROW_FLEET_KEY(F),        \
      ROW_FLEET_WAIT(F), ROW_NO_FLEET(F)

#endif
