// SPDX-License-Identifier: BSD-3-Clause
/* The message is the error, struct checkpoint_contents with its pointers cleared, and the arrays
 * and texts in the order below. The parent trusts no count in it. */
#include "checkpoint/checkpoint_message.h"

#include <stdio.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint_frame.h"

static void pointers_clear(struct checkpoint_contents *contents)
{
    contents->deck = contents->metadata = contents->data = contents->algorithms = NULL;
    contents->units = NULL;
    contents->layout = NULL;
    contents->pieces = NULL;
}

static void contents_send(const struct checkpoint_contents *contents)
{
    struct checkpoint_contents plain = *contents;
    pointers_clear(&plain);
    subprocess_write(&plain, sizeof plain, 1);
    subprocess_write_text(contents->deck);
    subprocess_write_text(contents->metadata);
    subprocess_write_text(contents->data);
    subprocess_write_text(contents->algorithms);
    subprocess_write(contents->layout, sizeof *contents->layout, contents->unit_count);
    subprocess_write(contents->pieces, sizeof *contents->pieces, contents->piece_count);
    subprocess_write(contents->units, sizeof *contents->units, contents->unit_count);
    for (int64_t u = 0; u < contents->unit_count; u++)
        subprocess_write(contents->units[u].tensors, sizeof *contents->units[u].tensors,
                         contents->units[u].tensor_count);
}

int checkpoint_message_send(const char *path)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    struct error error = {.kind = ERROR_NONE};
    struct stat file;
    if (stat(path, &file) != 0)
        return ERROR_CHECKPOINT;
    contents.bytes = (int64_t)file.st_size;
    bool good = checkpoint_frame_read(path, &contents, &error);
    subprocess_write(&error, sizeof error, 1);
    if (good)
        contents_send(&contents);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : ERROR_FILE;
}

static bool units_receive(struct subprocess *child, struct checkpoint_contents *contents,
                          int64_t count)
{
    void *array;
    if (!subprocess_read_array(child, &array, sizeof *contents->units, count, contents->bytes))
        return false;
    contents->units = array;
    for (int64_t u = 0; u < count; u++)
        contents->units[u].tensors = NULL;
    contents->unit_count = count;
    for (int64_t u = 0; u < count; u++) {
        struct unit *unit = &contents->units[u];
        if (!subprocess_read_array(child, &array, sizeof *unit->tensors, unit->tensor_count,
                                   contents->bytes))
            return false;
        unit->tensors = array;
    }
    return true;
}

/* On entry `contents` has the counts of the message, and its pointers are NULL. */
static bool arrays_receive(struct subprocess *child, struct checkpoint_contents *contents)
{
    const int64_t most = contents->bytes; /* an element needs at least a byte of the file */
    const int64_t units = contents->unit_count;
    void *layout = NULL, *pieces = NULL;
    contents->unit_count = 0;
    bool good = subprocess_read_text(child, &contents->deck, most) &&
                subprocess_read_text(child, &contents->metadata, most) &&
                subprocess_read_text(child, &contents->data, most) &&
                subprocess_read_text(child, &contents->algorithms, most) &&
                subprocess_read_array(child, &layout, sizeof *contents->layout, units, most) &&
                subprocess_read_array(child, &pieces, sizeof *contents->pieces,
                                      contents->piece_count, most);
    contents->layout = layout;
    contents->pieces = pieces;
    return good && units_receive(child, contents, units);
}

bool checkpoint_message_receive(struct subprocess *child, struct checkpoint_contents *contents,
                                struct error *theirs)
{
    const int64_t bytes = contents->bytes;
    if (!subprocess_read(child, theirs, sizeof *theirs))
        return false;
    theirs->text[sizeof theirs->text - 1] = '\0';
    if (theirs->kind != ERROR_NONE)
        return true;
    bool good = subprocess_read(child, contents, sizeof *contents);
    pointers_clear(contents);
    contents->units_borrowed = false;
    contents->state.finished = contents->finished != 0;
    contents->bytes = bytes;
    return good && arrays_receive(child, contents);
}
