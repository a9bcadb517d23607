// SPDX-License-Identifier: BSD-3-Clause
/* Each rank keeps its own list during the evaluation. At the end, the probabilities of all ranks
 * are gathered, and rank 0 receives only the samples that belong to its final list. */
#include "train/misclassified.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_value.h"
#include "data/image_file.h"

enum { SAMPLES = 12, SIDE = 64 };

struct misclassified_sample {
    float probability; /* of the predicted class */
    int32_t label, predicted;
    uint32_t record;
    int32_t channels, height, width; /* of the thumbnail */
    uint8_t pixels[SIDE * SIDE * 3]; /* [height, width, channels] */
};

void misclassified_begin(struct misclassified *list, const struct image_source *source,
                         int64_t classes)
{
    if (list->sample == NULL)
        list->sample = allocate(SAMPLES, sizeof *list->sample);
    list->source = *source;
    list->classes = classes;
    list->count = 0;
}

void misclassified_free(struct misclassified *list)
{
    free(list->sample);
    list->sample = NULL;
}

static bool sample_precedes(const struct misclassified_sample *one,
                            const struct misclassified_sample *other)
{
    return one->probability > other->probability ||
           (one->probability == other->probability && one->record < other->record);
}

/* Inserts the sample in order and drops the last one of a full list. Returns its new place, or NULL
 * if all samples of a full list precede it. */
static struct misclassified_sample *sample_insert(struct misclassified *list,
                                                  const struct misclassified_sample *sample)
{
    int place = list->count;
    while (place > 0 && sample_precedes(sample, &list->sample[place - 1]))
        place--;
    if (place == SAMPLES)
        return NULL;
    list->count += list->count < SAMPLES;
    memmove(&list->sample[place + 1], &list->sample[place],
            (size_t)(list->count - place - 1) * sizeof *sample);
    list->sample[place] = *sample;
    return &list->sample[place];
}

/* Reduces an image [channels, height, width] by a whole factor: means over squares. Images with
 * neither 3 nor 4 channels become grey, from their first channel. */
static void thumbnail_make(struct misclassified_sample *sample, const struct image_source *source,
                           const uint8_t *pixels)
{
    const int64_t longest = source->height > source->width ? source->height : source->width;
    const int64_t factor = (longest + SIDE - 1) / SIDE;
    const int64_t height = (source->height + factor - 1) / factor;
    const int64_t width = (source->width + factor - 1) / factor;
    const int64_t channels = source->channels == 3 || source->channels == 4 ? 3 : 1;
    sample->height = (int32_t)height;
    sample->width = (int32_t)width;
    sample->channels = (int32_t)channels;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < height * width; i++) {
            const int64_t top = i / width * factor, left = i % width * factor;
            int64_t sum = 0, count = 0;
            for (int64_t y = top; y < top + factor && y < source->height; y++)
                for (int64_t x = left; x < left + factor && x < source->width; x++, count++)
                    sum += pixels[(c * source->height + y) * source->width + x];
            sample->pixels[i * channels + c] = (uint8_t)(sum / count);
        }
}

void misclassified_visit(void *self, const struct batch *batch, const int32_t *predicted,
                         const float *probabilities, struct error *error)
{
    struct misclassified *list = self;
    const struct image_source *source = &list->source;
    const int64_t bytes = source->channels * source->height * source->width;
    if (error->kind != ERROR_NONE || source->type != DATASET_UINT8)
        return;
    for (int64_t i = 0; i < batch->count; i++) {
        const struct misclassified_sample sample = {
            .probability = probabilities[i * list->classes + predicted[i]],
            .label = batch->labels[i],
            .predicted = predicted[i],
            .record = batch->records[i]};
        if (sample.label == sample.predicted || !(sample.probability >= 0))
            continue;
        struct misclassified_sample *place = sample_insert(list, &sample);
        if (place != NULL)
            thumbnail_make(place, source, batch->pixels + i * bytes);
    }
}

/* Moves the samples of all ranks with the highest probabilities to rank 0. */
static void samples_gather(struct misclassified *list, struct comm *world)
{
    float *all = allocate((size_t)world->size * SAMPLES, sizeof *all), least = -1;
    for (int i = 0; i < SAMPLES; i++)
        all[world->rank * SAMPLES + i] = i < list->count ? list->sample[i].probability : -1;
    comm_all_gather(world, all, SAMPLES * (int64_t)sizeof *all, COMM_BYTE);
    /* Samples below the last one of a full list of rank 0 are not sent. */
    if (list->count == SAMPLES && world->rank == 0)
        least = list->sample[SAMPLES - 1].probability;
    comm_broadcast(world, &least, sizeof least, COMM_BYTE, 0);
    for (int rank = 1; rank < world->size; rank++)
        for (int i = 0; i < SAMPLES && all[rank * SAMPLES + i] >= fmaxf(least, 0); i++) {
            struct misclassified_sample sample;
            if (world->rank == rank)
                comm_send(world, &list->sample[i], sizeof sample, 0);
            if (world->rank != 0)
                continue;
            comm_receive(world, &sample, sizeof sample, rank);
            sample_insert(list, &sample);
        }
    free(all);
}

static json_t *sample_to_json(const struct misclassified_sample *sample,
                              const struct dataset *dataset)
{
    json_t *object = json_object();
    char name[1024];
    char *png = image_png_text(sample->pixels, sample->height, sample->width, sample->channels);
    if (dataset->format->name_record != NULL)
        dataset->format->name_record(dataset, sample->record, name, sizeof name);
    else
        snprintf(name, sizeof name, "record %u", (unsigned)sample->record);
    value_put(object, "name", value_name(name));
    value_put(object, "class", json_integer(sample->label));
    value_put(object, "predicted", json_integer(sample->predicted));
    value_put(object, "probability", value_number((double)sample->probability));
    value_put(object, "png", value_name(png));
    free(png);
    return object;
}

void misclassified_write(struct misclassified *list, const struct run_folder *folder,
                         struct comm *world, const struct dataset *dataset, const char *split,
                         struct error *error)
{
    samples_gather(list, world);
    if (world->rank != 0)
        return;
    json_t *object = json_object(), *samples = json_array();
    for (int i = 0; i < list->count; i++)
        value_append(samples, sample_to_json(&list->sample[i], dataset));
    value_put(object, "split", value_text(split));
    value_put(object, "samples", samples);
    char *text = value_to_text(object);
    error_defer(run_folder_write(folder, "misclassified.json", text, error));
    free(text);
}
