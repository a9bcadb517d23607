// SPDX-License-Identifier: BSD-3-Clause
/* All values of the object are strings, as safetensors requires; numbers and lists are JSON in
 * strings. Options of the model's shape and of evaluation have the names and values of a deck. */
#include "checkpoint/model_metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/weights_file.h"
#include "config/option.h"
#include "config/options.h"
#include "core/allocate.h"
#include "core/file.h"
#include "core/json_value.h"
#include "core/text.h"
#include "core/version.h"
#include "data/crop.h"
#include "data/grid.h"
#include "model/model.h"
#include "model/vit.h"

/* Options without a key of timm (those of architecture, size, channels and classes have one). */
static const char *const option_names[] = {
    "model.patch",     "model.dim",      "model.depth",       "model.heads",
    "model.mlp_ratio", "model.qkv_bias", "model.qk_norm",     "model.class_token",
    "model.registers", "model.position", "model.embed_norm",  "model.head",
    "model.pool",      "model.fc_norm",  "model.layer_scale", "model.mlp",
    "model.gelu",      "model.width",    "eval.resize",       "eval.resize_to",
    "eval.crop",       "eval.crop_pad",  "data.exif",         "data.format",
    "data.x",          "data.y",         "data.order",        "data.join",
    "data.transform",  "data.task",      "train.loss",        "train.ignore_label",
    "data.coordinates"};

static bool is_of_arrays(const struct data_options *data)
{
    return strcmp(data->format, "arrays") == 0;
}

/* Copy the options that state what a sample of arrays is. */
static void data_copy(struct data_options *to, const struct data_options *from)
{
    snprintf(to->format, sizeof to->format, "%s", from->format);
    snprintf(to->x, sizeof to->x, "%s", from->x);
    snprintf(to->y, sizeof to->y, "%s", from->y);
    snprintf(to->transform, sizeof to->transform, "%s", from->transform);
    to->order = from->order;
    to->join = from->join;
    to->coordinates = from->coordinates;
    to->task = from->task;
}

/* Set the members for data: of arrays all, of images only data.exif. */
static void data_take(struct model_metadata *metadata, const struct options *options)
{
    struct options defaults;
    options_default(&defaults);
    metadata->data = defaults.data;
    metadata->loss = defaults.train.loss;
    metadata->ignore_label = defaults.train.ignore_label;
    metadata->data.exif = options->data.exif;
    if (is_of_arrays(&options->data)) {
        data_copy(&metadata->data, &options->data);
        metadata->loss = options->train.loss;
        metadata->ignore_label = options->train.ignore_label;
    }
}

/* ---- writing */

/* Put values in fp32, so that a list that is read back and put again has the same text, except
 * means that are too far from 0 for their standard deviation (std; or NULL). */
static void put_list(json_t *object, const char *key, const struct channel_values *list,
                     const struct channel_values *std)
{
    struct text_stream list_text;
    if (list->count == 0)
        return;
    FILE *stream = text_stream_open(&list_text);
    for (int i = 0; i < list->count; i++) {
        char number[32];
        const double value = list->value[i];
        const bool is_double =
            std != NULL && i < std->count && statistics_mean_is_far(value, std->value[i]);
        text_shortest_decimal(is_double ? value : (double)(float)value, !is_double, number,
                              sizeof number);
        fprintf(stream, "%c%s", i == 0 ? '[' : ',', number);
    }
    fputc(']', stream);
    char *text = text_stream_close(&list_text);
    value_put(object, key, json_string(text));
    free(text);
}

/* Put a value as JSON in a string; frees the value. */
static void put_as_text(json_t *object, const char *key, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    ENSURE_MEMORY(text != NULL, "no memory for metadata");
    value_put(object, key, json_string(text));
    free(text);
    json_decref(value);
}

static void put_names(json_t *object, const struct model_metadata *metadata)
{
    json_t *names = json_array();
    for (int64_t i = 0; i < metadata->class_count; i++)
        value_append(names, value_name(metadata->class_name[i]));
    put_as_text(object, "label_names", names);
}

static void put_rows(json_t *object, const struct model_metadata *metadata)
{
    json_t *weights = json_array();
    for (int64_t y = 0; y < metadata->rows; y++)
        value_append(weights, json_real((double)metadata->row_weights[y]));
    put_as_text(object, "row_weights", weights);
}

/* Put the options that differ from their defaults. */
static void put_options(json_t *object, const struct model_metadata *metadata)
{
    struct options defaults, options;
    char value[OPTION_TEXT], preset[OPTION_TEXT];
    options_default(&defaults);
    options = defaults;
    options.model = metadata->model;
    options.eval = metadata->eval;
    options.data = metadata->data;
    options.train.loss = metadata->loss;
    options.train.ignore_label = metadata->ignore_label;
    for (size_t i = 0; i < sizeof option_names / sizeof *option_names; i++) {
        options_value_text(&options, option_names[i], value, sizeof value);
        options_value_text(&defaults, option_names[i], preset, sizeof preset);
        if (strcmp(value, preset) != 0)
            value_put(object, option_names[i], json_string(value));
    }
}

static char *metadata_to_text(const struct model_metadata *metadata)
{
    const struct model_options *model = &metadata->model;
    const json_int_t height = model->image, channels = model->channels, classes = model->classes;
    const json_int_t width = model->image_width;
    json_t *object = json_pack("{s:s}", "format", "pt");
    if (metadata->program[0] != '\0')
        value_put(object, "program", value_name(metadata->program));
    if (model->name[0] != '\0')
        value_put(object, "architecture", value_name(model->name));
    if (classes > 0)
        put_as_text(object, "num_classes", json_integer(classes));
    if (height > 0 && channels > 0)
        put_as_text(object, "input_size", json_pack("[I,I,I]", channels, height, width));
    const struct value_statistics *statistics = &metadata->statistics;
    put_list(object, "mean", &statistics->mean, &statistics->std);
    put_list(object, "std", &statistics->std, NULL);
    put_list(object, "target_mean", &statistics->target_mean, &statistics->target_std);
    put_list(object, "target_std", &statistics->target_std, NULL);
    if (metadata->interpolation[0] != '\0')
        value_put(object, "interpolation", value_name(metadata->interpolation));
    put_options(object, metadata);
    if (metadata->class_count > 0)
        put_names(object, metadata);
    if (metadata->rows > 0)
        put_rows(object, metadata);
    if (metadata->grid != NULL)
        value_put(object, "grid", value_text(metadata->grid));
    char *text = json_dumps(object, JSON_COMPACT);
    ENSURE_MEMORY(text != NULL, "no memory for metadata");
    json_decref(object);
    return text;
}

/* Set resize and crop, unless images are only resized to squares of the model's size, which is the
 * default. */
static void describe_eval(struct eval_options *eval, const struct options *options,
                          struct image_size image)
{
    struct crop crop;
    struct error unusable = {0};
    if (!crop_open(&crop, options, true, image, false, &unusable) ||
        (crop.take == CROP_NONE && crop.resize.height == image.height))
        return;
    eval->resize = crop.resize.height;
    eval->resize_to = crop.resize_to;
    eval->crop = crop.take;
    eval->crop_pad = crop.pad;
}

char *model_metadata_describe(const struct options *options, const struct model *model,
                              const struct dataset *dataset)
{
    const struct dataset none = {0}, *data = dataset != NULL ? dataset : &none;
    const bool bicubic = options->augment.interpolation == INTERPOLATION_BICUBIC;
    struct error unusable = {0};
    struct model_metadata metadata = {.model = options->model,
                                      .class_name = data->class_name,
                                      .class_count = data->class_name != NULL ? data->classes : 0,
                                      .row_weights = data->row_weights,
                                      .rows = data->row_weights != NULL ? model->output.height : 0,
                                      .grid = data->grid != NULL ? grid_write(data->grid) : NULL};
    snprintf(metadata.interpolation, sizeof metadata.interpolation, "%s",
             bicubic ? "bicubic" : "bilinear");
    snprintf(metadata.program, sizeof metadata.program, "vittrain %s", version_number);
    metadata.model.image = model->image.height;
    metadata.model.image_width = model->image.width;
    metadata.model.channels = model->channels;
    metadata.model.classes = model->classes;
    metadata.statistics = model->statistics;
    data_take(&metadata, options);
    if (!model_normalisation(model, options, &metadata.statistics.mean, &metadata.statistics.std,
                             &unusable))
        metadata.statistics = (struct value_statistics){.mean = {.count = 0}};
    describe_eval(&metadata.eval, options, model->image);
    char *text = metadata_to_text(&metadata);
    free(metadata.grid);
    return text;
}

/* ---- parsing */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Return the parsed value of a JSON string, to be freed by the caller; NULL if it is absent. */
static json_t *value_at(const json_t *object, const char *key)
{
    return json_loads(text_at(object, key), JSON_DECODE_ANY, NULL);
}

static bool is_given(const json_t *object, const char *key)
{
    return json_object_get(object, key) != NULL;
}

static void fault_add(struct model_metadata *metadata, const json_t *object, const char *key,
                      const char *expected, const char *option)
{
    int i = 0;
    while (i < METADATA_FAULTS && metadata->fault[i].option != NULL)
        i++;
    if (i == METADATA_FAULTS)
        return;
    metadata->fault[i].option = option;
    snprintf(metadata->fault[i].text, sizeof metadata->fault[i].text, "%s=%.80s must be %.80s", key,
             text_at(object, key), expected);
}

/* Parse one number per channel, or one for all, all above `least`; an invalid list is empty. */
static bool parse_list(const json_t *object, const char *key, double least, int64_t channels,
                       struct channel_values *list)
{
    json_t *array = value_at(object, key);
    const size_t count = json_array_size(array);
    bool good = count > 0 && count <= IMAGE_CHANNELS &&
                (channels == 0 || count == 1 || count == (size_t)channels);
    for (size_t i = 0; good && i < count; i++) {
        list->value[i] = json_number_value(json_array_get(array, i));
        good = json_is_number(json_array_get(array, i)) && list->value[i] > least &&
               isfinite(list->value[i]);
    }
    *list = good ? *list : (struct channel_values){0};
    list->count = good ? (int)count : 0;
    json_decref(array);
    return good || !is_given(object, key);
}

static void parse_preprocessing(const json_t *object, struct model_metadata *metadata)
{
    const int64_t channels = metadata->model.channels;
    if (!parse_list(object, "mean", -INFINITY, channels, &metadata->statistics.mean))
        fault_add(metadata, object, "mean", "one number per channel", "augment.mean");
    if (!parse_list(object, "std", 0, channels, &metadata->statistics.std))
        fault_add(metadata, object, "std", "one number above 0 per channel", "augment.std");
    const int64_t outputs = metadata->model.classes;
    parse_list(object, "target_mean", -INFINITY, outputs, &metadata->statistics.target_mean);
    parse_list(object, "target_std", 0, outputs, &metadata->statistics.target_std);
    snprintf(metadata->interpolation, sizeof metadata->interpolation, "%s",
             text_at(object, "interpolation"));
    if (is_given(object, "interpolation") &&
        model_metadata_interpolation(metadata) == INTERPOLATION_AUTO)
        fault_add(metadata, object, "interpolation", "bilinear or bicubic",
                  "augment.interpolation");
}

static void parse_size(const json_t *object, struct model_metadata *metadata)
{
    json_t *size = value_at(object, "input_size");
    const json_int_t channels = json_integer_value(json_array_get(size, 0));
    const json_int_t height = json_integer_value(json_array_get(size, 1));
    const json_int_t width = json_integer_value(json_array_get(size, 2));
    if (json_array_size(size) == 3 && height > 0 && height <= IMAGE_LARGEST && width > 0 &&
        width <= IMAGE_LARGEST && channels > 0 && channels <= IMAGE_CHANNELS) {
        metadata->model.image = height;
        metadata->model.image_width = width == height ? 0 : width;
        metadata->model.channels = channels;
    } else if (is_given(object, "input_size")) {
        fault_add(metadata, object, "input_size", "[CHANNELS, HEIGHT, WIDTH]", "model.image");
    }
    json_decref(size);
}

static bool are_names(const json_t *names)
{
    const size_t count = json_array_size(names);
    bool good = count > 0 && count <= CLASSES_MOST;
    for (size_t i = 0; good && i < count; i++)
        good = json_is_string(json_array_get(names, i));
    return good;
}

/* timm writes num_classes=0 for a model without a head. */
static void parse_classes(const json_t *object, struct model_metadata *metadata)
{
    json_t *number = value_at(object, "num_classes"), *names = value_at(object, "label_names");
    const json_int_t classes = json_integer_value(number);
    const size_t count = json_array_size(names);
    const bool numbered = json_is_integer(number) && classes >= 0 && classes <= CLASSES_MOST;
    if (numbered)
        metadata->model.classes = classes;
    else if (is_given(object, "num_classes"))
        fault_add(metadata, object, "num_classes", "a number of classes", "model.classes");
    if (is_given(object, "label_names") &&
        (!are_names(names) || (numbered && count != (size_t)classes))) {
        char expected[64];
        if (classes > 0)
            snprintf(expected, sizeof expected, "%lld names", (long long)classes);
        else
            snprintf(expected, sizeof expected, "absent with num_classes=0");
        fault_add(metadata, object, "label_names", numbered ? expected : "names", "model.classes");
        metadata->model.classes = 0;
    } else if (count > 0) {
        metadata->class_name = allocate(count, sizeof *metadata->class_name);
        for (; (size_t)metadata->class_count < count; metadata->class_count++) {
            const json_t *name = json_array_get(names, (size_t)metadata->class_count);
            metadata->class_name[metadata->class_count] = allocate_copy(json_string_value(name));
        }
    }
    json_decref(number);
    json_decref(names);
}

/* In timm, crop_pct is the model's image size divided by the resized size. crop_mode "squash"
 * resizes both sides, "center" the shorter one. */
static void parse_crop(const json_t *object, struct model_metadata *metadata)
{
    json_t *share = value_at(object, "crop_pct");
    const double image = (double)metadata->model.image, part = json_number_value(share);
    const char *mode = text_at(object, "crop_mode");
    const bool squash = strcmp(mode, "squash") == 0;
    const bool good = part > 0 && part <= 1 && floor(image / part) <= IMAGE_LARGEST;
    if (good && image > 0) {
        metadata->eval.resize = (int64_t)floor(image / part);
        metadata->eval.resize_to = squash ? RESIZE_SQUARE : RESIZE_SHORTER;
        metadata->eval.crop = CROP_CENTER;
    }
    if (!good && is_given(object, "crop_pct"))
        fault_add(metadata, object, "crop_pct", "above 0 and at most 1", "eval.resize");
    if (!squash && strcmp(mode, "center") != 0 && is_given(object, "crop_mode")) {
        fault_add(metadata, object, "crop_mode", "center or squash", "eval.resize_to");
        metadata->eval.resize_to = RESIZE_AUTO;
    }
    json_decref(share);
}

/* Invalid row weights are left out; those computed from the data are then used. */
static void parse_rows(const json_t *object, struct model_metadata *metadata)
{
    json_t *weights = value_at(object, "row_weights");
    const size_t count = json_array_size(weights);
    bool good = count > 0 && count <= IMAGE_LARGEST;
    metadata->row_weights = allocate(count, sizeof *metadata->row_weights);
    for (size_t y = 0; good && y < count; y++) {
        metadata->row_weights[y] = (float)json_number_value(json_array_get(weights, y));
        good = metadata->row_weights[y] >= 0 && isfinite(metadata->row_weights[y]);
    }
    metadata->rows = good ? (int64_t)count : 0;
    json_decref(weights);
}

static void parse_options(const json_t *object, struct model_metadata *metadata)
{
    struct options options;
    options_default(&options);
    options.model = metadata->model;
    options.eval = metadata->eval;
    for (size_t i = 0; i < sizeof option_names / sizeof *option_names; i++) {
        struct error unusable = {0};
        char expected[512];
        const struct option_entry *entry = option_find(option_names[i]);
        if (!is_given(object, entry->name) ||
            option_read(entry, "", text_at(object, entry->name), &options, &unusable))
            continue;
        error_clear(&unusable);
        option_describe(entry, expected, sizeof expected);
        fault_add(metadata, object, entry->name, expected, entry->name);
    }
    metadata->model = options.model;
    metadata->eval = options.eval;
    data_take(metadata, &options);
}

void model_metadata_parse(const char *text, struct model_metadata *metadata)
{
    struct options defaults;
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;
    options_default(&defaults);
    *metadata = (struct model_metadata){
        .model = defaults.model, .eval = defaults.eval, .data = defaults.data};
    snprintf(metadata->program, sizeof metadata->program, "%s", text_at(object, "program"));
    snprintf(metadata->model.name, sizeof metadata->model.name, "%s",
             text_at(object, "architecture"));
    parse_size(object, metadata);
    parse_preprocessing(object, metadata);
    parse_crop(object, metadata);
    parse_options(object, metadata);
    parse_classes(object, metadata);
    parse_rows(object, metadata);
    metadata->grid = is_given(object, "grid") ? allocate_copy(text_at(object, "grid")) : NULL;
    json_decref(object);
}

/* ---- checks */

static const struct vit_shape *vit_shape_of(const char *name)
{
    return model_is_vit(name) ? registry_find(name)->shape : NULL;
}

static bool heads_check(const struct model_options *trained, const char *path,
                        const struct model_options *model, struct error *error)
{
    const struct vit_shape *one = vit_shape_of(trained->name), *other = vit_shape_of(model->name);
    if (one == NULL || other == NULL ||
        (trained->dim > 0 ? trained->dim : one->dim) != (model->dim > 0 ? model->dim : other->dim))
        return true;
    const int64_t expected = trained->heads > 0 ? trained->heads : one->heads;
    const int64_t heads = model->heads > 0 ? model->heads : other->heads;
    return heads == expected ||
           error_set(error, ERROR_USAGE,
                     "model.heads is %lld, but %s has weights for %lld heads: "
                     "set model.heads=%lld",
                     (long long)heads, path, (long long)expected, (long long)expected);
}

bool model_metadata_check(const struct model_metadata *metadata, const char *path,
                          const struct options *options, bool trains, struct error *error)
{
    struct options defaults;
    if (registry_find(metadata->model.name) == NULL)
        return true;
    options_default(&defaults);
    for (int i = 0; i < METADATA_FAULTS && metadata->fault[i].option != NULL; i++) {
        const char *option = metadata->fault[i].option;
        char value[OPTION_TEXT], preset[OPTION_TEXT];
        options_value_text(options, option, value, sizeof value);
        options_value_text(&defaults, option, preset, sizeof preset);
        if (strcmp(value, preset) == 0 &&
            !(trains && strncmp(option, "model.", strlen("model.")) == 0))
            return error_set(error, ERROR_CHECKPOINT,
                             "the metadata of %s cannot be used: %s; correct the file or set %s",
                             path, metadata->fault[i].text, option);
    }
    return heads_check(&metadata->model, path, &options->model, error);
}

/* ---- files */

/* Return the members of timm's config.json as an object of strings, or NULL. */
static json_t *config_convert(const char *text)
{
    static const char *const keys[] = {"num_classes",   "input_size", "mean",      "std",
                                       "interpolation", "crop_pct",   "crop_mode", "label_names"};
    json_t *config = json_loads(text, 0, NULL);
    const json_t *details = json_object_get(config, "pretrained_cfg");
    const char *architecture = text_at(config, "architecture");
    json_t *object = architecture[0] != '\0' ? json_pack("{s:s}", "format", "pt") : NULL;
    if (object != NULL)
        value_put(object, "architecture", json_string(architecture));
    for (size_t i = 0; object != NULL && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(config, keys[i]);
        if (value == NULL)
            value = json_object_get(details, keys[i]);
        if (json_is_string(value))
            value_put(object, keys[i], json_incref(value));
        else if (value != NULL)
            put_as_text(object, keys[i], json_incref(value));
    }
    json_decref(config);
    return object;
}

static json_t *config_read(const char *weights)
{
    char path[PATH_MAX];
    const char *slash = strrchr(weights, '/');
    const int folder = slash != NULL ? (int)(slash + 1 - weights) : 0;
    if (snprintf(path, sizeof path, "%.*sconfig.json", folder, weights) >= (int)sizeof path)
        return NULL;
    char *text = text_file_read(path, NULL);
    json_t *object = text != NULL ? config_convert(text) : NULL;
    free(text);
    return object;
}

/* Mark num_classes=0 of a file with a head, which model_metadata_parse then refuses. */
static void head_compare(json_t *object, const struct safetensors_header *header)
{
    static const char *const heads[] = {"head.weight", "fc.weight"};
    char text[64];
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const struct safetensors_entry *head = safetensors_find(header, heads[i]);
        if (head == NULL || head->dimensions == 0 ||
            strcmp(text_at(object, "num_classes"), "0") != 0)
            continue;
        snprintf(text, sizeof text, "0 (but %s has %lld rows)", heads[i],
                 (long long)head->shape[0]);
        value_put(object, "num_classes", json_string(text));
    }
}

static bool safetensors_metadata(const char *path, char **text, struct error *error)
{
    struct safetensors_header header = {.count = 0};
    /* O_NONBLOCK: opening a FIFO must not block. */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    const bool good = safetensors_header_read(descriptor, path, &header, error);
    close(descriptor);
    json_t *object = json_incref(json_object_get(header.json, "__metadata__"));
    if (good && text_at(object, "architecture")[0] == '\0') {
        json_t *config = config_read(path);
        if (config != NULL) {
            json_decref(object);
            object = config;
        }
    }
    if (good && json_is_object(object)) {
        head_compare(object, &header);
        *text = json_dumps(object, JSON_COMPACT);
    }
    json_decref(object);
    safetensors_header_free(&header);
    return good;
}

bool model_metadata_read_text(const char *path, char **text, struct error *error)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    *text = NULL;
    if (!weights_file_check(path, error))
        return false;
    if (text_ends_with(path, ".safetensors"))
        return safetensors_metadata(path, text, error);
    const bool good = checkpoint_file_read(path, &contents, error);
    if (good && contents.metadata != NULL)
        *text = allocate_copy(contents.metadata);
    checkpoint_contents_free(&contents);
    return good;
}

bool model_metadata_read(const char *path, struct comm *world, struct model_metadata *metadata,
                         struct error *error)
{
    char *text = NULL;
    if (world->rank == 0)
        error_defer(model_metadata_read_text(path, &text, error));
    const bool good = comm_agree(world, error);
    char *shared = good ? comm_broadcast_text(world, text != NULL ? text : "", 0) : NULL;
    model_metadata_parse(shared, metadata);
    free(shared);
    free(text);
    return good;
}

enum interpolation_choice model_metadata_interpolation(const struct model_metadata *metadata)
{
    if (strcmp(metadata->interpolation, "bicubic") == 0)
        return INTERPOLATION_BICUBIC;
    return strcmp(metadata->interpolation, "bilinear") == 0 ? INTERPOLATION_BILINEAR
                                                            : INTERPOLATION_AUTO;
}

/* Longer lists than options have are applied by inference_open. */
static void list_apply(const struct channel_values *values, struct option_list *list)
{
    *list = (struct option_list){.count = values->count <= OPTION_LIST ? values->count : 0};
    memcpy(list->value, values->value, (size_t)list->count * sizeof *list->value);
}

void model_metadata_apply(const struct model_metadata *metadata, struct options *options)
{
    struct options defaults;
    if (registry_find(metadata->model.name) == NULL)
        return;
    options_default(&defaults);
    options->model = metadata->model;
    options->eval = metadata->eval;
    options->data.exif = metadata->data.exif;
    if (is_of_arrays(&metadata->data)) {
        data_copy(&options->data, &metadata->data);
        options->train.loss = metadata->loss;
        options->train.ignore_label = metadata->ignore_label;
        options->train.row_weight = metadata->rows > 0 ? ROW_WEIGHT_LATITUDE : ROW_WEIGHT_NONE;
    }
    list_apply(&metadata->statistics.mean, &options->augment.mean);
    list_apply(&metadata->statistics.std, &options->augment.std);
    options->augment.interpolation = (int)model_metadata_interpolation(metadata);
    /* Metadata of this program without a crop: images are resized to squares. */
    options->augment.recipe = metadata->program[0] != '\0' && metadata->eval.crop == CROP_AUTO
                                  ? RECIPE_PLAIN
                                  : RECIPE_AUTO;
    options->augment.resize = defaults.augment.resize;
    options->augment.resize_to = defaults.augment.resize_to;
    options->augment.crop = defaults.augment.crop;
    options->augment.random_resized_crop = defaults.augment.random_resized_crop;
}

void model_metadata_free(struct model_metadata *metadata)
{
    for (int64_t i = 0; i < metadata->class_count; i++)
        free(metadata->class_name[i]);
    free(metadata->class_name);
    free(metadata->row_weights);
    free(metadata->grid);
    *metadata = (struct model_metadata){.class_count = 0};
}
