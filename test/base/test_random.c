// SPDX-License-Identifier: BSD-3-Clause
/* Random numbers: Random123's published vectors (tests/kat_vectors, philox4x32 10) through our
 * counter layout, an own vector for the layout, permutations and normal numbers;
 * PyTorch's permutations (test/vectors/make_torch_permutation.py).
 *   test_random --torch SEED COUNT   prints a permutation for check_torch_split.py
 */
#include "base/random.h"

#include "test.h"
#include "vector_file.h"

struct known_answer {
    uint32_t counter[4], key[2], word[4];
};

static const struct known_answer known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    /* Seed 0x0123456789abcdef, purpose 5, layer 17, epoch 13, index 11, block 7. */
    {{7, 11, 13, 5 + 256 * 17},
     {0x89abcdef, 0x01234567},
     {0xa19a75da, 0x4a332dfb, 0xdc534344, 0x542f41d4}},
};

TEST(published_vectors)
{
    for (size_t i = 0; i < sizeof known_answers / sizeof known_answers[0]; i++) {
        const struct known_answer *answer = &known_answers[i];
        const uint64_t seed = (uint64_t)answer->key[1] << 32 | answer->key[0];
        const struct random_block block = random_block_at(
            seed, (enum random_purpose)(answer->counter[3] & 0xff), answer->counter[3] >> 8,
            answer->counter[2], answer->counter[1], answer->counter[0]);
        for (int word = 0; word < 4; word++)
            assert_int_equal(block.word[word], answer->word[word]);
    }
}

TEST(uniform_stays_below_one)
{
    assert_true(random_uniform(0) == 0.0f);
    assert_true(random_uniform(0xff) == 0.0f);
    assert_true(random_uniform(0x80000000) == 0.5f);
    assert_true(random_uniform(0xffffffff) == 1.0f - 0x1p-24f);
}

/* Computed in Python. */
TEST(normal_pairs_are_the_known_ones)
{
    static const struct {
        uint32_t word[2];
        double normal[2];
    } cases[] = {{{0, 0}, {6.660436889262, 0}},
                 {{0x12345678, 0x9abcdef0}, {-1.821753455107, -1.402938953107}},
                 {{0x80000000, 0x40000000}, {0, 1.17741002212}},
                 {{0xffffffff, 0xffffffff}, {0, 0}}};
    for (int i = 0; i < 4; i++) {
        float normal[2];
        random_normal_pair(cases[i].word[0], cases[i].word[1], normal);
        for (int n = 0; n < 2; n++)
            assert_true(fabs((double)normal[n] - cases[i].normal[n]) < 1e-6);
    }
}

TEST(permutation_is_the_known_one)
{
    /* Computed in Python from the description: Fisher-Yates from the end, two draws a block. */
    static const uint32_t expected[16] = {15, 2, 1, 4, 12, 9, 0, 6, 10, 3, 5, 11, 13, 7, 8, 14};
    uint32_t order[16] = {9};
    random_permutation(7, RANDOM_SPLIT, 1, 0, order);
    assert_int_equal(order[0], 9);
    random_permutation(7, RANDOM_SPLIT, 1, 1, order);
    assert_int_equal(order[0], 0);
    random_permutation(42, RANDOM_SHUFFLE, 3, 16, order);
    assert_memory_equal(order, expected, sizeof expected);
}

TEST(permutation_is_pytorchs)
{
    static const struct {
        uint32_t count;
        uint64_t seed;
    } cases[] = {{1, 42},   {2, 42}, {3, 0}, {16, 42}, {624, 1}, {625, (UINT64_C(1) << 32) + 7},
                 {1300, 42}};
    VECTOR_FILE(file, "torch_permutation.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t order[1300];
        char name[64];
        int64_t count;
        snprintf(name, sizeof name, "%lu.%llu", (unsigned long)cases[i].count,
                 (unsigned long long)cases[i].seed);
        const int32_t *expected = vector_file_integers(file, name, &count);
        assert_int_equal(count, cases[i].count);
        torch_permutation(cases[i].seed, cases[i].count, order);
        assert_memory_equal(order, expected, sizeof *order * cases[i].count);
    }
    torch_permutation(42, 0, NULL);
}

/* Print the permutation of these arguments as 32-bit numbers, for check_torch_split.py. */
static int print_permutation(const char *seed, const char *count)
{
    const uint32_t elements = (uint32_t)strtoul(count, NULL, 10);
    OWNED uint32_t *order = allocate(elements, sizeof *order);
    torch_permutation(strtoull(seed, NULL, 10), elements, order);
    return fwrite(order, sizeof *order, elements, stdout) != elements;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--torch") == 0)
        return print_permutation(argv[2], argv[3]);
    return TESTS_RUN();
}
