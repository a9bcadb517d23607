/* The command `predict` writes classes and probabilities of a split's samples as CSV or JSON lines.
 * For each global batch, rank 0 collects the lines of all ranks in order and writes them. Memory
 * stays small and the output does not depend on the number of ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/app.h"
#include "app/prediction.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "core/output_file.h"
#include "train/inference.h"

struct prediction {
    const struct inference *inference;
    struct comm *world;
    bool json;
    const char *path;
    FILE *file;                  /* rank 0 only */
    char part[OPTION_TEXT + 16]; /* temporary file to be renamed; empty: none */
};

static bool write_failed(const struct prediction *prediction, struct error *error)
{
    return error_set(error, ERROR_FILE, "cannot write predict.output=%s: %s", prediction->path,
                     strerror(errno));
}

static void text_write(const struct prediction *prediction, const char *text, size_t size,
                       struct error *error)
{
    if (fwrite(text, 1, size, prediction->file) != size)
        write_failed(prediction, error);
}

/* Write the lines of all ranks on rank 0, in the order of ranks. */
static void text_collect(const struct prediction *prediction, const char *text, int64_t size,
                         struct error *error)
{
    struct comm *world = prediction->world;
    if (world->rank != 0) {
        comm_send(world, &size, sizeof size, 0);
        comm_send(world, text, (size_t)size, 0);
        return;
    }
    text_write(prediction, text, (size_t)size, error);
    for (int rank = 1; rank < world->size; rank++) {
        int64_t other = 0;
        comm_receive(world, &other, sizeof other, rank);
        char *received = malloc((size_t)other + 1);
        ENSURE(received != NULL, "no memory for the predictions of a batch");
        comm_receive(world, received, (size_t)other, rank);
        text_write(prediction, received, (size_t)other, error);
        free(received);
    }
}

static void batch_visit(void *self, const struct batch *batch, const int32_t *predicted,
                        const float *probabilities, struct error *error)
{
    const struct prediction *prediction = self;
    const struct dataset *dataset = &prediction->inference->feed.dataset;
    struct prediction_line line = {.classes = prediction->inference->session.model->classes};
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ENSURE(stream != NULL, "no memory for the predictions of a batch");
    for (int64_t i = 0; i < batch->count; i++) {
        line.record = batch->records[i];
        line.label = batch->labels[i];
        line.predicted = predicted[i];
        line.class_name = predicted[i] < dataset->classes ? dataset->class_name[predicted[i]] : "";
        line.probabilities = probabilities + i * line.classes;
        (prediction->json ? prediction_write_json : prediction_write_csv)(stream, &line);
    }
    ENSURE(fclose(stream) == 0, "no memory for the predictions of a batch");
    text_collect(prediction, text, (int64_t)size, error);
    free(text);
}

/* Open the output. A regular file is replaced atomically at the end; standard output and devices
 * are written directly. */
static bool file_open(struct prediction *prediction, struct error *error)
{
    const char *path = prediction->path;
    struct stat there;
    if (prediction->world->rank == 0) {
        if (stat(path, &there) != 0 || S_ISREG(there.st_mode))
            snprintf(prediction->part, sizeof prediction->part, "%s.part", path);
        if (strcmp(path, "-") == 0)
            prediction->file = stdout;
        else
            prediction->file = prediction->part[0] != '\0'
                                   ? output_file_stream(prediction->part, "w")
                                   : fopen(path, "we");
        if (prediction->file == NULL)
            write_failed(prediction, error);
    }
    return comm_agree(prediction->world, error);
}

/* Close the output on rank 0. If `error` is set, the file is not replaced. */
static void file_close(struct prediction *prediction, struct error *error)
{
    if (prediction->file == stdout) {
        error_defer(app_output_arrived(error));
        return;
    }
    bool written = ferror(prediction->file) == 0;
    if (fclose(prediction->file) != 0 || !written)
        write_failed(prediction, error);
    if (prediction->part[0] == '\0')
        return;
    if (error->kind == ERROR_NONE && rename(prediction->part, prediction->path) != 0)
        write_failed(prediction, error);
    if (error->kind != ERROR_NONE)
        unlink(prediction->part);
}

static void split_predict(struct inference *inference, struct comm *world, struct error *error)
{
    struct evaluation evaluation = {0};
    struct prediction prediction = {
        .inference = inference, .world = world, .path = inference->options.predict.output};
    const size_t length = strlen(prediction.path);
    prediction.json = length >= 5 && strcmp(prediction.path + length - 5, ".json") == 0;
    const struct evaluation_visitor visitor = {.visit = batch_visit, .self = &prediction};
    if (!file_open(&prediction, error))
        return;
    if (prediction.file != NULL && !prediction.json)
        prediction_write_header(prediction.file, inference->session.model->classes);
    bool predicted =
        evaluation_run(&inference->session, &inference->feed, &visitor, NULL, &evaluation, error);
    if (world->rank == 0)
        file_close(&prediction, error);
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
    if (line->operand_count != 1)
        error_set(error, ERROR_USAGE,
                  "predict needs one file: a checkpoint (.h5) or weights (.safetensors)");
    else if (inference_open(&inference, line->operand[0], options, line, world, error)) {
        if (inference.session.model->loss == LOSS_CROSS_ENTROPY)
            split_predict(&inference, world, error);
        else
            error_set(error, ERROR_USAGE, "predict needs a model with classes");
        inference_close(&inference);
    }
}

const struct command command_predict = {
    .name = "predict",
    .synopsis = "predict CHECKPOINT|WEIGHTS [DECK.ini ...] [section.key=value ...]",
    .summary = "write predicted classes and probabilities as CSV or JSON",
    .detail = "Writes one line for each sample of predict.split to predict.output (\"-\": standard "
              "output): record, label, predicted class and the probability of each class. JSON "
              "lines if the name ends in .json, else CSV.",
    .run = predict_run};
