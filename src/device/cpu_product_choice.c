// SPDX-License-Identifier: BSD-3-Clause
/* The first word of a choice is the number of the candidate. */
#include "device/cpu_product_choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "device/choices.h"
#include "device/cpu_product_tiles.h"

enum { WITH_TILES, WITH_ONEDNN, CANDIDATES };

static bool is_emulated(const struct cpu_device *cpu)
{
    return cpu->tiles == &tile_kernels_amx_emulated;
}

struct choices *product_choices_open(const struct cpu_device *cpu, const char *folder)
{
    char of[256], library[64];

    product_library(library, sizeof library);
    /* The name without the number of threads at its end, which must not affect the results. */
    const char *end = strrchr(cpu->limits.name, ',');
    snprintf(of, sizeof of, "%.*s, %s", (int)(end - cpu->limits.name), cpu->limits.name, library);
    return choices_open(is_emulated(cpu) ? "" : folder, of);
}

struct measurement {
    struct cpu_device *cpu;
    const struct product_trial *trial;
    void *result;
};

/* The emulation is not timed: both candidates run once, and tiles are chosen. */
static double trial_time(void *context, int candidate)
{
    const struct measurement *it = context;
    const int rounds = is_emulated(it->cpu) ? 1 : 5;
    double least = INFINITY;

    for (int round = 0; round < rounds; round++) { /* the first run is a warm-up */
        const double begin = clock_now();
        it->trial->run(it->cpu, it->trial->args, it->result, candidate == WITH_TILES);
        if (round > 0)
            least = fmin(least, clock_now() - begin);
    }
    return is_emulated(it->cpu) ? candidate : least;
}

static bool is_usable(void *context, const struct choice *choice)
{
    (void)context;
    return choice->words[0] < CANDIDATES;
}

bool product_takes_tiles(struct cpu_device *cpu, const struct product_trial *trial)
{
    const struct choice candidates[CANDIDATES] = {{{WITH_TILES}}, {{WITH_ONEDNN}}};
    struct measurement measurement = {.cpu = cpu, .trial = trial};
    struct choice choice;
    char key[CHOICE_KEY];

    if (!has_tiles(cpu, trial->type) || trial->in + trial->out > TILE_PRODUCT_WIDEST)
        return false;
    if (cpu->device.reproducible)
        return true;
    snprintf(key, sizeof key, "bf16 %s %lldx%lldx%lld", trial->operation, (long long)trial->rows,
             (long long)trial->in, (long long)trial->out);
    if (!choices_find(cpu->choices, key, is_usable, &measurement, &choice)) {
        measurement.result = malloc((size_t)trial->result_elements * sizeof(float));
        ENSURE_MEMORY(measurement.result != NULL, "no memory to measure products");
        choices_make(cpu->choices, key, candidates, CANDIDATES, trial_time, is_usable, &measurement,
                     &choice);
        free(measurement.result);
    }
    return choice.words[0] == WITH_TILES;
}
