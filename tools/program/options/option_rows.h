/* SPDX-License-Identifier: MIT
 * Rows of option tables that several verbs have. F(name): offset of the verb's field; HELP where the verbs differ. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_OPTION_ROWS_H
#define CVY_TOOLS_PROGRAM_OPTIONS_OPTION_ROWS_H

#include "convoy/data.h"
#include "tools/program/options/options.h"
#include "tools/program/program_common.h"

/* const char *: one of program_models (program_common.h), or the name of an ONNX file. */
#define UNIT_MODEL "resnet18, lenet, resnet34, resnet50, or an ONNX file"
#define ROW_MODEL(F, HELP) \
  {OPT_PARSE("model", F(model), "NAME", UNIT_MODEL, options_parse_model, HELP), .deflt = "resnet18"}
#define ROW_MODEL_REQUIRED(F, HELP) \
  {OPT_PARSE("model", F(model), "NAME", UNIT_MODEL, options_parse_model, HELP), .required = true}

/* The same; NULL if it is not given: the verb takes it from the weights file. */
#define ROW_MODEL_OF_WEIGHTS(F, HELP) \
  {OPT_PARSE("model", F(model), "NAME", UNIT_MODEL, options_parse_model, HELP), .absent = ABSENT_OF_WEIGHTS}

#define OR_CHANNELS_FIRST "; or CxHxW with up to 4 channels, such as 3x32x32"
/* The input and the classes of a network for verbs without data. F(input): int64_t[3], height, width, channels; zeros
 * and 0: not given. */
#define ROW_NET_INPUT(F, ABSENT, HELP)                                                                        \
  {OPT_PARSE("input", F(input), "HxWxC", "pixels and channels", options_parse_input, HELP OR_CHANNELS_FIRST), \
   .absent = ABSENT}
#define ROW_NET_CLASSES(F, ABSENT, HELP) \
  {OPT_INT("classes", F(classes), NULL, "classes", 1, CVY_MAX_CLASSES, HELP), .absent = ABSENT}
#define ABSENT_OF_FILE(SIZE) SIZE ", or as in the ONNX file"
#define ABSENT_OF_WEIGHTS "as in the weights file"

#define ROW_DATA(F, HELP) {OPT_TEXT("data", F(data), "data set", HELP), .value = "DATA", .required = true}
#define ROW_DATA_DIR(F)                                                                    \
  {OPT_TEXT("data-dir", F(data_dir), "folder", "folder of fashion-mnist"), .value = "DIR", \
   .absent = "$CONVOY_DATA, then Debian's folder"}
#define ROW_CLASSES(F)                                                                                     \
  {OPT_INT("classes", F(classes), "0", "classes, 0: largest label + 1, synthetic: 10", 0, CVY_MAX_CLASSES, \
           "classes of the data")}
#define HELP_DATA                                                                                              \
  "fashion-mnist; a folder with idx files, CIFAR's binary files, or pictures (JPEG, PNG) in train/CLASS/ and " \
  "test/CLASS/, or in CLASS/; or synthetic[:N[:HxWxC]] (N images, needs no files)"
/* Options of the images: F(images.size) and so on. */
#define ROW_SIZE(F)                                                                                                  \
  {OPT_PARSE("size", F(images.size), "N|HxW", "pixels", options_parse_size,                                          \
             "resize every image (bilinear, antialiased, as Pillow): N resizes the shorter side to N and crops the " \
             "centre NxN, HxW resizes to H x W"),                                                                    \
   .absent = "no resizing"}
#define ROW_GRAY(F) {OPT_FLAG("gray", F(images.gray), "convert images to one channel (ITU-R 601)")}
#define ROW_PNG16(F, FIELD)                                                                                           \
  {OPT_CHOICE("png16", F(FIELD), "clip|scale", "clip",                                                                \
              "16-bit gray PNGs: clip values above 255, as torchvision's ImageFolder does, or scale 0 to 65535 to 0 " \
              "to 255")}
#define ROW_EXIF(F, FIELD)                                                                                      \
  {OPT_CHOICE("exif", F(FIELD), "ignore|rotate", "ignore",                                                      \
              "EXIF orientation of pictures: ignore it, as torchvision's ImageFolder does, or rotate pictures " \
              "upright")}
#define ROW_VAL_SPLIT(F, HELP) \
  {OPT_REAL("val-split", F(images.val_split), NULL, "part", 0, 0.999999, HELP), .value = "X", .absent = "none"}
#define ROW_NO_DATA_CACHE(F) \
  {OPT_FLAG("no-data-cache", F(images.no_cache), "do not read or write decoded pictures in the user's cache folder")}
#define HELP_STRICT "exit if a picture cannot be decoded; by default it is left out, with a warning"
#define HELP_OF_CAVEAT "an ONNX file lacks parts of the network it was exported from (PyTorch's exporter folds them)"
#define ROW_STRICT(F, HELP) {OPT_FLAG("strict", F(images.strict), HELP)}
#define HELP_HOLD_OUT "fraction of each class of the training images that is held out for validation, chosen by --seed"
#define ROWS_IMAGES(F, STRICT)                                                                                     \
  ROW_SIZE(F), ROW_GRAY(F), ROW_PNG16(F, images.png16), ROW_EXIF(F, images.exif), ROW_VAL_SPLIT(F, HELP_HOLD_OUT), \
      ROW_NO_DATA_CACHE(F), ROW_STRICT(F, STRICT)
#define ROW_SEED(F, HELP) {OPT_INT("seed", F(seed), "0", "number", 0, 9.2e18, HELP)}

#define ROW_DEVICES(F, HELP) \
  {OPT_TEXT("devices", F(devices), "selector", HELP), .letter = 'd', .value = "SEL", .deflt = "auto"}
#define HELP_DEVICES_TOGETHER "devices that share the work; see convoy train --help"
#define HELP_DEVICES_IN_TURN "devices, measured one after the other; see convoy train --help"
#define ROW_SHARES(F, ABSENT)                                                  \
  {OPT_PARSE("shares", F(shares), "N1,N2,...", "images", options_parse_shares, \
             "images of a batch for each device; their sum is --batch"),       \
   .absent = ABSENT}
#define ROW_BATCH(F, MOST, HELP) {OPT_INT("batch", F(batch), "256", "images", 1, MOST, HELP), .letter = 'b'}

#define ROW_RECOMPUTE(F, HELP) {OPT_FLAG("recompute", F(recompute), HELP)}
#define ROW_CONV_ALGO(F, HELP)                                                                  \
  {OPT_PARSE("conv-algo", F(conv_algo), "LIST",                                                 \
             "auto, direct, winograd2, winograd2_fused, winograd4, winograd4_fused, gemm, fft", \
             options_parse_conv_algo, HELP),                                                    \
   .deflt = "auto"}
#define HELP_CONV_ALGO \
  "algorithms of convolutions and linear layers; each layer uses the first in the list that supports it"
#define ROW_MATH(F, HELP) {OPT_CHOICE("math", F(math), "fp32|tf32", "fp32", HELP)}
#define HELP_MATH                                                                                                 \
  "products of convolutions and linear layers: float32, or TF32 (factors with 10 bits of mantissa) on NVIDIA's "  \
  "matrix units, compute capability 8.0 and up. Devices whose test of TF32 fails use float32. Relative error of " \
  "tf32: 2e-3; float32's error bounds do not hold"
#define HELP_MATH_SHORT "arithmetic of products, as in convoy train"
/* For verbs where --math has no effect: refused, with the reason. */
#define ROW_NO_MATH(WHY) {OPT_REFUSED("math", WHY)}
#define ROW_TUNE(F, HELP) {OPT_CHOICE("tune", F(tune), "cached|off|quick", "cached", HELP)}
#define HELP_TUNE "with --conv-algo auto: results of convoy tune, the shipped defaults, or measure missing entries now"

#define ROW_EXCHANGE(F)                                                                                                \
  {OPT_CHOICE("exchange", F(exchange), "fp32|bf16", "fp32",                                                            \
              "format of gradients on their way to the host. bf16: half the bytes; the residual of rounding is added " \
              "to the next gradient; weights stay fp32. For a slow connection to the host; changes results; needs "    \
              "several devices")}

#define ROW_JSON(F, ABSENT, HELP) {OPT_SINK("json", F(json), NULL, HELP), .absent = ABSENT}
#define ROW_JSON_OR_TABLE(F) ROW_JSON(F, "none: prints a table", "write the result as JSON")
#define ROW_QUIET(F) {OPT_FLAG("quiet", F(quiet), "print only errors and warnings"), .letter = 'q'}

/* For verbs that run on one machine. */
#define ROW_NO_NODES(WHY) {OPT_REFUSED("nodes", WHY)}
#define NODES_ONE_EACH "this verb runs on one machine: start it on each machine"

/* Options of a node (node.h): F(fleet.nodes) and so on. */
#define ROW_NODES(F)                                                                                                 \
  {OPT_TEXT("nodes", F(fleet.nodes), "addresses",                                                                    \
            "machines that train together over TCP, the same list on each: host names or IP addresses, with an "     \
            "optional port (pc1,pc2:7071,[fd00::2]). Their devices form one team, in this order. Processes started " \
            "by mpirun or srun are a fleet without this option"),                                                    \
   .value = "A,B,..."}
#define ROW_NODE(F) \
  {OPT_INT("node", F(fleet.node), "-1", "index from 0", -1, 63, "index of this machine in --nodes"), .value = "I"}
#define ROW_PORT(F)                                                                                         \
  {OPT_INT("port", F(fleet.port), "7070", "TCP port", 1, 65535, "port of nodes that have none in --nodes"), \
   .value = "P"}
#define ROW_FLEET_KEY(F)                       \
  {OPT_TEXT("fleet-key", F(fleet.key), "file", \
            "only programs with the same key in this file may join; by default any program that reaches the port")}
#define ROW_FLEET_WAIT(F)                                               \
  {OPT_REAL("fleet-wait", F(fleet.wait), "600", "seconds", 1, 1e6,      \
            "time limit for the other machines before the first step"), \
   .value = "S"}
#define ROW_NO_FLEET(F) \
  {OPT_FLAG("no-fleet", F(fleet.none), "run this process alone, although mpirun or srun started several")}
#define ROWS_FLEET(F)                                                                                           \
  {OPT_GROUP("Several machines")}, ROW_NODES(F), ROW_NODE(F), ROW_PORT(F), ROW_FLEET_KEY(F), ROW_FLEET_WAIT(F), \
      ROW_NO_FLEET(F)

#endif
