// SPDX-License-Identifier: BSD-3-Clause
/* The weights of classes, labels and outputs in the loss: train.weights. */
#include "train/session.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "base/text.h"
#include "device/exact_sum.h"
#include "image/augment.h"
#include "options/option.h"

/* Bytes of an item, a name and all names in a message. */
enum { ITEM_SHOWN = 100, NAME_SHOWN = 100, NAMES_SHOWN = 1500 };

bool loss_weights_are_set(const struct options *options)
{
    return options->train.weights[0] != '\0' && strcasecmp(options->train.weights, "auto") != 0;
}

bool loss_weights_are_balanced(const struct options *options)
{
    return strcasecmp(options->train.weights, "balanced") == 0;
}

/* Return the names of the classes or of the outputs; NULL: not known. */
static char *const *names_of(const struct options *options, const struct dataset *dataset)
{
    return options->data.task == TASK_REGRESSION || dataset->class_name == NULL
               ? dataset->target_name
               : dataset->class_name;
}

/* Set the error of an item of train.weights, with a list of the names. Return false. */
static bool item_refuse(const struct options *options, const struct dataset *dataset,
                        const char *item, const char *fault, struct error *error)
{
    char *const *names = names_of(options, dataset);
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    int64_t listed = 0;
    for (; listed < dataset->classes && ftell(stream) < NAMES_SHOWN; listed++)
        fprintf(stream, "%s%.*s", listed > 0 ? ", " : "", NAME_SHOWN, names[listed]);
    OWNED char *known = text_stream_close(&text);
    return error_set(error, ERROR_USAGE, "train.weights=%.*s: %s; the names are %s%s",
                     (int)smaller((int64_t)strcspn(item, ","), ITEM_SHOWN), item, fault, known,
                     listed < dataset->classes ? ", ..." : "");
}

/* Return the length of the name before the colon of an item if it is name `i`, else 0. The name of
 * an output may be shortened to its variable, or before a later space or @. */
static int64_t name_length(const struct dataset *dataset, char *const *names, int64_t i,
                           const char *item)
{
    const char *name = names[i];
    int64_t length = 0;
    while (name[length] != '\0' && name[length] == item[length])
        length++;
    const bool ends = name[length] == '\0' ||
                      (names == dataset->target_name && length >= dataset->variable_bytes[i] &&
                       strchr(" @", name[length]) != NULL);
    return ends && item[length] == ':' ? length : 0;
}

/* Read a number and the separator after it. */
static bool weight_read(const char *text, float *weight, const char **next)
{
    double value;
    char *end;
    if (!option_read_decimal(text, &value, &end) || value < 0)
        return false;
    *weight = (float)value;
    *next = end + strspn(end, " ,");
    return **next == '\0' || memchr(end, ',', (size_t)(*next - end)) != NULL;
}

static bool named_read(const struct options *options, const struct dataset *dataset, float *weights,
                       struct error *error)
{
    const int64_t count = smaller(options->model.classes, dataset->classes);
    char *const *names = names_of(options, dataset);
    OWNED int64_t *given = allocate((size_t)count, sizeof *given); /* length of the name; 0: none */
    const char *next, *item = options->train.weights + strspn(options->train.weights, " ,");
    for (; *item != '\0'; item = next) {
        int64_t length = 0;
        float weight;
        for (int64_t i = 0; i < count; i++)
            length = larger(length, name_length(dataset, names, i, item));
        if (length == 0)
            return item_refuse(options, dataset, item, "it must be NAME:NUMBER with a known name",
                               error);
        if (!weight_read(item + length + 1, &weight, &next))
            return item_refuse(options, dataset, item,
                               "the weight must be a number of at least 0, as in NAME:2", error);
        for (int64_t i = 0; i < count; i++) {
            if (name_length(dataset, names, i, item) != length || given[i] > length)
                continue;
            if (given[i] == length)
                return item_refuse(options, dataset, item, "its name occurs twice", error);
            given[i] = length;
            weights[i] = weight;
        }
    }
    return true;
}

bool loss_weights_read(const struct options *options, const struct dataset *dataset, float *weights,
                       struct error *error)
{
    const int64_t count = options->model.classes;
    const char *next, *text = options->train.weights;
    double sum = 0;
    int64_t numbers = 0;
    float weight;
    const bool is_list = weight_read(text, &weight, &next);
    for (int64_t i = 0; i < count; i++)
        weights[i] = 1;
    if (!is_list && !loss_weights_are_balanced(options) && names_of(options, dataset) != NULL &&
        !named_read(options, dataset, weights, error))
        return false;
    for (; is_list && weight_read(text, &weight, &next); text = next, numbers++)
        if (numbers < count)
            weights[numbers] = weight;
    if (is_list && (*text != '\0' || numbers != count))
        return error_set(error, ERROR_USAGE,
                         "train.weights=%.200s: it must have a number of at least 0 for each of "
                         "the %lld outputs; correct the list, or set NAME:NUMBER",
                         options->train.weights, (long long)count);
    for (int64_t i = 0; i < count; i++)
        sum += (double)weights[i];
    return (sum > FLT_MIN && sum < FLT_MAX) ||
           error_set(error, ERROR_USAGE,
                     "train.weights: the sum is 0 or too large for float32; set smaller weights, "
                     "at least one above 0");
}

/* Set the weights of train.weights=balanced, and log those of the first classes. */
static void weights_balance(const struct dataset *dataset, const int64_t *samples, float *weights)
{
    enum { SHOWN = 20 };
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    double occurring = 0;
    for (int64_t c = 0; c < dataset->classes; c++)
        occurring += samples[c] > 0;
    for (int64_t c = 0; c < dataset->classes; c++) {
        if (samples[c] > 0)
            weights[c] = (float)((double)dataset->count / (occurring * (double)samples[c]));
        if (c < SHOWN)
            fprintf(stream, "%s%.*s %.4g", c > 0 ? ", " : "", NAME_SHOWN, dataset->class_name[c],
                    (double)weights[c]);
    }
    OWNED char *shown = text_stream_close(&text);
    text_remove_control(shown);
    log_info("train.weights=balanced: %s%s", shown, dataset->classes > SHOWN ? ", ..." : "");
}

static bool labels_weigh(const struct options *options, const struct dataset *dataset,
                         float *weights, struct error *error)
{
    OWNED int64_t *samples = allocate((size_t)options->model.classes, sizeof *samples);
    double sum = 0;
    for (int64_t i = 0; i < dataset->count; i++)
        samples[dataset_label(dataset, i)]++;
    if (loss_weights_are_balanced(options))
        weights_balance(dataset, samples, weights);
    for (int64_t c = 0; c < options->model.classes; c++)
        sum += (double)samples[c] * (double)weights[c];
    if (!(sum > 0))
        return error_set(error, ERROR_USAGE,
                         "train.weights: the classes of all training samples have the weight 0; "
                         "set one above 0");
    const int exponent = (int)rint(log2(sum / (double)dataset->count));
    for (int64_t c = 0; c < options->model.classes && !mix_is_asked_for(options); c++)
        weights[c] = (float)loss_round(ldexp((double)weights[c], -exponent));
    return true;
}

bool loss_weights_set(struct session *session, const struct dataset *dataset, struct error *error)
{
    const struct options *options = &session->options;
    if (!loss_weights_are_set(options))
        return true;
    float *weights = allocate((size_t)options->model.classes, sizeof *weights);
    session->class_weights = weights;
    return loss_weights_read(options, dataset, weights, error) &&
           (dataset->target.count > 0 || labels_weigh(options, dataset, weights, error));
}
