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
#include "temporary.h"
#include "test.h"

static struct comm *world;
static char top[512]; /* shared by all ranks; each test has a folder in it */
static int folder_number;
static char folder[600], root[600], table[700];
static struct nvml *nvml;
static _Atomic(const char *) condition = ""; /* fault of the fake GPU */

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

static int count_words(const char *text, const char *word)
{
    int count = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        count++;
    return count;
}

/* Return cell `column` of the row that begins at `row`. */
static double cell(const char *row, const char *column)
{
    char *text = read_text(table), name[64];
    int number = 0;
    snprintf(name, sizeof name, ",%s,", column);
    const char *at = strstr(text, name);
    assert_non_null(at);
    for (const char *letter = text; letter <= at; letter++)
        number += *letter == ',';
    for (; number > 0; number--)
        row = strchr(row, ',') + 1;
    double value = *row == ',' ? NAN : atof(row);
    free(text);
    return value;
}

/* Return the last row of a table. */
static const char *last_row(const char *text)
{
    size_t length = strlen(text);
    assert_true(length > 0 && text[length - 1] == '\n');
    const char *row = text + length - 1;
    while (row > text && row[-1] != '\n')
        row--;
    return row;
}

/* ---- a monitor */

/* Stop and close the monitor; return its summary. */
static json_t *monitor_end(struct monitor *monitor)
{
    json_t *summary = monitor_stop(monitor);
    monitor_close(monitor);
    return summary;
}

/* A figure of a sensor in the summary; NAN if it is unknown. */
static double figure(const json_t *summary, const char *sensor, const char *key)
{
    const json_t *value = json_object_get(json_object_get(summary, sensor), key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int begin(void **state)
{
    (void)state;
    comm_barrier(world);
    snprintf(folder, sizeof folder, "%s/run%d", top, ++folder_number);
    snprintf(root, sizeof root, "%s/root%d-%d", top, folder_number, world->rank);
    if (world->rank == 0)
        snprintf(table, sizeof table, "%s/monitor.csv", folder);
    else
        snprintf(table, sizeof table, "%s/monitor-%d.csv", folder, world->rank);
    if (world->rank == 0)
        assert_int_equal(mkdir(folder, 0777), 0);
    comm_barrier(world);
    return 0;
}

static void gpu_open(const char *first_condition)
{
    char path[4096];
    condition = first_condition;
    setenv("NVML_STAND_IN", condition, 1);
    snprintf(path, sizeof path, "%s/test/nvml/libnvidia-ml.so.1", getenv("TEST_BUILD"));
    nvml = nvml_open(path, "GPU-01234567-89ab");
}

static void gpu_close(void)
{
    nvml_close(nvml);
    nvml = NULL;
}

static struct monitor_setup some_setup(double seconds)
{
    return (struct monitor_setup){.world = world,
                                  .of_node = world->rank == 0,
                                  .folder = folder,
                                  .seconds = seconds,
                                  .root = root};
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
        char *text = read_text(table);
        seen = count_words(text, "\n") - 1;
        free(text);
    }
}

/* Redirect the output of this rank to a file. */
static int console;
static char output_path[700];

static void console_catch(void)
{
    snprintf(output_path, sizeof output_path, "%s/output%d-%d", top, folder_number, world->rank);
    fflush(stderr);
    console = dup(STDERR_FILENO);
    assert_non_null(freopen(output_path, "w", stderr));
}

/* Return the text, which the caller frees. */
static char *console_output(void)
{
    fflush(stderr);
    dup2(console, STDERR_FILENO);
    close(console);
    return read_text(output_path);
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
    struct monitor_setup setup = some_setup(0.1);
    char expected[256];
    setup.device = &gpu;
    gpu_open("");
    console_catch();
    struct monitor *monitor = monitor_open(&setup);
    wait_for_rows(1);
    condition = "lost";
    wait_for_rows(4);
    json_decref(monitor_end(monitor));
    gpu_close();
    char *output = console_output();
    snprintf(expected, sizeof expected,
             "warning: rank %d on %s: NVIDIA Stand-in (GPU-01234567-89ab) is lost", world->rank,
             comm_host());
    assert_non_null(strstr(output, expected)); /* from either rank */
    assert_int_equal(count_words(output, "warning"), 1);
    free(output);
    gpu_open("no driver");
    console_catch();
    monitor = monitor_open(&setup);
    pass_seconds(0.25);
    json_decref(monitor_end(monitor));
    gpu_close();
    output = console_output();
    assert_int_equal(count_words(output, "warning"), world->rank == 0);
    assert_int_equal(count_words(output, "Driver Not Loaded"), world->rank == 0);
    free(output);
}

/* The driver hangs for longer than monitor_stop waits. */
TEST(hanging_sensor_does_not_block_the_run)
{
    struct monitor_setup setup = some_setup(0.1);
    char expected[256];
    setup.device = &gpu;
    gpu_open("");
    console_catch();
    struct monitor *monitor = monitor_open(&setup);
    wait_for_rows(1);
    condition = "stuck";
    pass_seconds(0.5);
    json_t *summary = monitor_end(monitor);
    struct nvml *held = nvml;
    gpu_close(); /* waits for the call to return */
    char *output = console_output();
    snprintf(expected, sizeof expected, "warning: rank %d on %s: a sensor", world->rank,
             comm_host());
    assert_int_equal(count_words(output, "warning"), 1);
    assert_has(output, expected);
    free(output);
    assert_true(json_is_null(json_object_get(summary, "gpu_busy")));
    assert_true(json_is_null(json_object_get(summary, "seconds")));
    json_decref(summary);
    char *before = read_text(table);
    pass_seconds(5); /* the thread returns from the driver and ends */
    char *after = read_text(table);
    assert_string_equal(before, after);
    nvml_close(held);
    free(before);
    free(after);
}

TEST(removed_folder_is_one_warning)
{
    struct monitor_setup setup = some_setup(0.1);
    console_catch();
    struct monitor *monitor = monitor_open(&setup);
    wait_for_rows(1);
    assert_int_equal(unlink(table), 0);
    comm_barrier(world);
    if (world->rank == 0)
        assert_int_equal(rmdir(folder), 0);
    pass_seconds(0.35);
    json_t *summary = monitor_end(monitor);
    assert_true(json_integer_value(json_object_get(summary, "readings")) >= 2); /* it continued */
    json_decref(summary);
    char *output = console_output();
    /* Rank 0 warns at once, and at the end about the first other rank. */
    int expected = world->rank != 0 ? 0 : world->size == 1 ? 1 : 2;
    assert_int_equal(count_words(output, "warning"), expected);
    assert_int_equal(count_words(output, "was removed during the run"), expected);
    assert_int_equal(count_words(output, "monitor-1.csv was removed"), expected == 2);
    free(output);
}

/* The readings of a GPU, in the table, the summary and TensorBoard, to which the training thread
 * writes at the same time. */
TEST(readings_are_written_everywhere)
{
    struct monitor_setup setup = some_setup(0.1);
    struct run_folder run = {0};
    struct options options;
    struct error error = {0};
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
    gpu_close();
    alone->backend->close(alone);
    char *rows = read_text(table);
    assert_true(cell(last_row(rows), "gpu_memory_used_bytes") == 5.0 * (1 << 30));
    free(rows);
    glob_t found;
    size_t length, at = 0;
    snprintf(path, sizeof path, "%s/events*", folder);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    char *text = text_file_read(found.gl_pathv[0], &length);
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
    free(text);
    assert_int_equal(others, 20000);
    assert_true(busy >= 2 && busy == powers);
}

int main(int argc, char **argv)
{
    struct error error = {0};
    if (!comm_world_open(&argc, &argv, &world, &error))
        return 1;
    log_open(world->rank, LOG_WARN);
    if (world->rank == 0)
        snprintf(top, sizeof top, "%s", temporary_open());
    comm_broadcast(world, top, sizeof top, COMM_BYTE, 0);
    int failed = TESTS_RUN(.before = begin);
    comm_barrier(world);
    if (world->rank == 0)
        temporary_close();
    comm_world_close(world);
    return failed;
}
