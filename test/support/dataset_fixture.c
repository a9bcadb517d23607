// SPDX-License-Identifier: BSD-3-Clause
#include "dataset_fixture.h"

#include "test.h"

struct options options;
struct dataset dataset;

void dataset_begin(const char *format)
{
    options_default(&options);
    snprintf(options.data.format, sizeof options.data.format, "%s", format);
    dataset_close(&dataset);
}

void split_opens(enum data_split split, int64_t count)
{
    struct error error = {0};
    dataset_close(&dataset);
    assert_ok(dataset_open(&dataset, &options, split, NULL, &error), &error);
    if (count >= 0)
        assert_int_equal(dataset.count, count);
}

void split_fails(enum data_split split, const char *part)
{
    struct error error = {0};
    dataset_close(&dataset);
    if (dataset_open(&dataset, &options, split, NULL, &error))
        fail_msg("no error where \"%s\" is expected", part);
    if (strstr(error.text, part) == NULL || strchr(error.text, '\n') != NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, error.text);
}
