// SPDX-License-Identifier: BSD-3-Clause
/* Receipts of steps. Values are compared as the texts of their cells: numbers as C's %a, hashes as
 * 16 hexadecimal digits, those of grains separated by spaces. */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

static const char first_columns[] = "step,loss,grad_norm,", last_column[] = ",grains";

enum { RECEIPT_LOSS = 1, RECEIPT_NORM, RECEIPT_HASHES };
enum { HASH_DIGITS = 16 };
static const char digits[] = "0123456789abcdef";

/* ---- the table of a run */

char *receipts_header(const struct model *model)
{
    struct text_stream text;
    const int units = model->unit_count;
    FILE *stream = text_stream_open(&text);
    fputs(first_columns, stream);
    for (int i = 0; i < 2 * units; i++)
        fprintf(stream, "%s%s%s", i > 0 ? "," : "", model->units[i % units].name,
                i < units ? "" : ".state");
    fputs(last_column, stream);
    return text_stream_close(&text);
}

/* True if the line has a step, two numbers, `hashes` hashes and, if has_grains, a list of hashes.
 */
static bool line_is_valid(const char *line, int hashes, bool has_grains)
{
    const char *at = line + strspn(line, "0123456789");
    bool good = at > line;
    for (int i = RECEIPT_LOSS; good && i < RECEIPT_HASHES; i++) {
        char *end;
        good = *at == ',' && at[1] != ',' && at[1] != '\0';
        strtod(at + 1, &end);
        at = end;
    }
    for (int i = 0; good && i < hashes; i++, at += 1 + HASH_DIGITS)
        good = *at == ',' && strspn(at + 1, digits) == HASH_DIGITS;
    if (good && has_grains) {
        const bool has_none = strcmp(at, ",") == 0;
        good = *at == ',' && (has_none || strspn(at + 1, digits) == HASH_DIGITS);
        at += has_none ? 1 : 1 + HASH_DIGITS;
        for (; good && *at != '\0'; at += 1 + HASH_DIGITS)
            good = *at == ' ' && strspn(at + 1, digits) == HASH_DIGITS;
    }
    return good && *at == '\0';
}

/* Return the next line without its end (LF or CRLF); *text is NULL after an incomplete one. */
static char *next_line(char **text)
{
    char *line = strsep(text, "\n");
    line[strcspn(line, "\r")] = '\0';
    return line;
}

bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                        struct error *error)
{
    char *rest = allocate_copy(text);
    size_t capacity = 0;
    int hashes = -RECEIPT_HASHES;
    *table = (struct receipt_table){.header = rest};
    next_line(&rest);
    bool good = rest != NULL && strncmp(table->header, first_columns, strlen(first_columns)) == 0;
    table->has_grains = text_ends_with(table->header, last_column);
    for (const char *c = good ? table->header : NULL; c != NULL; c = strchr(c + 1, ','))
        hashes++;
    hashes -= table->has_grains;
    for (int64_t before = 0; good;) {
        char *line = next_line(&rest);
        if (rest == NULL)
            return true;
        const int64_t step = strtoll(line, NULL, 10);
        good = line_is_valid(line, hashes, table->has_grains) && step > before;
        before = step;
        table->line =
            allocate_more(table->line, &capacity, (size_t)table->count, sizeof *table->line);
        table->line[table->count++] = line;
    }
    return error_set(error, ERROR_DATA,
                     "%s:%" PRId64 ": this is not a line of receipts: the file is damaged; "
                     "restore it",
                     path, table->count + 1);
}

int64_t receipt_table_step(const struct receipt_table *table, int64_t row)
{
    return strtoll(table->line[row], NULL, 10);
}

int64_t receipts_until(const struct receipt_table *table, int64_t step)
{
    int64_t count = 0;
    while (count < table->count && receipt_table_step(table, count) <= step)
        count++;
    return count;
}

bool receipt_table_check(const struct receipt_table *table, const char *folder,
                         const struct model *model, struct error *error)
{
    char *header = receipts_header(model);
    if (!table->has_grains)
        *strrchr(header, ',') = '\0';
    const bool same = strcmp(header, table->header) == 0;
    free(header);
    return same || error_set(error, ERROR_DATA,
                             "%s/receipt.csv: its columns are not the units of the model: the file "
                             "is damaged or of another run",
                             folder);
}

void receipt_table_free(struct receipt_table *table)
{
    free(table->header);
    free(table->line);
    *table = (struct receipt_table){.count = 0};
}

/* ---- receipts of this process */

bool receipts_due(const struct trainer *trainer, int64_t step)
{
    const struct receipt_table *expected = trainer->receipts.expected;
    const int64_t every = trainer->session.options.output.receipt;
    if (expected != NULL)
        return trainer->receipts.next < expected->count &&
               step == receipt_table_step(expected, trainer->receipts.next);
    return every > 0 && (step % every == 0 || step == trainer->total_steps);
}

/* Compare a line with that of the run; both have `values` cells after the step, and then perhaps
 * hashes of grains. The error names the first unit that differs, or loss or norm if all units are
 * equal, and the first grain whose hash differs. If only a grain differs, the values are the hashes
 * of that grain. Rank 0. */
static void receipt_compare(const struct trainer *trainer, const char *now, int values,
                            struct error *error)
{
    const char *run = trainer->receipts.expected->line[trainer->receipts.next];
    const char *first_run = NULL, *first_now = NULL;
    const struct model *model = trainer->session.model;
    const int units = model->unit_count;
    char what[TENSOR_NAME + 48], machine[1024], others[96] = "; all other values are equal";
    int first = 0, different = 0, grain = -1;
    run += strcspn(run, ",");
    now += strcspn(now, ",");
    for (int column = RECEIPT_LOSS; column <= values; column++) {
        const size_t was = strcspn(++run, ","), is = strcspn(++now, ",");
        const bool differs = was != is || memcmp(run, now, is) != 0;
        different += differs;
        if (differs && (first == 0 || (first < RECEIPT_HASHES && column >= RECEIPT_HASHES))) {
            first = column;
            first_run = run;
            first_now = now;
        }
        run += was;
        now += is;
    }
    if (strlen(run) > 1 && strlen(now) > 1) { /* grains of both */
        if (strlen(run) != strlen(now)) {
            error_set(error, ERROR_DATA,
                      "receipt.csv: step %lld has another number of grains than the replay; the "
                      "file is damaged or of another run",
                      (long long)trainer->state.step);
            return;
        }
        for (int i = 0; grain < 0 && *run != '\0';
             i++, run += 1 + HASH_DIGITS, now += 1 + HASH_DIGITS)
            if (strncmp(run, now, 1 + HASH_DIGITS) != 0) {
                grain = i;
                first_run = different > 0 ? first_run : run + 1;
                first_now = different > 0 ? first_now : now + 1;
            }
    }
    if (different == 0 && grain < 0)
        return;
    if (different == 0)
        snprintf(what, sizeof what, "the hash of grain %d differs", grain);
    else
        snprintf(what, sizeof what, "%s%s differ%s",
                 first == RECEIPT_LOSS            ? "the loss"
                 : first == RECEIPT_NORM          ? "the norm of the gradient"
                 : first < RECEIPT_HASHES + units ? "weights of "
                                                  : "optimizer state or EMA of ",
                 first < RECEIPT_HASHES ? "" : model->units[(first - RECEIPT_HASHES) % units].name,
                 first >= RECEIPT_HASHES && first < RECEIPT_HASHES + units ? "" : "s");
    if (different > 0 && grain >= 0)
        snprintf(others, sizeof others, "; first different grain %d; %d of %d values differ", grain,
                 different, values);
    else if (different > 0)
        snprintf(others, sizeof others, "; %d of %d values differ", different, values);
    run_record_compare(trainer, trainer->state.step, machine, sizeof machine);
    error_set(error, ERROR_DIFFERENT, "step %lld: %s: receipt %.*s, replay %.*s%s%s%s",
              (long long)trainer->state.step, what, (int)strcspn(first_run, ", "), first_run,
              (int)strcspn(first_now, ", "), first_now, others,
              machine[0] != '\0' ? "; the run had other conditions: " : "", machine);
}

void receipts_begin(struct trainer *trainer)
{
    progress_take_sums(trainer);
    if (trainer->session.grains == NULL)
        return;
    trainer->receipts.hashes = (struct grain_hashes){0};
    trainer->session.step.hashes = &trainer->receipts.hashes;
}

/* Return the line of the step, which has this loss; the caller frees it. */
static char *receipt_line(const struct trainer *trainer, double loss)
{
    const struct flat_model *flat = &trainer->session.flat;
    const struct grain_hashes *grains = &trainer->receipts.hashes;
    const double number[] = {loss, step_norm(&trainer->session)};
    const int hashes = 2 * flat->count;
    struct text_stream text;
    uint64_t *hash = allocate((size_t)hashes, sizeof *hash);
    flat_hash(flat, hash);
    FILE *stream = text_stream_open(&text);
    fprintf(stream, "%" PRId64, trainer->state.step);
    for (int i = 0; i < 2; i++) /* printf may write the sign of a NaN */
        fprintf(stream, isnan(number[i]) ? ",nan" : ",%a", number[i]);
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
    struct comm *world = trainer->session.world;
    const int values = RECEIPT_NORM + 2 * trainer->session.flat.count;
    status_set_phase(PHASE_REPORT);
    trainer->session.step.hashes = NULL;
    if (!step_finish(&trainer->session, &trainer->progress.interval.times, error))
        return false;
    const struct loss_sums own = progress_take_sums(trainer);
    double sums[] = {own.loss, own.samples};
    comm_all_reduce(world, sums, 2, COMM_FP64, COMM_SUM);
    comm_all_reduce(world, grains->hash, grains->count, COMM_INT64, COMM_SUM);
    char *line = receipt_line(trainer, sums[1] > 0 ? sums[0] / sums[1] : (double)NAN);
    if (trainer->receipts.expected == NULL) {
        error_defer(metrics_write_receipt(trainer->output.log, line, &trainer->output.log_error));
    } else {
        if (world->rank == 0)
            receipt_compare(trainer, line, values, error);
        error_defer(comm_share_error(world, error));
        trainer->receipts.next++;
    }
    free(line);
    return error->kind == ERROR_NONE;
}
