/* Which records, whose turn: on any number of ranks the same samples, each once, in the same order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/sampler.h"

enum { MOST = 1000 };

/* Walks an epoch as all ranks do and checks that the slices of each global batch are its samples in
 * order, balanced, at the right positions. Returns how many samples there were. */
static int64_t walk_epoch(int64_t count, int64_t batch, int64_t accumulate, int size, bool drop)
{
    struct sampler samplers[8];
    for (int rank = 0; rank < size; rank++)
        sampler_open(&samplers[rank], 3, count, batch, accumulate, true, drop, rank, size);
    int64_t next = 0;
    for (int64_t step = 0; step < sampler_steps(&samplers[0]); step++) {
        int64_t batch_begin = next, smallest = MOST, largest = 0;
        for (int rank = 0; rank < size; rank++) {
            int64_t rank_begin = next, smallest_piece = MOST, largest_piece = 0;
            for (int64_t micro = 0; micro < accumulate; micro++) {
                struct sampler_slice slice = sampler_slice_at(&samplers[rank], step, micro);
                assert_int_equal(slice.begin, next);
                assert_int_equal(slice.position, next - batch_begin);
                next += slice.count;
                int64_t left = count - batch_begin;
                assert_int_equal(slice.global_count, left < batch ? left : batch);
                assert_true(slice.count <= sampler_largest_slice(&samplers[rank]));
                smallest_piece = slice.count < smallest_piece ? slice.count : smallest_piece;
                largest_piece = slice.count > largest_piece ? slice.count : largest_piece;
            }
            assert_true(largest_piece - smallest_piece <= 1);
            int64_t share = next - rank_begin;
            smallest = share < smallest ? share : smallest;
            largest = share > largest ? share : largest;
        }
        assert_true(largest - smallest <= 1);
    }
    for (int rank = size - 1; rank >= 0; rank--) {
        assert_memory_equal(samplers[rank].order, samplers[0].order, (size_t)count * 4);
        sampler_close(&samplers[rank]);
    }
    return next;
}

static void test_every_sample_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 7, 64, 65, 100, 101}, batches[] = {1, 3, 8, 64, 200};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
            for (int size = 1; size <= 8; size++)
                for (int64_t accumulate = 1; accumulate <= 3; accumulate++) {
                    int64_t whole = counts[c] / batches[b] * batches[b];
                    assert_int_equal(walk_epoch(counts[c], batches[b], accumulate, size, false),
                                     counts[c]);
                    assert_int_equal(walk_epoch(counts[c], batches[b], accumulate, size, true),
                                     whole);
                }
}

static void test_order(void **state)
{
    (void)state;
    struct sampler sampler;
    uint32_t seen[100] = {0}, first[100];
    sampler_open(&sampler, 5, 100, 10, 1, true, false, 0, 1);
    memcpy(first, sampler.order, sizeof first);
    for (int i = 0; i < 100; i++)
        seen[sampler.order[i]]++;
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    sampler_set_epoch(&sampler, 1);
    assert_memory_not_equal(sampler.order, first, sizeof first);
    sampler_set_epoch(&sampler, 0);
    assert_memory_equal(sampler.order, first, sizeof first);
    sampler_close(&sampler);
    sampler_open(&sampler, 6, 100, 10, 1, true, false, 0, 1);
    assert_memory_not_equal(sampler.order, first, sizeof first);
    sampler_close(&sampler);
    sampler_open(&sampler, 5, 100, 10, 1, false, false, 0, 1);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(sampler.order[i], i);
    sampler_close(&sampler);
}

static void test_limit(void **state)
{
    (void)state;
    struct sampler sampler;
    sampler_open(&sampler, 5, 100, 30, 1, true, false, 0, 1);
    assert_int_equal(sampler_steps(&sampler), 4);
    sampler.limit = 2;
    assert_int_equal(sampler_steps(&sampler), 2);
    sampler.limit = 9;
    assert_int_equal(sampler_steps(&sampler), 4);
    sampler.limit = 0;
    sampler.drop_last = true;
    assert_int_equal(sampler_steps(&sampler), 3);
    sampler_close(&sampler);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sample_once),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
