/* The thread that reads sensors, and where its readings go. Each rank has a table of its own: rows
 * of several ranks in one file would need messages or locks beside the step, and on nodes with
 * private disks there is no such file. */
#include "runlog/monitor.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/csv.h"
#include "core/durable.h"
#include "core/log.h"
#include "core/sensors_cpu.h"
#include "core/thread.h"
#include "runlog/smi.h"

/* Columns before the sensors': time, step, rank, host. */
enum { STEP_COLUMN = 1, HEADER_SIZE = 1024 };

/* A driver or a file system that does not answer must not keep a run from ending. */
static const double patience_seconds = 5;

/* nvidia-smi takes seconds where no program holds the driver; longer than this it hangs. */
static const double smi_seconds = 20;

struct monitor {
    struct monitor_setup setup;
    struct cpu_sensors *cpu;
    _Atomic int64_t step;

    /* The thread's; others' when it is not running. */
    struct csv table;        /* no stream: none, or lost */
    struct error table_lost; /* why, if it was lost after the start */
    struct error board_lost;
    char page[FILE_PATH]; /* for Prometheus; "": none */
    bool page_written;
    struct error page_lost;
    bool trouble_said;
    struct sensor_sums sums[SENSOR_COUNT];
    int64_t readings;
    double first_at, last_at; /* clock: of readings */
    double work_seconds;      /* processor time of all readings */

    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; /* of what follows */
    struct run_figures figures;
    pthread_cond_t wake; /* of stop and over */
    bool stop;
    bool middle_reached; /* nvidia-smi is to be asked */
    bool over;           /* the thread's work is done */
    _Atomic bool stuck;  /* it did not end in time: what is the thread's is not touched any more */
    bool abandoned;      /* the monitor belongs to the thread */
};

/* ---- one reading */

/* Whole numbers (bytes, counts) with all their digits. */
static void cell_write(struct csv *table, double value)
{
    if (fabs(value) < 9e15 && value == floor(value))
        csv_integer(table, (int64_t)value);
    else
        csv_number(table, value);
}

static void row_write(struct monitor *monitor, const struct sensor_reading *reading)
{
    struct csv *table = &monitor->table;
    struct error *error = &monitor->table_lost;
    struct stat status;
    char time_text[32];
    clock_stamp_utc(time_text, sizeof time_text);
    csv_text(table, time_text);
    csv_integer(table, atomic_load_explicit(&monitor->step, memory_order_relaxed));
    csv_integer(table, monitor->setup.world->rank);
    csv_text(table, comm_host());
    for (int i = 0; i < SENSOR_COUNT; i++)
        cell_write(table, reading->value[i]);
    csv_text(table, reading->throttle);
    bool good = csv_end_row(table, error) && csv_flush(table, error);
    if (good && fstat(fileno(table->stream), &status) != 0)
        durable_failed(error, "write", table->path, errno);
    else if (good && status.st_nlink == 0)
        error_set(error, ERROR_FILE, "%s was removed while the run goes", table->path);
    if (error->kind == ERROR_NONE)
        return;
    csv_close(table);
    log_warn("%s: the sensors' rows end here, the run goes on", error->text);
}

static void points_write(struct monitor *monitor, const struct sensor_reading *reading)
{
    char tag[64];
    int64_t step = atomic_load_explicit(&monitor->step, memory_order_relaxed);
    struct error *error = &monitor->board_lost;
    for (int i = 0; i < SENSOR_COUNT && error->kind == ERROR_NONE; i++) {
        snprintf(tag, sizeof tag, "sensors/%s", sensor_columns[i].name);
        if (!isnan(reading->value[i]))
            error_defer(run_log_point(monitor->setup.log, tag, step, reading->value[i], error));
    }
    if (error->kind != ERROR_NONE)
        log_warn("%s: the sensors' points end here, the run goes on", error->text);
}

static void page_write(struct monitor *monitor, const struct sensor_reading *reading)
{
    const char *slash = strrchr(monitor->setup.run, '/');
    pthread_mutex_lock(&monitor->mutex);
    const struct run_figures figures = monitor->figures;
    pthread_mutex_unlock(&monitor->mutex);
    const int rank = monitor->setup.world->rank;
    const struct prometheus_page page = {
        .run = slash != NULL ? slash + 1 : monitor->setup.run,
        .rank = rank,
        .host = comm_host(),
        .step = atomic_load_explicit(&monitor->step, memory_order_relaxed),
        .figures = rank == 0 ? &figures : NULL,
        .reading = reading};
    if (prometheus_write(monitor->page, &page, &monitor->page_lost))
        monitor->page_written = true;
    else
        log_alarm("rank %d on %s: %s: Prometheus gets no more of the run, which goes on", rank,
                  comm_host(), monitor->page_lost.text);
}

static void texts_say(struct monitor *monitor, const struct sensor_reading *reading)
{
    int rank = monitor->setup.world->rank;
    if (reading->trouble[0] != '\0' && !monitor->trouble_said) {
        log_warn("rank %d on %s: %s", rank, comm_host(), reading->trouble);
        monitor->trouble_said = true;
    }
    if (reading->alarm[0] != '\0')
        log_alarm("rank %d on %s: %s", rank, comm_host(), reading->alarm);
}

static void reading_take(struct monitor *monitor)
{
    struct device *device = monitor->setup.device;
    struct sensor_reading reading;
    double now = clock_now(), begin = clock_thread();
    sensor_reading_clear(&reading);
    cpu_sensors_read(monitor->cpu, now, &reading);
    if (device != NULL && device->backend->sensors != NULL)
        device->backend->sensors(device, now, &reading);
    if (monitor->stuck)
        return; /* too late */
    if (monitor->readings == 0)
        monitor->first_at = monitor->last_at = now;
    sensor_sums_add(monitor->sums, &reading, now - monitor->last_at);
    monitor->last_at = now;
    if (monitor->table.stream != NULL)
        row_write(monitor, &reading);
    if (monitor->setup.log != NULL && !monitor->stuck && monitor->board_lost.kind == ERROR_NONE)
        points_write(monitor, &reading);
    if (monitor->page[0] != '\0' && !monitor->stuck && monitor->page_lost.kind == ERROR_NONE)
        page_write(monitor, &reading);
    texts_say(monitor, &reading);
    monitor->readings++;
    monitor->work_seconds += clock_thread() - begin;
}

/* ---- nvidia-smi's table, once */

static bool goes_on(void *self)
{
    struct monitor *monitor = self;
    pthread_mutex_lock(&monitor->mutex);
    bool stop = monitor->stop;
    pthread_mutex_unlock(&monitor->mutex);
    return !stop;
}

static void smi_take(struct monitor *monitor)
{
    const struct monitor_setup *setup = &monitor->setup;
    char path[FILE_PATH], title[192], stamp[32];
    struct error trouble = {.kind = ERROR_NONE};
    if (setup->world->rank == 0)
        snprintf(path, sizeof path, "%s/nvidia-smi.txt", setup->folder);
    else
        snprintf(path, sizeof path, "%s/nvidia-smi-%.64s.txt", setup->folder, comm_host());
    clock_stamp_utc(stamp, sizeof stamp);
    snprintf(title, sizeof title, "%.64s at %s, step %lld", comm_host(), stamp,
             (long long)atomic_load_explicit(&monitor->step, memory_order_relaxed));
    error_defer(smi_write(path, title, smi_seconds, goes_on, monitor, &trouble));
    if (trouble.kind != ERROR_NONE)
        log_alarm("rank %d on %s: %s: the log book goes without its table", setup->world->rank,
                  comm_host(), trouble.text);
}

/* ---- the thread */

/* Sleeps until then (seconds of clock_now); true: to the end. */
static bool sleep_until(struct monitor *monitor, double moment)
{
    const struct timespec until = {.tv_sec = (time_t)moment,
                                   .tv_nsec = (long)(1e9 * (moment - floor(moment)))};
    int slept = 0;
    pthread_mutex_lock(&monitor->mutex);
    while (!monitor->stop && slept != ETIMEDOUT) {
        if (!monitor->middle_reached) {
            slept = pthread_cond_timedwait(&monitor->wake, &monitor->mutex, &until);
            continue;
        }
        monitor->middle_reached = false;
        pthread_mutex_unlock(&monitor->mutex);
        smi_take(monitor);
        pthread_mutex_lock(&monitor->mutex);
    }
    bool stop = monitor->stop;
    pthread_mutex_unlock(&monitor->mutex);
    return stop;
}

/* A page that stayed would tell for ever of a run that has ended. */
static void monitor_free(struct monitor *monitor)
{
    if (monitor->page_written)
        unlink(monitor->page);
    csv_close(&monitor->table);
    cpu_sensors_close(monitor->cpu);
    pthread_cond_destroy(&monitor->wake);
    pthread_mutex_destroy(&monitor->mutex);
    free(monitor);
}

static void *thread_main(void *argument)
{
    struct monitor *monitor = argument;
    double seconds = monitor->setup.seconds, due = clock_now();
    do {
        reading_take(monitor);
        due += seconds * ceil(fmax(1, (clock_now() - due) / seconds));
    } while (!sleep_until(monitor, due));
    pthread_mutex_lock(&monitor->mutex);
    monitor->over = true;
    bool abandoned = monitor->abandoned;
    pthread_cond_signal(&monitor->wake);
    pthread_mutex_unlock(&monitor->mutex);
    if (abandoned)
        monitor_free(monitor);
    return NULL;
}

static void thread_open(struct monitor *monitor)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&monitor->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    monitor->running = true;
    int failure = thread_start(&monitor->thread, thread_main, monitor);
    if (failure != 0) {
        monitor->running = false;
        log_warn("no thread to read sensors (%s): they are read at the end only",
                 strerror(failure));
        reading_take(monitor);
    }
}

static void thread_stop(struct monitor *monitor)
{
    const double end = clock_now() + patience_seconds;
    const struct timespec until = {.tv_sec = (time_t)end,
                                   .tv_nsec = (long)(1e9 * (end - floor(end)))};
    int waited = 0;
    if (!monitor->running)
        return;
    pthread_mutex_lock(&monitor->mutex);
    monitor->stop = true;
    pthread_cond_signal(&monitor->wake);
    while (!monitor->over && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&monitor->wake, &monitor->mutex, &until);
    monitor->stuck = !monitor->over;
    pthread_mutex_unlock(&monitor->mutex);
    if (!monitor->stuck)
        pthread_join(monitor->thread, NULL);
    else
        pthread_detach(monitor->thread);
    monitor->running = monitor->stuck;
    if (monitor->stuck)
        log_alarm("rank %d on %s: a sensor, or the disk of its rows, does not answer: the run "
                  "ends without them",
                  monitor->setup.world->rank, comm_host());
}

/* ---- from start to end */

static void table_open(struct monitor *monitor, struct error *error)
{
    const struct monitor_setup *setup = &monitor->setup;
    char path[FILE_PATH], header[HEADER_SIZE] = "time,step,rank,host";
    size_t used = strlen(header);
    for (int i = 0; i < SENSOR_COUNT; i++)
        used +=
            (size_t)snprintf(header + used, sizeof header - used, ",%s", sensor_columns[i].name);
    snprintf(header + used, sizeof header - used, ",gpu_throttle");
    if (setup->world->rank == 0)
        snprintf(path, sizeof path, "%s/monitor.csv", setup->folder);
    else
        snprintf(path, sizeof path, "%s/monitor-%d.csv", setup->folder, setup->world->rank);
    /* What was measured beyond the checkpoint was, and stays. */
    if (!csv_open(&monitor->table, path, header, STEP_COLUMN, setup->step > 0 ? INT64_MAX : 0,
                  error))
        csv_close(&monitor->table);
}

/* "%h" in its name is the host's, so that each node has a page of its own. */
static void page_name(struct monitor *monitor)
{
    const struct monitor_setup *setup = &monitor->setup;
    const char *page = setup->page != NULL ? setup->page : "", *host = strstr(page, "%h");
    if (host == NULL && setup->world->rank == 0)
        snprintf(monitor->page, sizeof monitor->page, "%s", page);
    else if (host != NULL && setup->of_node)
        snprintf(monitor->page, sizeof monitor->page, "%.*s%s%s", (int)(host - page), page,
                 comm_host(), host + 2);
}

struct monitor *monitor_open(const struct monitor_setup *setup)
{
    struct monitor *monitor = calloc(1, sizeof *monitor);
    struct error error = {0};
    ENSURE(monitor != NULL, "no memory for the sensors' thread");
    monitor->setup = *setup;
    atomic_store(&monitor->step, setup->step);
    run_figures_clear(&monitor->figures);
    page_name(monitor);
    sensor_sums_begin(monitor->sums);
    monitor->cpu = cpu_sensors_open(setup->root, setup->of_node);
    if (setup->folder != NULL)
        table_open(monitor, &error);
    if (!comm_agree(setup->world, &error))
        log_warn("%s: the run goes on without the sensors' rows of this rank", error.text);
    thread_open(monitor);
    return monitor;
}

void monitor_step(struct monitor *monitor, int64_t step)
{
    if (monitor == NULL)
        return;
    atomic_store_explicit(&monitor->step, step, memory_order_relaxed);
    if (step == monitor->setup.middle && monitor->setup.of_node && monitor->setup.folder != NULL) {
        pthread_mutex_lock(&monitor->mutex);
        monitor->middle_reached = true;
        pthread_cond_signal(&monitor->wake);
        pthread_mutex_unlock(&monitor->mutex);
    }
}

void monitor_figures(struct monitor *monitor, const struct run_figures *figures)
{
    if (monitor == NULL)
        return;
    pthread_mutex_lock(&monitor->mutex);
    monitor->figures = *figures;
    pthread_mutex_unlock(&monitor->mutex);
}

void monitor_stop(struct monitor *monitor)
{
    struct error lost = {0};
    if (monitor == NULL)
        return;
    thread_stop(monitor);
    if (!monitor->stuck)
        reading_take(monitor);
    if (monitor->setup.world->rank != 0 &&
        !monitor->stuck) /* rank 0 has said so when it happened */
        lost = monitor->table_lost;
    if (!comm_agree(monitor->setup.world, &lost))
        log_warn("%s: the sensors' rows of this rank ended there", lost.text);
}

bool monitor_summarise(struct monitor *monitor, struct monitor_summary *summary)
{
    struct sensor_sums nothing[SENSOR_COUNT];
    if (monitor == NULL)
        return false;
    sensor_sums_begin(nothing);
    summary->readings = 0;
    summary->seconds = summary->reading_seconds = NAN;
    sensor_sums_reduce(monitor->stuck ? nothing : monitor->sums, &monitor->setup, summary);
    if (monitor->stuck)
        return true;
    summary->readings = monitor->readings;
    summary->seconds = monitor->last_at - monitor->first_at;
    summary->reading_seconds = monitor->work_seconds / (double)monitor->readings;
    return true;
}

void monitor_own(const struct monitor *monitor, enum sensor sensor, double *mean, double *most)
{
    *mean = *most = NAN;
    if (monitor == NULL || monitor->running || monitor->stuck)
        return;
    const struct sensor_sums *sums = &monitor->sums[sensor];
    *mean = sums->seconds > 0 ? sums->weighted / sums->seconds : (double)NAN;
    *most = sums->most;
}

void monitor_close(struct monitor *monitor)
{
    if (monitor == NULL)
        return;
    if (!monitor->stuck)
        thread_stop(monitor);
    pthread_mutex_lock(&monitor->mutex);
    monitor->abandoned = monitor->stuck && !monitor->over;
    bool abandoned = monitor->abandoned;
    pthread_mutex_unlock(&monitor->mutex);
    if (!abandoned)
        monitor_free(monitor);
}
