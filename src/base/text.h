// SPDX-License-Identifier: BSD-3-Clause
/* Small functions on text. */
#ifndef VITTRAIN_BASE_TEXT_H
#define VITTRAIN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* True if a name ends so and has something before the ending: ".h5" alone is no checkpoint. */
bool text_ends_with(const char *text, const char *ending);

/* Return the last component of a path: what follows the last slash, else the last colon, as in
 * "remote:file". */
const char *text_base_name(const char *path);

/* True for a path on a remote of rclone: it has a colon before the first slash ("s3:bucket/path").
 * "./a:b" is a file. */
bool text_is_remote(const char *path);

/* Write the shortest decimal that reads back to the same bits, of a double or of a float. */
void text_shortest_decimal(double value, bool is_float, char *text, size_t size);

/* Return the candidate nearest to `word` by edit distance, or NULL if none is near. The list of
 * candidates ends with NULL. */
const char *text_nearest(const char *word, const char *const *candidates);

/* Copy a text; from one that does not fit, leave out a part before the middle. size >= 8 */
void text_shorten(const char *text, char *to, size_t size);

/* Replace the password in each URL ("https://user:password@host") and in each connection string of
 * rclone (":sftp,pass=password:path") of a text by at most three stars, in place. */
void text_mask_password(char *text);

/* Replace control characters, which the name of a file or of a class may contain, by spaces: those
 * of ASCII, and U+0080 to U+009F in UTF-8. */
void text_remove_control(char *text);

/* Return the next item of a comma-separated list, without spaces around it, and its length; NULL at
 * the end. `list`: the list, or the end of the previous item. */
const char *text_next_item(const char *list, size_t *length);

/* True if such a list has an item. */
bool text_has_item(const char *list, const char *item);

/* A text that is written as a stream (open_memstream). text_stream_open returns the stream.
 * text_stream_close closes it and returns the text, to be freed by the caller; `length` is then
 * valid. Both abort with ERROR_MEMORY if memory is short. */
struct text_stream {
    FILE *stream;
    char *text;
    size_t length;
};
FILE *text_stream_open(struct text_stream *text);
char *text_stream_close(struct text_stream *text);

/* Convert bytes to MiB, the unit of memory in tables and messages. */
static inline double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

#endif
