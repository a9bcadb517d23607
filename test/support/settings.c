// SPDX-License-Identifier: BSD-3-Clause
#include "settings.h"

#include "test.h"

void settings_apply(struct options *options, const char *words)
{
    struct error error = {0};
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *rest, *word = strtok_r(copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest))
        assert_ok(options_set(word, options, &error), &error);
}

void settings_set(struct options *options, const char *words)
{
    options_default(options);
    settings_apply(options, words);
}
