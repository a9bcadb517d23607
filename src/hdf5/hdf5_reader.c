// SPDX-License-Identifier: BSD-3-Clause
/* The reader and its child process. posix_spawn shares the memory of the parent until the exec, so
 * it is safe in a process with threads, MPI and pinned memory, where fork is not. The parent sends
 * the path of a file and the list of data sets, each with a zero byte. The child answers with the
 * length of the description in LENGTH hexadecimal digits and the description. */
#include "hdf5/hdf5_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/sensors.h"

extern char **environ;

enum { CPU_SECONDS = 5, WALL_SECONDS = 60, LENGTH = 16 };
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ /* sanitizers map terabytes */
enum { MEMORY_LIMITED = 0 };
#else
enum { MEMORY_LIMITED = 1 };
#endif
/* Bytes, besides what the program has mapped. */
static const rlim_t memory_more = (rlim_t)1 << 30, memory_least = (rlim_t)64 << 20;
/* Bytes of a description, and of a table. */
static const int64_t text_most = (int64_t)1 << 30, table_most = (int64_t)1 << 30;

bool hdf5_refuse(const struct hdf5_reader *reader, struct error *error, const char *format, ...)
{
    char reason[ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return error_set(error, reader->kind, "%s cannot be used as %s: %s", reader->path,
                     reader->purpose, reason);
}

/* ---- the parent of the child ---- */

/* A damaged file can cause these signals. The others are blocked in the child: they are sent from
 * outside, for example by mpirun, which forwards SIGUSR1 to all processes of a rank. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGXCPU};
enum { CRASHES = sizeof crashes / sizeof *crashes };

static const char *program = NULL;

void hdf5_child_set_program(const char *path)
{
    program = path;
}

/* Start the program with default signal handling. Standard error is /dev/null. */
static bool child_start(struct hdf5_child *child, struct error *error)
{
    char *const words[] = {(char[]){"vittrain"}, (char[]){HDF5_CHILD}, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t blocked, all;
    int ends[2] = {-1, -1};
    sigfillset(&all);
    blocked = all;
    sigdelset(&blocked, SIGALRM);
    for (int n = 0; n < CRASHES; n++)
        sigdelset(&blocked, crashes[n]);
    int failure = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setsigdefault(&attributes, &all);
    if (failure == 0)
        failure = posix_spawn(&child->pid, program, &files, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    child->socket = ends[0];
    close(ends[1]);
    if (failure == 0)
        return true;
    close(ends[0]);
    child->pid = 0;
    return error_set(error, ERROR_MEMORY,
                     "cannot start a process to read a file: %s; check the limits of this job "
                     "(ulimit -a) and that /proc is mounted",
                     strerror(failure));
}

/* Read exactly these bytes. */
static bool bytes_receive(const struct hdf5_child *child, char *to, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t done = read(child->socket, to, bytes);
        if (done == 0 || (done < 0 && errno != EINTR))
            return false;
        to += done > 0 ? done : 0;
        bytes -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* Close the socket, which ends the child. Return its wait status. */
static int child_wait(struct hdf5_child *child)
{
    int status = 0;
    close(child->socket);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    child->pid = 0;
    return status;
}

/* Return the description of reader->path that its child sends, which is started if necessary; NULL
 * with an error. If the file can be the cause (a crash, the limit on CPU time, an incomplete
 * answer), the error has the reader's kind, else ERROR_MEMORY. */
static char *child_describe(struct hdf5_reader *reader, struct error *error)
{
    const char *datasets = reader->datasets != NULL ? reader->datasets : "";
    struct hdf5_child *child = &reader->child;
    char length[LENGTH + 1] = "", *text = NULL;
    if (program == NULL)
        return hdf5_describe(reader->path, datasets);
    if (child->pid == 0 && !child_start(child, error))
        return NULL;
    const size_t request_bytes = strlen(reader->path) + strlen(datasets) + 2;
    OWNED char *request = allocate_text("%s%c%s", reader->path, '\0', datasets);
    ssize_t done;
    do
        done = send(child->socket, request, request_bytes, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    const bool good = done == (ssize_t)request_bytes && bytes_receive(child, length, LENGTH);
    const size_t bytes = strtoull(length, NULL, 16);
    if (good && bytes <= (size_t)text_most) {
        text = allocate(bytes + 1, 1);
        if (bytes_receive(child, text, bytes))
            return text;
        free(text);
    }
    const int status = child_wait(child), number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    char reason[128];
    if (number == SIGALRM)
        snprintf(reason, sizeof reason, "did not end within %d s", WALL_SECONDS);
    else if (number != 0)
        snprintf(reason, sizeof reason, "ended with signal %d (%s)", number, strsignal(number));
    else
        snprintf(reason, sizeof reason, "ended early with exit code %d", WEXITSTATUS(status));
    if (status == 0 || (number != 0 && number != SIGKILL && number != SIGALRM))
        error_set(error, reader->kind, "%s is damaged: the process that reads its structure %s",
                  reader->path, reason);
    else
        error_set(error, ERROR_MEMORY,
                  "cannot read %s: the process that reads its structure %s; check free memory, the "
                  "limits of this job (ulimit -a) and the disk, and start again",
                  reader->path, reason);
    return NULL;
}

/* ---- files ---- */

static void file_close(struct hdf5_reader *reader)
{
    json_decref(reader->description);
    free(reader->text);
    reader->description = reader->objects = NULL;
    reader->text = NULL;
    if (reader->is_open)
        close(reader->descriptor);
    reader->is_open = false;
}

void hdf5_reader_close(struct hdf5_reader *reader)
{
    file_close(reader);
    if (reader->child.pid != 0)
        child_wait(&reader->child);
}

bool hdf5_reader_describe(struct hdf5_reader *reader, const char *path,
                          const struct file_stamp *stamp, struct error *error)
{
    file_close(reader);
    reader->path = path;
    reader->stamp = *stamp;
    reader->bytes_read = 0;
    if (stamp->bytes == 0)
        return error_set(error, reader->kind, "%s is empty", path);
    reader->text = reader->received != NULL ? reader->received : child_describe(reader, error);
    reader->received = NULL;
    if (reader->text == NULL)
        return false;
    reader->description = json_loads(reader->text, 0, NULL);
    reader->objects = json_object_get(reader->description, "objects");
    const json_t *fault = json_object_get(reader->description, "fault");
    if (json_is_string(fault))
        return hdf5_refuse(reader, error, "%s", json_string_value(fault));
    return json_is_object(reader->objects) ||
           hdf5_refuse(reader, error, "its structure is invalid: the file is damaged");
}

bool hdf5_reader_open(struct hdf5_reader *reader, const char *path, struct error *error)
{
    struct file_stamp stamp;
    int64_t bytes;
    const int descriptor = text_file_descriptor(path, &bytes);
    if (descriptor < 0 || !file_stamp_read(descriptor, &stamp))
        return durable_unreadable(error, reader->kind, path, errno);
    const bool good = hdf5_reader_describe(reader, path, &stamp, error);
    reader->descriptor = descriptor;
    reader->is_open = true;
    return good;
}

/* ---- objects ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Read a list of at most `most` integers that are not negative, or none. */
static bool integers_read(const json_t *object, const char *key, int most, int64_t *values,
                          int *count)
{
    const json_t *list = json_object_get(object, key);
    bool good = json_array_size(list) <= (size_t)most;
    for (*count = 0; good && *count < (int)json_array_size(list); ++*count) {
        values[*count] = json_integer_value(json_array_get(list, (size_t)*count));
        good = values[*count] >= 0;
    }
    return good;
}

static const json_t *object_get(const struct hdf5_reader *reader, const char *path)
{
    return json_object_get(reader->objects, path + strspn(path, "/"));
}

bool hdf5_object_find(const struct hdf5_reader *reader, const char *path,
                      struct hdf5_object *object)
{
    const json_t *from = object_get(reader, path);
    int chunk_dimensions;
    *object = (struct hdf5_object){
        .kind = (enum hdf5_kind)json_integer_value(json_object_get(from, "kind")),
        .fault = text_of(from, "fault"),
        .attributes = json_object_get(from, "attributes"),
        .type = text_of(from, "type"),
        .layout = (enum hdf5_layout)json_integer_value(json_object_get(from, "layout")),
        .offset = json_integer_value(json_object_get(from, "offset")),
        .chunks = text_of(from, "chunks")};
    const bool is_dataset = object->kind == HDF5_DATASET;
    hdf5_real(json_object_get(from, "fill"), &object->fill);
    if (!integers_read(from, "extent", HDF5_DIMENSIONS, object->extent, &object->dimensions) ||
        !integers_read(from, "chunk", HDF5_DIMENSIONS, object->chunk, &chunk_dimensions) ||
        !integers_read(from, "filters", HDF5_FILTERS, object->filter, &object->filter_count) ||
        (object->layout == HDF5_CHUNKED && chunk_dimensions != object->dimensions) ||
        (unsigned)object->layout > HDF5_EXTERNAL || (is_dataset && strlen(object->type) < 2))
        object->fault = "its description is invalid: the file is damaged";
    else if (is_dataset)
        object->element_bytes = strtoll(object->type + 2, NULL, 10);
    return from != NULL;
}

const json_t *hdf5_attributes(const struct hdf5_reader *reader, const char *path)
{
    return json_object_get(object_get(reader, path), "attributes");
}

int64_t hdf5_elements(const struct hdf5_object *dataset)
{
    int64_t elements = 1;
    for (int d = 0; d < dataset->dimensions; d++)
        if (__builtin_mul_overflow(elements, dataset->extent[d], &elements))
            return -1;
    return elements;
}

/* ---- attributes ---- */

bool hdf5_real(const json_t *value, double *real)
{
    static const char *const names[] = {"NaN", "Infinity", "-Infinity"};
    const char *text = json_string_value(value);
    for (int n = 0; text != NULL && n < 3; n++)
        if (strcmp(text, names[n]) == 0) {
            *real = strtod(text, NULL);
            return true;
        }
    if (json_is_number(value))
        *real = json_number_value(value);
    return json_is_number(value);
}

bool hdf5_number_read(const struct hdf5_reader *reader, const struct hdf5_number *number, void *to,
                      struct error *error)
{
    const json_t *value = json_object_get(hdf5_attributes(reader, ""), number->name);
    const int64_t integer = json_integer_value(value);
    const bool is_real = number->kind == HDF5_REAL;
    double real = (double)integer;
    if (is_real ? json_is_integer(value) || !hdf5_real(value, &real)
                : !json_is_integer(value) || (number->kind == HDF5_UNSIGNED && integer < 0))
        return hdf5_refuse(reader, error, "its attribute '%s' is missing or not a number",
                           number->name);
    memcpy((char *)to + number->offset, is_real ? (const void *)&real : &integer, sizeof integer);
    return number->least == number->most || (real >= number->least && real <= number->most) ||
           hdf5_refuse(reader, error,
                       "its attribute %s=%.16g is not in the range of %.16g to %.16g", number->name,
                       real, number->least, number->most);
}

bool hdf5_text_read(const struct hdf5_reader *reader, const char *name, char *text, size_t size,
                    struct error *error)
{
    const char *value = json_string_value(json_object_get(hdf5_attributes(reader, ""), name));
    if (value == NULL)
        return hdf5_refuse(reader, error, "its attribute '%s' is missing or not a text", name);
    snprintf(text, size, "%s", value);
    return true;
}

/* ---- data sets ---- */

bool hdf5_dataset_find(const struct hdf5_reader *reader, const char *path, const char *type,
                       struct hdf5_object *dataset, struct error *error)
{
    static const char text[] = "|S";
    int64_t bytes;
    const char *reason = NULL;
    if (!hdf5_object_find(reader, path, dataset))
        reason = "is missing";
    else if (dataset->fault[0] != '\0')
        reason = "cannot be read by HDF5";
    else if (dataset->kind != HDF5_DATASET)
        reason = "is a group, a link or of another kind";
    else if (dataset->layout != HDF5_CONTIGUOUS)
        reason = "is chunked, virtual or in another file";
    else if (strcmp(type, text) == 0 ? strncmp(dataset->type, text, sizeof text - 1) != 0
                                     : strcmp(dataset->type, type) != 0)
        reason = "has the wrong type";
    else if (dataset->offset < 0 || dataset->element_bytes < 1 || hdf5_elements(dataset) < 1 ||
             __builtin_mul_overflow(hdf5_elements(dataset), dataset->element_bytes, &bytes) ||
             dataset->offset > reader->stamp.bytes || bytes > reader->stamp.bytes - dataset->offset)
        reason = "is empty or outside the file";
    return reason == NULL || hdf5_refuse(reader, error, "its data set '%s' %s", path, reason);
}

void *hdf5_dataset_read(struct hdf5_reader *reader, const char *path, const char *type,
                        struct hdf5_object *dataset, struct error *error)
{
    if (!hdf5_dataset_find(reader, path, type, dataset, error))
        return NULL;
    const int64_t bytes = hdf5_elements(dataset) * dataset->element_bytes;
    const json_t *crc = json_object_get(dataset->attributes, "crc32c");
    /* If many links refer to one data set, the sum of all reads must not exceed the file's size. */
    if (bytes > table_most || bytes > reader->stamp.bytes - reader->bytes_read) {
        hdf5_refuse(reader, error, "its table '%s' is too large: the file is damaged", path);
        return NULL;
    }
    reader->bytes_read += bytes;
    char *data = malloc((size_t)bytes + 1);
    if (data == NULL)
        error_set(error, ERROR_MEMORY, "%s: no memory for its table '%s' of %.1f MB", reader->path,
                  path, (double)bytes / 1e6);
    else if (durable_pread(reader->descriptor, data, (size_t)bytes, dataset->offset) !=
             (size_t)bytes)
        hdf5_refuse(reader, error, "cannot read its table '%s': %s", path,
                    errno == 0 ? "it is truncated" : strerror(errno));
    else if (json_is_integer(crc) &&
             crc32c_update(0, data, (size_t)bytes) != (uint32_t)json_integer_value(crc))
        hdf5_refuse(reader, error, "the checksum of its table '%s' is wrong: the file is damaged",
                    path);
    else {
        data[bytes] = '\0';
        return data;
    }
    free(data);
    return NULL;
}

/* ---- the child ---- */

/* Set a soft limit, at most the hard limit. */
static void limit_set(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;
    ENSURE(getrlimit(resource, &limit) == 0, "getrlimit: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    ENSURE(setrlimit(resource, &limit) == 0, "setrlimit: %s", strerror(errno));
}

static void time_limit(unsigned cpu_seconds)
{
    limit_set(RLIMIT_CPU, (rlim_t)(clock() / CLOCKS_PER_SEC) + cpu_seconds);
    alarm(WALL_SECONDS);
}

bool hdf5_child_limit(unsigned cpu_seconds)
{
    unsigned long long pages = 0; /* of address space that this process uses */
    text_file_number("/proc/self/statm", "", &pages);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit_set(RLIMIT_CORE, 0);
    if (MEMORY_LIMITED)
        limit_set(RLIMIT_AS, pages * (rlim_t)sysconf(_SC_PAGESIZE) + memory_more);
    time_limit(cpu_seconds);
    /* A lower limit of the job would make HDF5 report objects of valid files as missing. */
    return memory_mappable(memory_least);
}

/* A file whose description does not fit in memory is damaged. */
static void *allocate_or_crash(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        abort();
    return memory;
}

/* A program's error, such as no memory, ends the child like a crash of the library. */
static void crash(int exit_code)
{
    (void)exit_code;
    abort();
}

_Noreturn void hdf5_child_run(void)
{
    char *path = NULL, *datasets = NULL;
    size_t size = 0, datasets_size = 0;
    json_set_alloc_funcs(allocate_or_crash, free);
    error_on_abort(crash);
    if (!hdf5_child_limit(CPU_SECONDS))
        _exit(ERROR_MEMORY);
    while (getdelim(&path, &size, '\0', stdin) > 0 &&
           getdelim(&datasets, &datasets_size, '\0', stdin) > 0) {
        time_limit(CPU_SECONDS);
        char *text = hdf5_describe(path, datasets);
        printf("%0*zx%s", LENGTH, strlen(text), text);
        fflush(stdout);
        free(text);
        alarm(0);
    }
    _exit(ERROR_NONE); /* HDF5's exit handlers may crash after a damaged file */
}
