// SPDX-License-Identifier: BSD-3-Clause
/* Errors. Nothing here allocates memory, so that errors work when memory is short. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { HOST_SIZE = 256 };

static int own_rank = 0;
static char own_host[HOST_SIZE] = "this host";
static void (*abort_handler)(int exit_code) = NULL;

bool error_set(struct error *error, enum error_kind kind, const char *format, ...)
{
    if (error->kind != ERROR_NONE)
        return false;
    error->kind = kind;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    text_remove_control(error->text);
    text_mask_password(error->text);
    return false;
}

void error_clear(struct error *error)
{
    error->kind = ERROR_NONE;
    error->text[0] = '\0';
    error->agreed = false;
}

void error_identify(int rank, const char *host)
{
    own_rank = rank;
    snprintf(own_host, sizeof own_host, "%s", host);
}

int error_rank(void)
{
    return own_rank;
}

const char *error_host(void)
{
    return own_host;
}

void error_on_abort(void (*handler)(int exit_code))
{
    abort_handler = handler;
}

void error_abort(const char *file, int line, const char *format, ...)
{
    char text[ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_remove_control(text);
    fflush(stdout);
    const enum error_kind kind = file == NULL ? ERROR_MEMORY : ERROR_INTERNAL;
    if (kind == ERROR_MEMORY)
        fprintf(stderr,
                "vittrain: error: rank %d on %s: %s; check free memory and the limits of this job "
                "(ulimit -v, ulimit -u)\n",
                own_rank, own_host, text);
    else
        fprintf(stderr, "vittrain: internal error: rank %d on %s: %s (%s:%d)\n", own_rank, own_host,
                text, file, line);
    fflush(stderr);
    if (abort_handler != NULL)
        abort_handler(kind);
    _Exit(kind);
}
