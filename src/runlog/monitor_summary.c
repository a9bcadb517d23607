/* Sums of sensors: over time on each rank, then over the ranks. */
#include <math.h>

#include "core/log.h"
#include "runlog/monitor.h"

void sensor_sums_begin(struct sensor_sums sums[SENSOR_COUNT])
{
    for (int i = 0; i < SENSOR_COUNT; i++)
        sums[i] = (struct sensor_sums){.most = NAN, .least = NAN, .first = NAN, .last = NAN};
}

void sensor_sums_add(struct sensor_sums sums[SENSOR_COUNT], const struct sensor_reading *reading,
                     double seconds)
{
    for (int i = 0; i < SENSOR_COUNT; i++) {
        double value = reading->value[i];
        if (isnan(value))
            continue;
        sums[i].weighted += value * seconds;
        sums[i].seconds += seconds;
        sums[i].most = fmax(sums[i].most, value);
        sums[i].least = fmin(sums[i].least, value);
        sums[i].first = isnan(sums[i].first) ? value : sums[i].first;
        sums[i].last = value;
    }
}

/* What is added over the ranks, by kind; NAN: nothing. */
static double value_to_add(enum sensor_kind kind, const struct sensor_sums *sums)
{
    if (kind == SENSOR_LEVEL)
        return sums->seconds > 0 ? sums->weighted / sums->seconds : sums->last;
    return kind == SENSOR_COUNTER ? sums->last - sums->first : NAN;
}

/* What the highest of the ranks is wanted of. */
static double value_to_compare(enum sensor_kind kind, const struct sensor_sums *sums)
{
    switch (kind) {
    case SENSOR_LEVEL:
    case SENSOR_PEAK:
        return sums->most;
    case SENSOR_LEAST:
        return -sums->least;
    case SENSOR_DURATION:
        return sums->last - sums->first;
    case SENSOR_COUNTER:
    case SENSOR_STATE:
        break;
    }
    return NAN;
}

static void energy_add(struct monitor_summary *summary)
{
    double cpu = summary->value[SENSOR_CPU_ENERGY], gpu = summary->value[SENSOR_GPU_ENERGY];
    bool knows_cpu = !isnan(cpu), knows_gpu = !isnan(gpu);
    summary->joules_of = knows_cpu && knows_gpu ? "CPU and GPU"
                         : knows_cpu            ? "CPU"
                         : knows_gpu            ? "GPU"
                                                : NULL;
    summary->joules =
        summary->joules_of == NULL ? NAN : (knows_cpu ? cpu : 0) + (knows_gpu ? gpu : 0);
}

void sensor_sums_reduce(const struct sensor_sums sums[SENSOR_COUNT],
                        const struct monitor_setup *setup, struct monitor_summary *summary)
{
    double added[2 * SENSOR_COUNT], highest[SENSOR_COUNT]; /* added: values, then how many */
    for (int i = 0; i < SENSOR_COUNT; i++) {
        double value = value_to_add(sensor_columns[i].kind, &sums[i]);
        double most = value_to_compare(sensor_columns[i].kind, &sums[i]);
        added[i] = isnan(value) ? 0 : value;
        added[SENSOR_COUNT + i] = !isnan(value);
        highest[i] = isnan(most) ? -INFINITY : most;
    }
    comm_all_reduce(setup->world, added, 2 * SENSOR_COUNT, COMM_FP64, COMM_SUM);
    comm_all_reduce(setup->world, highest, SENSOR_COUNT, COMM_FP64, COMM_MAX);
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const struct sensor_column *column = &sensor_columns[i];
        double count = added[SENSOR_COUNT + i], expected = setup->world->size;
        double most = isinf(highest[i]) ? NAN : highest[i];
        if (column->of_node)
            expected = setup->nodes;
        summary->most[i] = column->kind == SENSOR_LEVEL ? most : NAN;
        if (column->kind == SENSOR_LEVEL)
            summary->value[i] = count > 0 ? added[i] / count : NAN;
        else if (column->kind == SENSOR_COUNTER)
            summary->value[i] = count == expected ? added[i] : NAN;
        else
            summary->value[i] = column->kind == SENSOR_LEAST ? -most : most;
    }
    energy_add(summary);
}

void monitor_say(const struct monitor_summary *summary, double images)
{
    static const char *const words[] = {
        [SENSOR_LEVEL] = "mean",     [SENSOR_PEAK] = "at most",     [SENSOR_LEAST] = "at least",
        [SENSOR_COUNTER] = "in all", [SENSOR_DURATION] = "at most", [SENSOR_STATE] = ""};
    if (summary->readings == 0)
        return;
    log_info("sensors: %lld readings in %.1f s, each %.0f us of a core",
             (long long)summary->readings, summary->seconds, 1e6 * summary->reading_seconds);
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const struct sensor_column *column = &sensor_columns[i];
        double value = summary->value[i] / column->scale, most = summary->most[i] / column->scale;
        if (isnan(value))
            continue;
        if (isnan(most))
            log_info("  %-24s %-8s %10.5g %s", column->name, words[column->kind], value,
                     column->shown);
        else
            log_info("  %-24s %-8s %10.5g, at most %10.5g %s", column->name, words[column->kind],
                     value, most, column->shown);
    }
    if (summary->joules_of != NULL && summary->joules > 0)
        log_info("energy: %.4g Wh (%s), %.4g images a joule", summary->joules / 3600,
                 summary->joules_of, images / summary->joules);
}
