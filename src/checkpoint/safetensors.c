// SPDX-License-Identifier: BSD-3-Clause
/* Reads and writes weights in blocks. Each of the model's tensors has a source in the file. On a
 * mesh, rank 0 reads and broadcasts the blocks, or gathers and writes them. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/safetensors.h"
#include "device/image.h"

/* ---- header: it is not trusted ---- */

/* The format allows 100 MB, but parsed JSON takes up to 82 times the memory of its text. */
enum { HEADER_LIMIT = 10 * 1000 * 1000, ENTRY_DIMENSIONS = 8 };

/* A tensor of the file. */
struct entry {
    enum { ENTRY_F32, ENTRY_F16, ENTRY_BF16, ENTRY_F64 } type;
    int64_t element; /* bytes per element */
    int dimensions;
    int64_t shape[ENTRY_DIMENSIONS];
    int64_t count; /* elements */
    int64_t begin; /* of its bytes, after the header */
};

/* Parse the description of a tensor; `data_bytes` follow the header. Return false if it is invalid:
 * no type of weights, no shape, a position outside the data, or another size than type and shape
 * have. */
static bool entry_parse(const json_t *json, int64_t data_bytes, struct entry *entry)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } types[] = {[ENTRY_F32] = {"F32", 4},
                 [ENTRY_F16] = {"F16", 2},
                 [ENTRY_BF16] = {"BF16", 2},
                 [ENTRY_F64] = {"F64", 8}};
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *shape = json_object_get(json, "shape");
    const json_t *offsets = json_object_get(json, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    const size_t dimensions = json_array_size(shape);
    *entry = (struct entry){
        .dimensions = (int)dimensions, .count = 1, .begin = json_integer_value(begin)};
    for (int t = 0; dtype != NULL && t < 4; t++)
        if (strcmp(dtype, types[t].name) == 0) {
            entry->type = t;
            entry->element = types[t].bytes;
        }
    bool good = entry->element > 0 && json_is_array(shape) && dimensions <= ENTRY_DIMENSIONS &&
                json_array_size(offsets) == 2 && json_is_integer(begin) && json_is_integer(end);
    for (size_t d = 0; good && d < dimensions; d++) {
        const json_t *extent = json_array_get(shape, d);
        entry->shape[d] = json_integer_value(extent);
        good = json_is_integer(extent) && entry->shape[d] >= 0 &&
               !__builtin_mul_overflow(entry->count, entry->shape[d], &entry->count);
    }
    if (!good || entry->begin < 0 || json_integer_value(end) < entry->begin ||
        json_integer_value(end) > data_bytes)
        return false;
    const int64_t bytes = json_integer_value(end) - entry->begin;
    return bytes % entry->element == 0 && bytes / entry->element == entry->count;
}

struct file {
    const char *path;
    int descriptor;     /* -1: not open */
    json_t *header;     /* an object */
    int64_t data_begin; /* bytes before the data */
    int64_t data_bytes;
};

/* Open a file and parse its header. Always call file_close. */
static bool file_open(struct file *file, const char *path, struct error *error)
{
    unsigned char prefix[8];
    uint64_t length = 0;
    int64_t bytes;
    *file = (struct file){.path = path, .descriptor = text_file_descriptor(path, &bytes)};
    if (file->descriptor < 0)
        return durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    if (!durable_read(file->descriptor, path, prefix, sizeof prefix, 0, error))
        return false;
    for (int byte = 7; byte >= 0; byte--)
        length = length << 8 | prefix[byte];
    if (length > HEADER_LIMIT || (int64_t)length > bytes - 8)
        return error_set(
            error, ERROR_CHECKPOINT,
            "%s is not a valid safetensors file: it states that its header has %llu bytes, "
            "the file has %lld and this program reads at most %d",
            path, (unsigned long long)length, (long long)bytes, HEADER_LIMIT);
    OWNED char *text = allocate(length, 1);
    if (!durable_read(file->descriptor, path, text, length, 8, error))
        return false;
    file->data_begin = 8 + (int64_t)length;
    file->data_bytes = bytes - file->data_begin;
    file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    return json_is_object(file->header) ||
           error_set(error, ERROR_CHECKPOINT,
                     "%s is not a valid safetensors file: its header is not a JSON object", path);
}

static void file_close(struct file *file)
{
    json_decref(file->header);
    if (file->descriptor >= 0)
        close(file->descriptor);
}

json_t *safetensors_metadata(const char *path, struct error *error)
{
    struct file file;
    error_defer(file_open(&file, path, error));
    json_t *metadata = json_incref(json_object_get(file.header, "__metadata__"));
    file_close(&file);
    return metadata;
}

/* ---- sources of the tensors ---- */

/* The source of one of the model's tensors: its random initialisation, the file, the file's
 * position embeddings after resizing, or its first convolution for other input channels. */
enum source_kind { SOURCE_NONE, SOURCE_COPY, SOURCE_RESIZE, SOURCE_CHANNELS };

struct source {
    enum source_kind kind;
    int u;
    const struct unit_tensor *tensor;
    struct entry entry;
    int64_t grid[2]; /* rows and columns of the file's position embeddings */
};

struct input {
    struct file file;
    int unit_count;
    bool accepts_other_head; /* else a head for another number of classes is an error */
    struct source *source;   /* [source_count]: by unit, then by tensor */
    int source_count;
    unsigned char *raw; /* a block in the file's data type */
};

/* Number of rows of position embeddings before those of the patches. */
static int64_t prefix_rows(const struct unit_tensor *tensor)
{
    return tensor->shape[1] - tensor->grid[0] * tensor->grid[1];
}

static bool same_shape(const struct unit_tensor *tensor, const struct entry *entry,
                       int from_dimension)
{
    if (tensor->dimensions != entry->dimensions)
        return false;
    for (int d = from_dimension; d < tensor->dimensions; d++)
        if (tensor->shape[d] != entry->shape[d])
            return false;
    return true;
}

/* True for tensors of the classifier: the model's last tensor, and those of the same unit whose
 * names are equal up to the last dot. */
static bool is_head(const struct input *input, const struct source *source)
{
    const char *last = input->source[input->source_count - 1].tensor->name;
    const char *dot = strrchr(last, '.');
    size_t length = dot != NULL ? (size_t)(dot - last) + 1 : 0;
    return length > 0 && source->u == input->unit_count - 1 &&
           strncmp(source->tensor->name, last, length) == 0;
}

/* Set the grid of this number of square patches that covers an image, with padding at its border.
 * Return false if no side of patches gives this number, which decreases with the side. */
static bool covering_grid(int64_t patches, int64_t height, int64_t width, int64_t grid[2])
{
    int64_t side = 1;
    while (side < larger(height, width) &&
           round_up_division(height, side) * round_up_division(width, side) > patches)
        side++;
    grid[0] = round_up_division(height, side);
    grid[1] = round_up_division(width, side);
    return patches > 0 && grid[0] * grid[1] == patches;
}

/* True for position embeddings of another grid; sets source->grid. The metadata have the shape of
 * the file's images. Without it, the grid of another number of patches is square, and the same
 * number of patches has the model's grid. */
static bool is_other_grid(const struct input *input, struct source *source)
{
    const struct unit_tensor *tensor = source->tensor;
    const struct entry *entry = &source->entry;
    int64_t *grid = source->grid;
    if (tensor->grid[0] == 0 || !same_shape(tensor, entry, 2) || entry->shape[0] != 1)
        return false;
    struct model_metadata metadata;
    OWNED char *text = json_dumps(json_object_get(input->file.header, "__metadata__"), 0);
    model_metadata_parse(text, &metadata);
    const int64_t height = metadata.options.model.image;
    const int64_t given = metadata.options.model.image_width, width = given > 0 ? given : height;
    const double ratio = width > 0 ? (double)height / (double)width : 1;
    model_metadata_free(&metadata);
    if (height <= 0 && same_shape(tensor, entry, 0))
        return false;
    const int64_t patches = entry->shape[1] - prefix_rows(tensor);
    bool found = height > 0 && covering_grid(patches, height, width, grid);
    if (!found) {
        grid[0] = patches > 0 ? llround(sqrt((double)patches * ratio)) : 0;
        grid[1] = grid[0] > 0 ? patches / grid[0] : 0;
        found = grid[1] > 0 && grid[0] * grid[1] == patches &&
                fabs((double)grid[0] - (double)grid[1] * ratio) < 1e-6 * (double)patches;
    }
    return found && (grid[0] != tensor->grid[0] || grid[1] != tensor->grid[1]);
}

/* True for the model's first convolution with three input channels in the file and another number
 * here: kernels [out, channels, height, width]. */
static bool is_other_channels(const struct input *input, const struct source *source)
{
    const struct unit_tensor *tensor = source->tensor;
    int first = 0;
    while (input->source[first].tensor->dimensions != 4 && first < input->source_count - 1)
        first++;
    return input->accepts_other_head && tensor == input->source[first].tensor &&
           same_shape(tensor, &source->entry, 2) && tensor->shape[0] == source->entry.shape[0] &&
           source->entry.shape[1] == 3 && tensor->shape[1] != 3;
}

/* A list for a message: the first LIST_MOST items. */
enum { LIST_MOST = 6 };
struct list {
    char text[ERROR_TEXT_SIZE - 512];
    int count;
};

static void list_add(struct list *list, const char *item)
{
    const size_t used = strlen(list->text);
    if (++list->count <= LIST_MOST)
        snprintf(list->text + used, sizeof list->text - used, "%s%.200s", used > 0 ? ", " : "",
                 item);
}

/* Choose the source of a tensor. Fixed position embeddings and the classifier may keep their
 * initial values. Return false and the reason if the file has no source for it. */
static bool choose_source(const struct input *input, struct source *source, char reason[256])
{
    const struct unit_tensor *tensor = source->tensor;
    const struct entry *entry = &source->entry;
    const json_t *json = json_object_get(input->file.header, tensor->name);
    const char *path = input->file.path;
    char here[96], there[96] = "missing";
    bool may_keep = input->accepts_other_head && is_head(input, source);
    vector_shape_text(tensor->shape, tensor->dimensions, here, sizeof here);
    if (json != NULL) {
        snprintf(reason, 256, "%s has another dtype than F32, F16, BF16 and F64, or is damaged",
                 tensor->name);
        if (!entry_parse(json, input->file.data_bytes, &source->entry))
            return false;
        vector_shape_text(entry->shape, entry->dimensions, there, sizeof there);
        may_keep = may_keep && same_shape(tensor, entry, 1);
    } else {
        may_keep = may_keep || tensor->initial == INITIAL_SINCOS;
    }
    if (json != NULL && is_other_grid(input, source)) {
        source->kind = SOURCE_RESIZE;
        log_info("%s: %s has %lld x %lld patches there and %lld x %lld here: it is resized", path,
                 tensor->name, (long long)source->grid[0], (long long)source->grid[1],
                 (long long)tensor->grid[0], (long long)tensor->grid[1]);
    } else if (json != NULL && same_shape(tensor, entry, 0)) {
        source->kind = SOURCE_COPY;
    } else if (json != NULL && is_other_channels(input, source)) {
        source->kind = SOURCE_CHANNELS;
        log_info("%s: %s has 3 input channels there and %lld here: %s", path, tensor->name,
                 (long long)tensor->shape[1],
                 tensor->shape[1] == 1 ? "they are added" : "they are repeated and scaled");
    } else if (may_keep) {
        (tensor->dimensions > 1 ? log_info : log_detail)(
            "%s: %s is %s there and %s here: it keeps its initial values", path, tensor->name,
            there, here);
    } else {
        snprintf(reason, 256, "%s is %s instead of %s", tensor->name, there, here);
        return false;
    }
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const struct source *left = a, *right = b;
    return (left->entry.begin > right->entry.begin) - (left->entry.begin < right->entry.begin);
}

/* Fails if two tensors that are read share bytes of the file. */
static bool overlap_check(const struct input *input, struct error *error)
{
    OWNED struct source *read = allocate((size_t)input->source_count, sizeof *read);
    int count = 0;
    for (int s = 0; s < input->source_count; s++)
        if (input->source[s].kind != SOURCE_NONE)
            read[count++] = input->source[s];
    qsort(read, (size_t)count, sizeof *read, by_begin);
    for (int s = 1; s < count; s++) {
        const struct entry *before = &read[s - 1].entry;
        if (read[s].entry.begin < before->begin + before->count * before->element)
            return error_set(error, ERROR_CHECKPOINT,
                             "%s is not a valid safetensors file: the data_offsets of %s and %s "
                             "overlap; get the file again",
                             input->file.path, read[s - 1].tensor->name, read[s].tensor->name);
    }
    return true;
}

static bool choose_sources(struct input *input, struct error *error)
{
    struct list bad = {.count = 0}, extra = {.count = 0};
    const char *path = input->file.path, *name;
    char reason[256];
    json_t *value;
    for (int s = 0; s < input->source_count; s++)
        if (!choose_source(input, &input->source[s], reason))
            list_add(&bad, reason);
    if (bad.count > 0) {
        const json_t *metadata = json_object_get(input->file.header, "__metadata__");
        name = json_string_value(json_object_get(metadata, "architecture"));
        return error_set(error, ERROR_CHECKPOINT,
                         "%s does not fit this model: %s (%d tensors in all); set model.name%s%s, "
                         "its shape and model.classes to fit",
                         path, bad.text, bad.count, name != NULL ? "=" : "",
                         name != NULL ? name : "");
    }
    json_object_foreach(input->file.header, name, value)
    {
        int s = 0;
        while (s < input->source_count && strcmp(input->source[s].tensor->name, name) != 0)
            s++;
        /* torch's batch norms have a counter that is not needed. */
        if (s == input->source_count && strcmp(name, "__metadata__") != 0 &&
            !text_ends_with(name, ".num_batches_tracked"))
            list_add(&extra, name);
    }
    if (extra.count > 0)
        log_warn("%s: ignored, as this model has no such tensors: %s (%d in all)", path, extra.text,
                 extra.count);
    return overlap_check(input, error);
}

/* ---- conversion to fp32 ---- */

static float from_half(uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    float value = ldexpf((float)(exponent > 0 ? fraction + 1024 : fraction),
                         (exponent > 0 ? exponent : 1) - 25);
    if (exponent == 31)
        value = fraction > 0 ? NAN : INFINITY;
    return (half & 0x8000) != 0 ? -value : value;
}

static void to_floats(int type, const unsigned char *raw, int64_t count, float *to)
{
    for (int64_t n = 0; n < count; n++) {
        uint16_t half;
        double wide;
        uint32_t bits;
        switch (type) {
        case ENTRY_F32:
            memcpy(&to[n], raw + n * 4, 4);
            break;
        case ENTRY_F64:
            memcpy(&wide, raw + n * 8, 8);
            to[n] = (float)wide;
            break;
        case ENTRY_F16:
            memcpy(&half, raw + n * 2, 2);
            to[n] = from_half(half);
            break;
        case ENTRY_BF16:
            memcpy(&half, raw + n * 2, 2);
            bits = (uint32_t)half << 16;
            memcpy(&to[n], &bits, 4);
            break;
        }
    }
}

/* Read elements [begin, begin + count) of an entry; count is at most VECTOR_BLOCK. */
static void read_entry(const struct input *input, const struct entry *entry, int64_t begin,
                       int64_t count, float *to, struct error *error)
{
    const struct file *file = &input->file;
    const int64_t offset = file->data_begin + entry->begin + begin * entry->element;
    if (error->kind == ERROR_NONE && durable_read(file->descriptor, file->path, input->raw,
                                                  (size_t)(count * entry->element), offset, error))
        to_floats((int)entry->type, input->raw, count, to);
}

/* ---- position embeddings ---- */

/* Resize a line of elements of `width` numbers that are `stride` apart. */
static void resize_line(const float *from, int64_t from_count, float *to, int64_t to_count,
                        int64_t stride, int64_t width)
{
    const struct resize_span span = {.extent = (double)from_count,
                                     .source = from_count,
                                     .size = to_count,
                                     .filter = FILTER_BICUBIC};
    for (int64_t i = 0; i < to_count; i++) {
        const struct resize_window window = resize_window_of(&span, i);
        memset(to + i * stride, 0, (size_t)width * sizeof *to);
        for (int64_t j = window.first; j < window.end; j++) {
            const float factor = (float)resize_weight(&window, j);
            for (int64_t k = 0; factor != 0 && k < width; k++)
                to[i * stride + k] += factor * from[j * stride + k];
        }
    }
}

/* from: [prefix + old[0] * old[1], width], to: [prefix + grid[0] * grid[1], width]. The first
 * `prefix` rows (class token) are copied, the grid is resized bicubically with antialiasing: timm's
 * resample_abs_pos_embed, which is torch's interpolate(mode="bicubic", antialias=True). */
static void position_resize(const float *from, const int64_t *old, float *to, const int64_t *grid,
                            int64_t prefix, int64_t width)
{
    OWNED float *rows = allocate((size_t)(old[0] * grid[1] * width), sizeof *rows);
    memcpy(to, from, (size_t)(prefix * width) * sizeof *to);
    from += prefix * width;
    to += prefix * width;
    for (int64_t y = 0; y < old[0]; y++) /* along x: rows is [old[0], grid[1], width] */
        resize_line(from + y * old[1] * width, old[1], rows + y * grid[1] * width, grid[1], width,
                    width);
    for (int64_t x = 0; x < grid[1]; x++) /* along y */
        resize_line(rows + x * width, old[0], to + x * width, grid[0], grid[1] * width, width);
}

/* from: [out, 3, window], to: [out, channels, window]. One channel is the sum of the three; more
 * repeat them, scaled by 3 / channels: timm's adapt_input_conv. */
static void channels_adapt(const float *from, float *to, int64_t out, int64_t channels,
                           int64_t window)
{
    const float scale = 3 / (float)channels;
    for (int64_t o = 0; o < out; o++, from += 3 * window)
        for (int64_t c = 0; c < channels; c++, to += window)
            for (int64_t i = 0; i < window; i++)
                to[i] = channels == 1 ? from[i] + from[window + i] + from[2 * window + i]
                                      : from[c % 3 * window + i] * scale;
}

/* Read and convert position embeddings or kernels; the caller frees the result. */
static float *read_converted(const struct input *input, const struct source *source,
                             struct error *error)
{
    const struct entry *entry = &source->entry;
    const struct unit_tensor *tensor = source->tensor;
    OWNED float *from = allocate((size_t)entry->count, sizeof *from);
    float *to = allocate((size_t)tensor->count, sizeof *to);
    for (int64_t done = 0; done < entry->count; done += VECTOR_BLOCK)
        read_entry(input, entry, done, smaller(entry->count - done, VECTOR_BLOCK), from + done,
                   error);
    if (source->kind == SOURCE_CHANNELS)
        channels_adapt(from, to, tensor->shape[0], tensor->shape[1],
                       tensor->shape[2] * tensor->shape[3]);
    else
        position_resize(from, source->grid, to, tensor->grid, prefix_rows(tensor), entry->shape[2]);
    return to;
}

/* ---- reading ---- */

bool safetensors_read(const char *path, bool accepts_other_head, struct flat_model *flat,
                      struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct input input = {.file = {.descriptor = -1},
                          .unit_count = flat->count,
                          .accepts_other_head = accepts_other_head};
    size_t tensors = 0;
    for (int u = 0; u < flat->count; u++)
        tensors += (size_t)flat->buffers[u].unit->tensor_count;
    OWNED struct source *sources = input.source = allocate(tensors, sizeof *sources);
    OWNED unsigned char *raw = input.raw = allocate(VECTOR_BLOCK, sizeof(double));
    OWNED float *block = allocate(VECTOR_BLOCK, sizeof *block);
    for (int u = 0; u < flat->count; u++)
        for (int t = 0; t < flat->buffers[u].unit->tensor_count; t++)
            sources[input.source_count++] =
                (struct source){.u = u, .tensor = &flat->buffers[u].unit->tensors[t]};
    if (world->rank == 0)
        error_defer(file_open(&input.file, path, error) && choose_sources(&input, error));
    const bool good = comm_agree(world, error);
    for (int s = 0; good && s < input.source_count; s++) {
        struct source *source = &sources[s];
        const struct unit_tensor *tensor = source->tensor;
        comm_broadcast(world, &source->kind, sizeof source->kind, COMM_BYTE, 0);
        OWNED float *converted = world->rank == 0 && source->kind > SOURCE_COPY
                                     ? read_converted(&input, source, error)
                                     : NULL;
        for (int64_t done = 0, count; source->kind != SOURCE_NONE && done < tensor->count;
             done += count) {
            count = smaller(tensor->count - done, VECTOR_BLOCK);
            if (converted != NULL)
                memcpy(block, converted + done, (size_t)count * sizeof *block);
            else if (world->rank == 0)
                read_entry(&input, &source->entry, done, count, block, error);
            comm_broadcast(world, block, count, COMM_FP32, 0);
            vector_store(flat, source->u, FLAT_MASTER, tensor->offset + done, count, block);
        }
    }
    if (good)
        vector_reset_ema(flat);
    file_close(&input.file);
    return good && comm_agree(world, error);
}

/* ---- writing ---- */

/* Return the object for `__metadata__`, whose values must be texts. */
static json_t *metadata_of(const char *text)
{
    json_t *metadata = text != NULL ? json_loads(text, 0, NULL) : NULL, *value;
    const char *key;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) good = good && json_is_string(value);
    if (good)
        return metadata;
    json_decref(metadata);
    return json_pack("{s:s}", "format", "pt");
}

bool safetensors_output_open(struct safetensors_output *output, const char *path,
                             const struct unit *units, int unit_count, const char *metadata,
                             struct error *error)
{
    json_t *header = json_object();
    size_t tensors = 0;
    int64_t data_bytes = 0;
    output->descriptor = -1;
    value_put(header, "__metadata__", metadata_of(metadata));
    for (int u = 0; u < unit_count; u++)
        for (int t = 0; t < units[u].tensor_count; t++, tensors++) {
            const struct unit_tensor *tensor = &units[u].tensors[t];
            const json_int_t begin = data_bytes;
            json_t *shape = json_array();
            data_bytes += tensor->count * (int64_t)sizeof(float);
            for (int d = 0; d < tensor->dimensions; d++)
                value_append(shape, json_integer(tensor->shape[d]));
            value_put(header, tensor->name,
                      json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape,
                                "data_offsets", begin, (json_int_t)data_bytes));
        }
    const bool different = json_object_size(header) == tensors + 1;
    OWNED char *text = json_dumps(header, JSON_COMPACT);
    ENSURE_MEMORY(text != NULL, "no memory for the header of weights");
    json_decref(header);
    /* The length of the header, and the header, padded with blanks to a multiple of 8 bytes. */
    const size_t length = (size_t)round_up((int64_t)strlen(text), 8);
    OWNED char *start = allocate(8 + length, 1);
    for (int byte = 0; byte < 8; byte++)
        start[byte] = (char)(length >> (8 * byte) & 0xff);
    memset(start + 8, ' ', length);
    memcpy(start + 8, text, strlen(text));
    output->path = allocate_copy(path);
    output->part = allocate_text("%s.part", path);
    output->offset = 8 + (int64_t)length;
    if (!different)
        error_set(error, ERROR_CHECKPOINT,
                  "%s cannot be written: two tensors of the model have the same name", path);
    else
        output->descriptor = durable_create(output->part, error);
    const bool good =
        output->descriptor >= 0 &&
        durable_reserve(output->descriptor, output->part, output->offset + data_bytes, error) &&
        durable_write(output->descriptor, output->part, start, 8 + length, 0, error);
    if (!good)
        safetensors_output_close(output, error);
    return good;
}

void safetensors_output_append(struct safetensors_output *output, const float *block, int64_t count,
                               struct error *error)
{
    size_t bytes = (size_t)count * sizeof(float);
    if (error->kind == ERROR_NONE)
        error_defer(
            durable_write(output->descriptor, output->part, block, bytes, output->offset, error));
    output->offset += (int64_t)bytes;
}

void safetensors_output_close(struct safetensors_output *output, struct error *error)
{
    if (output->descriptor >= 0 && error->kind == ERROR_NONE) {
        error_defer(durable_commit(output->descriptor, output->part, output->path, error));
    } else if (output->descriptor >= 0) {
        close(output->descriptor);
        unlink(output->part);
    }
    free(output->path);
    free(output->part);
}

/* Collective over the shard group. Set block [VECTOR_BLOCK] to parameters [begin, begin + count) of
 * unit u. The other shards add zeros; the sum is one of integers, which changes no bit. */
static void block_gather(const struct flat_model *flat, int u, int64_t begin, int64_t count,
                         float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t length;
    const int64_t first =
        vector_overlap(begin, count, buffer->shard_begin, buffer->shard_count, &length);
    memset(block, 0, VECTOR_BLOCK * sizeof *block);
    if (length > 0)
        vector_copy(flat, u, FLAT_MASTER, first, length, block + (first - begin));
    comm_all_reduce(flat->mesh->shard, block, round_up_division(count, 2), COMM_INT64, COMM_SUM);
}

/* After an error on rank 0 the other ranks still take part, as they do not know of it. */
bool safetensors_write(const char *path, const struct flat_model *flat, const char *metadata,
                       struct error *error)
{
    const struct mesh *mesh = flat->mesh;
    struct comm *world = mesh->world;
    struct safetensors_output output;
    if (world->rank == 0)
        error_defer(safetensors_output_open(&output, path, flat->buffers[0].unit, flat->count,
                                            metadata, error));
    if (!comm_agree(world, error))
        return false;
    const bool gathers = mesh->replica->rank == 0; /* the shard group of rank 0 */
    OWNED float *block = allocate(gathers ? VECTOR_BLOCK : 0, sizeof *block);
    for (int u = 0; gathers && u < flat->count; u++) {
        const struct unit *unit = flat->buffers[u].unit;
        for (int64_t begin = 0; begin < unit->count; begin += VECTOR_BLOCK) {
            const int64_t count = smaller(unit->count - begin, VECTOR_BLOCK);
            block_gather(flat, u, begin, count, block);
            for (int t = 0; world->rank == 0 && t < unit->tensor_count; t++) {
                const struct unit_tensor *tensor = &unit->tensors[t];
                int64_t length;
                const int64_t first =
                    vector_overlap(begin, count, tensor->offset, tensor->count, &length);
                if (length > 0)
                    safetensors_output_append(&output, block + (first - begin), length, error);
            }
        }
    }
    if (world->rank == 0)
        safetensors_output_close(&output, error);
    return comm_agree(world, error);
}
