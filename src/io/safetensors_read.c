/* Reads weights from safetensors. Rank 0 decides for each of the model's tensors where it comes
 * from, and lists all that cannot be before anything is read; then it reads block by block and
 * sends each block to everybody, who keep what is their own. */
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "io/durable.h"
#include "io/position_resize.h"
#include "io/safetensors_header.h"
#include "io/vectors.h"

enum source_kind { SOURCE_NONE, SOURCE_COPY, SOURCE_RESIZE };

/* Where one of the model's tensors comes from. */
struct source {
    int64_t kind; /* enum source_kind; NONE keeps its random start */
    int u;
    const struct unit_tensor *tensor;
    const struct safetensors_entry *entry; /* rank 0 only */
};

struct reading {
    const char *path;
    const struct flat_model *flat;
    int descriptor;
    struct safetensors_header header;
    struct source *source; /* [source_count] */
    int source_count;
    unsigned char *raw; /* a block as it is in the file */
    float *block;
};

/* ---- the plan ---- */

static int64_t exact_root(int64_t n)
{
    int64_t root = n < 0 ? -1 : (int64_t)llround(sqrt((double)n));
    return root * root == n ? root : -1;
}

static bool model_has(const struct flat_model *flat, const char *name)
{
    for (int u = 0; u < flat->count; u++)
        for (int t = 0; t < flat->buffers[u].unit->tensor_count; t++)
            if (strcmp(flat->buffers[u].unit->tensors[t].name, name) == 0)
                return true;
    return false;
}

/* Rows of position embeddings that belong to no patch. */
static int64_t prefix_tokens(const struct flat_model *flat)
{
    return model_has(flat, "cls_token") ? 1 : 0;
}

static bool same_shape(const struct unit_tensor *tensor, const struct safetensors_entry *entry,
                       int from_dimension)
{
    if (tensor->dimensions != entry->dimensions)
        return false;
    for (int d = from_dimension; d < tensor->dimensions; d++)
        if (tensor->shape[d] != entry->shape[d])
            return false;
    return true;
}

/* The classifier's last layer, with another number of classes. */
static bool is_other_head(const struct reading *reading, const struct source *source)
{
    return source->u == reading->flat->count - 1 &&
           strncmp(source->tensor->name, "head.", 5) == 0 &&
           same_shape(source->tensor, source->entry, 1);
}

static bool is_other_grid(const struct reading *reading, const struct source *source)
{
    const struct unit_tensor *tensor = source->tensor;
    const struct safetensors_entry *entry = source->entry;
    int64_t prefix = prefix_tokens(reading->flat);
    return strcmp(tensor->name, "pos_embed") == 0 && tensor->dimensions == 3 &&
           same_shape(tensor, entry, 2) && entry->shape[0] == 1 &&
           exact_root(tensor->shape[1] - prefix) > 0 && exact_root(entry->shape[1] - prefix) > 0;
}

static void shape_text(const int64_t *shape, int dimensions, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < dimensions && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

/* A list in one line; what does not fit is counted. */
struct list {
    char text[ERROR_TEXT_SIZE - 512];
    int left_out;
};

__attribute__((format(printf, 2, 3))) static void list_add(struct list *list, const char *format,
                                                           ...)
{
    char item[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(item, sizeof item, format, arguments);
    va_end(arguments);
    size_t used = strlen(list->text);
    if (used + strlen(item) + 3 > sizeof list->text)
        list->left_out++;
    else
        snprintf(list->text + used, sizeof list->text - used, "%s%s", used > 0 ? ", " : "", item);
}

static void list_end(struct list *list, char *rest, size_t size)
{
    rest[0] = '\0';
    if (list->left_out > 0)
        snprintf(rest, size, " and %d more", list->left_out);
}

/* Decides for one tensor; what cannot be is added to `bad`. */
static void choose_source(const struct reading *reading, struct source *source, struct list *bad)
{
    const struct unit_tensor *tensor = source->tensor;
    enum safetensors_type type;
    char here[96], there[96];
    source->entry = safetensors_find(&reading->header, tensor->name);
    if (source->entry == NULL) {
        list_add(bad, "%s is missing", tensor->name);
        return;
    }
    const struct safetensors_entry *entry = source->entry;
    shape_text(tensor->shape, tensor->dimensions, here, sizeof here);
    shape_text(entry->shape, entry->dimensions, there, sizeof there);
    if (!safetensors_is_weight(entry, &type))
        list_add(bad, "%s has dtype %s", tensor->name, entry->dtype);
    else if (same_shape(tensor, entry, 0))
        source->kind = SOURCE_COPY;
    else if (is_other_head(reading, source))
        log_info("%s: %s is %s there and %s here: it keeps its random start", reading->path,
                 tensor->name, there, here);
    else if (is_other_grid(reading, source)) {
        source->kind = SOURCE_RESIZE;
        log_info("%s: %s is %s there and %s here: it is resized", reading->path, tensor->name,
                 there, here);
    } else
        list_add(bad, "%s is %s instead of %s", tensor->name, there, here);
}

static void name_extra(const struct reading *reading)
{
    struct list extra = {.left_out = 0};
    char rest[64];
    for (int64_t n = 0; n < reading->header.count; n++)
        if (!model_has(reading->flat, reading->header.entry[n].name))
            list_add(&extra, "%.64s", reading->header.entry[n].name);
    list_end(&extra, rest, sizeof rest);
    if (extra.text[0] != '\0')
        log_warn("%s: ignored, as this model has no such tensors: %s%s", reading->path, extra.text,
                 rest);
}

static void list_tensors(struct reading *reading)
{
    const struct flat_model *flat = reading->flat;
    for (int u = 0; u < flat->count; u++)
        reading->source_count += flat->buffers[u].unit->tensor_count;
    reading->source = calloc((size_t)reading->source_count, sizeof *reading->source);
    ENSURE(reading->source != NULL, "no memory for a list of tensors");
    struct source *source = reading->source;
    for (int u = 0; u < flat->count; u++)
        for (int t = 0; t < flat->buffers[u].unit->tensor_count; t++)
            *source++ = (struct source){.u = u, .tensor = &flat->buffers[u].unit->tensors[t]};
}

/* Rank 0. */
static void choose_sources(struct reading *reading, struct error *error)
{
    struct list bad = {.left_out = 0};
    char rest[64];
    for (int s = 0; s < reading->source_count; s++)
        choose_source(reading, &reading->source[s], &bad);
    list_end(&bad, rest, sizeof rest);
    if (bad.text[0] != '\0')
        error_set(error, ERROR_CHECKPOINT,
                  "%s does not fit this model: %s%s; set model.name and its shape to fit",
                  reading->path, bad.text, rest);
    else
        name_extra(reading);
}

/* ---- the numbers ---- */

static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0) {
        float small = (float)fraction * 0x1p-24f;
        return sign != 0 ? -small : small;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void to_floats(enum safetensors_type type, const unsigned char *raw, int64_t count,
                      float *to)
{
    for (int64_t n = 0; n < count; n++) {
        uint16_t half;
        double wide;
        uint32_t bits;
        switch (type) {
        case SAFETENSORS_F32:
            memcpy(&to[n], raw + n * 4, 4);
            break;
        case SAFETENSORS_F64:
            memcpy(&wide, raw + n * 8, 8);
            to[n] = (float)wide;
            break;
        case SAFETENSORS_F16:
            memcpy(&half, raw + n * 2, 2);
            to[n] = from_half(half);
            break;
        case SAFETENSORS_BF16:
            memcpy(&half, raw + n * 2, 2);
            bits = (uint32_t)half << 16;
            memcpy(&to[n], &bits, 4);
            break;
        }
    }
}

/* Elements [begin, begin + count) of an entry; at most a block. */
static void read_entry(const struct reading *reading, const struct safetensors_entry *entry,
                       int64_t begin, int64_t count, float *to, struct error *error)
{
    enum safetensors_type type = SAFETENSORS_F32;
    ENSURE(safetensors_is_weight(entry, &type), "dtype %s", entry->dtype);
    int64_t offset = reading->header.data_offset + entry->begin + begin * entry->element;
    if (error->kind == ERROR_NONE && durable_read(reading->descriptor, reading->path, reading->raw,
                                                  (size_t)(count * entry->element), offset, error))
        to_floats(type, reading->raw, count, to);
}

static int64_t block_length(int64_t total, int64_t done)
{
    return total - done < VECTOR_BLOCK ? total - done : VECTOR_BLOCK;
}

/* Rank 0: the whole tensor, resized; to be freed. */
static float *read_resized(const struct reading *reading, const struct source *source,
                           struct error *error)
{
    const struct safetensors_entry *entry = source->entry;
    int64_t prefix = prefix_tokens(reading->flat), width = entry->shape[2];
    float *from = calloc((size_t)entry->count, sizeof *from);
    float *to = calloc((size_t)source->tensor->count, sizeof *to);
    ENSURE(from != NULL && to != NULL, "no memory for position embeddings");
    for (int64_t done = 0; done < entry->count; done += VECTOR_BLOCK)
        read_entry(reading, entry, done, block_length(entry->count, done), from + done, error);
    position_resize(from, exact_root(entry->shape[1] - prefix), to,
                    exact_root(source->tensor->shape[1] - prefix), prefix, width);
    free(from);
    return to;
}

/* Collective: one tensor to whoever holds it. */
static void spread_tensor(const struct reading *reading, const struct source *source,
                          struct error *error)
{
    const struct flat_model *flat = reading->flat;
    const struct unit_tensor *tensor = source->tensor;
    bool reads = flat->mesh->world->rank == 0;
    float *whole = NULL;
    if (reads && source->kind == SOURCE_RESIZE)
        whole = read_resized(reading, source, error);
    for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
        int64_t count = block_length(tensor->count, done);
        if (whole != NULL)
            memcpy(reading->block, whole + done, (size_t)count * sizeof(float));
        else if (reads)
            read_entry(reading, source->entry, done, count, reading->block, error);
        comm_broadcast(flat->mesh->world, reading->block, count, COMM_FP32, 0);
        vector_keep(flat, source->u, VECTOR_MASTER, tensor->offset + done, count, reading->block);
    }
    free(whole);
}

/* Collective: the kinds as rank 0 chose them. */
static void share_sources(struct reading *reading)
{
    int64_t *kind = calloc((size_t)reading->source_count, sizeof *kind);
    ENSURE(kind != NULL, "no memory for a list of tensors");
    for (int s = 0; s < reading->source_count; s++)
        kind[s] = reading->source[s].kind;
    comm_broadcast(reading->flat->mesh->world, kind, reading->source_count, COMM_INT64, 0);
    for (int s = 0; s < reading->source_count; s++)
        reading->source[s].kind = kind[s];
    free(kind);
}

static void open_weights(struct reading *reading, struct error *error)
{
    /* not waiting for who writes to a pipe */
    reading->descriptor = open(reading->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (reading->descriptor < 0)
        error_set(error, ERROR_CHECKPOINT, "cannot read %s: %s", reading->path, strerror(errno));
    else if (safetensors_header_read(reading->descriptor, reading->path, &reading->header, error))
        choose_sources(reading, error);
}

bool safetensors_read(const char *path, struct flat_model *flat, struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct reading reading = {.path = path, .flat = flat, .descriptor = -1};
    list_tensors(&reading);
    if (world->rank == 0)
        open_weights(&reading, error);
    bool good = comm_agree(world, error);
    if (good) {
        share_sources(&reading);
        reading.raw = malloc(VECTOR_BLOCK * sizeof(double));
        reading.block = calloc(VECTOR_BLOCK, sizeof(float));
        ENSURE(reading.raw != NULL && reading.block != NULL, "no memory to read weights");
        for (int s = 0; s < reading.source_count; s++)
            if (reading.source[s].kind != SOURCE_NONE)
                spread_tensor(&reading, &reading.source[s], error);
        vector_restart_average(flat);
        good = comm_agree(world, error);
    }
    safetensors_header_free(&reading.header);
    if (reading.descriptor >= 0)
        close(reading.descriptor);
    free(reading.source);
    free(reading.raw);
    free(reading.block);
    return good;
}
