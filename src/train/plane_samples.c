// SPDX-License-Identifier: BSD-3-Clause
#include "train/plane_samples.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/integer.h"
#include "core/json_value.h"
#include "data/image_file.h"
#include "runlog/metrics.h"

enum { GAP = 4, WHITE = 255, MISSING = 192 };
enum panel { PANEL_INPUT, PANEL_TARGET, PANEL_PREDICTION, PANEL_ERROR, PANELS };

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

void plane_samples_begin(struct plane_samples *list, const struct session *session,
                         const struct dataset *dataset)
{
    free(list->sample);
    *list = (struct plane_samples){.session = session, .dataset = dataset};
    list->shown = smaller(dataset->target.count, PLANE_OUTPUTS);
    list->sample = allocate((size_t)(PLANE_SAMPLES * list->shown), sizeof *list->sample);
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

void plane_samples_visit(void *self, const struct batch *batch, const int32_t *predicted,
                         const float *predictions, struct error *error)
{
    struct plane_samples *list = self;
    const struct dataset *dataset = list->dataset;
    const struct model *model = list->session->model;
    const int64_t pixels = model->output.height * model->output.width;
    const int64_t classes = dataset->target_is_class ? model->classes : 0;
    const int64_t first = list->evaluated + batch->position;
    (void)predicted;
    list->evaluated += batch->global_count;
    if (error->kind != ERROR_NONE)
        return;
    float *prediction = allocate((size_t)(3 * pixels), sizeof *prediction);
    float *difference = prediction + pixels, *input = difference + pixels;
    for (int64_t i = 0; i < batch->count; i++) {
        const int64_t picture = picture_of(first + i, dataset->count);
        if (picture >= 0 && classes > 0)
            input_scale(batch, dataset->type == DATASET_FLOAT32, i, classes, input, pixels);
        for (int64_t k = 0; picture >= 0 && k < list->shown; k++) {
            struct plane_sample *sample = &list->sample[picture * list->shown + k];
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

static json_t *sample_to_json(const struct plane_samples *list, const struct plane_sample *sample)
{
    char name[OUTPUT_NAME];
    char *png = image_png_text(sample->pixels, sample->height, sample->width, 3);
    const double origin = list->dataset->target_origin[sample->output];
    evaluation_output_name(list->dataset, sample->output, name);
    json_t *object =
        json_pack("{s:I, s:o, s:b, s:o, s:o, s:o, s:s}", "record", (json_int_t)sample->record,
                  "output", value_name(name), "has_input", (int)sample->has_input, "low",
                  value_number(origin + sample->low), "high", value_number(origin + sample->high),
                  "error", value_number(sample->error), "png", png);
    free(png);
    return object;
}

void plane_samples_write(const struct plane_samples *list, const struct run_folder *folder,
                         const char *split, struct error *error)
{
    const int64_t count = PLANE_SAMPLES * list->shown;
    if (list->sample == NULL)
        return;
    /* A sample is zero on all ranks but one. */
    comm_all_reduce(list->session->mesh.world, list->sample,
                    count * (int64_t)(sizeof *list->sample / sizeof(int64_t)), COMM_INT64,
                    COMM_SUM);
    if (list->session->mesh.world->rank != 0 || error->kind != ERROR_NONE)
        return;
    json_t *object = json_object(), *samples = json_array();
    for (int64_t i = 0; i < count; i++)
        if (list->sample[i].height > 0)
            value_append(samples, sample_to_json(list, &list->sample[i]));
    value_put(object, "split", value_text(split));
    value_put(object, "samples", samples);
    char *text = value_to_text(object);
    error_defer(run_folder_write(folder, "planes.json", text, error));
    free(text);
}

void plane_samples_free(struct plane_samples *list)
{
    free(list->sample);
    list->sample = NULL;
}
