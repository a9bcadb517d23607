// SPDX-License-Identifier: BSD-3-Clause
/* Random points and the Parzen estimator. A density is a mixture of kernels: one per trial and one
 * that covers the whole space (the prior). A kernel is a product over the keys. For choices its
 * factor is a table of probabilities; for a range it is a normal distribution truncated at the ends
 * of the range, whose width depends on the distance of neighbouring trials. */
#include "tools/sweep/sweep_tpe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"

enum { CANDIDATES = 24, GOOD_MOST = 25, EVEN_WEIGHTS = 25, KERNELS_MOST_NARROW = 100 };

/* ---- numbers */

/* A counter-based random number generator. */
struct draws {
    uint64_t seed;
    uint32_t trial, count;
};

static double number_draw(struct draws *draws)
{
    struct random_block block =
        random_block_at(draws->seed, RANDOM_SWEEP, 0, 0, draws->trial, draws->count++);
    uint64_t bits = ((uint64_t)block.word[0] << 32 | block.word[1]) >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

/* ---- ranges in the coordinates of the kernels */

struct axis {
    double low, high; /* extended by 0.5 for integers, so that all are equally likely */
    bool log, whole;
};

static struct axis axis_of(const struct sweep_key *key)
{
    double half = key->whole ? 0.5 : 0, low = key->low - half, high = key->high + half;
    return (struct axis){.low = key->log ? log(low) : low,
                         .high = key->log ? log(high) : high,
                         .log = key->log,
                         .whole = key->whole};
}

static double axis_from(const struct axis *axis, double value)
{
    return axis->log ? log(value) : value;
}

static double axis_to(const struct sweep_key *key, const struct axis *axis, double place)
{
    double value = axis->log ? exp(place) : place;
    value = key->whole ? rint(value) : value;
    return sweep_value_round(key, fmin(fmax(value, key->low), key->high));
}

/* ---- densities */

struct kernels {
    const struct sweep_space *space;
    int64_t count;  /* number of trials, plus 1 for the prior */
    double *weight; /* [count], of the mixture */
    double *centre; /* [keys][count]: the choice, or the position on the axis */
    double *width;  /* [keys][count] */
};

static int compare_positions(const void *one, const void *other)
{
    double a = **(double *const *)one, b = **(double *const *)other;
    return (a > b) - (a < b);
}

/* The width is the distance to the farther neighbour, clipped to a minimum that decreases with the
 * number of trials. The ends of the range count as neighbours only if there is a single trial. */
static void widths_set(const struct axis *axis, double *centre, double *width, int64_t trials)
{
    double **order = allocate((size_t)trials + 1, sizeof *order);
    double span = axis->high - axis->low;
    double least = span / fmin(KERNELS_MOST_NARROW, 1.0 + (double)trials + 1);
    for (int64_t i = 0; i < trials; i++)
        order[i] = &centre[i];
    qsort(order, (size_t)trials, sizeof *order, compare_positions);
    for (int64_t i = 0; i < trials; i++) {
        double left = *order[i] - (i > 0 ? *order[i - 1] : axis->low);
        double right = (i + 1 < trials ? *order[i + 1] : axis->high) - *order[i];
        double distance = fmax(left, right);
        if (trials > 1 && i == 0)
            distance = right;
        if (trials > 1 && i + 1 == trials)
            distance = left;
        width[order[i] - centre] = fmin(fmax(distance, least), span);
    }
    free(order);
}

/* With many trials, older ones have smaller weights. */
static void weights_set(double *weight, int64_t trials)
{
    int64_t ramp = trials - EVEN_WEIGHTS;
    double sum = 0;
    for (int64_t i = 0; i <= trials; i++) {
        weight[i] = 1;
        if (i < ramp)
            weight[i] = ramp == 1 ? 1.0 / (double)trials
                                  : 1.0 / (double)trials +
                                        (1 - 1.0 / (double)trials) * (double)i / (double)(ramp - 1);
        sum += weight[i];
    }
    for (int64_t i = 0; i <= trials; i++)
        weight[i] /= sum;
}

static void kernels_open(struct kernels *kernels, const struct sweep_space *space,
                         const struct sweep_point *trials, int64_t count)
{
    size_t cells = (size_t)(count + 1);
    *kernels = (struct kernels){.space = space, .count = count + 1};
    kernels->weight = allocate(cells * (size_t)(1 + 2 * space->count), sizeof(double));
    kernels->centre = kernels->weight + cells;
    kernels->width = kernels->centre + cells * (size_t)space->count;
    weights_set(kernels->weight, count);
    for (int k = 0; k < space->count; k++) {
        const struct sweep_key *key = &space->keys[k];
        double *centre = kernels->centre + (size_t)k * cells;
        double *width = kernels->width + (size_t)k * cells;
        for (int64_t i = 0; i < count; i++)
            centre[i] = trials[i].value[k];
        if (key->count > 0)
            continue;
        const struct axis axis = axis_of(key);
        for (int64_t i = 0; i < count; i++)
            centre[i] = axis_from(&axis, centre[i]);
        widths_set(&axis, centre, width, count);
        centre[count] = (axis.low + axis.high) / 2;
        width[count] = axis.high - axis.low;
    }
}

static void kernels_close(struct kernels *kernels)
{
    free(kernels->weight);
}

/* Probability between two positions, in standard deviations. erfc keeps the tails accurate. */
static double normal_mass(double from, double to)
{
    if (from > 0)
        return (erfc(from * M_SQRT1_2) - erfc(to * M_SQRT1_2)) / 2;
    return (erfc(-to * M_SQRT1_2) - erfc(-from * M_SQRT1_2)) / 2;
}

/* Probability of choice `value` in the kernel of choice `centre`. */
static double choice_probability(const struct kernels *kernels, const struct sweep_key *key,
                                 double centre, bool prior, double value)
{
    double all = 1.0 / (double)kernels->count;
    if (prior)
        return 1.0 / key->count;
    return ((value == centre ? 1 : 0) + all) / (1 + all * key->count);
}

static double range_density(const struct sweep_key *key, double centre, double width, double value)
{
    const struct axis axis = axis_of(key);
    double inside = normal_mass((axis.low - centre) / width, (axis.high - centre) / width);
    if (key->whole) {
        double from = axis_from(&axis, value - 0.5), to = axis_from(&axis, value + 0.5);
        return normal_mass((from - centre) / width, (to - centre) / width) / inside;
    }
    double distance = (axis_from(&axis, value) - centre) / width;
    return exp(-distance * distance / 2) / (sqrt(2 * M_PI) * width * inside);
}

static double kernels_density(const struct kernels *kernels, const struct sweep_point *at)
{
    const struct sweep_space *space = kernels->space;
    double sum = 0;
    for (int64_t i = 0; i < kernels->count; i++) {
        double product = kernels->weight[i];
        for (int k = 0; k < space->count; k++) {
            int64_t cell = k * kernels->count + i;
            const struct sweep_key *key = &space->keys[k];
            product *= key->count > 0 ? choice_probability(kernels, key, kernels->centre[cell],
                                                           i == kernels->count - 1, at->value[k])
                                      : range_density(key, kernels->centre[cell],
                                                      kernels->width[cell], at->value[k]);
        }
        sum += product;
    }
    return log(sum);
}

/* ---- drawing from a density */

/* Quantile of the truncated normal distribution, by bisection. */
static double range_draw(const struct axis *axis, double centre, double width, double uniform)
{
    double low = axis->low, high = axis->high, begin = (axis->low - centre) / width;
    double wanted = uniform * normal_mass(begin, (axis->high - centre) / width);
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (normal_mass(begin, (middle - centre) / width) < wanted)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static void kernels_draw(const struct kernels *kernels, struct draws *draws,
                         struct sweep_point *point)
{
    const struct sweep_space *space = kernels->space;
    double uniform = number_draw(draws);
    int64_t chosen = 0;
    while (chosen < kernels->count - 1 && uniform >= kernels->weight[chosen])
        uniform -= kernels->weight[chosen++];
    for (int k = 0; k < space->count; k++) {
        const struct sweep_key *key = &space->keys[k];
        double centre = kernels->centre[k * kernels->count + chosen];
        double width = kernels->width[k * kernels->count + chosen];
        bool prior = chosen == kernels->count - 1;
        uniform = number_draw(draws);
        if (key->count == 0) {
            const struct axis axis = axis_of(key);
            point->value[k] = axis_to(key, &axis, range_draw(&axis, centre, width, uniform));
            continue;
        }
        int choice = 0;
        for (double probability; choice < key->count - 1; choice++, uniform -= probability) {
            probability = choice_probability(kernels, key, centre, prior, choice);
            if (uniform < probability)
                break;
        }
        point->value[k] = choice;
    }
}

void sweep_random_point(const struct sweep_space *space, uint64_t seed, int64_t number,
                        struct sweep_point *point)
{
    struct draws draws = {.seed = seed, .trial = (uint32_t)number};
    for (int k = 0; k < space->count; k++) {
        const struct sweep_key *key = &space->keys[k];
        double uniform = number_draw(&draws);
        const struct axis axis = axis_of(key);
        point->value[k] = key->count > 0
                              ? floor(uniform * key->count)
                              : axis_to(key, &axis, axis.low + uniform * (axis.high - axis.low));
    }
}

/* ---- good and other trials */

/* True if trial a ranks before trial b: ties by the start, running trials last. */
static bool is_better(const struct sweep_seen *seen, int64_t a, int64_t b)
{
    double one = seen[a].value, other = seen[b].value;
    if (isnan(one) || isnan(other))
        return isnan(other) && (!isnan(one) || a < b);
    return one > other || (one == other && a < b);
}

void sweep_tpe_point(const struct sweep_space *space, uint64_t seed, int64_t number,
                     const struct sweep_seen *seen, int64_t count, struct sweep_point *point)
{
    int64_t ended = 0;
    for (int64_t i = 0; i < count; i++)
        ended += !isnan(seen[i].value);
    if (ended < TPE_STARTUP) {
        sweep_random_point(space, seed, number, point);
        return;
    }
    struct draws draws = {.seed = seed, .trial = (uint32_t)number};
    struct sweep_point *parts = allocate(2 * (size_t)count, sizeof *parts);
    int64_t good_count = (ended + 9) / 10 < GOOD_MOST ? (ended + 9) / 10 : GOOD_MOST;
    int64_t good_taken = 0, others_taken = 0; /* both keep the order of the start */
    for (int64_t i = 0; i < count; i++) {
        int64_t rank = 0;
        for (int64_t k = 0; k < count; k++)
            rank += k != i && is_better(seen, k, i);
        if (rank < good_count)
            parts[good_taken++] = seen[i].point;
        else
            parts[count + others_taken++] = seen[i].point;
    }
    struct kernels good, others;
    kernels_open(&good, space, parts, good_taken);
    kernels_open(&others, space, parts + count, others_taken);
    double best = -INFINITY;
    for (int i = 0; i < CANDIDATES; i++) {
        struct sweep_point candidate = {{0}};
        kernels_draw(&good, &draws, &candidate);
        double gain = kernels_density(&good, &candidate) - kernels_density(&others, &candidate);
        if (gain > best || i == 0) {
            best = gain;
            *point = candidate;
        }
    }
    kernels_close(&good);
    kernels_close(&others);
    free(parts);
}

double sweep_tpe_density(const struct sweep_space *space, const struct sweep_point *trials,
                         int64_t count, const struct sweep_point *at)
{
    struct kernels kernels;
    kernels_open(&kernels, space, trials, count);
    double density = kernels_density(&kernels, at);
    kernels_close(&kernels);
    return density;
}
