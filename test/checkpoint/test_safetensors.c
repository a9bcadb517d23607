// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* Weights as safetensors: round trips on any mesh; files written by the safetensors package in
 * every type; heads and position grids of other sizes, compared with timm; invalid files. */
#include "checkpoint/safetensors.h"

#include "base/file.h"
#include "model_fixture.h"
#include "mutate.h"
#include "vector_file.h"

static const struct fixture_shape usual = {.width = 8, .side = 4, .classes = 3, .hidden = 5},
                                  no_token = {.width = 8,
                                              .side = 4,
                                              .classes = 3,
                                              .hidden = 5,
                                              .no_class_token = true};

/* ---- files of this program ---- */

static const struct comm_backend *real_backend;
static int reductions;

static struct comm_request *count_reductions(struct comm *comm, const struct comm_call *call)
{
    reductions += call->action == COMM_ALL_REDUCE;
    assert_true(call->count * comm_type_size(call->type) <= VECTOR_BLOCK * (int64_t)sizeof(float));
    return real_backend->start(comm, call);
}

static void write_on_one_read_on_other(int from_shard, int to_shard,
                                       const struct fixture_shape *shape)
{
    const char *path = folder_path("a.safetensors");
    FIXTURE(from, from_shard, shape, 1, false);
    FIXTURE(to, to_shard, shape, 0, true);
    struct comm_backend counting = *from.mesh.shard->backend;
    real_backend = from.mesh.shard->backend;
    counting.start = count_reductions;
    reductions = 0;
    fixture_fill(&from, 7);
    from.mesh.shard->backend = &counting;
    assert_ok(safetensors_write(path, &from.flat, NULL, &error), &error);
    from.mesh.shard->backend = real_backend;
    assert_ok(safetensors_read(path, true, &to.flat, &error), &error);
    assert_int_equal(fixture_total(fixture_wrong(&to, 7, FLAT_MASTER, FLAT_MASTER)), 0);
    assert_int_equal(fixture_total(fixture_wrong(&to, 7, FLAT_AVERAGE, FLAT_MASTER)), 0);
}

TEST(test_any_mesh_reads_what_any_mesh_wrote)
{
    static const struct fixture_shape large = {.hidden = 50003};
    for (int from = 1; from <= world->size; from++)
        for (int to = 1; to <= world->size; to++)
            if (world->size % from == 0 && world->size % to == 0)
                write_on_one_read_on_other(from, to, &usual);
    write_on_one_read_on_other(world->size, 1, &large);
    assert_int_equal(reductions, FIXTURE_UNITS + 1); /* the unit of the block is two blocks */
}

/* ---- files of the safetensors package ---- */

static const char *vectors_path(const char *name)
{
    static char path[512];
    const char *source = getenv("srcdir");
    snprintf(path, sizeof path, "%s/test/vectors/%s", source != NULL ? source : ".", name);
    return path;
}

/* Open a model and read a file of the vectors. */
static void read_vectors(struct fixture *fixture, const struct fixture_shape *shape,
                         const char *name)
{
    fixture_open(fixture, 1, shape, 0, false);
    fixture_fill(fixture, 3);
    assert_ok(safetensors_read(vectors_path(name), true, &fixture->flat, &error), &error);
}

#define READ_FIXTURE(name, shape, file)                                                            \
    __attribute__((cleanup(fixture_close))) struct fixture name;                                   \
    read_vectors(&name, shape, file)

static void assert_near(const struct fixture *fixture, const char *name, const float *expected,
                        double tolerance)
{
    const struct unit_tensor *tensor;
    const float *read = fixture_tensor(fixture, name, &tensor);
    for (int64_t i = 0; i < tensor->count; i++)
        if (fabs((double)read[i] - (double)expected[i]) > tolerance)
            fail_msg("%s[%lld] is %.9g instead of %.9g", name, (long long)i, (double)read[i],
                     (double)expected[i]);
}

/* All tensors except these two are those of weights_fp32. */
static void assert_as_fp32(const struct fixture *fixture, const char *but, const char *and_but)
{
    VECTOR_FILE(file, "weights_fp32.safetensors");
    for (int u = 0; u < FIXTURE_UNITS; u++)
        for (int t = 0; t < fixture->units[u].tensor_count; t++) {
            const char *name = fixture->tensors[u][t].name;
            if (strcmp(name, but) != 0 && strcmp(name, and_but) != 0)
                assert_near(fixture, name, vector_file_floats(file, name, NULL), 0);
        }
}

/* Other types than fp32: close to its values; special values of half precision exactly. */
TEST(test_types)
{
    static const struct {
        const char *file;
        double tolerance, scale;
    } types[] = {{"weights_fp64.safetensors", 5e-7, 3},
                 {"weights_fp16.safetensors", 2e-3, 1},
                 {"weights_bf16.safetensors", 2e-2, 1}};
    VECTOR_FILE(file, "weights_fp32.safetensors");
    READ_FIXTURE(same, &usual, "weights_fp32.safetensors");
    assert_as_fp32(&same, "", "");
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        READ_FIXTURE(fixture, &usual, types[n].file);
        const struct unit_tensor *tensor;
        float *read = fixture_tensor(&fixture, "pos_embed", &tensor);
        for (int64_t i = 0; i < tensor->count; i++)
            read[i] = (float)((double)read[i] * types[n].scale);
        assert_near(&fixture, "pos_embed", vector_file_floats(file, "pos_embed", NULL),
                    types[n].tolerance);
    }
    READ_FIXTURE(halves, &usual, "weights_fp16.safetensors");
    const float *bias = fixture_tensor(&halves, "head.bias", NULL);
    assert_true(bias[0] == 0 && signbit(bias[0]));
    assert_true(bias[1] == 0x1p-24f && bias[2] == 65504);
    const float *norm = fixture_tensor(&halves, "norm.weight", NULL);
    assert_true(norm[0] == INFINITY && norm[1] == -INFINITY);
    assert_true(norm[2] == 1023 * 0x1p-24f);
}

/* From other squares; from 7 x 7 patches, and from 9 x 4 patches by the file's metadata. */
TEST(test_positions_of_another_grid)
{
    const struct fixture_shape wide = {
        .width = 8, .side = 4, .columns = 9, .classes = 3, .hidden = 5};
    const struct {
        const char *file;
        const struct fixture_shape *shape;
    } grids[] = {
        {"weights_side1.safetensors", &usual},
        {"weights_side2.safetensors", &usual},
        {"weights_side7.safetensors", &usual},
        {"weights_side13.safetensors", &usual},
        {"weights_no_class_token.safetensors", &no_token},
        {"weights_wide.safetensors", &wide},
        {"weights_high.safetensors", &wide},
    };
    for (size_t n = 0; n < sizeof grids / sizeof *grids; n++) {
        READ_FIXTURE(fixture, grids[n].shape, grids[n].file);
        VECTOR_FILE(file, grids[n].file);
        assert_near(&fixture, "pos_embed", vector_file_floats(file, "resized.pos_embed", NULL),
                    1e-6);
    }
}

/* A head of another size keeps its values; all other tensors are read. */
TEST(test_head_of_another_size)
{
    FIXTURE(before, 1, &usual, 0, false);
    fixture_fill(&before, 3);
    READ_FIXTURE(fixture, &usual, "weights_classes.safetensors");
    assert_as_fp32(&fixture, "head.weight", "head.bias");
    assert_near(&fixture, "head.weight", fixture_tensor(&before, "head.weight", NULL), 0);
    assert_near(&fixture, "head.bias", fixture_tensor(&before, "head.bias", NULL), 0);
}

/* Fixed positions and, in fine-tuning, the head keep their values if the file has none. */
TEST(test_backbone_without_a_head)
{
    static const char *const kept[] = {"head.weight", "head.bias", "pos_embed"};
    const struct unit_tensor *position;
    const char *path = vectors_path("weights_backbone.safetensors");
    FIXTURE(before, 1, &usual, 0, false);
    FIXTURE(fixture, 1, &usual, 0, false);
    fixture_fill(&before, 3);
    fixture_fill(&fixture, 3);
    fixture_tensor(&fixture, "pos_embed", &position);
    fixture.tensors[0][position - fixture.tensors[0]].initial = INITIAL_SINCOS;
    assert_false(safetensors_read(path, false, &fixture.flat, &error));
    assert_error(&error, ERROR_CHECKPOINT, "head.weight is missing");
    error_clear(&error);
    assert_true(safetensors_read(path, true, &fixture.flat, &error));
    VECTOR_FILE(file, "weights_backbone.safetensors");
    assert_near(&fixture, "norm.weight", vector_file_floats(file, "norm.weight", NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_near(&fixture, kept[i], fixture_tensor(&before, kept[i], NULL), 0);
}

/* ---- invalid files ---- */

static void assert_refused(const struct fixture_shape *shape, const char *path, const char *what)
{
    error_clear(&error);
    FIXTURE(fixture, 1, shape, 0, false);
    fixture_fill(&fixture, 3);
    assert_false(safetensors_read(path, true, &fixture.flat, &error));
    assert_error(&error, ERROR_CHECKPOINT, path);
    assert_has(error.text, what);
    assert_int_equal(fixture_all_wrong(&fixture, 3), 0);
}

TEST(test_models_that_do_not_fit)
{
    const struct fixture_shape wide = {.width = 16, .side = 4, .classes = 3, .hidden = 5};
    const char *path = vectors_path("weights_fp32.safetensors");
    assert_refused(&wide, path, "cls_token is [1, 1, 8] instead of [1, 1, 16]");
    assert_refused(&no_token, path, "pos_embed is [1, 17, 8] instead of [1, 16, 8]");
    assert_refused(&usual, vectors_path("weights_backbone.safetensors"), "pos_embed is missing");
}

/* A converted checkpoint may have any tensor names. */
TEST(test_two_tensors_of_one_name)
{
    FIXTURE(fixture, 1, &usual, 0, false);
    snprintf(fixture.tensors[2][1].name, TENSOR_NAME, "cls_token");
    assert_false(safetensors_write(folder_path("twice.safetensors"), &fixture.flat, NULL, &error));
    assert_error(&error, ERROR_CHECKPOINT, "two tensors");
    assert_false(folder_has("twice.safetensors.part"));
}

/* ---- invalid headers ---- */

/* Write a file that states a header of `length` bytes: `header`, then zeros up to `bytes` bytes. */
static const char *write_file(uint64_t length, const char *header, size_t header_bytes,
                              size_t bytes)
{
    OWNED char *content = allocate(8 + header_bytes + bytes, 1);
    for (int byte = 0; byte < 8; byte++)
        content[byte] = (char)(length >> (8 * byte) & 0xff);
    memcpy(content + 8, header, header_bytes);
    folder_write("header.safetensors", content, bytes);
    return folder_path("header.safetensors");
}

TEST(test_files_that_are_none)
{
    static const struct {
        uint64_t length; /* in the first bytes of the file, which has `bytes` bytes */
        size_t bytes;
        const char *what;
    } files[] = {
        {(uint64_t)2 << 30, 10, "2147483648 bytes"},
        {UINT64_MAX, 10, "that its header has"},
        {10000001, 10000010, "at most 10000000"},
        {3, 10, "3 bytes"},
        {2, 10, "cls_token is missing"},
        {2, 5, "truncated"},
    };
    assert_refused(&usual, folder_path("none.safetensors"), "cannot read");
    for (size_t n = 0; n < sizeof files / sizeof *files; n++)
        assert_refused(&usual, write_file(files[n].length, "{}", 2, files[n].bytes), files[n].what);
    assert_refused(&usual, folder, "directory");
}

TEST(test_lies)
{
    static const struct {
        const char *header, *what;
    } lies[] = {
        {"", "not a JSON object"},
        {"{", "not a JSON object"},
        {"[]", "not a JSON object"},
        {"{\"a\":{},\"a\":{}}", "not a JSON object"},
        {"{\"cls_token\":1}", "dtype"},
        {"{\"cls_token\":{}}", "dtype"},
        {"{\"cls_token\":{\"dtype\":4}}", "dtype"},
        {"{\"cls_token\":{\"dtype\":\"I64\",\"shape\":[1,1,8],\"data_offsets\":[0,64]}}", "dtype"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[-1]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999]}}", "JSON"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[64,0]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[-64,0]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0,65]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[15],\"data_offsets\":[0,64]}}", "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}"
         "}",
         "damaged"},
        {"{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0,64]}}",
         "instead of"},
    };
    for (size_t n = 0; n < sizeof lies / sizeof *lies; n++) {
        const size_t length = strlen(lies[n].header);
        assert_refused(&usual, write_file(length, lies[n].header, length, 8 + length + 64),
                       lies[n].what);
    }
}

/* A vector has the bytes of another one, or its last value is the first one of the next tensor. */
TEST(test_overlapping_tensors)
{
    enum { DATA = 4096 };
    const int64_t moved[] = {0, 1};
    FIXTURE(fixture, 1, &usual, 0, false);
    const char *path = folder_path("good.safetensors");
    assert_true(safetensors_write(path, &fixture.flat, NULL, &error));
    OWNED char *content = text_file_read(path, NULL);
    const size_t length = (unsigned char)content[0] + 256 * (size_t)(unsigned char)content[1];
    for (size_t n = 0; n < sizeof moved / sizeof *moved; n++) {
        json_t *header = json_loadb(content + 8, length, 0, NULL);
        json_t *norm = json_object_get(json_object_get(header, "norm.weight"), "data_offsets");
        json_t *bias = json_object_get(header, "patch_embed.proj.bias");
        const json_int_t begin = json_integer_value(json_array_get(norm, 0)) - 28 * moved[n];
        json_object_set_new(bias, "data_offsets", json_pack("[I,I]", begin, begin + 32));
        OWNED char *text = json_dumps(header, 0);
        json_decref(header);
        const size_t size = strlen(text);
        assert_refused(&usual, write_file(size, text, size, 8 + size + DATA), "overlap");
    }
}

/* A changed header is refused, or the file is read. */
TEST(test_changed_headers)
{
    enum { MUTATIONS = 600, ROOM = 4096, DATA = 4096 };
    int refused = 0;
    FIXTURE(fixture, 1, &usual, 0, false);
    const char *path = folder_path("good.safetensors");
    assert_true(safetensors_write(path, &fixture.flat, NULL, &error));
    size_t bytes;
    char *content = text_file_read(path, &bytes), mutated[ROOM];
    const size_t length = (unsigned char)content[0] + 256 * (size_t)(unsigned char)content[1];
    for (uint32_t number = 0; number < MUTATIONS; number++) {
        memcpy(mutated, content + 8, length);
        const size_t size = mutate(mutated, length, ROOM, number);
        error_clear(&error);
        if (!safetensors_read(write_file(size, mutated, size, 8 + size + DATA), true, &fixture.flat,
                              &error)) {
            assert_error(&error, ERROR_CHECKPOINT, "header.safetensors");
            refused++;
        }
    }
    assert_in_range(refused, MUTATIONS / 4, MUTATIONS);
    free(content);
}

TEST_MAIN_WORLD(.before = fixture_folder_make, .after = fixture_folder_remove)
