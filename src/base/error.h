// SPDX-License-Identifier: BSD-3-Clause
/* Errors of two kinds. A user's mistake (bad deck, missing file, full disk) is described in a
 * struct error and returned to the caller, so that all ranks can agree on one message and one exit
 * code. A programmer's mistake ends the job at once with rank, host, file and line (ENSURE). */
#ifndef VITTRAIN_BASE_ERROR_H
#define VITTRAIN_BASE_ERROR_H

#include <stdbool.h>

#include "base/allocate.h"

/* The exit codes of the program; documented by --help. */
enum error_kind {
    ERROR_NONE = 0,
    ERROR_INTERNAL = 1,   /* a programmer's mistake, or a library failed without a reason */
    ERROR_USAGE = 2,      /* command line, deck, combination of options */
    ERROR_DATA = 3,       /* data set or image: missing, truncated, out of range */
    ERROR_CHECKPOINT = 4, /* checkpoint or weights: damaged, of another model or version */
    ERROR_FILE = 5,       /* cannot write: disk full, permission, unwritable run folder */
    ERROR_MEMORY = 6,     /* too little memory of machine or device, or another limit */
    ERROR_NUMERIC = 7,    /* NaN or infinity in training, eval or predict */
    ERROR_PEER = 9,       /* another rank failed or does not answer */
    ERROR_UNFIT = 10,     /* `doctor` found a problem that must be fixed before a run */
    ERROR_DIFFERENT = 11  /* `verify` found other bits, or train.check_every a wrong gradient */
};

enum { ERROR_TEXT_SIZE = 2048 };

struct error {
    enum error_kind kind;
    char text[ERROR_TEXT_SIZE]; /* one line without newline: what failed, why, what to do */
    bool agreed;                /* the error is the same on all ranks (comm_agree) */
};

/* Mark a function whose result the caller must use: false means that it has set the error. */
#define MUST_CHECK __attribute__((warn_unused_result))

/* Discard the result of such a function where the caller examines the error later, as comm_agree
 * does for all ranks. */
static inline void error_defer(bool good)
{
    (void)good;
}

/* Describe a user's mistake. The first error is kept; later calls have no effect. Return false, so
 * that a function can end with `return error_set(...)`. */
bool error_set(struct error *error, enum error_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Clear the error. */
void error_clear(struct error *error);

/* Set rank and host for messages, and the function that ends the whole job (comm registers
 * MPI_Abort). Without it, error_abort ends this process only. */
void error_identify(int rank, const char *host);
int error_rank(void);
const char *error_host(void);
void error_on_abort(void (*handler)(int exit_code));

/* End the job with one line on stderr: rank, host, file and line. file NULL: this machine or job
 * has too little memory or threads; the line has advice, and the exit code is ERROR_MEMORY. */
void error_abort(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

/* Abort if a condition is false that only a programmer's mistake or a broken library can make
 * false. Checked in release builds too. */
#define ENSURE(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            error_abort(__FILE__, __LINE__, __VA_ARGS__);                                          \
    } while (0)

/* Abort with ERROR_MEMORY if an allocation or the creation of a thread failed. */
#define ENSURE_MEMORY(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            error_abort(NULL, 0, __VA_ARGS__);                                                     \
    } while (0)

#endif
