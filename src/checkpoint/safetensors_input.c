/* Reads weights from safetensors for a model: decides for each of the model's tensors where it
 * comes from, and lists all that cannot be before anything is read; then gives them block by block.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/position_resize.h"
#include "checkpoint/safetensors_stream.h"
#include "checkpoint/vectors.h"
#include "core/durable.h"
#include "core/log.h"
#include "core/text.h"

/* ---- the plan ---- */

static int64_t exact_root(int64_t n)
{
    int64_t root = n < 0 ? -1 : (int64_t)llround(sqrt((double)n));
    return root * root == n ? root : -1;
}

static bool model_has(const struct weights_input *input, const char *name)
{
    for (int s = 0; s < input->source_count; s++)
        if (strcmp(input->source[s].tensor->name, name) == 0)
            return true;
    return false;
}

/* Rows of position embeddings that belong to no patch. */
static int64_t prefix_tokens(const struct weights_input *input)
{
    return model_has(input, "cls_token") ? 1 : 0;
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

/* The classifier's last layer, with another number of classes: the model's last tensor, and what
 * has the same name up to the last dot. */
static bool is_other_head(const struct weights_input *input, const struct weights_source *source)
{
    const char *last = input->source[input->source_count - 1].tensor->name;
    const char *dot = strrchr(last, '.');
    size_t length = dot != NULL ? (size_t)(dot - last) + 1 : 0;
    return length > 0 && source->u == input->unit_count - 1 &&
           strncmp(source->tensor->name, last, length) == 0 &&
           same_shape(source->tensor, source->entry, 1);
}

static bool is_other_grid(const struct weights_input *input, const struct weights_source *source)
{
    const struct unit_tensor *tensor = source->tensor;
    const struct safetensors_entry *entry = source->entry;
    int64_t prefix = prefix_tokens(input);
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

/* A list in one line, which a person can read: the first few, the others are counted. */
enum { LIST_MOST = 6 };
struct list {
    char text[ERROR_TEXT_SIZE - 512];
    int count, left_out;
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
    if (list->count == LIST_MOST || used + strlen(item) + 3 > sizeof list->text) {
        list->left_out++;
        return;
    }
    list->count++;
    snprintf(list->text + used, sizeof list->text - used, "%s%s", used > 0 ? ", " : "", item);
}

static void list_end(struct list *list, char *rest, size_t size)
{
    rest[0] = '\0';
    if (list->left_out > 0)
        snprintf(rest, size, " and %d more", list->left_out);
}

/* Decides for one tensor; what cannot be is added to `bad`. */
static void choose_source(const struct weights_input *input, struct weights_source *source,
                          struct list *bad)
{
    const struct unit_tensor *tensor = source->tensor;
    enum safetensors_type type;
    char here[96], there[96];
    source->entry = safetensors_find(&input->header, tensor->name);
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
    else if (is_other_head(input, source))
        log_info("%s: %s is %s there and %s here: it keeps its random start", input->path,
                 tensor->name, there, here);
    else if (is_other_grid(input, source)) {
        source->kind = SOURCE_RESIZE;
        log_info("%s: %s is %s there and %s here: it is resized", input->path, tensor->name, there,
                 here);
    } else
        list_add(bad, "%s is %s instead of %s", tensor->name, there, here);
}

static void name_extra(const struct weights_input *input)
{
    struct list extra = {.left_out = 0};
    char rest[64];
    for (int64_t n = 0; n < input->header.count; n++)
        if (!model_has(input, input->header.entry[n].name) &&
            !text_ends_with(input->header.entry[n].name,
                            ".num_batches_tracked")) /* torch's norms */
            list_add(&extra, "%.64s", input->header.entry[n].name);
    list_end(&extra, rest, sizeof rest);
    if (extra.text[0] != '\0')
        log_warn("%s: ignored, as this model has no such tensors: %s%s", input->path, extra.text,
                 rest);
}

static bool choose_sources(struct weights_input *input, struct error *error)
{
    struct list bad = {.left_out = 0};
    char rest[64];
    for (int s = 0; s < input->source_count; s++)
        choose_source(input, &input->source[s], &bad);
    list_end(&bad, rest, sizeof rest);
    if (bad.text[0] != '\0')
        return error_set(error, ERROR_CHECKPOINT,
                         "%s does not fit this model: %s%s; set model.name and its shape to fit",
                         input->path, bad.text, rest);
    name_extra(input);
    return true;
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
static void read_entry(const struct weights_input *input, const struct safetensors_entry *entry,
                       int64_t begin, int64_t count, float *to, struct error *error)
{
    enum safetensors_type type = SAFETENSORS_F32;
    ENSURE(safetensors_is_weight(entry, &type), "dtype %s", entry->dtype);
    int64_t offset = input->header.data_offset + entry->begin + begin * entry->element;
    if (error->kind == ERROR_NONE && durable_read(input->descriptor, input->path, input->raw,
                                                  (size_t)(count * entry->element), offset, error))
        to_floats(type, input->raw, count, to);
}

static int64_t block_length(int64_t total, int64_t done)
{
    return total - done < VECTOR_BLOCK ? total - done : VECTOR_BLOCK;
}

/* The whole tensor, resized; to be freed. */
static float *read_resized(const struct weights_input *input, const struct weights_source *source,
                           struct error *error)
{
    const struct safetensors_entry *entry = source->entry;
    int64_t prefix = prefix_tokens(input), width = entry->shape[2];
    float *from = calloc((size_t)entry->count, sizeof *from);
    float *to = calloc((size_t)source->tensor->count, sizeof *to);
    ENSURE(from != NULL && to != NULL, "no memory for position embeddings");
    for (int64_t done = 0; done < entry->count; done += VECTOR_BLOCK)
        read_entry(input, entry, done, block_length(entry->count, done), from + done, error);
    position_resize(from, exact_root(entry->shape[1] - prefix), to,
                    exact_root(source->tensor->shape[1] - prefix), prefix, width);
    free(from);
    return to;
}

void weights_input_list(struct weights_input *input, const char *path, const struct unit *units,
                        int unit_count)
{
    *input = (struct weights_input){
        .path = path, .units = units, .unit_count = unit_count, .descriptor = -1};
    for (int u = 0; u < unit_count; u++)
        input->source_count += units[u].tensor_count;
    input->source = calloc((size_t)input->source_count, sizeof *input->source);
    ENSURE(input->source != NULL, "no memory for a list of tensors");
    struct weights_source *source = input->source;
    for (int u = 0; u < unit_count; u++)
        for (int t = 0; t < units[u].tensor_count; t++)
            *source++ = (struct weights_source){.u = u, .tensor = &units[u].tensors[t]};
}

bool weights_input_open(struct weights_input *input, struct error *error)
{
    /* not waiting for who writes to a pipe */
    input->descriptor = open(input->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (input->descriptor < 0)
        return error_set(error, ERROR_CHECKPOINT, "cannot read %s: %s", input->path,
                         strerror(errno));
    input->raw = malloc(VECTOR_BLOCK * sizeof(double));
    ENSURE(input->raw != NULL, "no memory to read weights");
    return safetensors_header_read(input->descriptor, input->path, &input->header, error) &&
           choose_sources(input, error);
}

void weights_input_read(struct weights_input *input, struct weights_source *source, int64_t begin,
                        int64_t count, float *to, struct error *error)
{
    if (source->kind == SOURCE_RESIZE && source->resized == NULL)
        source->resized = read_resized(input, source, error);
    if (source->resized != NULL)
        memcpy(to, source->resized + begin, (size_t)count * sizeof(float));
    else
        read_entry(input, source->entry, begin, count, to, error);
}

void weights_input_close(struct weights_input *input)
{
    for (int s = 0; s < input->source_count; s++)
        free(input->source[s].resized);
    safetensors_header_free(&input->header);
    if (input->descriptor >= 0)
        close(input->descriptor);
    free(input->source);
    free(input->raw);
}
