// SPDX-License-Identifier: BSD-3-Clause
/* All values of the object are strings, as safetensors requires; numbers and lists are JSON in
 * strings. Options of the model's shape and of evaluation have the names and values of a deck. */
#include "checkpoint/model_metadata.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/grid.h"
#include "base/base.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/safetensors.h"
#include "data/crop.h"
#include "image/image_file.h"
#include "model/model.h"
#include "model/vit.h"
#include "options/option.h"

/* The options that are keys (those of architecture, size, channels and classes have other keys). */
/* clang-format off */
static const char *const option_names[] = {
    "augment.interpolation", "model.patch", "model.pad", "model.dim", "model.depth", "model.heads",
    "model.mlp_ratio", "model.qkv_bias", "model.qk_norm", "model.class_token", "model.registers",
    "model.position", "model.embed_norm", "model.head", "model.pool", "model.fc_norm",
    "model.layer_scale", "model.mlp", "model.gelu", "model.width", "eval.resize", "eval.resize_to",
    "eval.crop", "eval.crop_pad", "data.exif", "data.format", "data.x", "data.y", "data.order",
    "data.sample_dim", "data.levels", "data.rows", "data.columns", "data.join", "data.transform",
    "data.forcings", "data.task", "data.residual", "train.loss", "train.ignore_label",
    "train.weights", "data.coordinates"};
/* clang-format on */
enum { OPTION_NAMES = sizeof option_names / sizeof *option_names };

/* timm has a key for the interpolation. */
static const char *key_of(const char *option)
{
    return strcmp(option, "augment.interpolation") == 0 ? "interpolation" : option;
}

/* True if the options state what a sample of arrays is. */
static bool is_of_arrays(const struct options *options)
{
    return strcmp(options->data.format, "arrays") == 0;
}

/* Copy the options that are keys; of those for data only data.exif, unless the data are arrays. */
static void options_copy(struct options *to, const struct options *from)
{
    char value[OPTION_TEXT];
    struct error ignored = {0};
    for (int i = 0; i < OPTION_NAMES; i++) {
        const char *name = option_names[i];
        const bool of_data = strncmp(name, "data.", strlen("data.")) == 0 ||
                             strncmp(name, "train.", strlen("train.")) == 0;
        if (of_data && strcmp(name, "data.exif") != 0 && !is_of_arrays(from))
            continue;
        options_value_text(from, name, value, sizeof value);
        error_defer(option_read(option_find(name), "", value, to, &ignored));
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
    OWNED char *text = text_stream_close(&list_text);
    value_put(object, key, json_string(text));
}

/* Return the value as JSON on one line, to be freed by the caller; frees the value. */
static char *to_line(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    ENSURE_MEMORY(text != NULL, "no memory for metadata");
    json_decref(value);
    return text;
}

/* Put a value as JSON in a string; frees the value. */
static void put_as_text(json_t *object, const char *key, json_t *value)
{
    OWNED char *text = to_line(value);
    value_put(object, key, json_string(text));
}

char *model_metadata_describe(const struct options *options, const struct model *model,
                              const struct dataset *dataset)
{
    const struct dataset none = {0}, *data = dataset != NULL ? dataset : &none;
    struct value_statistics statistics = model->statistics;
    struct options own, defaults;
    struct error unusable = {0};
    struct crop crop;
    char value[OPTION_TEXT], preset[OPTION_TEXT];
    json_t *object = json_object();
    options_default(&defaults);
    own = defaults;
    options_copy(&own, options);
    own.model = options->model;
    own.eval = defaults.eval;
    if (own.augment.interpolation == INTERPOLATION_AUTO)
        own.augment.interpolation = INTERPOLATION_BILINEAR;
    if (!model_normalisation(model, options, &statistics.mean, &statistics.std, &unusable))
        statistics = (struct value_statistics){.mean = {.count = 0}};
    /* Without values images are only resized to squares of the model's size. */
    if (crop_open(&crop, options, true, model->image, false, &unusable) &&
        (crop.take != CROP_NONE || crop.resize.height != model->image.height)) {
        own.eval.resize = crop.resize.height;
        own.eval.resize_to = crop.resize_to;
        own.eval.crop = crop.take;
        own.eval.crop_pad = crop.pad;
    }
    snprintf(value, sizeof value, "vittrain %s", version_number);
    value_put(object, "format", json_string("pt"));
    value_put(object, "program", value_name(value));
    value_put(object, "architecture", value_name(options->model.name));
    if (model->classes > 0)
        put_as_text(object, "num_classes", json_integer(model->classes));
    put_as_text(object, "input_size",
                json_pack("[I,I,I]", (json_int_t)model->channels, (json_int_t)model->image.height,
                          (json_int_t)model->image.width));
    put_list(object, "mean", &statistics.mean, &statistics.std);
    put_list(object, "std", &statistics.std, NULL);
    put_list(object, "target_mean", &statistics.target_mean, &statistics.target_std);
    put_list(object, "target_std", &statistics.target_std, NULL);
    for (int i = 0; i < OPTION_NAMES; i++) {
        options_value_text(&own, option_names[i], value, sizeof value);
        options_value_text(&defaults, option_names[i], preset, sizeof preset);
        if (strcmp(value, preset) != 0)
            value_put(object, key_of(option_names[i]), json_string(value));
    }
    if (data->class_name != NULL) {
        json_t *names = json_array();
        for (int64_t i = 0; i < data->classes; i++)
            value_append(names, value_name(data->class_name[i]));
        put_as_text(object, "label_names", names);
    }
    if (data->row_weights != NULL) {
        json_t *weights = json_array();
        for (int64_t y = 0; y < window_field(data).height; y++)
            value_append(weights, json_real((double)data->row_weights[y]));
        put_as_text(object, "row_weights", weights);
    }
    if (data->grid != NULL) {
        OWNED char *grid = grid_write(data->grid);
        value_put(object, "grid", value_text(grid));
    }
    return to_line(object);
}

/* ---- parsing */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Note that a member has an invalid value, which `option` replaces. Does nothing if it is absent.
 */
static void fault_add(struct model_metadata *metadata, const json_t *object, const char *key,
                      const char *option)
{
    int i = 0;
    while (i < METADATA_FAULTS && metadata->fault[i].option != NULL)
        i++;
    if (i == METADATA_FAULTS || json_object_get(object, key) == NULL)
        return;
    metadata->fault[i].option = option;
    snprintf(metadata->fault[i].text, sizeof metadata->fault[i].text, "%s=%.80s", key,
             text_at(object, key));
}

/* Set a list of one number per channel, or of one for all, all above `least`; an invalid one is
 * empty. */
static bool list_set(const json_t *array, double least, int64_t channels,
                     struct channel_values *list)
{
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
    return good;
}

/* In the functions below, `object` has the members of the file, and `values` the parsed ones. */

static void preprocessing_set(const json_t *object, const json_t *values,
                              struct model_metadata *metadata)
{
    struct value_statistics *statistics = &metadata->statistics;
    struct model_options *model = &metadata->options.model;
    const json_t *size = json_object_get(values, "input_size");
    const json_int_t channels = json_integer_value(json_array_get(size, 0));
    const json_int_t height = json_integer_value(json_array_get(size, 1));
    const json_int_t width = json_integer_value(json_array_get(size, 2));
    if (json_array_size(size) == 3 && height > 0 && height <= IMAGE_LARGEST && width > 0 &&
        width <= IMAGE_LARGEST && channels > 0 && channels <= IMAGE_CHANNELS) {
        model->image = height;
        model->image_width = width == height ? 0 : width;
        model->channels = channels;
    } else {
        fault_add(metadata, object, "input_size", "model.image");
    }
    if (!list_set(json_object_get(values, "mean"), -INFINITY, model->channels, &statistics->mean))
        fault_add(metadata, object, "mean", "augment.mean");
    if (!list_set(json_object_get(values, "std"), 0, model->channels, &statistics->std))
        fault_add(metadata, object, "std", "augment.std");
    list_set(json_object_get(values, "target_mean"), -INFINITY, 0, &statistics->target_mean);
    list_set(json_object_get(values, "target_std"), 0, 0, &statistics->target_std);
}

/* In timm, crop_pct is the model's image size divided by the resized size. crop_mode "squash"
 * resizes both sides, "center" the shorter one. */
static void crop_set(const json_t *object, const json_t *values, struct model_metadata *metadata)
{
    struct eval_options *eval = &metadata->options.eval;
    const double image = (double)metadata->options.model.image;
    const double part = json_number_value(json_object_get(values, "crop_pct"));
    const char *mode = text_at(object, "crop_mode");
    const bool squash = strcmp(mode, "squash") == 0;
    const bool good = part > 0 && part <= 1 && floor(image / part) <= IMAGE_LARGEST;
    if (good && image > 0) {
        eval->resize = (int64_t)floor(image / part);
        eval->resize_to = squash ? RESIZE_SQUARE : RESIZE_SHORTER;
        eval->crop = CROP_CENTER;
    }
    if (!good)
        fault_add(metadata, object, "crop_pct", "eval.resize");
    if (!squash && strcmp(mode, "center") != 0 && json_object_get(object, "crop_mode") != NULL) {
        fault_add(metadata, object, "crop_mode", "eval.resize_to");
        eval->resize_to = RESIZE_AUTO;
    }
}

/* timm writes num_classes=0 for a model without a head. */
static void classes_set(const json_t *object, const json_t *values, struct model_metadata *metadata)
{
    const json_t *number = json_object_get(values, "num_classes");
    const json_t *names = json_object_get(values, "label_names");
    const json_int_t classes = json_integer_value(number);
    const size_t count = json_array_size(names);
    const bool numbered = json_is_integer(number) && classes >= 0 && classes <= CLASSES_MOST;
    bool named = count > 0 && count <= CLASSES_MOST && (!numbered || count == (size_t)classes);
    if (numbered)
        metadata->options.model.classes = classes;
    else
        fault_add(metadata, object, "num_classes", "model.classes");
    for (size_t i = 0; i < count; i++)
        named = named && json_is_string(json_array_get(names, i));
    if (named) {
        metadata->class_name = allocate(count, sizeof *metadata->class_name);
        for (size_t i = 0; i < count; i++)
            metadata->class_name[i] = allocate_copy(json_string_value(json_array_get(names, i)));
        metadata->class_count = (int64_t)count;
    } else if (json_object_get(object, "label_names") != NULL) {
        fault_add(metadata, object, "label_names", "model.classes");
        metadata->options.model.classes = 0;
    }
}

void model_metadata_parse(const char *text, struct model_metadata *metadata)
{
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL, *values = json_object();
    json_t *member, *value;
    const char *key;
    json_object_foreach(object, key, member)
    {
        value = json_loads(text_at(object, key), JSON_DECODE_ANY, NULL);
        if (value != NULL)
            value_put(values, key, value);
    }
    *metadata = (struct model_metadata){.class_count = 0};
    options_default(&metadata->options);
    char *name = metadata->options.model.name;
    memset(name, 0, sizeof metadata->options.model.name);
    snprintf(name, sizeof metadata->options.model.name, "%s", text_at(object, "architecture"));
    metadata->is_own = text_at(object, "program")[0] != '\0';
    preprocessing_set(object, values, metadata);
    crop_set(object, values, metadata);
    for (int i = 0; i < OPTION_NAMES; i++) {
        struct error unusable = {0};
        const struct option_entry *entry = option_find(option_names[i]);
        key = key_of(entry->name);
        if (json_object_get(object, key) != NULL &&
            !option_read(entry, "", text_at(object, key), &metadata->options, &unusable))
            fault_add(metadata, object, key, entry->name);
    }
    classes_set(object, values, metadata);
    /* Invalid row weights are left out; those computed from the data are then used. */
    const json_t *weights = json_object_get(values, "row_weights");
    const size_t count = json_array_size(weights);
    bool good = count > 0 && count <= IMAGE_LARGEST;
    metadata->row_weights = allocate(count, sizeof *metadata->row_weights);
    for (size_t y = 0; good && y < count; y++) {
        metadata->row_weights[y] = (float)json_number_value(json_array_get(weights, y));
        good = metadata->row_weights[y] >= 0 && isfinite(metadata->row_weights[y]);
    }
    metadata->rows = good ? (int64_t)count : 0;
    if (json_object_get(object, "grid") != NULL)
        metadata->grid = allocate_copy(text_at(object, "grid"));
    json_decref(values);
    json_decref(object);
}

/* ---- checks */

/* The number of attention heads is that of the weights, unless the width of the model differs. */
static bool heads_check(const struct model_options *trained, const char *path,
                        const struct model_options *model, struct error *error)
{
    if (!model_is_vit(trained->name) || !model_is_vit(model->name))
        return true;
    const struct vit_shape *one = registry_find(trained->name)->shape;
    const struct vit_shape *other = registry_find(model->name)->shape;
    const int64_t expected = trained->heads > 0 ? trained->heads : one->heads;
    const int64_t heads = model->heads > 0 ? model->heads : other->heads;
    return heads == expected ||
           (trained->dim > 0 ? trained->dim : one->dim) !=
               (model->dim > 0 ? model->dim : other->dim) ||
           error_set(error, ERROR_USAGE,
                     "model.heads is %lld, but %s has weights for %lld heads: set model.heads=%lld",
                     (long long)heads, path, (long long)expected, (long long)expected);
}

/* Return the first item of a list that has another place in the list of the weights, or NULL. */
static const char *item_moved(const char *list, const char *trained, size_t *length)
{
    size_t known;
    const char *item = text_next_item(list, length), *other = text_next_item(trained, &known);
    for (; item != NULL; item = text_next_item(item + *length, length)) {
        char name[OPTION_TEXT];
        snprintf(name, sizeof name, "%.*s", (int)*length, item);
        const bool is_same = other != NULL && known == *length && memcmp(other, item, known) == 0;
        if (!is_same && text_has_item(trained, name))
            return item;
        other = other != NULL ? text_next_item(other + known, &known) : NULL;
    }
    return NULL;
}

bool model_metadata_check(const struct model_metadata *metadata, const char *path,
                          const struct options *options, bool trains, struct error *error)
{
    struct options defaults;
    if (registry_find(metadata->options.model.name) == NULL)
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
                             "the metadata of %s cannot be used: %s is invalid; correct the file "
                             "or set %s",
                             path, metadata->fault[i].text, option);
    }
    if (!trains && options->data.residual != metadata->options.data.residual)
        return error_set(error, ERROR_USAGE,
                         "data.residual=%s: %s was trained with the other value; leave "
                         "data.residual out",
                         options->data.residual ? "on" : "off", path);
    const struct data_options *data = &options->data, *trained = &metadata->options.data;
    const char *const lists[][3] = {{"data.x", data->x, trained->x},
                                    {"data.y", data->y, trained->y},
                                    {"data.forcings", data->forcings, trained->forcings}};
    for (int n = 0; n < 3 && !trains; n++) {
        size_t length;
        const char *item = item_moved(lists[n][1], lists[n][2], &length);
        if (item != NULL)
            return error_set(error, ERROR_USAGE,
                             "%s=%s: %s was trained with %s=%s, where %.*s has another place: use "
                             "the same order",
                             lists[n][0], lists[n][1], path, lists[n][0], lists[n][2], (int)length,
                             item);
    }
    return heads_check(&metadata->options.model, path, &options->model, error);
}

/* ---- files */

bool weights_file_exists(const char *where, const char *path, struct error *error)
{
    if (text_is_remote(path))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s%s is a remote path: copy it first with `rclone copy --links %s "
                         "FOLDER`, and name the copy",
                         where, path, path);
    return access(path, R_OK) == 0 ||
           error_set(
               error, ERROR_CHECKPOINT,
               "%scannot read %s: %s; name a checkpoint or weights, or download published weights "
               "with `tools/fetch.sh weights NAME`",
               where, path, strerror(errno));
}

/* Rank 0. See weights_file_find. */
static bool name_resolve(const char *name, bool initial, char path[WEIGHTS_PATH],
                         struct error *error)
{
    /* Initial weights may have another head, which checkpoints may not. */
    static const char *const files[2][6] = {
        {"checkpoints/best.h5", "best.safetensors", "checkpoints/last.h5", "weights.safetensors",
         "best.h5", "last.h5"},
        {"best.safetensors", "weights.safetensors", "checkpoints/best.h5", "checkpoints/last.h5",
         "best.h5", "last.h5"}};
    struct stat status;
    snprintf(path, WEIGHTS_PATH, "%s", name);
    if (!initial && image_file_is_name(name))
        return error_set(error, ERROR_USAGE,
                         "%s is an image: name the run folder or the weights first, as in "
                         "`vittrain predict RUN %s`",
                         name, name);
    if (stat(name, &status) != 0 || !S_ISDIR(status.st_mode))
        return initial || weights_file_exists("", name, error);
    for (size_t i = 0; i < sizeof files[0] / sizeof files[0][0]; i++) {
        snprintf(path, WEIGHTS_PATH, "%s/%s", name, files[initial][i]);
        if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
            continue;
        if (!initial)
            fprintf(stderr, "using %s\n", path);
        return true;
    }
    return error_set(error, ERROR_CHECKPOINT,
                     "%s holds neither checkpoints nor weights: name a run folder, a checkpoint "
                     "(.h5) or weights (.safetensors)",
                     name);
}

bool weights_file_find(const char *name, bool initial, struct comm *world, char path[WEIGHTS_PATH],
                       struct error *error)
{
    char target[PATH_MAX];
    if (world->rank == 0)
        error_defer(name_resolve(name, initial, path, error));
    if (!comm_agree(world, error))
        return false;
    if (world->rank == 0 && text_ends_with(path, ".h5") && realpath(path, target) != NULL)
        snprintf(path, WEIGHTS_PATH, "%s", target);
    comm_broadcast(world, path, WEIGHTS_PATH, COMM_BYTE, 0);
    return true;
}

bool weights_file_check(const char *path, struct error *error)
{
    static const char *const endings[] = {".pth", ".pt", ".bin", ".ckpt"};
    unsigned char start[9] = {0};
    int64_t bytes;
    const int descriptor = text_file_descriptor(path, &bytes);
    const bool is_read = descriptor >= 0 && durable_pread(descriptor, start, 9, 0) == 9;
    if (descriptor >= 0)
        close(descriptor);
    /* torch.save writes a zip archive or, before version 1.6, a pickle of protocol 2 or later. A
     * safetensors file may begin with the same bytes, which are the length of its header, but its
     * 9th byte is '{'. */
    bool is_torch =
        memcmp(start, "PK\3\4", 4) == 0 || (start[0] == 0x80 && start[1] >= 2 && start[1] <= 5);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        is_torch = is_torch || text_ends_with(path, endings[i]);
    if (!is_read || !is_torch || start[8] == '{' || memcmp(start, "\211HDF", 4) == 0)
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "%.256s is a PyTorch file: only safetensors and checkpoints are read; convert it with "
        "python -c \"import sys, torch; from safetensors.torch import save_file; "
        "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
        "d = d.get('state_dict', d.get('model', d)); "
        "save_file({k.removeprefix('module.'): v.clone().contiguous() for k, v in d.items() "
        "if torch.is_tensor(v)}, sys.argv[2], {'format': 'pt'})\" INPUT OUTPUT.safetensors",
        path);
}

/* Return the members of timm's config.json in the folder of the weights as an object of texts,
 * which is empty without one. */
static json_t *config_read(const char *weights)
{
    static const char *const keys[] = {"architecture", "num_classes", "input_size",
                                       "mean",         "std",         "interpolation",
                                       "crop_pct",     "crop_mode",   "label_names"};
    const char *slash = strrchr(weights, '/');
    OWNED char *path =
        allocate_text("%.*sconfig.json", slash != NULL ? (int)(slash + 1 - weights) : 0, weights);
    OWNED char *text = text_file_read(path, NULL);
    json_t *config = text != NULL ? json_loads(text, 0, NULL) : NULL, *object = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(config, keys[i]);
        if (value == NULL)
            value = json_object_get(json_object_get(config, "pretrained_cfg"), keys[i]);
        if (json_is_string(value))
            value_put(object, keys[i], json_incref(value));
        else if (value != NULL)
            put_as_text(object, keys[i], json_incref(value));
    }
    json_decref(config);
    return object;
}

char *model_metadata_text(const char *path, struct error *error)
{
    if (!weights_file_check(path, error))
        return NULL;
    if (!text_ends_with(path, ".safetensors")) {
        struct checkpoint_contents contents;
        const bool good = checkpoint_file_read(path, &contents, error);
        char *text = good ? allocate_copy(contents.text[TEXT_METADATA]) : NULL;
        checkpoint_contents_free(&contents);
        return text;
    }
    json_t *object = safetensors_metadata(path, error), *config = config_read(path);
    if (text_at(object, "architecture")[0] == '\0' && text_at(config, "architecture")[0] != '\0') {
        json_decref(object);
        object = json_incref(config);
    }
    json_decref(config);
    return object != NULL ? to_line(object) : NULL;
}

bool model_metadata_read(const char *path, struct comm *world, struct model_metadata *metadata,
                         struct error *error)
{
    OWNED char *text = world->rank == 0 ? model_metadata_text(path, error) : NULL;
    const bool good = comm_agree(world, error);
    OWNED char *shared = comm_broadcast_text(world, text != NULL ? text : "", 0);
    model_metadata_parse(shared, metadata);
    return good;
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
    if (registry_find(metadata->options.model.name) == NULL)
        return;
    options_default(&defaults);
    options->model = metadata->options.model;
    options->eval = metadata->options.eval;
    options_copy(options, &metadata->options);
    if (is_of_arrays(&metadata->options))
        options->train.row_weight = metadata->rows > 0 ? ROW_WEIGHT_LATITUDE : ROW_WEIGHT_NONE;
    list_apply(&metadata->statistics.mean, &options->augment.mean);
    list_apply(&metadata->statistics.std, &options->augment.std);
    /* Metadata of this program without a crop: images are resized to squares. */
    options->augment.recipe =
        metadata->is_own && options->eval.crop == CROP_AUTO ? RECIPE_PLAIN : RECIPE_AUTO;
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
