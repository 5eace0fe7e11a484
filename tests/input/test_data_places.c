/* SPDX-License-Identifier: MIT
 * Where the pictures and images of a data set lie: parts of a set by the names of folders, CIFAR's files, EMNIST's
 * splits, data sets below the folder that is named. */
#include <stdio.h>
#include <unistd.h>

#include "src/data/folder.h"
#include "src/data/folder_names.h"
#include "tests/input/picture_folder.h"

/* Names of parts, as archives have them. */
CHECK_TEST(folder_names) {
  static const struct {
    const char *name;
    int set;
    bool sounds;
  } names[] = {
      {"train", CVY_SET_OF_TRAIN, true},
      {"Training", CVY_SET_OF_TRAIN, true},
      {"TRAIN", CVY_SET_OF_TRAIN, true},
      {"seg_train", CVY_SET_OF_TRAIN, true},
      {"training_set", CVY_SET_OF_TRAIN, true},
      {"TrainSet", CVY_SET_OF_TRAIN, true},
      {"trainset", CVY_SET_OF_TRAIN, true},
      {"images-train", CVY_SET_OF_TRAIN, true},
      {"train2017", CVY_SET_OF_TRAIN, true},
      {"val", CVY_SET_OF_VAL, true},
      {"valid", CVY_SET_OF_VAL, true},
      {"Validation Set", CVY_SET_OF_VAL, true},
      {"ValidationSet", CVY_SET_OF_VAL, true},
      {"dev", CVY_SET_OF_VAL, true},
      {"Test", CVY_SET_OF_TEST, true},
      {"seg_test", CVY_SET_OF_TEST, true},
      {"testing", CVY_SET_OF_TEST, true},
      {"test_data", CVY_SET_OF_TEST, true},
      {"seg_pred", -1, true},
      {"holdout", -1, true},
      {"my_train", -1, true},
      {"test-multiple_fruits", -1, true},
      {"train_val", -1, true},
      {"trains", -1, false},
      {"testudo", -1, false},
      {"invalid", -1, false},
      {"trained", -1, false},
      {"contest", -1, false},
      {"dataset", -1, false},
      {"images", -1, false},
      {"cat", -1, false},
      {"2017", -1, false},
      {"\xc3\xa9t\xc3\xa9", -1, false},
      {"set", -1, false},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (cvy_folder_set_of(names[i].name) != names[i].set ||
        cvy_folder_sounds_like_part(names[i].name) != names[i].sounds)
      check_fail(d, "'%s': set %d, sounds like a part: %d", names[i].name, cvy_folder_set_of(names[i].name),
                 cvy_folder_sounds_like_part(names[i].name));

  static const struct {
    const char *pictures[7]; /* paths */
    int train, val, test, classes;
    const char *says; /* a warning, or with train 0 the error */
  } layouts[] = {
      {{"Training/a/1", "Training/b/1", "Test/a/1", "Test/b/1", "papers/1", "test-multiple_fruits/1"},
       2,
       0,
       2,
       2,
       "'papers', 'test-multiple_fruits'"},
      {{"seg_train/seg_train/a/1", "seg_train/seg_train/b/1", "seg_test/seg_test/a/1", "seg_pred/seg_pred/1"},
       2,
       0,
       1,
       2,
       "'seg_pred'"},
      {{"train/a/1", "train/b/1", "valid/a/1", "test/a/1"}, 2, 1, 1, 2, NULL},
      {{"train/a/1", "train/b/1", "validation/a/1"}, 2, 0, 1, 2, NULL},
      {{"train/a/1", "train/b/1", "val/a/1", "test/1", "test/2"}, 2, 0, 1, 2, "no labels"},
      {{"train/a/1", "train/b/1", "test/.x/1"}, 2, 0, 0, 2, "no labels"},
      {{"bus/1", "car/1", "train/1"}, 3, 0, 0, 3, NULL},
      {{"train/train/1", "train/bus/1", "test/train/1"}, 2, 0, 1, 2, NULL},
      {{"__MACOSX/a/1", "a/1", "b/1", ".git/1", "a/.ipynb_checkpoints/1", "b/x/@eaDir/1", "a/y/1"},
       3,
       0,
       0,
       2,
       "4 hidden or system folders"},
      {{"train/a/1", "train/b/1", "__MACOSX/train/a/1", "train/a/.ipynb_checkpoints/1"},
       2,
       0,
       0,
       2,
       "2 hidden or system folders"},
      {{"valid/1", "invalid/1"}, 2, 0, 0, 2, NULL},
      {{"TrainA/1", "TestA/1"}, 0, 0, 0, 0, "'TestA', 'TrainA', sound like parts of a set"},
      {{"fold_train/a/1", "fold_test/a/1"}, 0, 0, 0, 0, "sound like parts of a set"},
      {{"train/train_1/1", "train/test_1/1"}, 0, 0, 0, 0, "sound like parts of a set"},
      {{"train/1", "test/1"}, 0, 0, 0, 0, "train has no folders: expected one for each class"},
      {{"Train/a/1", "train/a/1"}, 0, 0, 0, 0, "has the folders Train and train: expected one"},
      {{"train/a/1", "val/a/1", "valid/a/1"}, 0, 0, 0, 0, "has the folders val and valid: expected one"},
      {{"pets/train/a/1", "pets/test/a/1"}, 1, 0, 1, 1, "/pets, is read"},
      {{"in/pets/train/a/1", "in/pets/val/a/1", "preview"}, 1, 0, 1, 1, "/in/pets, is read"},
      {{"a/train/x/1", "a/test/x/1", "b/train/x/1", "b/test/x/1"},
       0,
       0,
       0,
       0,
       "several are in it, name one of these: "},
      {{"pets/train/a/1", "pets/test/a/1", "cats/1"}, 0, 0, 0, 0, "beside others that may be meant, name it: "},
      {{"a/train/1", "a/test/1", "b/train/1", "b/test/1"}, 0, 0, 0, 0, "/a would be a class"},
      {{"x/y/w/Train/a/1", "x/y/w/Valid/a/1", "z/1"}, 0, 0, 0, 0, "its folders x/y/w/Train and x/y/w/Valid"},
      {{"Training/a/1", "Test/c/1"}, 0, 0, 0, 0, "Training does not have"},
      {{"train/caf\u00e9/1", "test/cafe\u0301/1", "train/tea/1", "test/tea/1"},
       0,
       0,
       0,
       0,
       "two names that look alike with different bytes (Unicode's forms NFC and NFD): in "},
      {{"train/caf\u00e9/1", "test/cafe\u0301/1", "train/th\u00e9/1", "test/the\u0301/1"},
       0,
       0,
       0,
       0,
       "/test it is 63 61 66 65 cc 81, in "},
      {{"train/\uac15\uc544/1", "test/\u1100\u1161\u11bc\u110b\u1161/1", "train/\uac00/1", "test/\uac00/1"},
       0,
       0,
       0,
       0,
       "/train ea b0 95 ec 95 84; rename one"},
      {{"train/caf\u00e9/1", "test/cafe/1"}, 0, 0, 0, 0, "has the class 'cafe', which"},
      {{"train/caf\u00e9/1", "train/cafe\u0301/1", "train/cafe/1", "test/cafe\u0301/1"},
       3,
       0,
       1,
       3,
       "(Unicode's forms NFC and NFD), 'cafe\u0301': 63 61 66 65 cc 81 and 63 61 66 c3 a9; if they are one class"},
      {{"train/a/1", "val/a/1", "test/unknown/1"}, 1, 0, 1, 1, "/test is left out: its one folder, 'unknown', is no"},
      {{"train/a/1", "val/a/1", "test/test/1"}, 1, 0, 1, 1, "/test is left out: its one folder, 'test', is no class"},
      {{"train/all/1", "train/b/1", "test/all/1"}, 2, 0, 1, 2, NULL},
      {{"train/a/1", "val/a/1", "test/b/1"}, 0, 0, 0, 0, "has the class 'b', which"},
      {{"in/pets/train/a/1", "in/pets/train/b/1"}, 2, 0, 0, 2, "/in/pets, is read"},
      {{"pets/a/1", "pets/b/1"},
       2,
       0,
       0,
       1,
       "has one class alone, 'pets': if the folders in it are the classes, name "},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    cvy_data *data;
    for (int k = 0; k < 7 && layouts[i].pictures[k]; k++)
      copy("train/png/wide.png", check_text("n%zu/%s.png", i, layouts[i].pictures[k]), 0);
    check_log_clear();
    const cvy_status status = cvy_data_load(check_path("n%zu", i), &(cvy_data_params){.no_cache = true}, &data);
    if (layouts[i].says && !check_log_contains(layouts[i].says))
      check_fail(d, "%s …: no message contains '%s'", layouts[i].pictures[0], layouts[i].says);
    if ((status == CVY_OK) != (layouts[i].train > 0))
      check_fail(d, "%s …: %s", layouts[i].pictures[0], cvy_status_name(status));
    if (status != CVY_OK) assert_int_equal(status, CVY_E_FORMAT);
    if (status != CVY_OK) continue;
    check_own(d, data, check_close_data);
    if (data->train.n != layouts[i].train || data->val.n != layouts[i].val || data->test.n != layouts[i].test ||
        data->classes != layouts[i].classes)
      check_fail(d, "%s …: %d train, %d val, %d test, %d classes", layouts[i].pictures[0], data->train.n, data->val.n,
                 data->test.n, data->classes);
    check_case_end(d);
  }
}

/* Record i of a file of CIFAR: labels, then planes whose pixel p has (i + channel * 50 + p) % 256. */
static void put_cifar(const char *name, int first, int n, int labels) {
  const size_t record = (size_t)labels + 3072;
  uint8_t *const bytes = cvy_calloc((size_t)n, record);
  for (int i = 0; i < n; i++) {
    uint8_t *const at = bytes + (size_t)i * record;
    if (labels == 2) at[0] = 99;
    at[labels - 1] = (uint8_t)((first + i) % 3);
    for (int p = 0; p < 3072; p++) at[labels + p] = (uint8_t)(first + i + p / 1024 * 50 + p % 1024);
  }
  put(name, bytes, (size_t)n * record);
  cvy_free(bytes);
}

static void check_cifar(const cvy_samples *s, int first, int n) {
  assert_int_equal(s->n, n);
  for (int i = 0; i < n; i++) {
    assert_int_equal(s->labels[i], (first + i) % 3);
    for (int p = 0; p < 3072; p++)
      assert_int_equal(s->images[i * 3072 + p], (uint8_t)(first + i + p % 3 * 50 + p / 3 % 1024));
  }
}

CHECK_TEST(cifar) {
  cvy_data *none;
  put_cifar("ten/data_batch_1.bin", 0, 1030, 1);
  put_cifar("ten/data_batch_2.bin", 1030, 5, 1);
  put_cifar("ten/test_batch.bin", 7, 4, 1);
  const cvy_data *data = load(d, check_path("ten"), (cvy_data_params){0});
  assert_true(data->h == 32 && data->w == 32 && data->c == 3 && data->classes == 3 && !data->class_names);
  check_cifar(&data->train, 0, 1035);
  check_cifar(&data->test, 7, 4);
  put("ten/batches.meta.txt", "airplane\r\nbird\ncat\n\n", 20);
  data = load(d, check_path("ten"), (cvy_data_params){0});
  assert_string_equal(data->class_names[2], "cat");
  assert_string_equal(data->class_names[0], "airplane");
  check_log_clear();
  data = load(d, check_path("ten"), (cvy_data_params){.classes = 4});
  assert_true(!data->class_names && check_log_contains("has 3 names for 4 classes"));
  put_cifar("ten/data_batch_4.bin", 0, 1, 1);
  check_fails(cvy_data_load(check_path("ten"), NULL, &none), CVY_E_IO, "data_batch_3.bin");
  put("ten/data_batch_3.bin", "x", 1);
  check_fails(cvy_data_load(check_path("ten"), NULL, &none), CVY_E_FORMAT,
              "data_batch_3.bin has 1 bytes: expected records of 3073");
  put_cifar("hundred/train.bin", 3, 6, 2);
  put_cifar("hundred/test.bin", 1, 2, 2);
  put("hundred/fine_label_names.txt", "apple\nbear\ncloud", 16);
  data = load(d, check_path("hundred"), (cvy_data_params){0});
  check_cifar(&data->train, 3, 6);
  check_cifar(&data->test, 1, 2);
  assert_true(data->classes == 3 && strcmp(data->class_names[2], "cloud") == 0);
  check_fails(cvy_data_load(check_path("hundred"), &(cvy_data_params){.classes = 2}, &none), CVY_E_FORMAT,
              "the label of training image 2 (offset 6149) is 2");
  unlink(check_path("hundred/test.bin"));
  check_fails(cvy_data_load(check_path("hundred"), NULL, &none), CVY_E_IO, "test.bin");
}

/* Four files of MNIST's format: n images of 2x2. before, test: of their names. */
static void put_named_idx(const char *before, const char *test, uint8_t n) {
  const uint8_t images[16] = {0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 2, 0, 0, 0, 2}, labels[8] = {0, 0, 8, 1, 0, 0, 0, n};
  uint8_t bytes[256] = {0};
  for (int set = 0; set < 2; set++) {
    memcpy(bytes, images, 16);
    put(check_text("%s%s-images-idx3-ubyte", before, set ? test : "train"), bytes, 16 + 4u * n);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, labels, 8);
    put(check_text("%s%s-labels-idx1-ubyte", before, set ? test : "train"), bytes, 8u + n);
  }
}

static void put_idx(const char *dir, uint8_t n) { put_named_idx(check_text("%s/", dir), "t10k", n); }

/* EMNIST's files of a split. */
static void put_split(const char *dir, const char *split, uint8_t n) {
  put_named_idx(check_text("%s/%s-", dir, split), "test", n);
}

static void put_pickle(const char *name) { put(name, "\x80\x02}q\x01.", 6); }

/* torchvision's root folder, and CIFAR as Python's pickles. */
CHECK_TEST(places) {
  static const char ten[] = "ten has CIFAR-10 as Python's pickles", get_ten[] = "cifar-10-binary.tar.gz | tar xz";
  cvy_data *none;
  put_pickle("ten/data_batch_1");
  put_pickle("ten/test_batch");
  put_pickle("ten/batches.meta");
  check_fails(cvy_data_load(check_path("ten"), NULL, &none), CVY_E_FORMAT, ten);
  assert_true(check_log_contains(get_ten) && check_log_contains("name the folder cifar-10-batches-bin"));
  put_pickle("py/ten/data_batch_1");
  put("py/cifar-10-python.tar.gz", "x", 1);
  check_fails(cvy_data_load(check_path("py"), NULL, &none), CVY_E_FORMAT, ten);
  put_pickle("hundred/train");
  put_pickle("hundred/test");
  put_pickle("hundred/meta");
  check_fails(cvy_data_load(check_path("hundred"), NULL, &none), CVY_E_FORMAT, "CIFAR-100 as Python's pickles");
  assert_true(check_log_contains("name the folder cifar-100-binary"));
  put("text/train", "list of files", 13);
  put("text/test", "list of files", 13);
  check_fails(cvy_data_load(check_path("text"), NULL, &none), CVY_E_IO, "has neither idx files");

  put_idx("root/MNIST/raw", 3);
  put("root/MNIST/processed/training.pt", "x", 1);
  check_log_clear();
  const cvy_data *data = load(d, check_path("root"), (cvy_data_params){0});
  assert_true(data->train.n == 3 && data->h == 2 && check_log_contains("root/MNIST/raw, is read"));
  data = load(d, check_path("root/MNIST"), (cvy_data_params){0});
  assert_int_equal(data->train.n, 3);
  put_pickle("root/ten/data_batch_1"); /* CIFAR-10 may be meant */
  check_fails(cvy_data_load(check_path("root"), NULL, &none), CVY_E_FORMAT, "others that may be meant, name it: ");
  assert_true(check_log_contains("root/MNIST/raw; ") && check_log_contains(get_ten));
  put_idx("root/KMNIST/raw", 4);
  check_fails(cvy_data_load(check_path("root"), NULL, &none), CVY_E_FORMAT, "several are in it, name one of these: ");
  assert_true(check_log_contains("root/MNIST/raw") && check_log_contains("root/KMNIST/raw"));
  data = load(d, check_path("root/KMNIST"), (cvy_data_params){0});
  assert_int_equal(data->train.n, 4);

  put_split("emnist/EMNIST/raw", "emnist-letters", 5);
  check_log_clear();
  data = load(d, check_path("emnist"), (cvy_data_params){0});
  assert_true(data->train.n == 5 && data->test.n == 5 && check_log_contains("EMNIST/raw/emnist-letters, is read"));
  put_split("emnist/EMNIST/raw", "emnist-balanced", 6);
  put("emnist/EMNIST/raw/emnist-letters-train-images-idx3-ubyte.gz", "x", 1); /* packed beside it: one set */
  check_fails(cvy_data_load(check_path("emnist"), NULL, &none), CVY_E_FORMAT, "several are in it, name one of these: ");
  assert_true(check_log_contains("raw/emnist-balanced, ") && !check_log_contains("emnist-letters, "));
  data = load(d, check_path("emnist/EMNIST/raw/emnist-balanced"), (cvy_data_params){0});
  assert_int_equal(data->train.n, 6);
  check_fails(cvy_data_load(check_path("emnist/EMNIST/raw/emnist-digits"), NULL, &none), CVY_E_ARGUMENT,
              "No such file");
  put_split("alone", "emnist-mnist", 7);
  data = load(d, check_path("alone"), (cvy_data_params){0});
  assert_int_equal(data->test.n, 7);

  put_cifar("both/cifar-10-batches-bin/data_batch_1.bin", 0, 5, 1); /* one data set in two forms */
  put_cifar("both/cifar-10-batches-bin/test_batch.bin", 0, 2, 1);
  put_pickle("both/cifar-10-batches-py/data_batch_1");
  check_cifar(&load(d, check_path("both"), (cvy_data_params){0})->train, 0, 5);
}

int main(int argc, char **argv) {
  check_around(begin_pictures, NULL);
  return check_run(argc, argv, CHECK_HOST);
}
