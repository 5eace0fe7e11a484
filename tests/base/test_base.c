/* SPDX-License-Identifier: MIT
 * src/base: status, log, memory, random numbers, text, files, threads, quantiles. */
#include "tests/support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "convoy/stop.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/quantile.h"
#include "src/base/sync.h"
#include "src/base/text.h"
#include "src/base/pool.h"
#include "src/base/user_cache.h"

CHECK_TEST(status) {
  assert_string_equal(cvy_status_text(CVY_OK), "success");
  assert_string_equal(cvy_status_name(CVY_E_MISMATCH), "CVY_E_MISMATCH");
  assert_string_equal(cvy_status_name((cvy_status)99), "CVY_E_?");
  assert_non_null(cvy_status_text((cvy_status)-99));
  const char *texts[32];
  int n = 0;
#define CHECK_CODE(symbol, value, text)                  \
  assert_int_equal(symbol, value);                       \
  assert_string_equal(cvy_status_name(symbol), #symbol); \
  texts[n++] = cvy_status_text(symbol);
  CVY_STATUS_MAP(CHECK_CODE)
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) assert_string_not_equal(texts[i], texts[j]);
}

static cvy_status verbs(int which) {
  cvy_status status = CVY_OK;
  if (which == 0) CVY_FAIL(CVY_E_IO, "failed with %d", which);
  if (which == 1) CVY_TRY(verbs(0));
  CVY_REQUIRE(which != 2, CVY_E_FORMAT, "value %d, anything else would be right", which);
  CVY_ASSERT(which == 3);
fail:
  return status;
}

CHECK_TEST(verbs) {
  check_fails(verbs(0), CVY_E_IO, "failed with 0");
  check_fails(verbs(1), CVY_E_IO, "failed with 0");
  check_fails(verbs(2), CVY_E_FORMAT, "value 2");
  check_ok(verbs(3));
}

typedef struct heard {
  int n;
  cvy_log_level level;
  char text[8192];
} heard;
static void hear(void *user, cvy_log_level level, const char *message) {
  heard *const h = user;
  h->n++;
  h->level = level;
  snprintf(h->text, sizeof h->text, "%s", message);
}

CHECK_TEST(log) {
  static heard h;
  static char long_text[6000];
  memset(long_text, 'x', sizeof long_text - 1);
  cvy_log_set(hear, &h, CVY_LOG_INFO);
  cvy_log_debug("not urgent enough");
  const int after_debug = h.n;
  cvy_log_info("a %d", 7);
  const bool info = h.n == 1 && h.level == CVY_LOG_INFO && !strcmp(h.text, "a 7");
  cvy_log_error("%s", long_text);
  const size_t length = strlen(h.text);
  /* attempts: nothing is heard but the last error of those that had to succeed, when the outermost ends */
  cvy_log_attempt_begin();
  cvy_log_error("first");
  cvy_log_attempt_begin();
  cvy_log_error("second %d", 2);
  cvy_log_attempt_end(true);
  cvy_log_warning("a warning");
  const int in_attempt = h.n;
  cvy_log_attempt_end(true);
  const bool told = h.n == in_attempt + 1 && h.level == CVY_LOG_ERROR && !strcmp(h.text, "second 2");
  cvy_log_attempt_begin();
  cvy_log_error("third");
  cvy_log_attempt_end(false);
  const int after_attempts = h.n;
  /* a group: what one has said, another does not say again, with its own name in it or not */
  static const char *const names[] = {"0:0 thing", "0:1 other"};
  cvy_log_group errors = {0};
  int in_group[2];
  for (int i = 0; i < 2; i++) {
    cvy_log_group_enter(&errors, names[i]);
    for (int k = 0; k < 2; k++) cvy_log_error("%s: no memory, says %s", names[i], names[i]);
    cvy_log_error("no reason");
    cvy_log_error("%s alone", i ? "second" : "first");
    cvy_log_group_leave();
    in_group[i] = h.n - after_attempts;
  }
  cvy_log_set(NULL, NULL, CVY_LOG_DEBUG);
  cvy_log_error("to nobody");
  const int n = h.n;
  check_log_start();
  assert_int_equal(after_debug, 0);
  assert_true(info);
  assert_int_equal(length, 4095);
  assert_int_equal(in_attempt, 2);
  assert_true(told);
  assert_int_equal(after_attempts, 3);
  assert_int_equal(in_group[0], 4);
  assert_int_equal(in_group[1], 5);
  assert_int_equal(errors.n_silenced, 1);
  assert_int_equal(n, 8);
}

static void *say_on_thread(void *lock) {
  cvy_log_info("on a thread");
  cvy_mutex_lock(lock);
  cvy_log_info("under a lock");
  cvy_log_warning("and another");
  cvy_mutex_unlock(lock);
  return NULL;
}

static cvy_mutex said_under;
static bool is_free;
static void hear_unlocked(void *user, cvy_log_level level, const char *message) {
  const int busy = pthread_mutex_trylock(&said_under.posix);
  if (!busy) pthread_mutex_unlock(&said_under.posix);
  is_free &= !busy;
  hear(user, level, message);
}

/* A log that a thread uses, and the threads that it starts; nothing is delivered under a lock. */
CHECK_TEST(logs) {
  static heard process, own;
  cvy_thread thread;
  is_free = true;
  cvy_mutex_init(&said_under);
  cvy_log_set(hear, &process, CVY_LOG_INFO);
  cvy_log *log = cvy_log_create(hear_unlocked, &own, CVY_LOG_INFO), *const before = cvy_log_use(log);
  const cvy_status started = cvy_thread_start(&thread, "cvy-test", say_on_thread, &said_under);
  if (started == CVY_OK) cvy_thread_join(thread);
  cvy_log_debug("not urgent enough");
  cvy_log *const after = cvy_log_use(NULL);
  cvy_log_info("to the process");
  check_log_start();
  cvy_log_destroy(&log);
  cvy_mutex_end(&said_under);
  check_ok(started);
  assert_true(before == NULL && after != NULL && log == NULL && is_free);
  assert_int_equal(own.n, 3);
  assert_string_equal(own.text, "and another");
  assert_int_equal(own.level, CVY_LOG_WARNING);
  assert_int_equal(process.n, 1);
}

static void *store_many(void *unused) {
  for (int i = 0; i < CVY_LOG_STORED + 10; i++) cvy_log_error("error %d", i);
  return unused;
}

/* A log that stores: two threads with logs of their own have their own messages, in order, the newest ones. */
CHECK_TEST(stored) {
  const long before = cvy_live_count(CVY_LIVE_MEMORY);
  cvy_log_level level;
  char text[64], little[4];
  cvy_thread thread;
  cvy_log *log = cvy_log_store(CVY_LOG_WARNING), *other = cvy_log_store(CVY_LOG_INFO);
  cvy_log *const process = cvy_log_use(other);
  const cvy_status started = cvy_thread_start(&thread, "cvy-test", store_many, NULL);
  (void)cvy_log_use(log);
  cvy_log_info("not urgent enough");
  cvy_log_warning("first");
  cvy_log_error("second");
  if (started == CVY_OK) cvy_thread_join(thread);
  (void)cvy_log_use(process);
  check_ok(started);
  assert_true(cvy_log_take(log, &level, text, sizeof text));
  assert_string_equal(text, "first");
  assert_int_equal(level, CVY_LOG_WARNING);
  assert_true(cvy_log_take(log, &level, little, sizeof little));
  assert_string_equal(little, "sec");
  assert_int_equal(level, CVY_LOG_ERROR);
  assert_false(cvy_log_take(log, &level, text, sizeof text));
  for (int i = 10; i < CVY_LOG_STORED + 9; i++) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "error %d", i);
    assert_true(cvy_log_take(other, &level, text, sizeof text));
    assert_string_equal(text, wanted);
  }
  (void)cvy_log_use(log);
  cvy_log_error("third"); /* behind an empty list */
  (void)cvy_log_use(process);
  assert_true(cvy_log_take(log, &level, text, sizeof text));
  assert_string_equal(text, "third");
  cvy_log_destroy(&log);
  cvy_log_destroy(&other); /* with a message */
  heard h = {0};
  log = cvy_log_create(hear, &h, CVY_LOG_INFO);
  assert_false(cvy_log_take(log, &level, text, sizeof text));
  cvy_log_destroy(&log);
  assert_int_equal(cvy_live_count(CVY_LIVE_MEMORY), before);
}

CHECK_TEST(stop) {
  cvy_stop stop = {0};
  assert_false(cvy_stop_requested(NULL) || cvy_stop_requested(&stop));
  cvy_stop_request(&stop);
  assert_true(cvy_stop_requested(&stop));
  cvy_stop_withdraw(&stop);
  assert_false(cvy_stop_requested(&stop));
}

CHECK_TEST(memory) {
  const long before = cvy_live_count(CVY_LIVE_MEMORY);
  size_t product = 5;
  assert_true(cvy_mul_size(0, SIZE_MAX, &product) && product == 0);
  assert_true(cvy_mul_size(SIZE_MAX, 1, &product) && product == SIZE_MAX);
  assert_false(cvy_mul_size(SIZE_MAX / 2 + 1, 2, &product));
  assert_true(product == SIZE_MAX);
  assert_null(cvy_calloc(SIZE_MAX / 4, 8));
  assert_null(cvy_calloc(SIZE_MAX / 2, 1));
  assert_null(cvy_calloc(SIZE_MAX, 1));
  assert_int_equal(cvy_live_count(CVY_LIVE_MEMORY), before);
  unsigned char *p = cvy_calloc(3, 100);
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % 64, 0);
  for (int i = 0; i < 300; i++) assert_int_equal(p[i], 0);
  memset(p, 7, 300);
  assert_null(cvy_realloc(p, 300, SIZE_MAX, 4));
  p = cvy_realloc(p, 3, 5, 100);
  for (int i = 0; i < 500; i++) assert_int_equal(p[i], i < 300 ? 7 : 0);
  p = cvy_realloc(p, 500, 10, 1);
  for (int i = 0; i < 10; i++) assert_int_equal(p[i], 7);
  size_t room = 10;
  assert_ptr_equal(cvy_grow(p, 9, &room, 4, 1), p);
  assert_int_equal(room, 10);
  p = cvy_grow(p, 10, &room, 4, 1);
  assert_int_equal(room, 20);
  for (int i = 0; i < 20; i++) assert_int_equal(p[i], i < 10 ? 7 : 0);
  room = SIZE_MAX / 4;
  assert_null(cvy_grow(p, room, &room, 4, 4));
  assert_int_equal(room, SIZE_MAX / 4);
  assert_int_equal(cvy_live_count(CVY_LIVE_MEMORY), before + 1);
  cvy_free(p);
  void *const empty = cvy_calloc(0, 4);
  assert_non_null(empty);
  cvy_free(empty);
  cvy_free(NULL);
  char *const copy = cvy_strndup("convoy", 3), *const whole = cvy_strdup("convoy");
  assert_string_equal(copy, "con");
  assert_string_equal(whole, "convoy");
  cvy_free(copy);
  cvy_free(whole);
  assert_int_equal(cvy_live_count(CVY_LIVE_MEMORY), before);
  assert_int_equal(cvy_round_up(1, 64), 64);
  assert_int_equal(cvy_round_up(64, 64), 64);
  assert_int_equal(cvy_ceil_div(7, 3), 3);
  assert_int_equal(cvy_ceil_div(6, 3), 2);
}

/* Known answers of Random123's kat_vectors for philox4x32 with 10 rounds: counter, key, result. */
CHECK_TEST(philox) {
  static const struct {
    uint32_t counter[4], key[2], want[4];
  } vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < 3; i++) {
    const cvy_rng rng = {.seed = ((uint64_t)vectors[i].key[1] << 32) | vectors[i].key[0],
                         .purpose = vectors[i].counter[2],
                         .stream = vectors[i].counter[3]};
    uint32_t got[4];
    cvy_rng_block(&rng, ((uint64_t)vectors[i].counter[1] << 32) | vectors[i].counter[0], got);
    for (int w = 0; w < 4; w++) assert_int_equal(got[w], vectors[i].want[w]);
  }
}

CHECK_TEST(random) {
  const cvy_rng rng = {.seed = 42, .purpose = CVY_RNG_TEST, .stream = 3},
                other = {.seed = 42, .purpose = CVY_RNG_TEST, .stream = 4};
  uint32_t words[4];
  cvy_rng_block(&rng, 5, words);
  for (unsigned i = 0; i < 4; i++) assert_int_equal(cvy_rng_u32(&rng, 20 + i), words[i]);
  enum { N = 100000 };
  double sum = 0, squares = 0, fourth = 0, uniform = 0;
  int counts[7] = {0}, same = 0;
  float largest = 0;
  for (uint64_t i = 0; i < N; i++) {
    const double x = (double)cvy_rng_normal(&rng, i);
    const float u = cvy_rng_uniform(&rng, i);
    sum += x, squares += x * x, fourth += x * x * x * x, uniform += (double)u;
    assert_true(isfinite(x) && u >= 0.0f && u < 1.0f);
    largest = u > largest ? u : largest;
    const uint32_t below = cvy_rng_below(&rng, i, 7);
    assert_true(below <= 6);
    counts[below]++;
    same += cvy_rng_u32(&rng, i) == cvy_rng_u32(&other, i);
  }
  /* five standard deviations of each mean */
  assert_true(fabs(sum / N) < 5 / sqrt(N));
  assert_true(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
  assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
  assert_true(fabs(uniform / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
  assert_true(largest > 0.999f);
  for (int i = 0; i < 7; i++) assert_true(fabs(counts[i] - N / 7.0) < 5 * sqrt(N / 7.0));
  assert_true(same < 3);
  assert_int_equal(cvy_rng_below(&rng, 1, 1), 0);
  uint32_t top = 0;
  for (uint64_t i = 0; i < 200; i++) {
    const uint32_t v = cvy_rng_below(&rng, i, UINT32_MAX);
    assert_true(v < UINT32_MAX);
    top = v > top ? v : top;
  }
  assert_true(top > 0xf0000000u);
}

CHECK_TEST(clock) {
  const uint64_t start = cvy_clock_ns();
  usleep(2000);
  const double seconds = cvy_clock_seconds_since(start);
  assert_true(seconds >= 0.002 && seconds < 60.0);
}

/* In place of the C library's: the time of day is set, by an hour each time that somebody asks. */
static atomic_int time_set;
int clock_gettime(clockid_t clock, struct timespec *out) {
  const int code = (int)syscall(SYS_clock_gettime, clock, out);
  if (clock == CLOCK_REALTIME) out->tv_sec += 3600L * (1 - 2 * (atomic_fetch_add(&time_set, 1) % 2));
  return code;
}

CHECK_TEST(wait_for) {
  cvy_mutex lock;
  cvy_cond condition;
  cvy_mutex_init(&lock);
  cvy_cond_init(&condition);
  for (int i = 0; i < 2; i++) {
    const uint64_t start = cvy_clock_ns();
    cvy_mutex_lock(&lock);
    cvy_cond_wait_for(&condition, &lock, 0.05);
    cvy_mutex_unlock(&lock);
    const double seconds = cvy_clock_seconds_since(start);
    assert_true(seconds >= 0.05 && seconds < 60.0);
  }
  cvy_cond_end(&condition);
  cvy_mutex_end(&lock);
}

CHECK_TEST(parse) {
  int counts[8], n;
  uint64_t u;
  static const char *const bad_counts[] = {
      "x", ",", "1,", ",1", "1,,2", "1, 2", "-1", "2147483648", "1,0000000000000002", "1;2"};
  for (size_t c = 0; c < sizeof bad_counts / sizeof *bad_counts; c++)
    if (cvy_parse_counts(bad_counts[c], counts, &n) || n != 0) fail_msg("'%s' was read as counts", bad_counts[c]);
  assert_true(cvy_parse_counts("", counts, &n) && n == 0);
  assert_true(cvy_parse_counts("12,0,2147483647", counts, &n) && n == 3 && counts[0] == 12 && counts[1] == 0 &&
              counts[2] == INT_MAX);
  assert_true(cvy_parse_counts("7", counts, &n) && n == 1 && counts[0] == 7);
  assert_true(cvy_parse_uint("18446744073709551615", 10, &u) && u == UINT64_MAX);
  assert_true(cvy_parse_uint("3ff0000000000000", 16, &u) && u == 0x3ff0000000000000u);
  assert_false(cvy_parse_uint("18446744073709551616", 10, &u) || cvy_parse_uint("-1", 10, &u) ||
               cvy_parse_uint(" 1", 10, &u) || cvy_parse_uint("", 10, &u) || cvy_parse_uint("0x1", 16, &u) ||
               cvy_parse_uint("a", 10, &u));
  int64_t i = 77;
  double f = 77;
  static const char *const bad_ints[] = {
      "",   "-", "+5", " 5", "5 ", "5x", "0x10", "1e3", "1.0", "--5", "9223372036854775808", "99999999999999999999999",
      "\t1"};
  for (size_t k = 0; k < sizeof bad_ints / sizeof *bad_ints; k++) {
    assert_false(cvy_parse_int(bad_ints[k], INT64_MIN, INT64_MAX, &i));
    assert_int_equal(i, 77);
  }
  assert_true(cvy_parse_int("-9223372036854775808", INT64_MIN, INT64_MAX, &i) && i == INT64_MIN);
  assert_true(cvy_parse_int("9223372036854775807", INT64_MIN, INT64_MAX, &i) && i == INT64_MAX);
  assert_true(cvy_parse_int("007", 0, 10, &i) && i == 7);
  assert_true(cvy_parse_int("-0", 0, 10, &i) && i == 0);
  assert_false(cvy_parse_int("11", 0, 10, &i));
  assert_false(cvy_parse_int("-1", 0, 10, &i));
  static const char *const bad_floats[] = {"",       " 1", "1 ", "1x", "inf", "nan",  "NAN", "0x1p3", "1e400",
                                           "-1e400", "1e", "e5", ".",  "1,5", "1..2", "+-1", "1e5.0"};
  for (size_t k = 0; k < sizeof bad_floats / sizeof *bad_floats; k++) {
    assert_false(cvy_parse_float(bad_floats[k], -DBL_MAX, DBL_MAX, &f));
    assert_true(f == 77);
  }
  assert_true(cvy_parse_float("1e-3", 0, 1, &f) && f == 1e-3);
  assert_true(cvy_parse_float("-.5", -1, 1, &f) && f == -0.5);
  assert_true(cvy_parse_float("+2.", 0, 5, &f) && f == 2.0);
  assert_false(cvy_parse_float("1.0000001", 0, 1, &f));
  assert_false(cvy_parse_float("-1e-9", 0, 1, &f));
}

CHECK_TEST(text) {
  cvy_text text = {0};
  assert_string_equal(cvy_text_get(&text), "");
  static char long_word[3000];
  memset(long_word, 'y', sizeof long_word - 1);
  cvy_text_add(&text, "%s", "");
  assert_string_equal(cvy_text_get(&text), "");
  for (int i = 0; i < 1000; i++) cvy_text_add(&text, "%03d,", i);
  cvy_text_add(&text, "%s", long_word);
  cvy_text_add_bytes(&text, "a\0b", 3);
  assert_false(text.failed);
  assert_int_equal(text.size, 4000 + 2999 + 3);
  assert_memory_equal(text.data + 3996, "999,yyy", 7);
  assert_memory_equal(text.data + 6999, "a\0b\0", 4);
  cvy_text_clear(&text);
  assert_null(text.data);
  cvy_text_clear(&text);
}

CHECK_TEST(plain) {
  static const char *const cases[][2] = {
      {"", ""},
      {"plain", "plain"},
      {"J\xc3\xbcrgen \xe2\x82\xac \xf0\x9f\x98\x80", "J\xc3\xbcrgen \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"K\xe4rtchen", "K\\xe4rtchen"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"cut \xe2\x82", "cut \\xe2\\x82"},
      {"\xb9\xb7", "\\xb9\\xb7"},                              /* GBK */
      {"\xc0\xaf \xe0\x9f\xbf", "\\xc0\\xaf \\xe0\\x9f\\xbf"}, /* longer than need be */
      {"\xc1\xbf \xf0\x8f\xbf\xbf", "\\xc1\\xbf \\xf0\\x8f\\xbf\\xbf"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* a surrogate */
      {"\xed\x9f\xbf", "\xed\x9f\xbf"},
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
      {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
      /* control characters, C0 and C1, and their neighbours */
      {"\x01\x1b[31m\x1f \x7f~", "\\x01\\x1b[31m\\x1f \\x7f~"},
      {"\n\t\r", "\\x0a\\x09\\x0d"},
      {"\xc2\x80\xc2\x9b\xc2\x9f", "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f"},
      {"\xc2\xa0\xc2\xa1", "\xc2\xa0\xc2\xa1"},
      /* U+2027 and U+202F are plain, what is between them is not; U+2065 to U+206A */
      {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xaa", "\xe2\x80\xa7\\xe2\\x80\\xa8\\xe2\\x80\\xaa"},
      {"\xe2\x80\xae\xe2\x80\xaf", "\\xe2\\x80\\xae\xe2\x80\xaf"},
      {"\xe2\x81\xa5\xe2\x81\xa6", "\xe2\x81\xa5\\xe2\\x81\\xa6"},
      {"\xe2\x81\xa9\xe2\x81\xaa", "\\xe2\\x81\\xa9\xe2\x81\xaa"},
      {"\xef\xbf\xbd\xef\xbf\xbe\xef\xbf\xbf", "\xef\xbf\xbd\\xef\\xbf\\xbe\\xef\\xbf\\xbf"},
      {"back\\slash", "back\\slash"}};
  char out[64];
  cvy_text all = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cvy_plain_copy(cases[i][0], "", out, sizeof out);
    assert_string_equal(out, cases[i][1]);
    assert_true(cvy_is_plain(cases[i][1]) && cvy_is_plain(cases[i][0]) == !strcmp(cases[i][0], cases[i][1]));
    cvy_text_add_plain(&all, cases[i][0], "");
    assert_string_equal(cvy_text_get(&all), cases[i][1]);
    cvy_text_clear(&all);
  }
  cvy_plain_copy("a\n\tb\x1b\xff", "\n\t", out, sizeof out);
  assert_string_equal(out, "a\n\tb\\x1b\\xff");
  /* no room for all: it ends with a whole character */
  static const char *const cut[] = {"", "a", "a", "a\xc3\xa4", "a\xc3\xa4", "a\xc3\xa4", "a\xc3\xa4\xe2\x82\xac"};
  for (size_t room = 1; room <= 7; room++) {
    cvy_plain_copy("a\xc3\xa4\xe2\x82\xac", "", out, room);
    assert_string_equal(out, cut[room - 1]);
  }
  cvy_plain_copy("a\xff", "", out, 5);
  assert_string_equal(out, "a");
}

static int files_in(const char *folder) {
  char line[32] = "";
  FILE *const p = popen(check_text("ls -A '%s' | wc -l", folder), "r");
  assert_non_null(p);
  assert_non_null(fgets(line, sizeof line, p));
  pclose(p);
  return atoi(line);
}

CHECK_TEST(files) {
  const char *const folder = check_temp_dir(), *const path = check_path("file");
  char *data = NULL, deep[PATH_MAX];
  size_t size = 0;
  assert_false(cvy_file_exists(path));
  check_fails(cvy_file_read(path, 100, &data, &size), CVY_E_IO, "No such file");
  assert_null(data);
  const cvy_piece pieces[] = {{"abc", 3}, {"", 0}, {"\0de", 3}};
  check_ok(cvy_file_write(path, pieces, 3));
  assert_true(cvy_file_exists(path));
  check_ok(cvy_file_read(path, 6, &data, &size));
  assert_int_equal(size, 6);
  assert_memory_equal(data, "abc\0de\0", 7);
  cvy_free(data);
  data = NULL;
  check_fails(cvy_file_read(path, 5, &data, &size), CVY_E_IO, "at most 5");
  /* replaced whole, nothing left beside it */
  check_ok(cvy_file_write(path, &(cvy_piece){"new", 3}, 1));
  assert_string_equal(check_read(path, &size), "new");
  check_ok(cvy_file_write(path, NULL, 0));
  check_ok(cvy_file_read(path, 100, &data, &size));
  assert_int_equal(size, 0);
  assert_string_equal(data, "");
  cvy_free(data);
  data = NULL;
  assert_int_equal(files_in(folder), 1);
  check_fails(cvy_file_read(folder, 100, &data, &size), CVY_E_IO, "a folder, not a regular file");

  check_fails(cvy_file_write(check_path("none/file"), pieces, 3), CVY_E_IO, "No such file");
  check_fails(cvy_file_write(check_path("file/below"), pieces, 3), CVY_E_IO, "Not a directory");
  check_fails(cvy_make_dirs(check_path("file/below"), NULL), CVY_E_IO, "is a file");
  for (int again = 0; again < 2; again++) check_ok(cvy_make_dirs(check_path("a//b/c/"), NULL));
  assert_true(cvy_file_exists(check_path("a//b/c/")));
  check_fails(cvy_make_dirs("", NULL), CVY_E_IO, "1 to");
  /* a folder in the way: the rename fails, and the whole file stays aside */
  check_fails(cvy_file_write(check_path("a/b"), pieces, 3), CVY_E_IO, "cannot rename");
  assert_int_equal(files_in(check_path("a")), 2);
  check_fails(cvy_file_write("/proc/convoy-test", pieces, 3), CVY_E_IO, "cannot write /proc/convoy-test");
  if (geteuid() != 0) {
    assert_int_equal(chmod(folder, 0555), 0);
    check_fails(cvy_file_write(path, pieces, 3), CVY_E_IO, "Permission denied");
    assert_int_equal(chmod(folder, 0755), 0);
  }
  memset(deep, 'n', sizeof deep - 1);
  deep[0] = '/';
  deep[sizeof deep - 1] = 0;
  check_fails(cvy_file_write(deep, pieces, 3), CVY_E_IO, strerror(ENAMETOOLONG));
  /* without a size that is known before */
  check_ok(cvy_file_read("/proc/self/status", 1 << 20, &data, &size));
  assert_non_null(strstr(data, "Name:"));
  cvy_free(data);
}

CHECK_TEST(cache_dir) {
  char out[PATH_MAX];
  const char *const folder = check_temp_dir();
  const char *const xdg = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
  char *const old_xdg = xdg ? strdup(xdg) : NULL, *const old_home = home ? strdup(home) : NULL;
  setenv("XDG_CACHE_HOME", folder, 1);
  const char *want = check_path("convoy");
  const bool by_xdg = cvy_user_cache_dir(NULL, out, sizeof out) && !strcmp(out, want) && cvy_file_exists(want);
  const bool too_long = cvy_user_cache_dir(NULL, out, 10);
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", folder, 1);
  want = check_path(".cache/convoy");
  const bool by_home = cvy_user_cache_dir(NULL, out, sizeof out) && !strcmp(out, want) && cvy_file_exists(want);
  setenv("HOME", "/proc/nowhere", 1);
  const bool impossible = cvy_user_cache_dir(NULL, out, sizeof out);
  setenv("HOME", check_path("missing"), 1);
  const bool missing = cvy_user_cache_dir(NULL, out, sizeof out) || cvy_file_exists(check_path("missing"));
  unsetenv("HOME");
  unsetenv("XDG_CACHE_HOME");
  const bool nowhere = cvy_user_cache_dir(NULL, out, sizeof out);
  if (old_xdg) setenv("XDG_CACHE_HOME", old_xdg, 1);
  if (old_home) setenv("HOME", old_home, 1);
  free(old_xdg);
  free(old_home);
  assert_true(by_xdg);
  assert_false(too_long);
  assert_true(by_home);
  assert_false(impossible);
  assert_false(missing);
  assert_false(nowhere);
}

enum { CELLS = 100003 };
typedef struct cells {
  atomic_uchar touched[CELLS];
  size_t grain;
  atomic_bool odd_cut;
  atomic_int calls;
} cells;
static void touch(void *arg, size_t begin, size_t end) {
  cells *const c = arg;
  if (begin % c->grain != 0 || (end % c->grain != 0 && end != CELLS && end != 5) || begin >= end)
    atomic_store(&c->odd_cut, true);
  for (size_t i = begin; i < end; i++) atomic_fetch_add(&c->touched[i], 1);
  atomic_fetch_add(&c->calls, 1);
}

/* The caller is quick, the workers are slow. */
typedef struct slow_work {
  pthread_t caller;
  atomic_int done;
} slow_work;
static void rest(void *arg, size_t begin, size_t end) {
  slow_work *const work = arg;
  usleep(pthread_equal(pthread_self(), work->caller) ? 200 : 5000);
  atomic_fetch_add(&work->done, (int)(end - begin));
}

static void *set_flag(void *arg) {
  *(int *)arg = 5;
  return NULL;
}

/* Its name as the kernel has it, in its first line. */
static void *own_name(void *arg) {
  prctl(PR_GET_NAME, arg, 0, 0, 0);
  return NULL;
}

CHECK_TEST(threads) {
  cvy_thread thread;
  int flag = 0;
  check_ok(cvy_thread_start(&thread, "a-name-longer-than-fifteen", set_flag, &flag));
  cvy_thread_join(thread);
  assert_int_equal(flag, 5);
  for (int i = 0; i < 200; i++) {
    char name[16] = "";
    check_ok(cvy_thread_start(&thread, "a-name-longer-than-fifteen", own_name, name));
    cvy_thread_join(thread);
    assert_string_equal(name, "a-name-longer-t");
  }
  static cells c;
  static const size_t grains[] = {1, 16, 1000, CELLS, 2 * CELLS};
  static const size_t sizes[] = {CELLS, 5, 0};
  for (int threads = 0; threads <= 5; threads++) {
    cvy_pool *pool = NULL;
    if (threads > 0) check_ok(cvy_pool_create(threads, &pool));
    for (int repeat = 0; repeat < 20; repeat++) {
      c.grain = grains[repeat % 5];
      const size_t n = sizes[repeat % 3];
      for (size_t i = 0; i < CELLS; i++) atomic_store(&c.touched[i], 0);
      atomic_store(&c.calls, 0);
      cvy_pool_run(pool, n, c.grain, touch, &c);
      for (size_t i = 0; i < CELLS; i++) assert_int_equal(atomic_load(&c.touched[i]), i < n ? 1 : 0);
      if (threads > 1 && c.grain == 1 && n == CELLS) assert_true(atomic_load(&c.calls) >= threads);
    }
    cvy_pool_destroy(&pool);
    assert_null(pool);
  }
  assert_false(atomic_load(&c.odd_cut));
  /* what takes long is waited for */
  cvy_pool *two = NULL;
  check_ok(cvy_pool_create(2, &two));
  for (int repeat = 0; repeat < 10; repeat++) {
    slow_work work = {.caller = pthread_self()};
    cvy_pool_run(two, 64, 1, rest, &work);
    assert_int_equal(atomic_load(&work.done), 64);
  }
  cvy_pool_destroy(&two);
  cvy_pool *none = NULL;
  check_fails(cvy_pool_create(0, &none), CVY_E_ARGUMENT, "at least 1");
  assert_null(none);
}

static double quantile_of(double a, double b, double c, double d, int n, double q) {
  double values[] = {a, b, c, d};
  const double found = cvy_quantile(values, n, q);
  for (int i = 1; i < n; i++) assert_true(values[i - 1] <= values[i]);
  return found;
}

CHECK_TEST(quantile) {
  assert_true(quantile_of(3, 0, 0, 0, 1, 0.5) == 3);
  assert_true(quantile_of(5, 2, 0, 0, 2, 0.5) == 3.5);
  assert_true(quantile_of(5, -2, 3, 0, 3, 0.5) == 3);
  assert_true(quantile_of(7, 1, 3, 2, 4, 0.5) == 2.5);
  assert_true(quantile_of(7, 1, 3, 2, 4, 0) == 1);
  assert_true(quantile_of(7, 1, 3, 2, 4, 1) == 7);
  assert_true(quantile_of(7, 1, 3, 2, 4, 0.25) == 1.75);
  assert_true(quantile_of(7, 1, 3, 2, 4, 0.75) == 4);
  assert_true(quantile_of(2, INFINITY, 1, 0, 3, 0.5) == 2);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
