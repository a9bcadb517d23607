// SPDX-License-Identifier: BSD-3-Clause
/* FOLDER/peaks has a line "RATE KEY" for each processor, instruction set, type and version of the
 * program. The rate is that of one thread, so that it is measured once for any number of threads.
 * Runs that write the file at the same time may lose a line, which is then measured again. */
#include "train/hardware.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"
#include "core/file.h"

enum { KEY = 192 };
static const double rate_most = 1e15; /* of a thread; larger rates are damage */

/* Write "0.3.0 bf16 AMD EPYC, avx512": without the number of threads, the end of the name. */
static void key_write(const struct device_limits *limits, enum data_type type, char key[KEY])
{
    const char *end = strrchr(limits->name, ',');
    snprintf(key, KEY, "%s %s %.*s", version_number, type_name(type),
             end != NULL ? (int)(end - limits->name) : (int)strlen(limits->name), limits->name);
}

/* Return the rate of the first line with this key that is not damaged; NAN: there is none. */
static double rate_read(const char *path, const char *key)
{
    double found = NAN;
    char *rest = NULL, *text = text_file_read(path, NULL);
    for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL;
         line != NULL && isnan(found); line = strtok_r(NULL, "\n", &rest)) {
        char *end;
        const double rate = strtod(line, &end);
        if (end != line && *end == ' ' && strcmp(end + 1, key) == 0 && rate > 0 && rate < rate_most)
            found = rate;
    }
    free(text);
    return found;
}

/* Replace the line of the key; NAN: remove it. A folder that cannot be written is no error. */
static void rate_write(const char *folder, const char *path, const char *key, double rate)
{
    struct error ignored = {0};
    struct atomic_file file;
    char *rest = NULL, *text = text_file_read(path, NULL);
    if (folder_make(folder, "", &ignored) && atomic_file_open(&file, path, &ignored)) {
        for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL; line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            const char *space = strchr(line, ' ');
            if (space != NULL && strcmp(space + 1, key) != 0)
                fprintf(file.stream, "%s\n", line);
        }
        if (!isnan(rate))
            fprintf(file.stream, "%.6g %s\n", rate, key);
        error_defer(atomic_file_commit(&file, &ignored));
    }
    free(text);
}

double peak_find(struct device *device, enum data_type type, const char *folder)
{
    struct device_limits limits;
    char key[KEY];
    device->backend->limits(device, &limits);
    if (device->backend->measure_peak == NULL)
        return limits.peak_flops[type] > 0 ? limits.peak_flops[type] : (double)NAN;
    key_write(&limits, type, key);
    OWNED char *path = allocate_text("%s/peaks", folder);
    double rate = folder[0] != '\0' ? rate_read(path, key) : (double)NAN;
    if (isnan(rate)) {
        rate = device->backend->measure_peak(device, type);
        if (folder[0] != '\0')
            rate_write(folder, path, key, rate);
    }
    return rate * limits.threads;
}

void peak_forget(struct device *device, enum data_type type, const char *folder)
{
    struct device_limits limits;
    char key[KEY];
    if (device->backend->measure_peak == NULL || folder[0] == '\0')
        return;
    device->backend->limits(device, &limits);
    key_write(&limits, type, key);
    OWNED char *path = allocate_text("%s/peaks", folder);
    rate_write(folder, path, key, NAN);
}
