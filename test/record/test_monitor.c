// SPDX-License-Identifier: BSD-3-Clause
// system
// ranks: 1 2
// sources: cuda/nvml.c
/* The monitor thread on one rank and on two: tables, points, warnings and summary, with an
 * empty /proc and a fake NVML library. */
#define _GNU_SOURCE /* memmem */
#include "record/monitor.h"

#include <glob.h>
#include <jansson.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../cuda/nvml.h"
#include "base/file.h"
#include "base/log.h"
#include "options/options.h"
#include "rank_tests.h"

static int folder_number; /* each test has a folder in the shared one */
static char folder[600], root[600], table[700];
static struct nvml *nvml;
static _Atomic(const char *) condition = ""; /* fault of the fake GPU */
static struct comm *node;                    /* each rank is on a node of its own */

/* Set the environment in the thread that reads it. */
static void gpu_sensors(struct device *device, struct sensor_reading *reading)
{
    (void)device;
    setenv("NVML_STAND_IN", condition, 1);
    nvml_read(nvml, reading);
}

static const struct device_backend gpu_backend = {.name = "gpu", .sensors = gpu_sensors};
static struct device gpu = {.backend = &gpu_backend};

/* ---- files */

/* Return the text, which the caller frees. */
static char *read_text(const char *path)
{
    char *text = text_file_read(path, NULL);
    if (text == NULL)
        fail_msg("%s is not there", path);
    return text;
}

static void pass_seconds(double seconds)
{
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&time, NULL);
}

/* Wait until the thread has written this number of rows. */
static void wait_for_rows(int rows)
{
    for (int i = 0, seen = -1; seen < rows; i++) {
        assert_true(i < 6000);
        pass_seconds(0.02);
        OWNED char *text = read_text(table);
        seen = text_count(text, "\n") - 1;
    }
}

/* Redirect the output of this rank to a file. */
static int console;
static char output_path[700];

static void console_catch(void)
{
    snprintf(output_path, sizeof output_path, "%s/output%d-%d", shared_folder, folder_number,
             world->rank);
    fflush(stderr);
    console = dup(STDERR_FILENO);
    assert_non_null(freopen(output_path, "w", stderr));
}

/* End the redirection. Return the text, which the caller frees, after checking its warnings. */
static char *console_output(int warnings)
{
    fflush(stderr);
    dup2(console, STDERR_FILENO);
    close(console);
    char *output = read_text(output_path);
    assert_int_equal(text_count(output, "warning"), warnings);
    return output;
}

/* ---- a monitor */

static void begin(void)
{
    log_open(world->rank, LOG_WARN);
    node = node != NULL ? node : comm_fake_open(0, 1);
    comm_barrier(world);
    snprintf(folder, sizeof folder, "%s/run%d", shared_folder, ++folder_number);
    snprintf(root, sizeof root, "%s/root%d-%d", shared_folder, folder_number, world->rank);
    if (world->rank == 0)
        snprintf(table, sizeof table, "%s/monitor.csv", folder);
    else
        snprintf(table, sizeof table, "%s/monitor-%d.csv", folder, world->rank);
    if (world->rank == 0)
        assert_int_equal(mkdir(folder, 0777), 0);
    comm_barrier(world);
}

static void gpu_open(const char *first_condition)
{
    char path[4096];
    condition = first_condition;
    setenv("NVML_STAND_IN", condition, 1);
    snprintf(path, sizeof path, "%s/test/nvml/libnvidia-ml.so.1", getenv("TEST_BUILD"));
    nvml = nvml_open(path, "GPU-01234567-89ab");
}

static struct monitor_setup some_setup(void)
{
    return (struct monitor_setup){
        .world = world, .node = node, .folder = folder, .seconds = 0.1, .root = root};
}

/* Open a monitor with the fake GPU and redirect the output of this rank. */
static struct monitor *monitor_begin(const char *first_condition)
{
    struct monitor_setup setup = some_setup();
    setup.device = &gpu;
    gpu_open(first_condition);
    console_catch();
    return monitor_open(&setup);
}

/* Stop and close the monitor and the fake GPU; return the summary. */
static json_t *monitor_end(struct monitor *monitor)
{
    json_t *summary = monitor_stop(monitor);
    monitor_close(monitor);
    nvml_close(nvml);
    nvml = NULL;
    return summary;
}

/* A figure of a sensor in the summary; NAN if it is unknown. */
static double figure(const json_t *summary, const char *sensor, const char *key)
{
    const json_t *value = json_object_get(json_object_get(summary, sensor), key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- tests */

/* The values differ between ranks and over time. */
TEST(sums_follow_the_kind_of_sensor)
{
    static const double levels[] = {90, 10, 20}, seconds[] = {0, 1, 3};
    struct sensor_sums sums[SENSOR_COUNT];
    struct sensor_reading reading;
    const double rank = world->rank, ranks = world->size;
    json_t *object = json_object();
    sensor_sums_begin(sums);
    sensor_reading_clear(&reading);
    sensor_sums_add(sums, &reading, 0);
    for (int i = 0; i < 3; i++) {
        reading.value[SENSOR_GPU_POWER] = reading.value[SENSOR_RESIDENT] = levels[i] + rank;
        reading.value[SENSOR_NODE_AVAILABLE] = world->rank == 0 ? levels[i] : NAN;
        sensor_sums_add(sums, &reading, seconds[i]);
    }
    sensor_sums_put(object, sums, world);
    assert_true(figure(object, "gpu_power", "mean") == 17.5 + (ranks - 1) / 2);
    assert_true(figure(object, "gpu_power", "max") == 90 + ranks - 1);
    assert_true(figure(object, "resident_bytes", "max") == 90 + ranks - 1);
    assert_true(figure(object, "node_available_bytes", "min") == 10);
    assert_true(json_is_null(json_object_get(object, "gpu_busy")));
    json_decref(object);
}

TEST(gpu_faults_are_logged_once)
{
    char expected[256];
    struct monitor *monitor = monitor_begin("");
    wait_for_rows(1);
    condition = "lost";
    wait_for_rows(4);
    json_decref(monitor_end(monitor));
    OWNED char *output = console_output(1);
    snprintf(expected, sizeof expected,
             "warning: rank %d on %s: NVIDIA Stand-in (GPU-01234567-89ab) is lost", world->rank,
             comm_host());
    assert_has(output, expected); /* from either rank */
    monitor = monitor_begin("no driver");
    pass_seconds(0.25);
    json_decref(monitor_end(monitor));
    OWNED char *second = console_output(world->rank == 0);
    assert_int_equal(text_count(second, "Driver Not Loaded"), world->rank == 0);
}

/* The driver hangs for longer than monitor_stop waits. */
TEST(hanging_sensor_does_not_block_the_run)
{
    char expected[256];
    struct monitor *monitor = monitor_begin("");
    wait_for_rows(1);
    condition = "stuck";
    pass_seconds(0.5);
    struct nvml *held = nvml;
    json_t *summary = monitor_end(monitor); /* nvml_close waits for the call to return */
    OWNED char *output = console_output(1);
    snprintf(expected, sizeof expected, "warning: rank %d on %s: a sensor", world->rank,
             comm_host());
    assert_has(output, expected);
    assert_true(json_is_null(json_object_get(summary, "gpu_busy")));
    assert_true(json_is_null(json_object_get(summary, "seconds")));
    json_decref(summary);
    OWNED char *before = read_text(table);
    pass_seconds(5); /* the thread returns from the driver and ends */
    OWNED char *after = read_text(table);
    assert_string_equal(before, after);
    nvml_close(held);
}

TEST(removed_folder_is_one_warning)
{
    struct monitor *monitor = monitor_begin("");
    wait_for_rows(1);
    assert_int_equal(unlink(table), 0);
    comm_barrier(world);
    if (world->rank == 0)
        assert_int_equal(rmdir(folder), 0);
    pass_seconds(0.35);
    json_t *summary = monitor_end(monitor);
    assert_true(json_integer_value(json_object_get(summary, "readings")) >= 2); /* it continued */
    json_decref(summary);
    /* Rank 0 warns at once, and at the end about the first other rank. */
    const int expected = world->rank != 0 ? 0 : world->size == 1 ? 1 : 2;
    OWNED char *output = console_output(expected);
    assert_int_equal(text_count(output, "was removed during the run"), expected);
    assert_int_equal(text_count(output, "monitor-1.csv was removed"), expected == 2);
}

/* The readings of a GPU, in the table, the summary and TensorBoard, to which the training thread
 * writes at the same time. */
TEST(readings_are_written_everywhere)
{
    struct monitor_setup setup = some_setup();
    struct run_folder run = {0};
    struct options options;
    char path[1024];
    if (world->rank != 0)
        return;
    memcpy(run.path, folder, sizeof folder);
    options_default(&options);
    struct comm *alone = comm_fake_open(0, 1);
    setup.world = alone;
    setup.device = &gpu;
    setup.log = metrics_open(&run, &options.output, &(struct metrics_position){0}, &error);
    assert_non_null(setup.log);
    gpu_open("");
    struct monitor *monitor = monitor_open(&setup);
    for (int step = 0; step < 20000; step++) {
        assert_true(metrics_write_point(setup.log, "other", step, step, &error));
        monitor_step(monitor, step);
    }
    pass_seconds(0.15);
    json_t *summary = monitor_end(monitor);
    assert_true(fabs(figure(summary, "gpu_busy", "mean") - 0.87) < 1e-12);
    assert_true(fabs(figure(summary, "gpu_power", "max") - 412.345) < 1e-9);
    assert_true(figure(summary, "gpu_memory_used_bytes", "max") == 5.0 * (1 << 30));
    json_decref(summary);
    metrics_close(setup.log);
    alone->backend->close(alone);
    OWNED char *rows = read_text(table);
    assert_has(rows, ",5368709120,"); /* gpu_memory_used_bytes */
    glob_t found;
    size_t length, at = 0;
    snprintf(path, sizeof path, "%s/events*", folder);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    OWNED char *text = text_file_read(found.gl_pathv[0], &length);
    globfree(&found);
    /* Complete records: 8 bytes of length, 4 of checksum, the event, 4 of checksum. */
    int others = 0, busy = 0, powers = 0;
    while (at < length) {
        const size_t bytes = (unsigned char)text[at] + 256U * (unsigned char)text[at + 1];
        const char *event = text + at + 12;
        at += bytes + 16;
        assert_true(at <= length);
        others += memmem(event, bytes, "other", 5) != NULL;
        busy += memmem(event, bytes, "sensors/gpu_busy", 16) != NULL;
        powers += memmem(event, bytes, "sensors/gpu_power", 17) != NULL;
    }
    assert_int_equal(others, 20000);
    assert_true(busy >= 2 && busy == powers);
}

TEST_MAIN_WORLD(.setup = shared_folder_make, .teardown = shared_folder_remove, .before = begin)
