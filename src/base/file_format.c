/* SPDX-License-Identifier: MIT
 * Sources: ZIP: APPNOTE 6.3.10, 4.3.7. Python's pickles: PEP 3154, and pickletools. NumPy: numpy.lib.format. HDF5: File
 * Format Specification 3.0, II.A. Git LFS: docs/spec.md. GGUF: ggml's docs/gguf.md. Darknet: its function
 * save_weights. */
#include "src/base/file_format.h"

#include <string.h>

typedef struct head {
  const uint8_t *bytes;
  size_t n;
} head;

static bool has(head h, size_t at, const char *text, size_t length) {
  return h.n >= at + length && memcmp(h.bytes + at, text, length) == 0;
}
#define HAS(at, text) has(h, at, text, sizeof(text) - 1)

/* A substring. */
static bool holds(head h, const char *text) { return memmem(h.bytes, h.n, text, strlen(text)) != NULL; }

static bool ends_with(const char *path, const char *ending) {
  const size_t n = strlen(path), m = strlen(ending);
  return n > m && strcmp(path + n - m, ending) == 0;
}

typedef struct kind {
  const char *name, *advice; /* advice: how to convert it to weights, or its use; with %s for the path, or NULL */
  bool for_networks;         /* the advice also applies if a network is expected */
  bool of_torch;             /* a module with these weights can be exported */
} kind;

/* For files of torch.load. */
static const char by_torch_load[] =
    "in Python: import torch, safetensors.torch; "
    "safetensors.torch.save_file(torch.load('%s', map_location='cpu'), 'weights.safetensors')";

static const kind torch_zip = {
    .name = "a file of torch.save (a ZIP archive with a pickle)", .advice = by_torch_load, .of_torch = true};
static const kind torch_pickle = {
    .name = "a pickle of Python, as older versions of torch.save write it", .advice = by_torch_load, .of_torch = true};
static const kind torch_script = {.name = "a TorchScript archive (torch.jit.save)",
                                  .advice =
                                      "in Python: import torch, safetensors.torch; "
                                      "safetensors.torch.save_file(torch.jit.load('%s', "
                                      "map_location='cpu').state_dict(), "
                                      "'weights.safetensors')",
                                  .of_torch = true};
static const kind torch_program = {.name = "an ExportedProgram of torch.export",
                                   .advice = "export the module with torch.onnx.export",
                                   .of_torch = true};
static const kind npz = {.name = "an archive of NumPy arrays (.npz)",
                         .advice =
                             "in Python: import numpy, safetensors.numpy; "
                             "safetensors.numpy.save_file(dict(numpy.load('%s')), 'weights.safetensors')"};
static const kind npy = {.name = "one array of NumPy (.npy)",
                         .advice =
                             "in Python: import numpy, safetensors.numpy; "
                             "safetensors.numpy.save_file({'NAME': numpy.load('%s')}, 'weights.safetensors')"};
static const kind keras_zip = {.name = "a model of Keras (.keras)",
                               .advice =
                                   "in Python: import keras; keras.models.load_model('%s').export('net.onnx', "
                                   "format='onnx'), then --model net.onnx",
                               .for_networks = true};
static const kind hdf5 = {.name = "an HDF5 file, as Keras writes weights and models (.h5)",
                          .advice =
                              "in Python: build or load the model with Keras, model.export('net.onnx', format='onnx'), "
                              "then --model net.onnx",
                          .for_networks = true};
static const kind zip = {.name = "a ZIP archive", .advice = "unpack it first: unzip '%s'", .for_networks = true};
static const kind lfs = {.name = "a pointer of Git LFS, not the file itself",
                         .advice = "in its repository: git lfs pull --include '%s'",
                         .for_networks = true};
static const kind gguf = {.name = "a GGUF file (llama.cpp)"};
static const kind shards = {.name = "the index of weights in several files (index.json)",
                            .advice =
                                "in Python, in its folder: import glob, safetensors.torch as s; "
                                "s.save_file({k: v for f in glob.glob('*-of-*.safetensors') "
                                "for k, v in s.load_file(f).items()}, 'weights.safetensors')"};
static const kind json = {.name = "a JSON file"};
static const kind darknet = {.name = "weights of Darknet"};
static const kind page = {.name = "a web page, not the linked file",
                          .advice = "download the file itself; use the hub's download address",
                          .for_networks = true};
static const kind gzip = {
    .name = "a file packed by gzip", .advice = "unpack it first: gunzip '%s'", .for_networks = true};
static const kind tar = {.name = "a tar archive", .advice = "unpack it first: tar xf '%s'", .for_networks = true};
static const kind tflite = {.name = "a model of TensorFlow Lite"};
static const kind onnx = {.name = "an ONNX file", .advice = "it also has the network: --model '%s'"};
static const kind weights = {
    .name = "a safetensors file: weights without a network",
    .advice = "use the network's name or ONNX file with --model, and this file with --weights or --init-from",
    .for_networks = true};

static const kind *kind_of_zip(head h) {
  if (holds(h, ".npy")) return &npz;
  if (holds(h, "model.weights.h5") || (holds(h, "metadata.json") && holds(h, "config.json"))) return &keras_zip;
  if (holds(h, "serialized_exported_program") || holds(h, "/models/") || holds(h, "archive_format"))
    return &torch_program;
  if (holds(h, "/code/") || holds(h, "constants.pkl")) return &torch_script;
  if (holds(h, "data.pkl") || holds(h, "/byteorder") || holds(h, "/version")) return &torch_zip;
  return &zip;
}

/* ModelProto's first field is ir_version, a small number; the next is the producer's name, the graph or the version of
 * the operators. TensorFlow's saved models and Core ML's models begin alike, with a message where the name stands. */
static bool is_onnx(head h, const char *path) {
  if (h.n < 4 || h.bytes[0] != 0x08 || h.bytes[1] < 1 || h.bytes[1] > 32) return false;
  bool is_name = h.bytes[2] == 0x12 && h.bytes[3] > 0 && h.bytes[3] < 0x80;
  for (size_t i = 4; is_name && i < h.n && i < 4u + h.bytes[3]; i++) is_name = h.bytes[i] >= ' ' && h.bytes[i] < 0x7f;
  return ends_with(path, ".onnx") || is_name || h.bytes[2] == 0x3a || h.bytes[2] == 0x42;
}

static bool is_safetensors(head h) {
  uint64_t length = 0;
  for (int i = 7; i >= 0 && h.n >= 9; i--) length = length << 8 | h.bytes[i];
  return length > 1 && length < (uint64_t)1 << 32 && h.n >= 9 && h.bytes[8] == '{';
}

static const kind *kind_of_text(head h) {
  size_t at = 0;
  while (at < h.n && (h.bytes[at] == ' ' || h.bytes[at] == '\n' || h.bytes[at] == '\r' || h.bytes[at] == '\t')) at++;
  if (HAS(at, "<!DOCTYPE") || HAS(at, "<!doctype") || HAS(at, "<html") || HAS(at, "<HTML")) return &page;
  if (HAS(at, "{")) return holds(h, "\"weight_map\"") ? &shards : &json;
  return NULL;
}

static const kind *find(head h, const char *path, bool wants_network) {
  static const char newer_darknet[] = "\0\0\0\0\2\0\0", older_darknet[] = "\0\0\0\0\1\0\0";
  if (is_safetensors(h)) return wants_network ? &weights : NULL; /* a length may have any bytes */
  if (HAS(0, "PK\3\4")) return kind_of_zip(h);
  if (HAS(0, "\x93NUMPY")) return &npy;
  if (HAS(0, "\x89HDF\r\n\x1a\n")) return &hdf5;
  if (HAS(0, "version https://git-lfs")) return &lfs;
  if (HAS(0, "GGUF")) return &gguf;
  if (HAS(0, "\x1f\x8b")) return &gzip;
  if (HAS(257, "ustar")) return &tar;
  if (HAS(4, "TFL3")) return &tflite;
  if (h.n > 2 && h.bytes[0] == 0x80 && h.bytes[1] >= 2 && h.bytes[1] <= 5) return &torch_pickle;
  if (h.n >= 16 && (HAS(0, newer_darknet) || HAS(0, older_darknet))) return &darknet;
  if (!wants_network && is_onnx(h, path)) return &onnx;
  return kind_of_text(h);
}

bool cvy_file_format(const void *bytes, size_t n, const char *path, bool wants_network, cvy_text *out) {
  const kind *const found =
      find((head){bytes, n < CVY_FILE_FORMAT_BYTES ? n : CVY_FILE_FORMAT_BYTES}, path, wants_network);
  if (!found) return false;
  cvy_text_add(out, "it is %s", found->name);
  const char *const advice = !wants_network || found->for_networks ? found->advice
                             : found->of_torch ? "in Python: build the module, load the file into it, and export it "
                                                 "with torch.onnx.export"
                                               : NULL;
  const char *const place = advice ? strstr(advice, "%s") : NULL;
  if (place) cvy_text_add(out, "; %.*s%s%s", (int)(place - advice), advice, path, place + 2);
  else if (advice) cvy_text_add(out, "; %s", advice);
  else if (!wants_network) cvy_text_add(out, "; weights are read from safetensors files");
  else cvy_text_add(out, "; networks are read from ONNX files");
  return true;
}
