// SPDX-License-Identifier: BSD-3-Clause
/* The command `predict` writes classes and probabilities of the samples of a split, or of image
 * files, as CSV, JSON lines or a table. For each global batch, rank 0 collects the lines of all
 * ranks in order and writes them. Memory stays small and the output does not depend on the number
 * of ranks. */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "commands/app.h"
#include "commands/prediction_arrays.h"
#include "options/options.h"
#include "record/scores.h"
#include "train/inference.h"

/* ---- one sample as text. Names of classes and files may contain characters that have a meaning in
 * CSV or JSON, so they are quoted. */

enum { TOP = 5 }; /* classes in a table */

struct prediction_line {
    const char *file; /* name, any bytes; NULL for a record of a split */
    uint32_t record;
    int32_t label, predicted; /* class numbers; a label of -1 is unknown; files have none */
    char *const *name;        /* [named]: of classes or outputs, any bytes */
    int64_t named, classes;
    const float *probabilities; /* [classes]; the outputs of a regression */
    const double *origin;       /* [classes]: added to outputs and targets; NULL: 0 */
    bool has_targets;           /* targets instead of label, predicted and names */
    const float *targets;       /* [classes]; NULL: unknown */
    bool is_number;             /* of a regression, not marks of several labels */
};

/* `unknown` is written for a target that is not finite. With an origin, a number has all digits. */
static void write_numbers(FILE *text, const struct prediction_line *line, const float *numbers,
                          int digits, const char *unknown)
{
    for (int64_t c = 0; c < line->classes; c++) {
        const double origin = line->origin != NULL ? line->origin[c] : 0;
        if (c > 0)
            fputc(',', text);
        if (numbers != NULL && isfinite(numbers[c]))
            fprintf(text, "%.*g", origin != 0 ? DBL_DIG : digits, origin + (double)numbers[c]);
        else
            fputs(unknown, text);
    }
}

/* RFC 4180: a name with commas, quotes or line ends is quoted. */
static void write_cell(FILE *text, const char *cell)
{
    if (strpbrk(cell, ",\"\r\n") == NULL) {
        fputs(cell, text);
        return;
    }
    fputc('"', text);
    for (const char *letter = cell; *letter != '\0'; letter++) {
        if (*letter == '"')
            fputc('"', text);
        fputc(*letter, text);
    }
    fputc('"', text);
}

/* Return the name of the predicted class, "" if it has none. */
static const char *class_of(const struct prediction_line *line)
{
    return line->predicted < line->named ? line->name[line->predicted] : "";
}

/* Write the names of the columns of all classes or outputs: PREFIX_NAME, or PREFIX0, PREFIX1, ...
 */
static void write_columns(FILE *text, const struct prediction_line *line, const char *prefix)
{
    for (int64_t c = 0; c < line->classes; c++) {
        OWNED char *column = c < line->named ? allocate_text("%s_%s", prefix, line->name[c])
                                             : allocate_text("%s%" PRId64, prefix, c);
        fputc(',', text);
        write_cell(text, column);
    }
}

/* Write the header line of the CSV for lines like this one. */
static void write_header(FILE *text, const struct prediction_line *line)
{
    fputs(line->file != NULL ? "file" : "record", text);
    if (line->file == NULL && line->has_targets)
        write_columns(text, line, "target");
    else if (line->file == NULL)
        fputs(",label", text);
    if (!line->has_targets)
        fputs(",predicted,class", text);
    write_columns(text, line, line->is_number ? "y" : "p");
    fputc('\n', text);
}

static void write_csv(FILE *text, const struct prediction_line *line)
{
    if (line->file != NULL)
        write_cell(text, line->file);
    else
        fprintf(text, "%" PRIu32 ",", line->record);
    if (line->file == NULL && line->has_targets)
        write_numbers(text, line, line->targets, FLT_DECIMAL_DIG, "");
    else if (line->file == NULL && line->label >= 0)
        fprintf(text, "%" PRId32, line->label);
    if (!line->has_targets) {
        fprintf(text, ",%" PRId32 ",", line->predicted);
        write_cell(text, class_of(line));
    }
    fputc(',', text);
    write_numbers(text, line, line->probabilities, FLT_DIG, "");
    fputc('\n', text);
}

static void write_json_name(FILE *text, const char *name)
{
    json_t *value = value_name(name);
    char *json = json_dumps(value, JSON_ENCODE_ANY);
    ENSURE_MEMORY(json != NULL, "no memory for JSON");
    fputs(json, text);
    free(json);
    json_decref(value);
}

/* One JSON object on one line; names as in result.json. */
static void write_json(FILE *text, const struct prediction_line *line)
{
    if (line->file != NULL) {
        fputs("{\"file\":", text);
        write_json_name(text, line->file);
    } else {
        fprintf(text, "{\"record\":%" PRIu32, line->record);
    }
    if (line->file == NULL && line->has_targets) {
        fputs(line->classes == 1 ? ",\"target\":" : ",\"targets\":[", text);
        write_numbers(text, line, line->targets, FLT_DECIMAL_DIG, "null");
        fputs(line->classes == 1 ? "" : "]", text);
    } else if (line->file == NULL && line->label >= 0) {
        fprintf(text, ",\"label\":%" PRId32, line->label);
    } else if (line->file == NULL) {
        fputs(",\"label\":null", text);
    }
    if (!line->has_targets) {
        fprintf(text, ",\"predicted\":%" PRId32 ",\"class\":", line->predicted);
        write_json_name(text, class_of(line));
    }
    fputs(line->is_number ? ",\"outputs\":[" : ",\"probabilities\":[", text);
    write_numbers(text, line, line->probabilities, FLT_DIG, "null");
    fputs("]}\n", text);
}

/* Control characters could control a terminal. */
static void write_plain(FILE *text, const char *name)
{
    OWNED char *plain = allocate_copy(name);
    text_remove_control(plain);
    fputs(plain, text);
}

/* Return the class that follows `last` in descending order of probability (ties in ascending order
 * of number), or -1 if `last` is the last one. last=-1 returns the first class. */
static int64_t next_class(const struct prediction_line *line, int64_t last)
{
    const float *p = line->probabilities, limit = last < 0 ? INFINITY : p[last];
    int64_t best = -1;
    for (int64_t c = 0; c < line->classes; c++)
        if ((p[c] < limit || (p[c] == limit && c > last)) && (best < 0 || p[c] > p[best]))
            best = c;
    return best;
}

/* Write the file's name and its most probable classes, one per line. A class without a name is
 * written as its number. */
static void write_table(FILE *text, const struct prediction_line *line)
{
    write_plain(text, line->file);
    fputc('\n', text);
    if (line->has_targets) {
        fputs("  ", text);
        write_numbers(text, line, line->probabilities, FLT_DIG, "");
        fputc('\n', text);
        return;
    }
    for (int64_t i = 0, c = -1; i < TOP && (c = next_class(line, c)) >= 0; i++) {
        fprintf(text, "  %6.2f %%  ", 100 * (double)line->probabilities[c]);
        if (c < line->named)
            write_plain(text, line->name[c]);
        else
            fprintf(text, "class %" PRId64, c);
        fputc('\n', text);
    }
}

/* ---- the output ---- */

enum output_format { OUTPUT_CSV, OUTPUT_JSON, OUTPUT_TABLE, OUTPUT_ARRAYS };

struct prediction {
    const struct inference *inference;
    struct comm *world;
    enum output_format format;
    const char *path;                /* "-": standard output */
    FILE *file;                      /* rank 0 only; NULL: OUTPUT_ARRAYS, or not open */
    struct atomic_file replaced;     /* of `file` if it is a regular one */
    struct prediction_arrays arrays; /* OUTPUT_ARRAYS */
};

static bool write_failed(const struct prediction *prediction, struct error *error)
{
    return error_set(error, ERROR_FILE, "cannot write predict.output=%s: %s", prediction->path,
                     strerror(errno));
}

/* Write a rank's lines or rows. Rank 0 only. */
static void part_write(struct prediction *prediction, const char *part, size_t size,
                       struct error *error)
{
    if (prediction->format == OUTPUT_ARRAYS && error->kind == ERROR_NONE)
        error_defer(prediction_arrays_write(&prediction->arrays, part, size, error));
    else if (prediction->format != OUTPUT_ARRAYS && fwrite(part, 1, size, prediction->file) != size)
        write_failed(prediction, error);
}

/* Write the parts of all ranks on rank 0, in the order of ranks. */
static void parts_collect(struct prediction *prediction, const char *part, size_t size,
                          struct error *error)
{
    struct comm *world = prediction->world;
    int64_t bytes = (int64_t)size;
    if (world->rank != 0) {
        comm_send(world, &bytes, sizeof bytes, 0);
        comm_send(world, part, size, 0);
        return;
    }
    part_write(prediction, part, size, error);
    for (int rank = 1; rank < world->size; rank++) {
        comm_receive(world, &bytes, sizeof bytes, rank);
        OWNED char *received = allocate(1, (size_t)bytes + 1);
        comm_receive(world, received, (size_t)bytes, rank);
        part_write(prediction, received, (size_t)bytes, error);
    }
}

static struct prediction_line line_of(const struct prediction *prediction)
{
    const struct inference *inference = prediction->inference;
    const struct dataset *dataset = &inference->session.validation.dataset;
    const struct model *model = inference->session.model;
    const bool is_number = inference->session.options.data.task == TASK_REGRESSION;
    char *const *name =
        is_number || dataset->class_name == NULL ? dataset->target_name : dataset->class_name;
    return (struct prediction_line){.file = inference->split_name[0] == '\0' ? "" : NULL,
                                    .name = name,
                                    .named = name != NULL ? dataset->classes : 0,
                                    .classes = model->classes,
                                    .has_targets = model->loss == LOSS_TARGETS,
                                    .is_number = is_number};
}

/* Write the lines of a batch. */
static void batch_write(const struct prediction *prediction, const struct batch *batch,
                        const int32_t *predicted, const float *probabilities, FILE *lines)
{
    static void (*const line_write[])(FILE *, const struct prediction_line *) = {
        [OUTPUT_CSV] = write_csv, [OUTPUT_JSON] = write_json, [OUTPUT_TABLE] = write_table};
    const struct dataset *dataset = &prediction->inference->session.validation.dataset;
    struct prediction_line line = line_of(prediction);
    char name[2 * PATH_MAX];
    float marks[IMAGE_CHANNELS];
    for (int64_t i = 0; i < batch->count; i++) {
        line.record = batch->records[i];
        line.label = dataset->unlabelled ? -1 : batch->labels[i];
        line.origin = line.is_number ? dataset->target_origin : NULL;
        line.targets = line.has_targets ? batch_targets(batch, i) : NULL;
        line.predicted = predicted[i];
        line.probabilities = probabilities + i * line.classes;
        if (line.has_targets && !line.is_number) {
            for (int64_t c = 0; c < line.classes; c++)
                marks[c] = label_probability(line.probabilities[c]);
            line.probabilities = marks;
        }
        if (prediction->inference->split_name[0] == '\0') {
            dataset_name(dataset, line.record, name, sizeof name);
            line.file = name;
        }
        line_write[prediction->format](lines, &line);
    }
}

static void batch_visit(void *self, const struct batch *batch, const int32_t *predicted,
                        const float *outputs, struct error *error)
{
    struct prediction *prediction = self;
    const struct dataset *dataset = &prediction->inference->session.validation.dataset;
    const int64_t values = model_output_count(prediction->inference->session.model);
    const int64_t plane = dataset->target.height * dataset->target.width;
    struct text_stream part;
    text_stream_open(&part);
    bool good = true;
    /* A prediction is missing where the input to which it adds a difference is missing. */
    for (int64_t i = 0; good && i < batch->count * values; i++) {
        const float *input = dataset->residual
                                 ? batch_persistence(batch, dataset, i / values, i % values / plane)
                                 : NULL;
        good = (input != NULL && isnan(input[i % plane])) ||
               inference_check(prediction->inference, outputs[i], error);
    }
    if (prediction->format == OUTPUT_ARRAYS)
        prediction_arrays_convert(&prediction->arrays, batch->count, predicted, outputs,
                                  part.stream);
    else if (good)
        batch_write(prediction, batch, predicted, outputs, part.stream);
    OWNED char *text = text_stream_close(&part);
    parts_collect(prediction, text, part.length, error);
}

static bool is_same_file(const char *path, const struct stat *other)
{
    struct stat status;
    return stat(path, &status) == 0 && status.st_dev == other->st_dev &&
           status.st_ino == other->st_ino;
}

/* True if the output would replace an input: the weights, an image, a list or a file of arrays. */
static bool output_is_input(const struct prediction *prediction, const struct command_line *line)
{
    struct stat output;
    const struct arrays *arrays = arrays_of(&prediction->inference->session.validation.dataset);
    bool found = false;
    if (stat(prediction->path, &output) != 0 || !S_ISREG(output.st_mode))
        return false;
    for (int i = 0; i < line->operand_count; i++)
        found |= is_same_file(line->operand[i], &output);
    for (int64_t f = 0; arrays != NULL && f < arrays->file_count; f++)
        found |= is_same_file(arrays->file[f].path, &output);
    return found;
}

/* Open the output. A regular file of text is replaced atomically at the end; standard output and
 * devices, which may have any name, are written directly by rank 0. */
static bool output_open(struct prediction *prediction, const struct command_line *line,
                        struct error *error)
{
    const struct prediction_line line_of_output = line_of(prediction);
    const bool is_arrays = prediction->format == OUTPUT_ARRAYS;
    const char *path = prediction->path;
    struct stat there;
    const bool exists = stat(path, &there) == 0;
    if (prediction->world->rank == 0 && output_is_input(prediction, line)) {
        error_set(error, ERROR_USAGE, "predict.output=%s is also an input: choose another name",
                  path);
    } else if (prediction->world->rank == 0 && !is_arrays) {
        const bool is_named = text_ends_with(path, ".csv") || text_ends_with(path, ".json");
        if (strcmp(path, "-") == 0) {
            prediction->file = stdout;
        } else if (!is_named && (!exists || S_ISREG(there.st_mode) || S_ISDIR(there.st_mode))) {
            error_set(error, ERROR_USAGE,
                      "predict.output=%s: the name must end in .csv or .json, or for "
                      "data.format=arrays in .h5, .hdf5, .he5, .nc or .nc4",
                      path);
        } else if (exists && !S_ISREG(there.st_mode)) {
            prediction->file = fopen(path, "we");
            if (prediction->file == NULL)
                write_failed(prediction, error);
        } else if (atomic_file_open(&prediction->replaced, path, error)) {
            prediction->file = prediction->replaced.stream;
        }
    }
    if (!comm_agree(prediction->world, error) ||
        (is_arrays && !prediction_arrays_open(&prediction->arrays, prediction->inference, path,
                                              prediction->world, error)))
        return false;
    if (prediction->file != NULL && prediction->format == OUTPUT_CSV)
        write_header(prediction->file, &line_of_output);
    return true;
}

/* Close the output. If `error` is set, a file is not replaced. */
static void output_close(struct prediction *prediction, struct error *error)
{
    if (prediction->format == OUTPUT_ARRAYS)
        prediction_arrays_close(&prediction->arrays, error);
    else if (prediction->file == stdout)
        error_defer(app_output_arrived(error));
    else if (prediction->replaced.stream != NULL && error->kind == ERROR_NONE)
        error_defer(atomic_file_commit(&prediction->replaced, error));
    else if (prediction->replaced.stream != NULL)
        atomic_file_discard(&prediction->replaced);
    else if (prediction->file != NULL && (ferror(prediction->file) | fclose(prediction->file)) != 0)
        write_failed(prediction, error);
}

static void samples_predict(struct inference *inference, const struct command_line *line,
                            struct comm *world, struct error *error)
{
    struct evaluation evaluation = {0};
    const char *path = inference->session.options.predict.output;
    struct prediction prediction = {.inference = inference,
                                    .world = world,
                                    .format = prediction_arrays_is_file(path) ? OUTPUT_ARRAYS
                                              : path[0] == '\0' && inference->split_name[0] == '\0'
                                                  ? OUTPUT_TABLE
                                              : text_ends_with(path, ".json") ? OUTPUT_JSON
                                                                              : OUTPUT_CSV,
                                    .path = path[0] != '\0' ? path : "-",
                                    .arrays.descriptor = -1};
    const struct evaluation_visitor visitor = {.visit = batch_visit, .self = &prediction};
    const struct image_size *output = &inference->session.model->output;
    if (prediction.format != OUTPUT_ARRAYS && output->height * output->width > 1) {
        error_set(error, ERROR_USAGE,
                  "the predictions are planes: set predict.output=FILE.h5 or FILE.nc");
        return;
    }
    const bool predicted = output_open(&prediction, line, error) &&
                           evaluation_run(&inference->session, &inference->session.validation,
                                          &visitor, NULL, &evaluation, error);
    output_close(&prediction, error);
    if (!predicted)
        return; /* the error is already the same on all ranks */
    comm_agree(world, error);
    evaluation_free(&evaluation);
}

static void predict_run(const struct options *options, const struct command_line *line,
                        struct comm *world, struct error *error)
{
    struct inference inference;
    log_open(world->rank, LOG_WARN); /* standard output may hold the predictions */
    if (line->operand_count == 0)
        error_set(
            error, ERROR_USAGE,
            "predict needs weights: a run folder, a checkpoint (.h5) or weights (.safetensors)");
    else if (line->operand_count > 1 && options->predict.split != SPLIT_TEST)
        error_set(error, ERROR_USAGE,
                  "predict.split does not apply to image files: leave out one of them");
    else if (inference_open(&inference, line->operand[0], line->operand + 1,
                            line->operand_count - 1, options, line, world, error)) {
        samples_predict(&inference, line, world, error);
        inference_close(&inference);
    }
}

const struct command command_predict = {
    .name = "predict",
    .synopsis = "predict RUN|CHECKPOINT|WEIGHTS [FILE|FOLDER ...] [DECK.ini ...] "
                "[section.key=value ...]",
    .summary = "write predicted classes and probabilities of images or of a split",
    .detail =
        "Predicts image files and the images in folders and their subfolders, and prints the five "
        "most probable classes of each file. predict.output=FILE.csv or FILE.json, or "
        "predict.output=- "
        "for CSV on standard output, writes one line for each file instead, with its name, the "
        "predicted class and the probability of each class. data.skip_broken=on skips files that "
        "cannot be read, with a warning that has their number. Model, preprocessing and names of "
        "classes are "
        "those of the checkpoint or of the weights' metadata. Without files, the command writes "
        "one line for each sample of predict.split, with record, label, predicted class and "
        "probabilities, as CSV, or as JSON lines if the name of predict.output ends in .json. For "
        "a regression, it writes the targets and the predicted numbers instead. For "
        "data.format=arrays, FILE is a file of arrays, a Zarr store or a folder of .npy files, "
        "all samples of which are predicted, and predict.output=FILE.h5 or FILE.nc writes an HDF5 "
        "file with the coordinates of the samples.",
    .run = predict_run,
    .checks_options = true};
