/* SPDX-License-Identifier: MIT
 * Shared by the words of `convoy bench`: a device opened for measuring, fixed-time sampling, the device's peaks.
 *
 * Every figure is computed from samples of one run each. An unmeasured run comes first, which compiles kernels and
 * touches memory. Then, until the given time has passed: caches are overwritten, the queue is drained, a run is timed.
 *   wall time    from enqueuing to the end of the queue on the host's clock: the cost of a single call
 *   event time   sum of the kernels' times on the device's clock: the cost of the same call in a full queue
 * The median of the samples is reported, with the quartiles as spread, so that one disturbed sample has no effect. */
#ifndef CVY_TOOLS_PROGRAM_BENCH_BENCH_H
#define CVY_TOOLS_PROGRAM_BENCH_BENCH_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "src/cl/devices/devices.h"
#include "src/cl/launch.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"

int bench_peak_main(int argc, char **argv);
int bench_conv_main(int argc, char **argv);
int bench_ops_main(int argc, char **argv);
int bench_plan_main(int argc, char **argv);
int bench_train_main(int argc, char **argv);
int bench_exchange_main(int argc, char **argv);
int bench_scaling_main(int argc, char **argv);
int bench_fleet_main(int argc, char **argv);

/* ---- samples ---- */

enum { BENCH_SAMPLES_MAX = 4096, BENCH_SAMPLES_MIN = 3 };
typedef struct bench_samples {
  int n;
  double values[BENCH_SAMPLES_MAX];
} bench_samples;
typedef struct bench_spread {
  double median, low, high;
} bench_spread; /* low, high: quartiles */
/* Sorts the samples. All zero for none. */
bench_spread bench_spread_of(bench_samples *samples);
/* Half the distance of the quartiles, in percent of the middle. */
double bench_spread_percent(const bench_spread *spread);
/* Time for a figure: for (bench_loop loop = {.seconds = s}; bench_goes_on(&loop, &status);) takes BENCH_SAMPLES_MIN
 * samples, and more until the seconds are over, at most BENCH_SAMPLES_MAX. An interruption ends it with
 * CVY_E_INTERRUPTED, and so does a failure in `status`. */
typedef struct bench_loop {
  double seconds;
  int n; /* from 1 */
  uint64_t begin_ns;
} bench_loop;
bool bench_goes_on(bench_loop *loop, cvy_status *status);
/* Of a figure's rounds the least time counts. 0: none so far. */
void bench_keep_least(double *least, double seconds);

/* ---- a device to measure on ---- */

typedef struct bench_peaks {
  double fma_gflops, read_gbs, write_gbs, copy_gbs; /* copy: bytes read and bytes written */
  double to_device_gbs, to_host_gbs;
  double launch_us, round_trip_us; /* one of many launches in a row; one launch and the wait for its end */
  double open_ms, close_ms;        /* the driver's object of a device, its context, with three queues */
} bench_peaks;

typedef struct bench_device {
  const cvy_devices *chosen; /* the list that has this device at index `at`; borrowed */
  int at;
  cvy_device *cl;   /* opened with profiling */
  cvy_queue *queue; /* compute */
  const char *label;
  cvy_buffer *flush; /* overwritten between samples */
  bench_peaks peaks;
  bool events_wrong; /* the driver's kernel times are wrong: only wall times are used */
  int n_kernels;     /* launches of the last collection */
  double kernels_ms; /* and the sum of their times */
} bench_device;

cvy_status bench_device_open(const cvy_devices *devices, int i, bench_device *out); /* `devices` must outlive it */
void bench_device_close(bench_device *device);
/* Overwrites the device's caches and waits. */
cvy_status bench_flush(bench_device *device);
/* Adds up the kernels' times since the last call: n_kernels, kernels_ms; 0 if they are wrong. Waits. */
cvy_status bench_collect(bench_device *device);

/* Enqueues the run to measure. */
typedef cvy_status (*bench_run_fn)(void *user);
typedef struct bench_times {
  int n;                    /* samples */
  bench_spread wall, event; /* ms; event all zero where no kernel was seen */
} bench_times;
/* One unmeasured run, then samples for `seconds`: at least 3, unless one takes longer than 4 * seconds. `flush`: caches
 * are overwritten before each. */
cvy_status bench_sample(bench_device *device, double seconds, bool flush, bench_run_fn run, void *user,
                        bench_times *out);

/* [bench_peak.c] Rates of arithmetic and memory, `seconds` for each of four. Finds events_wrong first. */
cvy_status bench_measure_rates(bench_device *device, double seconds);
/* Shortest possible time in ms of a run of these operations and bytes at the device's peaks: the roofline. */
double bench_roof_ms(const bench_peaks *peaks, double flops, double read_bytes, double write_bytes);

/* ---- words ---- */

/* Start of the words that measure devices together: checks the output file, installs the signal handlers, starts
 * messages, selects devices. EXIT_DONE, or the exit status, with the reason printed. */
int bench_begin(const char *verb, const char *json, bool quiet, const char *selector, cvy_devices **devices);
/* A network, and a batch of synthetic data for it. */
typedef struct bench_subject {
  cvy_net *net;
  cvy_data *data;
  int32_t *samples; /* all of the batch */
} bench_subject;
/* `model` as of --model, `input` height, width and channels of an image (NULL: 28x28x1; an ONNX file has its own). Call
 * bench_subject_close either way. */
cvy_status bench_subject_open(const char *model, const int64_t *input, int batch, bool trains, bench_subject *out);
void bench_subject_close(bench_subject *subject);
/* A team with weights and data; the caller destroys it, also after a failure. */
cvy_status bench_team(const bench_subject *subject, cvy_devices *devices, const cvy_team_params *params,
                      cvy_team **team);
/* Steps of the first n images each. Their times in ms are added to `times`; NULL: they do not count. */
cvy_status bench_steps(const bench_subject *subject, cvy_team *team, int n, int steps, bench_samples *times);
/* Shows what is measured, of several rounds with the number (from 0) of this one. */
void bench_tell(int round, int64_t rounds, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Selects devices and calls `measure` for each of them, opened. Returns the exit status; 130 after an interruption. */
typedef cvy_status (*bench_device_fn)(void *user, bench_device *device);
int bench_each_device(const char *selector, bool quiet, bench_device_fn measure, void *user);
/* {"version", "word", "devices": devices}; takes over `devices`. */
json_t *bench_json(const char *word, json_t *devices);
/* {"device", "driver", "platform", "peaks": {…}} of a device. */
json_t *bench_device_json(const bench_device *device);
bool bench_to_stdout(const char *json); /* JSON is on stdout: no table */

/* Rows that several words have; F(name): offset of the field. */
#define BENCH_ROW_TIME(F, DEFAULT, HELP) \
  {OPT_REAL("time", F(seconds), DEFAULT, "seconds", 0.001, 600, HELP), .letter = 't', .value = "S"}
#define BENCH_ROW_STEPS(F, LEAST, MOST, HELP) {OPT_INT("steps", F(steps), "5", "steps", LEAST, MOST, HELP)}
#define BENCH_ROW_ROUNDS(F, DEFAULT, HELP) {OPT_INT("rounds", F(rounds), DEFAULT, "rounds", 1, 100, HELP)}
#define BENCH_ROW_NO_NODES ROW_NO_NODES("this measures one machine; convoy bench fleet measures several")
/* Rows that every word has. */
#define BENCH_COMMON_ROWS(F, HELP_DEVICES) ROW_DEVICES(F, HELP_DEVICES), ROW_JSON_OR_TABLE(F), ROW_QUIET(F)

#endif
