// SPDX-License-Identifier: BSD-3-Clause
/* TensorBoard reads the event files of a run in the order of their names, which begin with a time.
 * The time in the name of a new file is later than those of all existing files, also if the clock
 * was set back or a run starts twice within a second. */
#include "record/tensorboard.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "options/option.h"
#include "options/options.h"
#include "record/events.pb-c.h"

/* A record: length (8 bytes), its checksum, event, its checksum; little-endian. */
enum { LENGTH_BYTES = 8, SUM_BYTES = 4 };
enum { HEADER_BYTES = LENGTH_BYTES + SUM_BYTES };

static const char name_prefix[] = "events.out.tfevents.";
static const int64_t ten_digits = 9999999999;

struct tensorboard {
    FILE *stream;
    char path[FILE_PATH + 2 * HOST_NAME_MAX];
};

static void put_little_endian(unsigned char *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

/* CRC32C, rotated and shifted as the format demands. */
static uint32_t masked_sum(const void *data, size_t bytes)
{
    uint32_t sum = crc32c_update(0, data, bytes);

    return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}

static bool write_event(struct tensorboard *board, Tensorboard__Event *event, struct error *error)
{
    event->wall_time = clock_wall();
    const size_t length = tensorboard__event__get_packed_size(event);
    const size_t whole = HEADER_BYTES + length + SUM_BYTES;
    unsigned char *record = allocate(1, whole);
    put_little_endian(record, length, LENGTH_BYTES);
    put_little_endian(record + LENGTH_BYTES, masked_sum(record, LENGTH_BYTES), SUM_BYTES);
    tensorboard__event__pack(event, record + HEADER_BYTES);
    put_little_endian(record + HEADER_BYTES + length, masked_sum(record + HEADER_BYTES, length),
                      SUM_BYTES);
    /* One call, because several threads write. */
    const bool good = fwrite(record, 1, whole, board->stream) == whole ||
                      durable_failed(error, "write", board->path, errno);
    free(record);
    return good;
}

/* Return the latest time in the names of event files; -1 without such files. */
static int64_t latest_time(const char *directory)
{
    DIR *entries = NULL;
    int64_t latest = -1;

    for (const char *name; (name = folder_next(&entries, directory)) != NULL;) {
        if (strncmp(name, name_prefix, sizeof name_prefix - 1) != 0)
            continue;
        int64_t time = strtoll(name + sizeof name_prefix - 1, NULL, 10);
        if (time > latest && time < ten_digits)
            latest = time;
    }
    return latest;
}

struct tensorboard *tensorboard_open(const char *directory, struct error *error)
{
    struct tensorboard *board = allocate(1, sizeof *board);
    char host[HOST_NAME_MAX + 1] = "host";
    gethostname(host, sizeof host - 1);
    const int64_t latest = latest_time(directory), now = (int64_t)clock_wall();
    snprintf(board->path, sizeof board->path, "%s/%s%010" PRId64 ".%s.%ld", directory, name_prefix,
             now > latest ? now : latest + 1, host, (long)getpid());
    board->stream = fopen(board->path, "wxe");
    if (board->stream == NULL) {
        durable_failed(error, "create", board->path, errno);
        free(board);
        return NULL;
    }
    Tensorboard__Event version = TENSORBOARD__EVENT__INIT;
    version.file_version = (char[]){"brain.Event:2"};
    if (!write_event(board, &version, error) || !tensorboard_flush(board, error)) {
        tensorboard_close(board);
        return NULL;
    }
    return board;
}

bool tensorboard_restart(struct tensorboard *board, int64_t step, struct error *error)
{
    Tensorboard__SessionLog log = TENSORBOARD__SESSION_LOG__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;

    log.has_status = true;
    log.status = TENSORBOARD__SESSION_LOG__STATUS__START;
    event.has_step = true;
    event.step = step;
    event.session_log = &log;
    return write_event(board, &event, error);
}

bool tensorboard_scalar(struct tensorboard *board, const char *tag, int64_t step, double value,
                        struct error *error)
{
    Tensorboard__Summary__Value point = TENSORBOARD__SUMMARY__VALUE__INIT;
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;

    point.tag = (char *)tag;
    point.has_simple_value = true;
    point.simple_value = (float)value;
    summary.n_value = 1;
    summary.value = (Tensorboard__Summary__Value *[]){&point};
    event.has_step = true;
    event.step = step;
    event.summary = &summary;
    return write_event(board, &event, error);
}

bool tensorboard_flush(struct tensorboard *board, struct error *error)
{
    if (fflush(board->stream) != 0)
        return durable_failed(error, "write", board->path, errno);
    return true;
}

void tensorboard_close(struct tensorboard *board)
{
    fclose(board->stream);
    free(board);
}

/* The type of an option is a number if its value always is one, a boolean if it is a switch, else a
 * string: TensorBoard cannot sort a column that has numbers and the word "auto". */

enum { OPTIONS_MOST = 256, METRICS_MOST = 16, DATA_VERSION = 0 };

static const char *const sections[] = {"model.", "data.",     "augment.", "eval.", "train.",
                                       "optim.", "schedule.", "mesh.",    NULL};

/* The messages of all options; pointers go from an array to the next. */
struct hparams {
    size_t count;
    char text[OPTIONS_MOST][OPTION_TEXT];
    Tensorboard__HparamInfo info[OPTIONS_MOST], *infos[OPTIONS_MOST];
    Tensorboard__HparamValue value[OPTIONS_MOST];
    Tensorboard__SessionStartInfo__Hparam entry[OPTIONS_MOST], *entries[OPTIONS_MOST];
};

static bool plugin_data_write(struct tensorboard *board, const char *tag,
                              Tensorboard__HparamsPluginData *data, struct error *error)
{
    Tensorboard__SummaryMetadata__PluginData plugin =
        TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;

    data->has_version = true;
    data->version = DATA_VERSION;
    plugin.plugin_name = (char[]){"hparams"};
    plugin.has_content = true;
    plugin.content.data = allocate(1, tensorboard__hparams_plugin_data__get_packed_size(data));
    plugin.content.len = tensorboard__hparams_plugin_data__pack(data, plugin.content.data);
    metadata.plugin_data = &plugin;
    value.tag = (char *)(uintptr_t)tag;
    value.metadata = &metadata;
    summary.n_value = 1;
    summary.value = (Tensorboard__Summary__Value *[]){&value};
    event.summary = &summary;
    const bool good = write_event(board, &event, error);
    free(plugin.content.data);
    return good;
}

static void option_add(struct hparams *hparams, const struct option_entry *option,
                       const struct options *options)
{
    const char *name = option->name;
    bool is_shown = strcmp(name, "run.seed") == 0;
    for (int i = 0; sections[i] != NULL; i++)
        is_shown = is_shown || strncmp(name, sections[i], strlen(sections[i])) == 0;
    if (!is_shown || !option_is_in_deck(option, options))
        return;
    const size_t i = hparams->count++;
    ENSURE(i < OPTIONS_MOST, "more than %d options", OPTIONS_MOST);
    Tensorboard__HparamValue *value = &hparams->value[i];
    char *text = hparams->text[i];
    option_write(option, options, text, OPTION_TEXT);
    tensorboard__hparam_value__init(value);
    tensorboard__hparam_info__init(&hparams->info[i]);
    tensorboard__session_start_info__hparam__init(&hparams->entry[i]);
    hparams->infos[i] = &hparams->info[i];
    hparams->entries[i] = &hparams->entry[i];
    hparams->info[i].name = hparams->entry[i].key = (char *)(uintptr_t)name;
    hparams->info[i].has_type = true;
    hparams->entry[i].value = value;
    value->has_bool_value = option->kind == OPTION_IS_SWITCH;
    value->bool_value = strcmp(text, "on") == 0;
    value->has_number_value =
        (option->kind == OPTION_IS_INTEGER || option->kind == OPTION_IS_NUMBER) &&
        !option->has_automatic;
    value->number_value = strtod(text, NULL);
    if (!value->has_bool_value && !value->has_number_value)
        value->string_value = hparams->text[i];
    hparams->info[i].type = value->has_bool_value     ? TENSORBOARD__HPARAM_INFO__DATA_TYPE__BOOL
                            : value->has_number_value ? TENSORBOARD__HPARAM_INFO__DATA_TYPE__FLOAT64
                                                      : TENSORBOARD__HPARAM_INFO__DATA_TYPE__STRING;
}

bool hparams_write(struct tensorboard *board, const struct options *options,
                   const char *const *metrics, struct error *error)
{
    struct hparams *hparams = allocate(1, sizeof *hparams);
    Tensorboard__MetricName names[METRICS_MOST];
    Tensorboard__MetricInfo infos[METRICS_MOST], *pointers[METRICS_MOST];
    Tensorboard__Experiment experiment = TENSORBOARD__EXPERIMENT__INIT;
    Tensorboard__SessionStartInfo start = TENSORBOARD__SESSION_START_INFO__INIT;
    Tensorboard__HparamsPluginData experiment_data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    Tensorboard__HparamsPluginData start_data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    size_t count = 0;
    for (const struct option_entry *option = option_table; option->name != NULL; option++)
        option_add(hparams, option, options);
    for (; metrics[count] != NULL; count++) {
        ENSURE(count < METRICS_MOST, "more than %d metrics", METRICS_MOST);
        tensorboard__metric_name__init(&names[count]);
        tensorboard__metric_info__init(&infos[count]);
        names[count].tag = (char *)(uintptr_t)metrics[count];
        infos[count].name = &names[count];
        pointers[count] = &infos[count];
    }
    experiment.n_hparam_infos = hparams->count;
    experiment.hparam_infos = hparams->infos;
    experiment.n_metric_infos = count;
    experiment.metric_infos = pointers;
    experiment_data.experiment = &experiment;
    start.n_hparams = hparams->count;
    start.hparams = hparams->entries;
    start.has_start_time_secs = true;
    start.start_time_secs = clock_wall();
    start_data.session_start_info = &start;
    const bool good = plugin_data_write(board, "_hparams_/experiment", &experiment_data, error) &&
                      plugin_data_write(board, "_hparams_/session_start_info", &start_data, error);
    free(hparams);
    return good;
}

bool hparams_finish(struct tensorboard *board, struct error *error)
{
    Tensorboard__SessionEndInfo end = TENSORBOARD__SESSION_END_INFO__INIT;
    Tensorboard__HparamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    end.has_status = true;
    end.status = TENSORBOARD__SESSION_END_INFO__STATUS__SUCCESS;
    end.has_end_time_secs = true;
    end.end_time_secs = clock_wall();
    data.session_end_info = &end;
    return plugin_data_write(board, "_hparams_/session_end_info", &data, error);
}
