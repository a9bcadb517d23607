// SPDX-License-Identifier: BSD-3-Clause
/* Values are compared as the texts of their cells: numbers as C's %a, hashes as 16 hexadecimal
 * digits, those of grains separated by spaces. */
#include "train/receipts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/phase.h"
#include "core/status.h"
#include "core/text.h"
#include "train/progress.h"

static const char first_columns[] = "step,loss,grad_norm,", last_column[] = ",grains";

enum { RECEIPT_STEP, RECEIPT_LOSS, RECEIPT_NORM, RECEIPT_HASHES };
enum { HASH_DIGITS = 16 };

/* ---- the table of a run */

char *receipts_header(const struct model *model)
{
    struct text_stream text;
    const int units = model->unit_count;
    FILE *stream = text_stream_open(&text);
    fputs("step,loss,grad_norm", stream);
    for (int i = 0; i < 2 * units; i++)
        fprintf(stream, ",%s%s", model->units[i % units].name, i < units ? "" : ".state");
    fputs(last_column, stream);
    return text_stream_close(&text);
}

int64_t receipt_table_step(const struct receipt_table *table, int64_t row)
{
    return strtoll(table->cells[row * table->columns + RECEIPT_STEP], NULL, 10);
}

static bool cell_is_valid(const struct receipt_table *table, int column, const char *cell)
{
    const size_t length = strlen(cell);
    char *end;
    if (column == RECEIPT_STEP)
        return length > 0 && strspn(cell, "0123456789") == length;
    strtod(cell, &end);
    if (column < RECEIPT_HASHES)
        return length > 0 && *end == '\0';
    if (table->has_grains && column == table->columns - 1)
        return strspn(cell, "0123456789abcdef ") == length &&
               (length == 0 || length % (HASH_DIGITS + 1) == HASH_DIGITS);
    return length == HASH_DIGITS && strspn(cell, "0123456789abcdef") == length;
}

/* Split a line, which is changed, into at most `most` cells. Return their number. */
static int cells_split(char *line, char **cells, int most)
{
    int count = 0;
    while (line != NULL && count < most)
        cells[count++] = strsep(&line, ",");
    return line == NULL ? count : most + 1;
}

/* Return the next line without its end (LF or CRLF); *text is NULL after an incomplete one. */
static char *next_line(char **text)
{
    char *line = strsep(text, "\n");
    line[strcspn(line, "\r")] = '\0';
    return line;
}

static bool table_parse(struct receipt_table *table, int64_t *number)
{
    char *text = table->text;
    size_t lines = 1;
    table->header = next_line(&text);
    if (text == NULL || strncmp(table->header, first_columns, strlen(first_columns)) != 0)
        return false;
    table->has_grains = text_ends_with(table->header, last_column);
    table->columns = 1;
    for (const char *c = table->header; *c != '\0'; c++)
        table->columns += *c == ',';
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    table->cells = allocate(lines * (size_t)table->columns, sizeof *table->cells);
    for (char *line = next_line(&text); text != NULL; line = next_line(&text)) {
        char **row = table->cells + table->count * table->columns;
        ++*number;
        bool good = cells_split(line, row, table->columns) == table->columns;
        for (int column = 0; good && column < table->columns; column++)
            good = cell_is_valid(table, column, row[column]);
        if (!good || receipt_table_step(table, table->count) <=
                         (table->count > 0 ? receipt_table_step(table, table->count - 1) : 0))
            return false;
        table->count++;
    }
    return true;
}

bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                        struct error *error)
{
    int64_t number = 1;
    *table = (struct receipt_table){.text = allocate_copy(text)};
    return table_parse(table, &number) ||
           error_set(error, ERROR_DATA,
                     "%s:%" PRId64 ": this is not a line of receipts: the file is damaged; "
                     "restore it",
                     path, number);
}

void receipt_table_free(struct receipt_table *table)
{
    free(table->text);
    free(table->cells);
    *table = (struct receipt_table){.count = 0};
}

/* ---- receipts of this process */

bool receipts_due(const struct trainer *trainer, int64_t step)
{
    const struct receipt_table *expected = trainer->receipts.expected;
    const int64_t every = trainer->run.options.output.receipt;
    if (expected != NULL)
        return trainer->receipts.next < expected->count &&
               step == receipt_table_step(expected, trainer->receipts.next);
    return every > 0 && (step % every == 0 || step == trainer->total_steps);
}

/* Write "weights of blocks.3 differ". */
static void column_describe(const struct model *model, int column, char *text, size_t size)
{
    const int unit = column - RECEIPT_HASHES, units = model->unit_count;
    if (column < RECEIPT_HASHES)
        snprintf(text, size, "%s differs",
                 column == RECEIPT_LOSS ? "the loss" : "the norm of the gradient");
    else
        snprintf(text, size,
                 unit < units ? "weights of %s differ" : "optimizer state or EMA of %s differs",
                 model->units[unit % units].name);
}

/* Return the number of the first grain whose hash differs, or -1; one of the cells may be "". */
static int grain_differing(const char *one, const char *other)
{
    int place = 0;
    while (one[place] != '\0' && one[place] == other[place])
        place++;
    return one[0] == '\0' || other[0] == '\0' || one[place] == other[place]
               ? -1
               : place / (HASH_DIGITS + 1);
}

/* Compare cells with the next row of the run; both have `values` cells after the step. The error
 * names the first unit that differs, or loss or norm if all units are equal, and the first grain
 * whose hash differs. If only a grain differs, the values are the hashes of that grain. Rank 0. */
static void receipt_compare(const struct trainer *trainer, char **now, int values,
                            struct error *error)
{
    const struct receipt_table *table = trainer->receipts.expected;
    const long long step = trainer->state.step;
    char **run = table->cells + trainer->receipts.next * table->columns;
    const char *before = table->has_grains ? run[1 + values] : "", *after = now[1 + values];
    const int grain = grain_differing(before, after);
    const size_t place = (size_t)(grain > 0 ? grain : 0) * (HASH_DIGITS + 1);
    char what[TENSOR_NAME + 48], machine[1024], others[96] = "; all other values are equal";
    int first = 0, different = 0;
    if (before[0] != '\0' && after[0] != '\0' && strlen(before) != strlen(after)) {
        error_set(
            error, ERROR_DATA,
            "receipt.csv: step %lld has another number of grains than the replay; the file is "
            "damaged or of another run",
            step);
        return;
    }
    for (int i = values - 1; i >= 0; i--) {
        const int column = 1 + (i + RECEIPT_HASHES - 1) % values; /* the hashes, then loss, norm */
        if (strcmp(run[column], now[column]) != 0) {
            first = column;
            different++;
        }
    }
    if (different == 0 && grain < 0)
        return;
    before = different > 0 ? run[first] : before + place;
    after = different > 0 ? now[first] : after + place;
    if (different == 0)
        snprintf(what, sizeof what, "the hash of grain %d differs", grain);
    else
        column_describe(trainer->run.session.model, first, what, sizeof what);
    if (different > 0 && grain >= 0)
        snprintf(others, sizeof others, "; first different grain %d; %d of %d values differ", grain,
                 different, values);
    else if (different > 0)
        snprintf(others, sizeof others, "; %d of %d values differ", different, values);
    run_record_compare(trainer, step, machine, sizeof machine);
    error_set(error, ERROR_DIFFERENT, "step %lld: %s: receipt %.*s, replay %.*s%s%s%s", step, what,
              (int)strcspn(before, " "), before, (int)strcspn(after, " "), after, others,
              machine[0] != '\0' ? "; the run had other conditions: " : "", machine);
}

void receipts_begin(struct trainer *trainer)
{
    progress_take_sums(trainer);
    if (trainer->run.session.grains == NULL)
        return;
    trainer->receipts.hashes = (struct grain_hashes){0};
    trainer->run.step.hashes = &trainer->receipts.hashes;
}

static void number_write(FILE *stream, double number)
{
    fprintf(stream, isnan(number) ? ",nan" : ",%a", number); /* printf may write a sign */
}

/* Return the line of the step, which has this loss; the caller frees it. */
static char *receipt_line(const struct trainer *trainer, double loss)
{
    const struct flat_model *flat = &trainer->run.session.flat;
    const struct grain_hashes *grains = &trainer->receipts.hashes;
    const int hashes = 2 * flat->count;
    struct text_stream text;
    uint64_t *hash = allocate((size_t)hashes, sizeof *hash);
    flat_hash(flat, hash);
    FILE *stream = text_stream_open(&text);
    fprintf(stream, "%" PRId64, trainer->state.step);
    number_write(stream, loss);
    number_write(stream, step_norm(&trainer->run.session));
    for (int i = 0; i < hashes; i++)
        fprintf(stream, ",%016" PRIx64, hash[i]);
    for (int64_t i = 0; i < grains->count; i++)
        fprintf(stream, "%c%016" PRIx64, i == 0 ? ',' : ' ', grains->hash[i]);
    if (grains->count == 0)
        fputc(',', stream);
    free(hash);
    return text_stream_close(&text);
}

bool receipts_take(struct trainer *trainer, struct error *error)
{
    struct grain_hashes *grains = &trainer->receipts.hashes;
    struct comm *world = trainer->run.world;
    const int columns = RECEIPT_HASHES + 2 * trainer->run.session.flat.count + 1;
    status_set_phase(PHASE_REPORT);
    trainer->run.step.hashes = NULL;
    if (!step_finish(&trainer->run.step, &trainer->progress.interval.times, error))
        return false;
    const struct loss_sums own = progress_take_sums(trainer);
    double sums[] = {own.loss, own.samples};
    comm_all_reduce(world, sums, 2, COMM_FP64, COMM_SUM);
    comm_all_reduce(world, grains->hash, grains->count, COMM_INT64, COMM_SUM);
    char *line = receipt_line(trainer, sums[1] > 0 ? sums[0] / sums[1] : (double)NAN);
    if (trainer->receipts.expected == NULL) {
        error_defer(run_log_receipt(trainer->output.log, line, &trainer->output.log_error));
    } else {
        char **cells = allocate((size_t)columns, sizeof *cells);
        cells_split(line, cells, columns);
        if (world->rank == 0)
            receipt_compare(trainer, cells, columns - 2, error);
        free(cells);
        error_defer(comm_share_error(world, error));
        trainer->receipts.next++;
    }
    free(line);
    return error->kind == ERROR_NONE;
}
