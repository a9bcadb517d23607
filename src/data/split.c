// SPDX-License-Identifier: BSD-3-Clause
/* Selects the records of a split. */
#include "data/split.h"

#include <math.h>
#include <stdlib.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/base.h"
#include "core/random.h"

int split_stored(const struct options *options, enum data_split split, const bool stored[3])
{
    const bool own = split == SPLIT_VALIDATION && options->data.val == VALIDATION_VAL;
    if (split == SPLIT_VALIDATION && !own)
        split = SPLIT_TEST;
    if (!stored[split] && split != SPLIT_TRAIN)
        split = SPLIT_VALIDATION;
    if (!stored[split] && options->data.val == VALIDATION_FRACTION)
        split = SPLIT_TRAIN;
    return stored[split] ? (int)split : -1;
}

/* Keep elements [begin, end) of a permutation of the samples, in ascending order. */
static void keep_part(struct dataset *dataset, const uint32_t *order, int64_t begin, int64_t end)
{
    const size_t kept = (size_t)(end - begin);
    uint32_t *subset = allocate(kept, sizeof *subset);
    for (size_t i = 0; i < kept; i++)
        subset[i] = dataset_record(dataset, order[(size_t)begin + i]);
    qsort(subset, kept, sizeof *subset, compare_uint32);
    free(dataset->subset);
    dataset->subset = subset;
    dataset->count = end - begin;
}

static uint32_t *order_allocate(const struct dataset *dataset)
{
    return allocate((size_t)dataset->count, sizeof(uint32_t));
}

void split_draw(struct dataset *dataset, uint64_t seed, uint32_t draw, int64_t count)
{
    uint32_t *order = order_allocate(dataset);
    random_permutation(seed, RANDOM_SPLIT, draw, (uint32_t)dataset->count, order);
    keep_part(dataset, order, 0, count);
    free(order);
}

void split_reference(struct dataset *dataset, uint64_t seed, enum data_split split)
{
    const int64_t training_end = dataset->count * 3 / 4;
    const int64_t validation_end = training_end + dataset->count / 12;
    const int64_t begin[] = {0, training_end, validation_end, dataset->count};
    uint32_t *order = order_allocate(dataset);
    torch_permutation(seed, (uint32_t)dataset->count, order);
    keep_part(dataset, order, begin[split], begin[split + 1]);
    free(order);
}

/* ---- data.val=FRACTION ---- */

/* Samples of all classes, ordered by class. */
struct strata {
    int64_t classes;
    size_t *begin;     /* [classes + 1] first sample of each class */
    uint32_t *samples; /* [count] */
    int32_t *label;    /* [count] by sample */
};

static void strata_free(struct strata *strata)
{
    free(strata->begin);
    free(strata->samples);
    free(strata->label);
}

static bool strata_make(struct dataset *dataset, struct strata *strata, struct error *error)
{
    const size_t count = (size_t)dataset->count, classes = (size_t)dataset->classes;
    *strata = (struct strata){.classes = dataset->classes,
                              .begin = allocate(classes + 2, sizeof *strata->begin),
                              .samples = allocate(count, sizeof *strata->samples),
                              .label = allocate(count, sizeof *strata->label)};
    for (size_t i = 0; i < count; i++)
        if (!dataset_label(dataset, (int64_t)i, &strata->label[i], error))
            return false;
    /* Counting sort: begin[c + 1] is the next free index of class c, finally its end. */
    for (size_t i = 0; i < count; i++)
        strata->begin[strata->label[i] + 2]++;
    for (size_t c = 0; c < classes; c++)
        strata->begin[c + 1] += strata->begin[c];
    for (size_t i = 0; i < count; i++)
        strata->samples[strata->begin[strata->label[i] + 1]++] = (uint32_t)i;
    return true;
}

static size_t held_out_of(size_t count, double fraction)
{
    const size_t held = (size_t)rint((double)count * fraction);
    if (count < 2)
        return 0;
    return held < 1 ? 1 : held < count ? held : count - 1;
}

bool split_stratified(struct dataset *dataset, double fraction, bool held_out, struct error *error)
{
    enum { FIRST_DRAW = 16 }; /* of RANDOM_SPLIT, after those of split_draw */
    struct strata strata;
    const bool good = strata_make(dataset, &strata, error);
    uint32_t *order = order_allocate(dataset), *kept = order;
    for (int64_t c = 0; good && c < strata.classes; c++) {
        const uint32_t *samples = strata.samples + strata.begin[c];
        const size_t in_class = strata.begin[c + 1] - strata.begin[c];
        const size_t held = held_out_of(in_class, fraction);
        /* Write the class's permutation after the samples that are already kept. */
        random_permutation(0, RANDOM_SPLIT, FIRST_DRAW + (uint32_t)c, (uint32_t)in_class, kept);
        const size_t first = held_out ? 0 : held, end = held_out ? held : in_class;
        for (size_t i = first; i < end; i++)
            kept[i - first] = samples[kept[i]];
        kept += end - first;
    }
    if (good)
        keep_part(dataset, order, 0, kept - order);
    free(order);
    strata_free(&strata);
    return good;
}

struct placed {
    double span[3]; /* as in dataset_format.span */
    uint32_t sample;
};

static int compare_placed(const void *left, const void *right)
{
    const struct placed *a = left, *b = right;
    return a->span[0] != b->span[0] ? (a->span[0] > b->span[0]) - (a->span[0] < b->span[0])
                                    : compare_uint32(&a->sample, &b->sample);
}

void split_end(struct dataset *dataset, double fraction, bool held_out)
{
    const size_t count = (size_t)dataset->count;
    struct placed *placed = allocate(count, sizeof *placed);
    uint32_t *order = order_allocate(dataset);
    double begin = (double)INFINITY; /* of the values of samples that are held out */
    size_t first = count - held_out_of(count, fraction), kept = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t record = dataset_record(dataset, (int64_t)i);
        placed[i].sample = (uint32_t)i;
        placed[i].span[0] = placed[i].span[1] = placed[i].span[2] = (double)record;
        if (dataset->format->span != NULL)
            dataset->format->span(dataset, record, placed[i].span);
    }
    qsort(placed, count, sizeof *placed, compare_placed);
    /* Samples of the same time are in the same split, unless all have the same. */
    const bool is_one = placed[0].span[0] == placed[count - 1].span[0];
    while (!is_one && first > 1 && placed[first - 1].span[0] == placed[first].span[0])
        first--;
    for (size_t i = first; i < count; i++)
        begin = fmin(begin, placed[i].span[1]);
    for (size_t i = held_out ? first : 0; i < (held_out ? count : first); i++)
        if (held_out || is_one || placed[i].span[2] < begin)
            order[kept++] = placed[i].sample;
    keep_part(dataset, order, 0, (int64_t)kept);
    free(placed);
    free(order);
}
