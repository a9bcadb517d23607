// SPDX-License-Identifier: BSD-3-Clause
/* Asynchronous copies to shared memory (cuda/tensor_core.h): they happen when the thread waits for
 * them. Hopper's asynchronous products (cuda/wgmma.h): sums are NaN from the issue of a product
 * until its wait; registers and shared memory that it reads must not change in between. The four
 * warps of a warpgroup must issue the same products. Sums are those of an H100. */
#include "internal.h"

#include <vector>

enum { WARP = 32, WARPGROUP = 128, THREADS_MOST = 1024, ALIGNMENT = 1024 };

/* One thread's part of a product that still runs: two rows of the left operand, two columns of each
 * of `blocks` blocks of the right one. */
struct running {
    float *sums;
    int blocks;
    const uint32_t *left;
    uint32_t left_issued[4];
    std::vector<float> result;
    std::vector<const uint16_t *> right;
    std::vector<uint16_t> right_issued;
    bool committed;
};

struct copy {
    void *to;
    const void *from;
};

static struct {
    std::vector<struct copy> copies;
    std::vector<struct running> running;
    bool begun;    /* wgmma.fence was executed since the last wait */
    size_t issues; /* products that the thread has issued in this block */
} threads[THREADS_MOST];

/* The products that each warp of a warpgroup issues, in order. */
struct issued {
    uint64_t right;
    int blocks;
    bool transposed;
};
static std::vector<struct issued> warpgroups[THREADS_MOST / WARPGROUP];

static const uint32_t running_bits = 0x7fc0d00d; /* a NaN */

static unsigned thread_number(void)
{
    return blocks_moment().thread;
}

void emulated_copy_start(void *to, const void *from)
{
    memory_access(from, 16, false);
    threads[thread_number()].copies.push_back({to, from});
}

void emulated_copies_wait(void)
{
    for (const struct copy &copy : threads[thread_number()].copies) {
        memory_access(copy.to, 16, true);
        memcpy(copy.to, copy.from, 16);
    }
    threads[thread_number()].copies.clear();
}

/* The address of a block's shared memory in the shared window: a multiple of 16 bytes only. */
enum { WINDOW = 1040 };

uint32_t emulated_shared_address(const void *shared)
{
    return (uint32_t)((const unsigned char *)shared - emulated_shared_memory()) + WINDOW;
}

void emulated_wgmma_fence(void)
{
    threads[thread_number()].begun = true;
}

/* Element (row of shared memory, column) of the descriptor's rows, whose octets are swizzled by
 * address. */
static const uint16_t *element(uint64_t descriptor, int row, int column)
{
    uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
    uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    uint32_t at =
        start + (uint32_t)(row / 8) * stride + (uint32_t)(row % 8) * 128 + (uint32_t)column * 2;
    at ^= (at >> 7 & 7) << 4;
    return (const uint16_t *)(emulated_shared_memory() + (at - WINDOW));
}

static void descriptor_check(uint64_t descriptor)
{
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
        emulated_fault("a descriptor of wgmma without swizzling over 128 bytes");
    if ((descriptor >> 3 & 7) != 0)
        emulated_fault("rows of wgmma whose first one is not at a multiple of %d bytes", ALIGNMENT);
}

/* Fault unless all warps of the warpgroup issue the same products. */
static void issue_check(unsigned thread, uint64_t right, int blocks, bool transposed)
{
    std::vector<struct issued> &all = warpgroups[thread / WARPGROUP];
    size_t number = threads[thread].issues++;
    if (number == all.size())
        all.push_back({right, blocks, transposed});
    const struct issued &first = all[number];
    if (first.right != right || first.blocks != blocks || first.transposed != transposed)
        emulated_fault("warps of a warpgroup issue different products");
}

void emulated_wgmma_add(float *sums, int blocks, const uint32_t left[4], uint64_t right, bool adds,
                        bool transposed, float (*value)(uint16_t bits))
{
    unsigned thread = thread_number();
    const int count = blocks * 4, q = emulated_lane() % 4, g = emulated_lane() / 4;
    struct running *before = NULL;
    if (device_capability() != 90)
        emulated_fault("wgmma with compute capability %d", device_capability());
    descriptor_check(right);
    issue_check(thread, right, blocks, transposed);
    for (struct running &other : threads[thread].running)
        if (other.sums == sums)
            before = &other;
    if (!threads[thread].begun)
        emulated_fault("a product without wgmma.fence after the last wait");
    const struct emulated_exchange *all = emulated_warp_exchange(left, 16, false);
    struct operand_line rows[2], columns[2];
    for (int i = 0; i < 32; i++) {
        const unsigned char *bytes = all[4 * g + i % 8 / 2].bytes;
        uint16_t bits;
        memcpy(&bits, bytes + 4 * (i % 16 / 8 * 2 + i / 16) + 2 * (i % 2), sizeof bits);
        operand_put(&rows[i / 16], i % 16, value(bits));
    }
    struct running made = {sums, blocks, left, {left[0], left[1], left[2], left[3]},
                           {},   {},     {},   false};
    for (int block = 0; block < blocks; block++) {
        for (int i = 0; i < 32; i++) {
            int n = block * 8 + 2 * q + i / 16, k = i % 16;
            const uint16_t *at = transposed ? element(right, k, n) : element(right, n, k);
            if (g == 0)
                memory_read_async(at, sizeof *at);
            made.right.push_back(at);
            made.right_issued.push_back(*at);
            operand_put(&columns[i / 16], k, value(*at));
        }
        for (int i = 0; i < 4; i++) {
            const int index = block * 4 + i;
            float addend = !adds ? 0 : before != NULL ? before->result[index] : sums[index];
            made.result.push_back(truncated_sum(addend, rows[i / 2], columns[i % 2]));
        }
    }
    for (int i = 0; i < count; i++)
        sums[i] = __uint_as_float(running_bits);
    threads[thread].running.push_back(made);
}

void emulated_wgmma_commit(void)
{
    for (struct running &product : threads[thread_number()].running)
        product.committed = true;
}

/* Wait for all groups. */
void emulated_wgmma_wait(void)
{
    auto &mine = threads[thread_number()];
    for (const struct running &product : mine.running) {
        if (!product.committed)
            emulated_fault("waits for a product that is in no group");
        if (memcmp(product.left, product.left_issued, sizeof product.left_issued) != 0)
            emulated_fault("registers of a product changed before its wait");
        for (size_t i = 0; i < product.right.size(); i++) {
            if (*product.right[i] != product.right_issued[i])
                emulated_fault("shared memory of a product changed before its wait");
            if (emulated_lane() < 4)
                memory_read_async(product.right[i], sizeof(uint16_t));
        }
        for (int i = 0; i < product.blocks * 4; i++)
            if (__float_as_uint(product.sums[i]) != running_bits)
                emulated_fault("sums of a product changed before its wait");
    }
    for (const struct running &product : mine.running)
        memcpy(product.sums, product.result.data(), product.result.size() * sizeof(float));
    mine.running.clear();
    mine.begun = false;
}

void asynchronous_end(void)
{
    auto &mine = threads[thread_number()];
    if (!mine.running.empty() || !mine.copies.empty())
        emulated_fault("ends before a product or copy");
    if (mine.issues != warpgroups[thread_number() / WARPGROUP].size())
        emulated_fault("warps of a warpgroup issue different products");
    mine.begun = false;
}

void asynchronous_begin(void)
{
    for (auto &thread : threads)
        thread.issues = 0;
    for (auto &warpgroup : warpgroups)
        warpgroup.clear();
}
