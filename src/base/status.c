// SPDX-License-Identifier: BSD-3-Clause
/* The status of this process in atomic words. Words that are read together may belong to different
 * times. */
#include "base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/launcher.h"

static struct {
    _Atomic double since;
    _Atomic int64_t step;
    _Atomic int32_t phase, unit, background, waits;
    _Atomic int64_t activity;
    char name[STATUS_UNITS][STATUS_NAME];
} record = {.unit = -1};

#define PHASE_ROW(constant, word, name) {word, name},
static const struct {
    const char *word, *name; /* in debug.pause, in messages */
} phases[PHASE_COUNT] = {PHASES(PHASE_ROW)};

/* Value of debug.pause; phase -1: none. */
static struct {
    _Atomic int phase;
    int64_t step;
    int rank; /* -1: all */
    char file[256];
} pause_place = {.phase = -1};

const char *status_phase_name(int phase)
{
    return phase >= 0 && phase < PHASE_COUNT ? phases[phase].name : "an unknown phase";
}

/* No other data depends on these words, so relaxed order suffices. */
#define STORE(word, value) atomic_store_explicit(&record.word, value, memory_order_relaxed)
#define LOAD(word) atomic_load_explicit(&record.word, memory_order_relaxed)

/* True in the thread that sets the phases. Only this thread stores to `activity`. */
static _Thread_local bool is_main;

static void activity_count(void)
{
    STORE(activity, LOAD(activity) + 1);
}

/* Durations of the newest steps, as a ring. */
enum { STEPS_TIMED = 15, STEPS_LEAST = 3 };
static struct {
    _Atomic double seconds[STEPS_TIMED];
    _Atomic int64_t count;
    double begin; /* clock: the current step; only the main thread uses it */
} timed;

void status_set_step(int64_t step)
{
    double now = clock_now();
    int64_t count = timed.count;
    if (timed.begin > 0 && step == LOAD(step) + 1) {
        timed.seconds[count % STEPS_TIMED] = now - timed.begin;
        timed.count = count + 1;
    }
    timed.begin = now;
    STORE(step, step);
    activity_count();
}

double status_step_seconds(void)
{
    double seconds[STEPS_TIMED];
    int64_t count = timed.count;
    if (count < STEPS_LEAST)
        return 0;
    count = count < STEPS_TIMED ? count : STEPS_TIMED;
    for (int64_t i = 0; i < count; i++)
        seconds[i] = timed.seconds[i];
    return values_median(seconds, count);
}

void status_set_waiting(bool waits)
{
    if (!is_main)
        return;
    STORE(waits, waits);
    activity_count();
}

/* Wait if this is the phase and the rank of debug.pause and its step has come. */
static void pause_take(int phase, bool is_step)
{
    if (phase != pause_place.phase || !is_step)
        return;
    /* Before MPI is started only the launcher knows the rank. */
    const int rank = error_rank() > 0 ? error_rank() : launcher_rank() > 0 ? launcher_rank() : 0;
    if (pause_place.rank >= 0 && pause_place.rank != rank)
        return;
    const struct timespec poll = {.tv_nsec = 10 * 1000 * 1000};
    struct error error = {0};
    pause_place.phase = -1;
    OWNED char *own = allocate_text("%s.%d", pause_place.file, rank);
    OWNED char *process = allocate_text("%ld\n", (long)getpid());
    if (!atomic_file_write(own, process, &error)) {
        fprintf(stderr, "vittrain: debug.pause: %s; the rank does not wait\n", error.text);
        return;
    }
    fprintf(stderr,
            "vittrain: debug.pause: rank %d on %s (process %ld) waits in %s:%lld until %s exists\n",
            rank, error_host(), (long)getpid(), phases[phase].word, (long long)pause_place.step,
            pause_place.file);
    while (access(pause_place.file, F_OK) != 0)
        nanosleep(&poll, NULL);
}

void status_set_phase(int phase)
{
    is_main = true;
    STORE(unit, -1);
    STORE(phase, phase);
    STORE(since, clock_now());
    activity_count();
    pause_take(phase, LOAD(step) == pause_place.step);
}

bool status_pause_at(const char *text, struct error *error)
{
    char word[32] = "";
    long long step = -1;
    int begin = 0;
    pause_place.phase = -1;
    if (strcmp(text, "none") == 0)
        return true;
    const bool has_step = sscanf(text, "%31[a-z_]:%lld:%n", word, &step, &begin) == 2 && begin > 0;
    const char *file = text + begin, *colon = strrchr(file, ':');
    const bool has_rank =
        colon != NULL && colon[1] != '\0' && colon[1 + strspn(colon + 1, "0123456789")] == '\0';
    const size_t length = has_rank ? (size_t)(colon - file) : strlen(file);
    for (int phase = 0; has_step && step >= 0 && phase < PHASE_COUNT; phase++)
        if (strcmp(phases[phase].word, word) == 0 && length > 0 &&
            length < sizeof pause_place.file) {
            snprintf(pause_place.file, sizeof pause_place.file, "%.*s", (int)length, file);
            pause_place.step = step;
            pause_place.rank = has_rank ? atoi(colon + 1) : -1;
            pause_place.phase = phase;
            return true;
        }
    return error_set(error, ERROR_USAGE,
                     "debug.pause=%s: must be PHASE:STEP:FILE[:RANK], as backward:20:go; see "
                     "`vittrain help debug.pause`",
                     text);
}

void status_set_unit(int unit)
{
    STORE(unit, unit);
    STORE(since, clock_now());
    activity_count();
}

void status_name_unit(int unit, const char *name)
{
    if (unit >= 0 && unit < STATUS_UNITS)
        snprintf(record.name[unit], STATUS_NAME, "%s", name);
}

void status_set_background(int phase)
{
    STORE(background, phase);
    /* Training continues meanwhile. */
    pause_take(phase, phase != 0 && LOAD(step) >= pause_place.step);
}

struct status status_read(double now)
{
    double since = LOAD(since);
    return (struct status){.seconds = since > 0 && now > since ? now - since : 0,
                           .step = LOAD(step),
                           .phase = LOAD(phase),
                           .unit = LOAD(unit),
                           .background = LOAD(background),
                           .waits = LOAD(waits),
                           .activity = LOAD(activity)};
}

void status_describe(const struct status *status, char *text, size_t size)
{
    char unit[STATUS_NAME + 16] = "", step[40] = "", background[64] = "";
    if (status->unit >= 0 && status->unit < STATUS_UNITS && record.name[status->unit][0] != '\0')
        snprintf(unit, sizeof unit, " of %.*s", STATUS_NAME, record.name[status->unit]);
    else if (status->unit >= 0)
        snprintf(unit, sizeof unit, " of unit %d", status->unit);
    if (status->step > 0)
        snprintf(step, sizeof step, ", step %lld", (long long)status->step);
    if (status->background != 0)
        snprintf(background, sizeof background, ", beside %s",
                 status_phase_name(status->background));
    snprintf(text, size, "%s%s%s, for %.1f s%s", status_phase_name(status->phase), unit, step,
             status->seconds, background);
}
