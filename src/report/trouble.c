/* Selects warnings and errors, and lines about restarts, early ends and skipped updates. Equal
 * lines are counted, since a warning about a slow link may repeat every minute for hours. */
#include "report/trouble.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text_file.h"

enum { TROUBLE_MOST = 200 };

/* "2026-11-21T04:05:06 ", or of output.style=course "2026-11-21 04:05:06,789 - " */
enum { STAMP_LENGTH = 20, COURSE_STAMP_LENGTH = 26 };

struct trouble {
    char *text; /* the first such line, with its time stamp */
    int64_t times;
};

static bool is_trouble(const char *line)
{
    static const char *const begins[] = {"warning: ",       "vittrain: error: ", "stopped at step ",
                                         "stopped before ", "resuming from ",    "mesh.elastic: "};
    static const char *const holds[] = {"gradients overflowed in fp16",
                                        "before its results were written",
                                        "is left to the next attempt"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof holds / sizeof holds[0]; i++)
        if (strstr(line, holds[i]) != NULL)
            return true;
    return false;
}

/* Return the line without its time stamp; NULL: no stamp, so the line is incomplete or foreign. */
static const char *line_words(const char *line)
{
    const size_t length = strlen(line);
    if (length <= STAMP_LENGTH || line[4] != '-')
        return NULL;
    if (line[10] == 'T' && line[STAMP_LENGTH - 1] == ' ')
        return line + STAMP_LENGTH;
    return length > COURSE_STAMP_LENGTH && line[19] == ',' && line[24] == '-'
               ? line + COURSE_STAMP_LENGTH
               : NULL;
}

static void line_count(struct trouble *troubles, int *count, int64_t *more, const char *line)
{
    const char *words = line_words(line);
    if (words == NULL || !is_trouble(words))
        return;
    for (int i = 0; i < *count; i++)
        if (strcmp(line_words(troubles[i].text), words) == 0) {
            troubles[i].times++;
            return;
        }
    if (*count == TROUBLE_MOST) {
        ++*more;
        return;
    }
    troubles[*count] = (struct trouble){.text = strdup(line), .times = 1};
    ENSURE(troubles[*count].text != NULL, "no memory for a line of a log");
    ++*count;
}

void trouble_open(struct record *record)
{
    char path[sizeof record->path + 16], *line = NULL;
    struct trouble troubles[TROUBLE_MOST];
    int count = 0;
    int64_t more = 0;
    size_t size = 0;
    ssize_t length;
    snprintf(path, sizeof path, "%s/train.log", record->path);
    FILE *file = text_file_open(path);
    if (file == NULL) {
        lines_add(&record->missing, "train.log: cannot be read: %s", strerror(errno));
        return;
    }
    while ((length = getline(&line, &size, file)) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        line_count(troubles, &count, &more, line);
    }
    free(line);
    fclose(file);
    for (int i = 0; i < count; i++) {
        if (troubles[i].times > 1)
            lines_add(&record->trouble, "%s (%lld times)", troubles[i].text,
                      (long long)troubles[i].times);
        else
            lines_add(&record->trouble, "%s", troubles[i].text);
        free(troubles[i].text);
    }
    if (more > 0)
        lines_add(&record->trouble, "%lld more lines, see train.log", (long long)more);
}
