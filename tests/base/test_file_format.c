/* SPDX-License-Identifier: MIT
 * Files that people take for weights or networks (src/base/file_format.h): each is named, with what to do, and no right
 * file is taken for one of them. */
#include <string.h>

#include "src/base/file_format.h"
#include "src/base/safetensors.h"
#include "tests/support/check.h"

#define BYTES(text) text, sizeof(text) - 1

static const struct {
  const char *bytes;
  size_t n;
  const char *path, *kind, *advice; /* advice: NULL: none but which files are read */
} cases[] = {
    {BYTES("PK\3\4................archive/data.pkl\200\2}q"), "m.pth", "torch.save", "safetensors.torch.save_file("},
    {BYTES("PK\3\4................model/version"), "m.pt", "torch.save", "torch.load('m.pt'"},
    {BYTES("PK\3\4................m/code/__torch__.py"), "m.pt", "TorchScript", "torch.jit.load('m.pt'"},
    {BYTES("PK\3\4................0.weight.npy\x93NUMPY"), "w.npz", ".npz", "numpy.load('w.npz')"},
    {BYTES("PK\3\4................metadata.json....config.json"), "m.keras", "Keras", "format='onnx'"},
    {BYTES("PK\3\4................readme.txt"), "w.zip", "a ZIP archive", "unzip 'w.zip'"},
    {BYTES("\200\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), "m.pth", "a pickle", "torch.load('m.pth'"},
    {BYTES("\x93NUMPY\1\0v\0"), "w.npy", ".npy", "numpy.load('w.npy')"},
    {BYTES("\x89HDF\r\n\x1a\n\0\0\0\0\0\0"), "m.h5", "HDF5", "format='onnx'"},
    {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:"), "m.safetensors", "Git LFS", "git lfs pull"},
    {BYTES("GGUF\3\0\0\0\0\0\0\0"), "m.gguf", "GGUF", NULL},
    {BYTES("\n {\"metadata\": {}, \"weight_map\": {}}"), "m.safetensors.index.json", "the index", "save_file("},
    {BYTES("{\"a\": 1}"), "c.json", "a JSON file", NULL},
    {BYTES("\0\0\0\0\2\0\0\0\5\0\0\0\0\372\1\0\0\0\0\0"), "yolov3.weights", "Darknet", NULL},
    {BYTES("\r\n<!DOCTYPE html><html>"), "m.safetensors", "a web page", "download the file itself"},
    {BYTES("\x1f\x8b\10\0\0\0\0\0\0\0"), "m.gz", "gzip", "gunzip 'm.gz'"},
    {BYTES("\34\0\0\0TFL3\0\0\0\0"), "m.tflite", "TensorFlow Lite", NULL},
};

static void expect(const void *bytes, size_t n, const char *path, bool wants_network, const char *kind,
                   const char *advice) {
  cvy_text text = {0};
  assert_true(cvy_file_format(bytes, n, path, wants_network, &text));
  const char *const got = cvy_text_get(&text);
  if (!strstr(got, kind) || !strstr(got, advice)) fail_msg("%s: '%s' lacks '%s' or '%s'", path, got, kind, advice);
  cvy_text_clear(&text);
}

CHECK_TEST(kinds) {
  static char tar[300];
  (void)d;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(cases[i].bytes, cases[i].n, cases[i].path, false, cases[i].kind,
           cases[i].advice ? cases[i].advice : "weights are read from safetensors files");
    expect(cases[i].bytes, cases[i].n, cases[i].path, true, cases[i].kind, "");
  }
  expect(cases[0].bytes, cases[0].n, "m.onnx", true, "torch.save", "torch.onnx.export");
  expect(cases[3].bytes, cases[3].n, "w.onnx", true, ".npz", "networks are read from ONNX files");
  memcpy(tar + 257, "ustar", 5);
  expect(tar, sizeof tar, "m.tar", false, "a tar archive", "tar xf 'm.tar'");
  expect(BYTES("\10\7\22\7pytorch"), "net.onnx", false, "an ONNX file", "--model 'net.onnx'");
  expect(BYTES("\10\7\22\4CNTK\032"), "net", false, "an ONNX file", "--model 'net'");
  expect(BYTES("\x10\0\0\0\0\0\0\0{\"a\":{}}        "), "w.onnx", true, "a safetensors file", "--weights");
}

/* A header may have any length, also one whose bytes are those of another kind. */
CHECK_TEST(right_ones) {
  static const char *const right[] = {"PK\3\4\0\0\0\0{\"a\"", "\200\2\0\0\0\0\0\0{\"a\"",
                                      "\x1f\x8b\10\0\0\0\0\0{\"a\""};
  cvy_text text = {0};
  (void)d;
  for (size_t i = 0; i < sizeof right / sizeof *right; i++)
    assert_false(cvy_file_format(right[i], 12, "w.safetensors", false, &text));
  assert_false(cvy_file_format("\10\7\22\7pytorch", 11, "net.onnx", true, &text));
  assert_false(cvy_file_format("", 0, "w", false, &text));
  assert_false(cvy_file_format("\10\1\22\232\1......", 11, "saved_model.pb", false, &text));
  assert_false(cvy_file_format("\10\4\22\20\n\5....", 10, "m.mlmodel", false, &text));
  assert_false(cvy_file_format("\7", 1, "w", true, &text));
  cvy_text_clear(&text);
}

/* Cut off anywhere: no byte behind the end is looked at. */
CHECK_TEST(cut_off) {
  (void)d;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t n = 0; n <= cases[i].n; n++) {
      cvy_text text = {0};
      uint8_t *const exact = malloc(n ? n : 1);
      assert_non_null(exact);
      memcpy(exact, cases[i].bytes, n);
      (void)cvy_file_format(exact, n, cases[i].path, i % 2, &text);
      free(exact);
      cvy_text_clear(&text);
    }
}

CHECK_TEST(readers) {
  cvy_st_file *file = NULL;
  (void)d;
  check_write(check_path("m.pth"), cases[0].bytes, cases[0].n);
  check_fails(cvy_st_open(check_path("m.pth"), &file), CVY_E_FORMAT,
              "m.pth is not a safetensors file: it is a file of torch.save");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
