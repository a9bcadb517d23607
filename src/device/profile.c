// SPDX-License-Identifier: BSD-3-Clause
/* The profiling backend: replaces each operation by one that measures it. */
#include "device/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/device.h"

#define NAME(name, ...) #name,
const char *const operation_name[OPERATIONS] = {DEVICE_OPERATIONS(NAME)};

enum { STEPS_BEFORE = 2 };

struct tally {
    double seconds;
    int64_t calls;
};

struct profile {
    struct device *device;
    const struct device_backend *inner;
    struct device_backend outer;
    int units, unit, steps;
    struct tally operation[OPERATIONS];
    struct tally *per_unit; /* [units + 1]: the last one counts operations outside units */
};

static struct profile *active;

static void operation_count(struct stream *stream, int operation, double begin)
{
    active->inner->stream_synchronize(stream);
    double seconds = clock_now() - begin;
    struct tally *unit = &active->per_unit[active->unit < 0 ? active->units : active->unit];
    active->operation[operation].seconds += seconds;
    active->operation[operation].calls++;
    unit->seconds += seconds;
    unit->calls++;
}

#define TIMED(name, kind, parameters, arguments, ...)                                              \
    static void timed_##name parameters                                                            \
    {                                                                                              \
        double begin = clock_now();                                                                \
        active->inner->name arguments;                                                             \
        operation_count(stream, OPERATION_##name, begin);                                          \
    }
DEVICE_OPERATIONS(TIMED)

struct profile *profile_open(struct device *device, int units)
{
    ENSURE(active == NULL, "a device is being profiled already");
    struct profile *profile = allocate(1, sizeof *profile);
    profile->per_unit = allocate((size_t)units + 1, sizeof *profile->per_unit);
    profile->device = device;
    profile->inner = device->backend;
    profile->outer = *device->backend;
    profile->units = units;
    profile->unit = -1;
#define REPLACE(name, ...) profile->outer.name = timed_##name;
    DEVICE_OPERATIONS(REPLACE)
    device->backend = &profile->outer;
    active = profile;
    return profile;
}

void profile_close(struct profile *profile)
{
    if (profile == NULL)
        return;
    profile->device->backend = profile->inner;
    active = NULL;
    free(profile->per_unit);
    free(profile);
}

void profile_step(struct profile *profile)
{
    if (profile == NULL || profile->steps++ != STEPS_BEFORE)
        return;
    memset(profile->operation, 0, sizeof profile->operation);
    memset(profile->per_unit, 0, ((size_t)profile->units + 1) * sizeof *profile->per_unit);
}

void profile_unit(struct profile *profile, int unit)
{
    if (profile != NULL)
        profile->unit = unit;
}

/* Print `count` tallies, longest first. */
static void tallies_print(const struct tally *tally, int count, const char *const *names,
                          double total)
{
    bool *printed = allocate((size_t)count, sizeof *printed);
    for (int line = 0; line < count; line++) {
        int longest = -1;
        for (int i = 0; i < count; i++)
            if (!printed[i] && (longest < 0 || tally[i].seconds > tally[longest].seconds))
                longest = i;
        printed[longest] = true;
        if (tally[longest].calls > 0)
            log_info("  %-20s %10.3f s %6.2f %% %10lld calls %12.1f us each", names[longest],
                     tally[longest].seconds, 100 * tally[longest].seconds / total,
                     (long long)tally[longest].calls,
                     1e6 * tally[longest].seconds / (double)tally[longest].calls);
    }
    free(printed);
}

void profile_print(const struct profile *profile, const char *const *unit_names)
{
    double total = 0;
    for (int i = 0; i < OPERATIONS; i++)
        total += profile->operation[i].seconds;
    if (total <= 0)
        return;
    if (profile->steps <= STEPS_BEFORE)
        log_warn("debug.profile: the times include the choice of kernels, which only longer runs "
                 "leave out; train at least %d steps",
                 STEPS_BEFORE + 1);
    log_info("time by operation (total %.3f s):", total);
    tallies_print(profile->operation, OPERATIONS, operation_name, total);
    log_info("time by unit:");
    tallies_print(profile->per_unit, profile->units + 1, unit_names, total);
}
