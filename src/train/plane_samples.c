// SPDX-License-Identifier: BSD-3-Clause
#include "train/plane_samples.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_value.h"
#include "data/image_file.h"
#include "runlog/class_counts.h"

enum { GAP = 4, WHITE = 255, MISSING = 192 };

/* Planes of one output. NULL: it has no such plane. */
struct planes {
    const float *input, *target;
    float *prediction, *error;
    int64_t height, width;
};

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

/* Draw every step-th value of a plane. */
static void panel_draw(struct plane_sample *sample, const struct planes *planes, const float *plane,
                       int panel, int64_t step)
{
    const int64_t height = sample->height, width = (sample->width + GAP) / PLANE_PANELS - GAP;
    const bool is_error = plane == planes->error;
    const double low = is_error ? -sample->error : sample->low;
    const double range = is_error ? 2 * sample->error : sample->high - sample->low;
    for (int64_t i = 0; i < height * width; i++) {
        const int64_t y = i / width, x = i % width;
        const double value = (double)plane[y * step * planes->width + x * step];
        colour_set(sample->pixels + 3 * (y * sample->width + panel * (width + GAP) + x),
                   range > 0 ? (value - low) / range : value * 0 + 0.5, is_error);
    }
}

/* Set the prediction and error of a segmentation's classes. */
static void classes_set(struct planes *planes, int64_t classes, const float *logits)
{
    const int64_t pixels = planes->height * planes->width;
    for (int64_t i = 0; i < pixels; i++) {
        const int64_t best = pixel_class(logits + i, classes, pixels);
        planes->prediction[i] = (float)best;
        planes->error[i] = isnan(planes->target[i]) ? NAN : (float)best != planes->target[i];
    }
}

static void numbers_set(struct planes *planes, const float *predictions)
{
    for (int64_t i = 0; i < planes->height * planes->width; i++) {
        planes->prediction[i] = predictions[i];
        planes->error[i] = predictions[i] - planes->target[i];
    }
}

static void sample_draw(struct plane_sample *sample, const struct planes *planes, int64_t classes)
{
    const float *const panels[PLANE_PANELS] = {planes->input, planes->target, planes->prediction,
                                               planes->error};
    const int64_t longest = planes->height > planes->width ? planes->height : planes->width;
    const int64_t step = (longest + PLANE_SIDE - 1) / PLANE_SIDE;
    sample->low = classes > 0 ? 0 : INFINITY;
    sample->high = classes > 0 ? (double)classes - 1 : -INFINITY;
    sample->error = 0;
    for (int64_t i = 0; i < planes->height * planes->width; i++) {
        if (classes == 0 && isfinite(planes->target[i])) {
            sample->low = fmin(sample->low, (double)planes->target[i]);
            sample->high = fmax(sample->high, (double)planes->target[i]);
        }
        if (isfinite(planes->error[i]))
            sample->error = fmax(sample->error, fabs((double)planes->error[i]));
    }
    sample->has_input = planes->input != NULL;
    sample->height = (planes->height + step - 1) / step;
    sample->width = PLANE_PANELS * ((planes->width + step - 1) / step + GAP) - GAP;
    memset(sample->pixels, WHITE, sizeof sample->pixels);
    for (int i = 0; i < PLANE_PANELS; i++)
        if (panels[i] != NULL)
            panel_draw(sample, planes, panels[i], i, step);
}

void plane_samples_begin(struct plane_samples *list, const struct session *session,
                         const struct dataset *dataset)
{
    list->session = session;
    list->dataset = dataset;
    list->count = 0;
    if (list->sample == NULL && session->mesh.world->rank == 0)
        list->sample = calloc((size_t)PLANE_SAMPLES * PLANE_OUTPUTS, sizeof *list->sample);
}

void plane_samples_visit(void *self, const struct batch *batch, const int32_t *predicted,
                         const float *predictions, struct error *error)
{
    struct plane_samples *list = self;
    const struct dataset *dataset = list->dataset;
    const struct model *model = list->session->model;
    const int64_t outputs = dataset->target.count,
                  pixels = model->output.height * model->output.width;
    const int64_t shown = outputs < PLANE_OUTPUTS ? outputs : PLANE_OUTPUTS;
    (void)predicted;
    if (list->sample == NULL || error->kind != ERROR_NONE || list->count >= PLANE_SAMPLES * shown)
        return;
    float *buffer = calloc((size_t)(2 * pixels), sizeof *buffer);
    if (buffer == NULL)
        return; /* the report has no pictures */
    for (int64_t i = 0; i < batch->count && list->count < PLANE_SAMPLES * shown; i++)
        for (int64_t k = 0; k < shown; k++) {
            struct plane_sample *sample = &list->sample[list->count++];
            struct planes planes = {.input = batch_persistence(batch, dataset, i, k),
                                    .target = batch_targets(batch, i) + k * pixels,
                                    .prediction = buffer,
                                    .error = buffer + pixels,
                                    .height = model->output.height,
                                    .width = model->output.width};
            if (dataset->target_is_class)
                classes_set(&planes, model->classes, predictions + i * model->classes * pixels);
            else
                numbers_set(&planes, predictions + (i * outputs + k) * pixels);
            sample->record = batch->records[i];
            sample->output = k;
            sample_draw(sample, &planes, dataset->target_is_class ? model->classes : 0);
        }
    free(buffer);
}

static json_t *sample_to_json(const struct plane_samples *list, const struct plane_sample *sample)
{
    json_t *object = json_object();
    char name[OUTPUT_NAME];
    char *png = image_png_text(sample->pixels, sample->height, sample->width, 3);
    evaluation_output_name(list->dataset, sample->output, name);
    value_put(object, "record", json_integer(sample->record));
    value_put(object, "output", value_name(name));
    value_put(object, "has_input", json_boolean(sample->has_input));
    value_put(object, "low", value_number(sample->low));
    value_put(object, "high", value_number(sample->high));
    value_put(object, "error", value_number(sample->error));
    value_put(object, "png", value_name(png));
    free(png);
    return object;
}

void plane_samples_write(const struct plane_samples *list, const struct run_folder *folder,
                         const char *split, struct error *error)
{
    if (list->count == 0)
        return;
    json_t *object = json_object(), *samples = json_array();
    for (int i = 0; i < list->count; i++)
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
