// SPDX-License-Identifier: BSD-3-Clause
/* Packs a data set: all ranks write its records into a few large files. The layout follows from the
 * sizes of the records alone, so any number of ranks writes the same bytes. Rank 0 writes the
 * headers; then each rank writes a contiguous slice of the records with pwrite. Files are called
 * .part until everything is on disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "config/options.h"
#include "core/allocate.h"
#include "core/clock.h"
#include "core/durable.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/random.h"
#include "data/crop.h"
#include "data/packed.h"

enum { RUN_BYTES = 8 << 20, RUN_RECORDS = 8192, RESTART_PIXELS = 64 };

/* Seconds between two all-reduces of progress and errors. */
static const double ROUND = 0.5, LOG_EVERY = 30;

/* Consecutive records that are not written yet. */
struct run {
    struct byte_buffer bytes;
    int64_t begin, count; /* positions in the sequence */
    int64_t file;
    int split;
    int32_t *label;  /* [RUN_RECORDS] */
    uint32_t *crc;   /* [RUN_RECORDS] */
    int64_t *offset; /* [RUN_RECORDS] */
};

/* The sequence consists of the records of all splits. */
struct packing {
    const struct packed_plan *plan;
    struct comm *world;
    struct dataset source[PACKED_SPLITS]; /* format NULL: this split is not packed */
    struct packed_set set;
    int64_t first[PACKED_SPLITS + 1]; /* first record in the sequence */
    uint32_t *order;                  /* permutation of training samples, if shuffled */
    int64_t *before;      /* encoded: [count + 1] bytes of the sequence before each record */
    int64_t record_bytes; /* decoded */
    struct crop crop;
    struct crop_scratch scratch;
    struct byte_buffer loaded, restarted;
    struct run run;
    int *descriptor; /* [files] descriptors; -1: not open */
    int64_t made;    /* rank 0: number of .part files created */
};

static int64_t count_of(const struct packing *packing)
{
    return packing->first[PACKED_SPLITS];
}

static int64_t bytes_before(const struct packing *packing, int64_t number)
{
    return packing->before != NULL ? packing->before[number] : number * packing->record_bytes;
}

/* Find the split of a record of the sequence and its index in the source. */
static int split_of(const struct packing *packing, int64_t number, int64_t *index)
{
    int split = 0;
    while (number >= packing->first[split + 1])
        split++;
    *index = number - packing->first[split];
    if (split == SPLIT_TRAIN && packing->order != NULL)
        *index = packing->order[*index];
    return split;
}

/* Range of records of this rank. */
static void slice_of(const struct packing *packing, int64_t *begin, int64_t *end)
{
    int64_t count;
    cut_evenly(count_of(packing), packing->world->size, packing->world->rank, begin, &count);
    *end = *begin + count;
}

/* ---- the source ---- */

static bool source_open(struct packing *packing, const struct options *options, struct error *error)
{
    struct options changed = *options;
    if (options->data.val == VALIDATION_REFERENCE)
        changed.data.val = VALIDATION_TEST;
    bool good = dataset_open(&packing->source[SPLIT_TRAIN], &changed, SPLIT_TRAIN, error);
    if (good && (options->data.val == VALIDATION_VAL || options->data.val == VALIDATION_FRACTION))
        good = dataset_open(&packing->source[SPLIT_VALIDATION], &changed, SPLIT_VALIDATION, error);
    if (good && options->data.val != VALIDATION_NONE)
        good = dataset_open(&packing->source[SPLIT_TEST], &changed, SPLIT_TEST, error);
    if (!comm_agree(packing->world, error))
        return false;
    bool same = true;
    for (int split = 0; split < PACKED_SPLITS; split++) {
        const struct dataset *source = &packing->source[split];
        same = comm_same(packing->world, &source->count, sizeof source->count) && same;
        same = comm_same(packing->world, &source->sum, sizeof source->sum) && same;
    }
    if (!same)
        return error_set(error, ERROR_DATA,
                         "the data differ between ranks: use the same data.root on all nodes");
    /* A source without a test split returns its validation split instead: skip it. */
    struct dataset *test = &packing->source[SPLIT_TEST];
    const struct dataset *validation = &packing->source[SPLIT_VALIDATION];
    if (validation->format != NULL && test->format != NULL && test->format->name_record != NULL) {
        char name[2][4096];
        dataset_name(validation, 0, name[0], sizeof name[0]);
        dataset_name(test, 0, name[1], sizeof name[1]);
        if (strcmp(name[0], name[1]) == 0)
            dataset_close(test);
    }
    for (int split = 0; split < PACKED_SPLITS; split++)
        packing->first[split + 1] = packing->first[split] + packing->source[split].count;
    return true;
}

static bool crop_choose(struct packing *packing, const struct options *options, struct error *error)
{
    const struct packed_plan *plan = packing->plan;
    const struct dataset *source = &packing->source[SPLIT_TRAIN];
    struct packed_set *set = &packing->set;
    const int64_t size = plan->size;
    if (size == 0 && source->encoded)
        return error_set(error, ERROR_USAGE,
                         "convert.kind=decoded: the image size is unknown; set convert.size");
    set->height = size > 0 ? size : source->height;
    set->width = size > 0 ? size : source->width;
    packing->record_bytes = set->channels * set->height * set->width;
    if (!source->encoded && set->height == source->height && set->width == source->width)
        return true;
    struct options changed = *options;
    changed.eval.resize = size;
    changed.eval.resize_to = options->convert.resize_to;
    changed.eval.crop = options->convert.resize_to == RESIZE_SHORTER ? CROP_CENTER : CROP_NONE;
    return crop_open(&packing->crop, &changed, true, (struct image_size){size, size}, false, error);
}

static bool set_describe(struct packing *packing, const struct options *options,
                         struct error *error)
{
    const struct dataset *source = &packing->source[SPLIT_TRAIN];
    struct packed_set *set = &packing->set;
    if (source->type != DATASET_UINT8)
        return error_set(error, ERROR_USAGE,
                         "convert data: records of data.format=%s are float32, and packed files "
                         "hold images; train on the files as they are",
                         options->data.format);
    set->encoded = packing->plan->as_source ? source->encoded : !packing->plan->decode;
    set->shuffled = packing->plan->shuffle;
    set->channels = source->channels;
    set->classes = source->classes;
    set->class_name = source->class_name; /* owned by the source */
    set->normalised = source->normalised;
    memcpy(set->mean, source->mean, sizeof set->mean);
    memcpy(set->std, source->std, sizeof set->std);
    for (int split = 0; split < PACKED_SPLITS; split++)
        set->total[split] = packing->source[split].count;
    snprintf(set->source, sizeof set->source, "%s %s", options->data.format, options->data.root);
    snprintf(set->program, sizeof set->program, "%s", PACKAGE_STRING);
    if (set->encoded && !source->encoded)
        return error_set(
            error, ERROR_USAGE,
            "convert.kind=encoded: records of data.format=%s are pixels, not image files",
            options->data.format);
    if (!set->encoded && !crop_choose(packing, options, error))
        return false;
    if (!set->shuffled)
        return true;
    packing->order = allocate((size_t)source->count, sizeof *packing->order);
    random_permutation((uint64_t)options->run.seed, RANDOM_PACK, 0, (uint32_t)source->count,
                       packing->order);
    return true;
}

/* ---- layout ---- */

/* Load a file, and add restart markers if the plan requires them and they are possible. Return the
 * bytes; NULL on error. */
static const struct byte_buffer *file_load(struct packing *packing, struct dataset *source,
                                           int64_t index, int32_t *label, struct error *error)
{
    const struct packed_plan *plan = packing->plan;
    struct byte_buffer *file = &packing->loaded, *restarted = &packing->restarted;
    if (!dataset_load(source, index, file, label, error))
        return NULL;
    return plan->restarts && image_jpeg_add_restarts(file->data, file->count, plan->most_pixels,
                                                     RESTART_PIXELS, restarted)
               ? restarted
               : file;
}

static int64_t file_size(struct packing *packing, struct dataset *source, int64_t index,
                         struct error *error)
{
    int32_t label;
    if (!packing->plan->restarts)
        return source->format->size(source, dataset_record(source, index), error);
    const struct byte_buffer *file = file_load(packing, source, index, &label, error);
    return file != NULL ? (int64_t)file->count : 0;
}

/* Each rank finds the sizes of the files of its slice. */
static bool sizes_find(struct packing *packing, struct error *error)
{
    const int64_t count = count_of(packing);
    int64_t begin, end, index;
    if (!packing->set.encoded)
        return true;
    packing->before = allocate((size_t)count + 1, sizeof *packing->before);
    slice_of(packing, &begin, &end);
    for (int64_t i = begin; i < end && error->kind == ERROR_NONE; i++) {
        struct dataset *source = &packing->source[split_of(packing, i, &index)];
        packing->before[i + 1] = file_size(packing, source, index, error);
    }
    if (!comm_agree(packing->world, error))
        return false;
    comm_all_reduce(packing->world, packing->before, count + 1, COMM_INT64, COMM_SUM);
    for (int64_t i = 0; i < count; i++)
        packing->before[i + 1] += packing->before[i];
    return true;
}

/* Distribute the records of the sequence: each file is filled before the next. Sets set.part if it
 * is not NULL; returns the number of files. */
static int64_t files_cut(struct packing *packing)
{
    struct packed_set *set = &packing->set;
    const int64_t most = packing->plan->file_bytes;
    int64_t file = 0, begin = 0;
    for (int split = 0; split < PACKED_SPLITS; split++)
        for (int64_t i = packing->first[split]; i < packing->first[split + 1]; i++) {
            const int64_t end = bytes_before(packing, i + 1);
            if (most > 0 && i > begin && end - bytes_before(packing, begin) > most) {
                begin = i;
                file++;
            }
            if (set->part == NULL)
                continue;
            struct packed_part *part = &set->part[file][split];
            if (part->records++ == 0)
                part->first = i - packing->first[split];
            part->byte_count = end - bytes_before(packing, packing->first[split] + part->first);
        }
    return file + 1;
}

static bool files_plan(struct packing *packing, struct error *error)
{
    struct packed_set *set = &packing->set;
    set->files = files_cut(packing);
    if (set->files > PACKED_MOST_FILES)
        return error_set(error, ERROR_USAGE, "convert.file_size would create %lld files: raise it",
                         (long long)set->files);
    set->part = allocate((size_t)set->files, sizeof *set->part);
    packing->descriptor = allocate((size_t)set->files, sizeof *packing->descriptor);
    for (int64_t file = 0; file < set->files; file++)
        packing->descriptor[file] = -1;
    files_cut(packing);
    return true;
}

/* ---- the files ---- */

static void part_path(const struct packing *packing, int64_t file, char path[PACKED_PATH + 8])
{
    char final[PACKED_PATH];
    packed_path(final, packing->plan->name, file, packing->set.files);
    snprintf(path, PACKED_PATH + 8, "%s.part", final);
}

/* Rank 0 only. */
static void frames_make(struct packing *packing, struct error *error)
{
    char path[PACKED_PATH + 8];
    struct error none = {0};
    char found[PACKED_PATH];
    int64_t files;
    bool good = !packed_find(packing->plan->name, found, &files, &none) ||
                error_set(error, ERROR_FILE, "%s already exists: remove it or choose another name",
                          packing->plan->name);
    for (int64_t file = 0; good && file < packing->set.files; file++) {
        int64_t bytes;
        part_path(packing, file, path);
        packing->descriptor[file] = durable_create(path, error);
        good = packing->descriptor[file] >= 0;
        packing->made += good;
        good = good && packed_frame_create(packing->descriptor[file], path, &packing->set, file,
                                           &bytes, error);
    }
}

/* True if this is the file that rank 0 created. */
static bool file_open(struct packing *packing, int64_t file, int64_t inode, struct error *error)
{
    char path[PACKED_PATH + 8];
    struct stat status;
    part_path(packing, file, path);
    if (stat(path, &status) != 0 || (int64_t)status.st_ino != inode)
        return error_set(error, ERROR_FILE,
                         "%s, created by rank 0, is not visible here: the nodes do not share this "
                         "folder; write to a shared folder, or pack with the ranks of one node",
                         path);
    if (packing->world->rank > 0)
        packing->descriptor[file] = durable_open(path, error);
    return packing->descriptor[file] >= 0;
}

static bool files_open(struct packing *packing, struct error *error)
{
    struct packed_set *set = &packing->set;
    struct comm *world = packing->world;
    int64_t *inode = allocate((size_t)set->files, sizeof *inode);
    if (world->rank == 0)
        frames_make(packing, error);
    bool good = comm_agree(world, error);
    struct stat status;
    for (int64_t file = 0; good && world->rank == 0 && file < set->files; file++)
        inode[file] = fstat(packing->descriptor[file], &status) == 0 ? (int64_t)status.st_ino : -1;
    if (good) {
        comm_broadcast(world, set->part, set->files * (int64_t)sizeof *set->part, COMM_BYTE, 0);
        comm_broadcast(world, inode, set->files, COMM_INT64, 0);
    }
    for (int64_t file = 0; good && file < set->files; file++)
        good = file_open(packing, file, inode[file], error);
    free(inode);
    return comm_agree(world, error);
}

/* ---- records ---- */

/* Write the collected records and their rows of the tables. */
static bool run_write(struct packing *packing, struct error *error)
{
    struct run *run = &packing->run;
    char path[PACKED_PATH + 8];
    if (run->count == 0)
        return true;
    const struct packed_part *part = &packing->set.part[run->file][run->split];
    const int64_t part_begin = packing->first[run->split] + part->first;
    const int64_t row = run->begin - part_begin, base = bytes_before(packing, part_begin);
    const size_t rows = (size_t)run->count;
    const int descriptor = packing->descriptor[run->file];
    part_path(packing, run->file, path);
    for (int64_t i = 0; i < run->count; i++)
        run->offset[i] = bytes_before(packing, run->begin + i + 1) - base;
    const bool good =
        durable_write(descriptor, path, run->bytes.data, run->bytes.count,
                      part->bytes + bytes_before(packing, run->begin) - base, error) &&
        durable_write(descriptor, path, run->label, rows * sizeof *run->label,
                      part->label + row * (int64_t)sizeof *run->label, error) &&
        durable_write(descriptor, path, run->crc, rows * sizeof *run->crc,
                      part->crc + row * (int64_t)sizeof *run->crc, error) &&
        (!packing->set.encoded || /* the first offset stays 0 */
         durable_write(descriptor, path, run->offset, rows * sizeof *run->offset,
                       part->offset + (row + 1) * (int64_t)sizeof *run->offset, error));
    run->count = 0;
    run->bytes.count = 0;
    return good;
}

/* Make space for a record at the end of the run; write the run first if the record does not fit or
 * does not follow it. */
static bool run_extend(struct packing *packing, int64_t number, int split, int64_t bytes,
                       struct error *error)
{
    struct run *run = &packing->run;
    const int64_t place = number - packing->first[split];
    int64_t file = run->file;
    while (packing->set.part[file][split].records == 0 ||
           place >= packing->set.part[file][split].first + packing->set.part[file][split].records)
        file++;
    if ((run->file != file || run->split != split || run->count == RUN_RECORDS ||
         run->bytes.count + (size_t)bytes > run->bytes.capacity) &&
        !run_write(packing, error))
        return false;
    if (run->count == 0) {
        run->begin = number;
        run->file = file;
        run->split = split;
    }
    return byte_buffer_reserve(&run->bytes, (size_t)(bytes > RUN_BYTES ? bytes : RUN_BYTES), error);
}

static bool record_pack(struct packing *packing, int64_t number, struct error *error)
{
    struct run *run = &packing->run;
    int64_t index;
    const int split = split_of(packing, number, &index);
    const int64_t bytes = bytes_before(packing, number + 1) - bytes_before(packing, number);
    if (!run_extend(packing, number, split, bytes, error))
        return false;
    uint8_t *place = run->bytes.data + run->bytes.count;
    int32_t *label = &run->label[run->count];
    struct dataset *source = &packing->source[split];
    if (packing->set.encoded) {
        const struct byte_buffer *file = file_load(packing, source, index, label, error);
        if (file == NULL)
            return false;
        struct error changed = {0};
        error_set(&changed, ERROR_DATA, "it changed while it was packed");
        if ((int64_t)file->count != bytes)
            return dataset_name_error(source, index, &changed, error);
        memcpy(place, file->data, file->count);
    } else if (packing->crop.active) {
        if (!crop_sample(&packing->crop, source, 0, index, &packing->scratch, place, label, error))
            return false;
    } else if (!dataset_read(source, index, place, label, error)) {
        return false;
    }
    run->crc[run->count++] = packed_crc(place, (size_t)bytes, *label);
    run->bytes.count += (size_t)bytes;
    return true;
}

/* Work in rounds; after each, all ranks exchange progress and errors. */
static bool records_pack(struct packing *packing, struct error *error)
{
    const double began = clock_now();
    double logged = began;
    int64_t next, end, done = 0;
    slice_of(packing, &next, &end);
    const int64_t begin = next, count = count_of(packing);
    struct run *run = &packing->run;
    run->label = allocate(RUN_RECORDS, sizeof *run->label);
    run->crc = allocate(RUN_RECORDS, sizeof *run->crc);
    run->offset = allocate(RUN_RECORDS, sizeof *run->offset);
    do {
        const double round = clock_now();
        while (next < end && error->kind == ERROR_NONE && clock_now() - round < ROUND)
            if (record_pack(packing, next, error))
                next++;
        if (error->kind == ERROR_NONE && next == end)
            run_write(packing, error);
        if (!comm_agree(packing->world, error))
            return false;
        done = next - begin;
        comm_all_reduce(packing->world, &done, 1, COMM_INT64, COMM_SUM);
        const double now = clock_now();
        const double speed = (double)bytes_before(packing, done) / 1e6 / (now - began);
        log_progress("%lld of %lld records, %.0f MB/s", (long long)done, (long long)count, speed);
        if (now - logged >= LOG_EVERY && !log_is_terminal()) {
            logged = now;
            log_info("%lld of %lld records, %.0f MB/s", (long long)done, (long long)count, speed);
        }
    } while (done < count);
    log_progress_end();
    return true;
}

/* ---- the end ---- */

static bool files_finish(struct packing *packing, struct error *error)
{
    char path[PACKED_PATH + 8], final[PACKED_PATH];
    for (int64_t file = 0; file < packing->set.files; file++) {
        part_path(packing, file, path);
        const int descriptor = packing->descriptor[file];
        packing->descriptor[file] = -1;
        if (error->kind == ERROR_NONE)
            error_defer(durable_sync(descriptor, path, error));
        error_defer(durable_close(descriptor, path, error));
    }
    if (!comm_agree(packing->world, error))
        return false;
    for (int64_t file = 0; packing->world->rank == 0 && file < packing->set.files; file++) {
        part_path(packing, file, path);
        packed_path(final, packing->plan->name, file, packing->set.files);
        if (error->kind == ERROR_NONE)
            error_defer(durable_rename(path, final, error));
    }
    return comm_agree(packing->world, error);
}

static void packing_close(struct packing *packing, bool good)
{
    char path[PACKED_PATH + 8];
    for (int64_t file = 0; packing->descriptor != NULL && file < packing->set.files; file++)
        if (packing->descriptor[file] >= 0)
            close(packing->descriptor[file]);
    for (int64_t file = 0; !good && file < packing->made; file++) {
        part_path(packing, file, path);
        unlink(path);
    }
    for (int split = 0; split < PACKED_SPLITS; split++)
        dataset_close(&packing->source[split]);
    packing->set.class_name = NULL;
    packed_set_free(&packing->set);
    crop_scratch_free(&packing->scratch);
    free(packing->order);
    free(packing->before);
    free(packing->loaded.data);
    free(packing->restarted.data);
    free(packing->run.bytes.data);
    free(packing->run.label);
    free(packing->run.crc);
    free(packing->run.offset);
    free(packing->descriptor);
}

bool packed_write(const struct options *options, const struct packed_plan *plan, struct comm *world,
                  int64_t *bytes, struct error *error)
{
    struct packing packing = {.plan = plan, .world = world};
    bool good = source_open(&packing, options, error);
    if (good) {
        error_defer(set_describe(&packing, options, error));
        good = comm_agree(world, error);
    }
    good = good && sizes_find(&packing, error);
    if (good) {
        files_plan(&packing, error);
        good = comm_agree(world, error);
    }
    good = good && files_open(&packing, error) && records_pack(&packing, error) &&
           files_finish(&packing, error);
    *bytes = good ? bytes_before(&packing, count_of(&packing)) : 0;
    packing_close(&packing, good);
    return good;
}
