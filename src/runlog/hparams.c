// SPDX-License-Identifier: BSD-3-Clause
/* The type of an option is a number if its value always is one, a boolean if it is a switch, else a
 * string: TensorBoard cannot sort a column that has numbers and the word "auto". */
#include "runlog/hparams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"
#include "config/options.h"
#include "core/clock.h"
#include "runlog/events.pb-c.h"

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
    data->has_version = true;
    data->version = DATA_VERSION;
    uint8_t *content = allocate(1, tensorboard__hparams_plugin_data__get_packed_size(data));
    const size_t bytes = tensorboard__hparams_plugin_data__pack(data, content);
    bool good = tensorboard_plugin_data(board, tag, "hparams", content, bytes, error);
    free(content);
    return good;
}

static bool option_is_shown(const char *name)
{
    for (int i = 0; sections[i] != NULL; i++)
        if (strncmp(name, sections[i], strlen(sections[i])) == 0)
            return true;
    return strcmp(name, "run.seed") == 0;
}

static Tensorboard__HparamInfo__DataType option_type(const struct option_entry *option)
{
    if (option->kind == OPTION_IS_SWITCH)
        return TENSORBOARD__HPARAM_INFO__DATA_TYPE__BOOL;
    if ((option->kind == OPTION_IS_INTEGER || option->kind == OPTION_IS_NUMBER) &&
        !option->has_automatic)
        return TENSORBOARD__HPARAM_INFO__DATA_TYPE__FLOAT64;
    return TENSORBOARD__HPARAM_INFO__DATA_TYPE__STRING;
}

static void option_add(void *user, const char *name, const char *text)
{
    struct hparams *hparams = user;
    if (!option_is_shown(name))
        return;
    const size_t i = hparams->count++;
    ENSURE(i < OPTIONS_MOST, "more than %d options", OPTIONS_MOST);
    Tensorboard__HparamValue *value = &hparams->value[i];
    snprintf(hparams->text[i], OPTION_TEXT, "%s", text);
    tensorboard__hparam_value__init(value);
    tensorboard__hparam_info__init(&hparams->info[i]);
    tensorboard__session_start_info__hparam__init(&hparams->entry[i]);
    hparams->infos[i] = &hparams->info[i];
    hparams->entries[i] = &hparams->entry[i];
    hparams->info[i].name = hparams->entry[i].key = (char *)(uintptr_t)name;
    hparams->info[i].has_type = true;
    hparams->info[i].type = option_type(option_find(name));
    hparams->entry[i].value = value;
    value->has_bool_value = hparams->info[i].type == TENSORBOARD__HPARAM_INFO__DATA_TYPE__BOOL;
    value->bool_value = strcmp(text, "on") == 0;
    value->has_number_value = hparams->info[i].type == TENSORBOARD__HPARAM_INFO__DATA_TYPE__FLOAT64;
    value->number_value = strtod(text, NULL);
    if (!value->has_bool_value && !value->has_number_value)
        value->string_value = hparams->text[i];
}

static bool experiment_write(struct tensorboard *board, struct hparams *hparams,
                             const char *const *metrics, struct error *error)
{
    Tensorboard__MetricName names[METRICS_MOST];
    Tensorboard__MetricInfo infos[METRICS_MOST], *pointers[METRICS_MOST];
    Tensorboard__Experiment experiment = TENSORBOARD__EXPERIMENT__INIT;
    Tensorboard__HparamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    size_t count = 0;
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
    data.experiment = &experiment;
    return plugin_data_write(board, "_hparams_/experiment", &data, error);
}

static bool start_write(struct tensorboard *board, struct hparams *hparams, struct error *error)
{
    Tensorboard__SessionStartInfo start = TENSORBOARD__SESSION_START_INFO__INIT;
    Tensorboard__HparamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    start.n_hparams = hparams->count;
    start.hparams = hparams->entries;
    start.has_start_time_secs = true;
    start.start_time_secs = clock_wall();
    data.session_start_info = &start;
    return plugin_data_write(board, "_hparams_/session_start_info", &data, error);
}

bool hparams_write(struct tensorboard *board, const struct options *options,
                   const char *const *metrics, struct error *error)
{
    struct hparams *hparams = allocate(1, sizeof *hparams);
    options_visit(options, option_add, hparams);
    bool good =
        experiment_write(board, hparams, metrics, error) && start_write(board, hparams, error);
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
