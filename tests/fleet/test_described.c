/* SPDX-License-Identifier: MIT
 * The devices of another node as it describes them (src/fleet/described_devices.h): taken, made plain, or refused. */
#include <jansson.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/fleet/described_devices.h"
#include "tests/support/check.h"

/* The text that cvy_described_devices makes of this list for n devices; NULL: it refuses the list. cvy_free. */
static char *take(const char *list, int n) {
  char *text = NULL;
  json_t *const read = json_loads(list, JSON_DECODE_ANY, NULL);
  assert_non_null(read);
  check_ok(cvy_described_devices(read, n, &text));
  json_decref(read);
  return text;
}

CHECK_TEST(right_lists) {
  static const struct {
    const char *sent, *taken;
    int n;
  } cases[] = {
      {"[]", "[]", 0},
      {"[{\"label\":\"0:0 a\",\"units\":4,\"driver\":\"b 1\",\"path\":\"/etc\"},"
       "{\"driver\":\"\",\"label\":\"1:0 c\",\"units\":1}]",
       "[{\"label\":\"0:0 a\",\"units\":4,\"driver\":\"b 1\"},{\"label\":\"1:0 c\",\"units\":1,\"driver\":\"\"}]", 2},
      {"[{\"label\":\"\\u001b[2J\\u009b\\u202ea\\n\",\"units\":1,\"driver\":\"\\u0007\"}]",
       "[{\"label\":\"\\\\x1b[2J\\\\xc2\\\\x9b\\\\xe2\\\\x80\\\\xaea\\\\x0a\",\"units\":1,\"driver\":\"\\\\x07\"}]", 1},
  };
  (void)d;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char *const got = take(cases[c].sent, cases[c].n);
    assert_string_equal(got, cases[c].taken);
    cvy_free(got);
  }
}

CHECK_TEST(wrong_lists) {
  static const char *const cases[] = {
      "{}",
      "1",
      "[]",
      "[1]",
      "[{\"label\":\"a\",\"units\":1}]",
      "[{\"label\":1,\"units\":1,\"driver\":\"\"}]",
      "[{\"label\":\"a\",\"units\":0,\"driver\":\"\"}]",
      "[{\"label\":\"a\",\"units\":2147483648,\"driver\":\"\"}]",
      "[{\"label\":\"a\",\"units\":1,\"driver\":\"\"},{\"label\":\"a\",\"units\":1,\"driver\":\"\"}]",
  };
  (void)d;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) assert_null(take(cases[c], 1));
}

/* A label has the length of a device's own, and ends with a whole character. */
CHECK_TEST(long_labels) {
  char sent[1024] = "[{\"units\":1,\"driver\":\"\",\"label\":\"a";
  (void)d;
  for (int i = 0; i < 200; i++) strcat(sent, "\xc3\xa9");
  strcat(sent, "\"}]");
  char *const got = take(sent, 1);
  json_t *const read = json_loads(got, 0, NULL);
  assert_non_null(read);
  const char *const label = json_string_value(json_object_get(json_array_get(read, 0), "label"));
  assert_int_equal(strlen(label), 159);
  json_decref(read);
  cvy_free(got);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
