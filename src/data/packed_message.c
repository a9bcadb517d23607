// SPDX-License-Identifier: BSD-3-Clause
/* The headers of packed files as a message from the child process that has parsed them. For each
 * file: the error, struct packed_set with its pointers cleared, its parts, and the class names. The
 * parent checks all values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/subprocess.h"
#include "data/packed.h"

static void set_send(const struct packed_set *set, int64_t number)
{
    struct packed_set plain = *set;
    plain.class_name = NULL;
    plain.part = NULL;
    subprocess_write(&plain, sizeof plain, 1);
    subprocess_write(set->part[number], sizeof *set->part, 1);
    for (int64_t i = 0; i < set->classes; i++)
        subprocess_write_text(set->class_name[i]);
}

int packed_message_send(const char *name, int64_t files)
{
    char path[PACKED_PATH];
    struct stat file;
    struct error error = {.kind = ERROR_NONE};
    struct packed_part(*part)[PACKED_SPLITS] = calloc((size_t)files, sizeof *part);
    ENSURE(part != NULL, "no memory to open %s", name);
    for (int64_t number = 0; number < files && error.kind == ERROR_NONE; number++) {
        struct packed_set set = {.part = part};
        packed_path(path, name, number, files);
        if (stat(path, &file) != 0)
            return ERROR_DATA;
        error_defer(packed_frame_read(path, (int64_t)file.st_size, &set, number, &error));
        subprocess_write(&error, sizeof error, 1);
        if (error.kind == ERROR_NONE)
            set_send(&set, number);
        fflush(stdout);
        set.part = NULL;
        packed_set_free(&set);
    }
    free(part);
    return ferror(stdout) ? ERROR_FILE : 0;
}

/* ---- receive ---- */

static bool classes_receive(struct subprocess *child, struct packed_set *set, int64_t classes,
                            int64_t bytes)
{
    if (classes < 1 || classes > CLASSES_MOST)
        return false;
    set->class_name = calloc((size_t)classes, sizeof *set->class_name);
    if (set->class_name == NULL)
        return false;
    set->classes = classes;
    for (int64_t i = 0; i < classes; i++)
        if (!subprocess_read_text(child, &set->class_name[i], bytes) || set->class_name[i] == NULL)
            return false;
    return true;
}

bool packed_message_receive(struct subprocess *child, int64_t bytes, struct packed_set *set,
                            int64_t number, struct error *theirs)
{
    struct packed_part(*part)[PACKED_SPLITS] = set->part;
    if (!subprocess_read(child, theirs, sizeof *theirs))
        return false;
    theirs->text[sizeof theirs->text - 1] = '\0';
    if (theirs->kind != ERROR_NONE)
        return true;
    bool good = subprocess_read(child, set, sizeof *set);
    const int64_t classes = set->classes;
    set->classes = 0;
    set->class_name = NULL;
    set->part = part;
    return good && subprocess_read(child, part[number], sizeof *part) &&
           classes_receive(child, set, classes, bytes);
}
