// SPDX-License-Identifier: BSD-3-Clause
/* Each rank keeps its own pictures during the evaluation. At the end one sum gives rank 0 those of
 * all ranks: a picture is zero on all ranks but one. */
#include "train/evaluate.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/columns.h"
#include "image/image_file.h"
#include "record/scores.h"

enum { WRONG_SAMPLES = 12, THUMBNAIL_SIDE = 64 };
enum { PLANE_SAMPLES = 4, PLANE_OUTPUTS = 2, PLANE_SIDE = 96 };
enum { GAP = 4, WHITE = 255, MISSING = 192 };
enum panel { PANEL_INPUT, PANEL_TARGET, PANEL_PREDICTION, PANEL_ERROR, PANELS };

/* Sizes are multiples of 8 bytes: pictures are added as integers. */
struct wrong_sample {
    struct wrong_key {
        float probability; /* of the predicted class */
        uint32_t record;
    } key;
    int32_t label, predicted;
    int64_t channels, height, width;                     /* of the thumbnail */
    uint8_t pixels[THUMBNAIL_SIDE * THUMBNAIL_SIDE * 3]; /* [height, width, channels] */
};

struct plane_sample {
    uint32_t record;
    int64_t output;
    double low, high, error; /* values of the first and last colour; largest error */
    bool has_input;          /* else the first panel is empty */
    int64_t height, width;   /* of the picture; 0: there is none */
    uint8_t pixels[PLANE_SIDE * (PANELS * (PLANE_SIDE + GAP)) * 3];
};

bool pictures_begin(struct pictures *pictures, const struct session *session,
                    const struct split_loader *feed)
{
    const bool has_planes = session->options.model.head == HEAD_DENSE;
    pictures_free(pictures);
    *pictures = (struct pictures){.session = session,
                                  .dataset = &feed->dataset,
                                  .source = batch_upload_source(&session->input, &feed->source),
                                  .shown = smaller(feed->dataset.target.count, PLANE_OUTPUTS)};
    if (has_planes)
        pictures->planes =
            allocate((size_t)(PLANE_SAMPLES * pictures->shown), sizeof *pictures->planes);
    else if (session->model->loss == LOSS_CROSS_ENTROPY)
        pictures->wrong = allocate(WRONG_SAMPLES, sizeof *pictures->wrong);
    return pictures->planes != NULL || pictures->wrong != NULL;
}

void pictures_free(struct pictures *pictures)
{
    free(pictures->wrong);
    free(pictures->planes);
    *pictures = (struct pictures){.count = 0};
}

/* ---- misclassified samples */

static bool key_precedes(struct wrong_key one, struct wrong_key other)
{
    return one.probability > other.probability ||
           (one.probability == other.probability && one.record < other.record);
}

/* Reduce an image [channels, height, width] by a whole factor: means over squares. Images with
 * neither 3 nor 4 channels become grey, from their first channel. */
static void thumbnail_make(struct wrong_sample *sample, const struct image_source *source,
                           const uint8_t *pixels)
{
    const int64_t factor = round_up_division(larger(source->height, source->width), THUMBNAIL_SIDE);
    const int64_t height = round_up_division(source->height, factor);
    const int64_t width = round_up_division(source->width, factor);
    const int64_t channels = source->channels == 3 || source->channels == 4 ? 3 : 1;
    sample->height = height;
    sample->width = width;
    sample->channels = channels;
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

/* Insert the misclassified samples of a batch in order; drop the last ones of a full list. */
static void wrong_add(struct pictures *pictures, const struct batch *batch,
                      const int32_t *predicted, const float *probabilities)
{
    const struct image_source *source = &pictures->source;
    const int64_t bytes = source->channels * source->height * source->width;
    const int64_t classes = pictures->session->model->classes;
    struct wrong_sample *list = pictures->wrong;
    for (int64_t i = 0; i < batch->count && source->type == DATASET_UINT8; i++) {
        struct wrong_sample sample = {
            .key = {probabilities[i * classes + predicted[i]], batch->records[i]},
            .label = batch->labels[i],
            .predicted = predicted[i]};
        int place = pictures->count;
        while (place > 0 && key_precedes(sample.key, list[place - 1].key))
            place--;
        if (sample.label == sample.predicted || !(sample.key.probability >= 0) ||
            place == WRONG_SAMPLES)
            continue;
        pictures->count += pictures->count < WRONG_SAMPLES;
        memmove(&list[place + 1], &list[place],
                (size_t)(pictures->count - place - 1) * sizeof *list);
        list[place] = sample;
        thumbnail_make(&list[place], source, batch->pixels + i * bytes);
    }
}

/* Collective. Replace the list by that of all ranks: gather what orders the samples, and keep those
 * of this rank that are in the first places. */
static void wrong_gather(struct pictures *pictures, struct comm *world)
{
    struct wrong_key *keys = allocate((size_t)world->size * WRONG_SAMPLES, sizeof *keys);
    struct wrong_sample *all = allocate(WRONG_SAMPLES, sizeof *all);
    for (int i = 0; i < WRONG_SAMPLES; i++)
        keys[world->rank * WRONG_SAMPLES + i] =
            i < pictures->count ? pictures->wrong[i].key : (struct wrong_key){.probability = -1};
    comm_all_gather(world, keys, WRONG_SAMPLES * (int64_t)sizeof *keys, COMM_BYTE);
    for (pictures->count = 0; pictures->count < WRONG_SAMPLES; pictures->count++) {
        int best = 0;
        for (int i = 1; i < world->size * WRONG_SAMPLES; i++)
            if (key_precedes(keys[i], keys[best]))
                best = i;
        if (keys[best].probability < 0)
            break;
        if (best / WRONG_SAMPLES == world->rank)
            all[pictures->count] = pictures->wrong[best % WRONG_SAMPLES];
        keys[best].probability = -1;
    }
    free(keys);
    free(pictures->wrong);
    pictures->wrong = all;
}

static json_t *wrong_to_json(const struct dataset *dataset, const struct wrong_sample *sample)
{
    json_t *object = json_object();
    char name[1024];
    char *png = image_png_text(sample->pixels, sample->height, sample->width, sample->channels);
    if (dataset->format->name_record != NULL)
        dataset->format->name_record(dataset, sample->key.record, name, sizeof name);
    else
        snprintf(name, sizeof name, "record %u", (unsigned)sample->key.record);
    value_put(object, "name", value_name(name));
    value_put(object, "class", json_integer(sample->label));
    value_put(object, "predicted", json_integer(sample->predicted));
    value_put(object, "probability", value_number((double)sample->key.probability));
    value_put(object, "png", value_name(png));
    free(png);
    return object;
}

/* ---- planes of targets */

/* Set the colour of a value in [0, 1], of matplotlib's viridis or of blue, white and red. NaN is
 * grey. */
static void colour_set(uint8_t pixel[3], double value, bool is_error)
{
    static const uint8_t maps[2][5][3] = {
        {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}},
        {{33, 102, 172}, {146, 197, 222}, {247, 247, 247}, {244, 165, 130}, {178, 24, 43}}};
    const double at = 4 * fmin(fmax(value, 0), 1);
    const int step = isnan(value) || at >= 4 ? 3 : (int)at;
    for (int i = 0; i < 3; i++) {
        const uint8_t *low = maps[is_error][step], *high = maps[is_error][step + 1];
        pixel[i] =
            isnan(value) ? MISSING : (uint8_t)lround(low[i] + (at - step) * (high[i] - low[i]));
    }
}

/* Draw every step-th value of a plane whose rows have `row` values. */
static void panel_draw(struct plane_sample *sample, const float *plane, enum panel panel,
                       int64_t row, int64_t step)
{
    const int64_t height = sample->height, width = (sample->width + GAP) / PANELS - GAP;
    const bool is_error = panel == PANEL_ERROR;
    const double low = is_error ? -sample->error : sample->low;
    const double range = is_error ? 2 * sample->error : sample->high - sample->low;
    for (int64_t i = 0; i < height * width; i++) {
        const int64_t y = i / width, x = i % width;
        const double value = (double)plane[y * step * row + x * step];
        colour_set(sample->pixels + 3 * (y * sample->width + panel * (width + GAP) + x),
                   range > 0 ? (value - low) / range : value * 0 + 0.5, is_error);
    }
}

/* Draw the planes, of `size` values each. planes[PANEL_INPUT]: or NULL. classes: of pixels, or 0 */
static void sample_draw(struct plane_sample *sample, const float *const planes[PANELS],
                        struct image_size size, int64_t classes)
{
    const int64_t step = round_up_division(larger(size.height, size.width), PLANE_SIDE);
    sample->low = classes > 0 ? 0 : INFINITY;
    sample->high = classes > 0 ? (double)classes - 1 : -INFINITY;
    sample->error = 0;
    for (int64_t i = 0; i < size.height * size.width; i++) {
        const double target = (double)planes[PANEL_TARGET][i];
        if (classes == 0 && isfinite(target)) {
            sample->low = fmin(sample->low, target);
            sample->high = fmax(sample->high, target);
        }
        if (isfinite(planes[PANEL_ERROR][i]))
            sample->error = fmax(sample->error, fabs((double)planes[PANEL_ERROR][i]));
    }
    sample->has_input = planes[PANEL_INPUT] != NULL;
    sample->height = round_up_division(size.height, step);
    sample->width = PANELS * (round_up_division(size.width, step) + GAP) - GAP;
    memset(sample->pixels, WHITE, sizeof sample->pixels);
    for (int i = 0; i < PANELS; i++)
        if (planes[i] != NULL)
            panel_draw(sample, planes[i], i, size.width, step);
}

/* Return which of the pictures a sample of the split is in, -1 if in none. They are spread over the
 * split. */
static int64_t picture_of(int64_t position, int64_t count)
{
    const int64_t picture = round_up_division(PLANE_SAMPLES * position, count);
    return picture < PLANE_SAMPLES && picture * count / PLANE_SAMPLES == position ? picture : -1;
}

/* Copy the first channel of a sample, scaled to the range of the classes. */
static void input_scale(const struct batch *batch, bool is_float, int64_t i, int64_t classes,
                        float *input, int64_t pixels)
{
    const uint8_t *bytes = batch->pixels + i * batch->record_bytes;
    float low = INFINITY, high = -INFINITY;
    for (int64_t p = 0; p < pixels; p++) {
        input[p] = is_float ? ((const float *)(const void *)bytes)[p] : (float)bytes[p];
        low = fminf(low, input[p]);
        high = fmaxf(high, input[p]);
    }
    for (int64_t p = 0; p < pixels; p++)
        input[p] = high > low ? (input[p] - low) / (high - low) * (float)(classes - 1) : 0;
}

static void planes_add(struct pictures *pictures, const struct batch *batch,
                       const float *predictions)
{
    const struct dataset *dataset = pictures->dataset;
    const struct model *model = pictures->session->model;
    const int64_t pixels = model->output.height * model->output.width;
    const int64_t classes = dataset->target_is_class ? model->classes : 0;
    const int64_t first = pictures->evaluated + batch->position;
    float *prediction = allocate((size_t)(3 * pixels), sizeof *prediction);
    float *difference = prediction + pixels, *input = difference + pixels;
    for (int64_t i = 0; i < batch->count; i++) {
        const int64_t picture = picture_of(first + i, dataset->count);
        if (picture >= 0 && classes > 0)
            input_scale(batch, dataset->type == DATASET_FLOAT32, i, classes, input, pixels);
        for (int64_t k = 0; picture >= 0 && k < pictures->shown; k++) {
            struct plane_sample *sample = &pictures->planes[picture * pictures->shown + k];
            const float *target = batch_targets(batch, i) + k * pixels;
            const float *output = predictions + (i * model->classes + k) * pixels;
            for (int64_t p = 0; p < pixels; p++) {
                prediction[p] =
                    classes > 0 ? (float)pixel_class(output + p, classes, pixels) : output[p];
                difference[p] = prediction[p] - target[p];
                if (classes > 0 && !isnan(difference[p]))
                    difference[p] = difference[p] != 0;
            }
            sample->record = batch->records[i];
            sample->output = k;
            const float *shown = classes > 0 ? input : batch_persistence(batch, dataset, i, k);
            sample_draw(sample, (const float *[]){shown, target, prediction, difference},
                        model->output, classes);
        }
    }
    free(prediction);
}

static json_t *plane_to_json(const struct dataset *dataset, const struct plane_sample *sample)
{
    char name[OUTPUT_NAME];
    char *png = image_png_text(sample->pixels, sample->height, sample->width, 3);
    const double origin = dataset->target_origin[sample->output];
    evaluation_output_name(dataset, sample->output, name);
    json_t *object =
        json_pack("{s:I, s:o, s:b, s:o, s:o, s:o, s:s}", "record", (json_int_t)sample->record,
                  "output", value_name(name), "has_input", (int)sample->has_input, "low",
                  value_number(origin + sample->low), "high", value_number(origin + sample->high),
                  "error", value_number(sample->error), "png", png);
    free(png);
    return object;
}

/* ---- both */

void pictures_visit(void *self, const struct batch *batch, const int32_t *predicted,
                    const float *predictions, struct error *error)
{
    struct pictures *pictures = self;
    if (error->kind == ERROR_NONE && pictures->wrong != NULL)
        wrong_add(pictures, batch, predicted, predictions);
    if (error->kind == ERROR_NONE && pictures->planes != NULL)
        planes_add(pictures, batch, predictions);
    pictures->evaluated += batch->global_count;
}

void pictures_write(struct pictures *pictures, const struct run_folder *folder, const char *split,
                    struct error *error)
{
    const bool has_planes = pictures->planes != NULL;
    if (!has_planes && pictures->wrong == NULL)
        return;
    struct comm *world = pictures->session->world;
    if (!has_planes)
        wrong_gather(pictures, world);
    const int64_t count = has_planes ? PLANE_SAMPLES * pictures->shown : pictures->count;
    const size_t bytes = has_planes ? sizeof *pictures->planes : sizeof *pictures->wrong;
    comm_all_reduce(world, has_planes ? (void *)pictures->planes : pictures->wrong,
                    count * (int64_t)(bytes / sizeof(int64_t)), COMM_INT64, COMM_SUM);
    if (world->rank != 0 || error->kind != ERROR_NONE)
        return;
    json_t *object = json_object(), *samples = json_array();
    for (int64_t i = 0; i < count; i++)
        if (!has_planes)
            value_append(samples, wrong_to_json(pictures->dataset, &pictures->wrong[i]));
        else if (pictures->planes[i].height > 0)
            value_append(samples, plane_to_json(pictures->dataset, &pictures->planes[i]));
    value_put(object, "split", value_text(split));
    value_put(object, "samples", samples);
    char *text = value_to_text(object);
    error_defer(
        run_folder_write(folder, has_planes ? "planes.json" : "misclassified.json", text, error));
    free(text);
}
