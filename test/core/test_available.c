// SPDX-License-Identifier: BSD-3-Clause
/* Available memory, from made-up /proc and /sys: the least of what kernel and control groups leave,
 * caches of files given back; and from the real ones something that can be. */
#include "core/available.h"

#include "temporary.h"
#include "test.h"

enum { MIB = 1 << 20 };

struct state {
    const char *files; /* NAME=CONTENT with | between them, which are added to those before */
    size_t memory;     /* that is available then */
    double cores;      /* of the quota */
};

/* Begin with 8 MiB that are available to all, and a process in these groups. */
static void states_check(const char *groups, const struct state *states, size_t count)
{
    const char *root = temporary_open();
    temporary_write("proc/meminfo",
                    "MemTotal:  9000 kB\nMemFree:   100 kB\nMemAvailable:  8192 kB\n");
    assert_int_equal(memory_available(root), 8 * MIB);
    assert_true(cores_quota(root) == 0);
    temporary_write("proc/self/cgroup", groups);
    for (size_t i = 0; i < count; i++) {
        char copy[512], *rest = copy, path[256];
        snprintf(copy, sizeof copy, "%s", states[i].files);
        for (char *name; (name = strsep(&rest, "|")) != NULL;) {
            char *content = strchr(name, '=');
            *content++ = '\0';
            snprintf(path, sizeof path, "sys/fs/cgroup/%s", name);
            temporary_write(path, content);
        }
        assert_int_equal(memory_available(root), states[i].memory);
        assert_true(cores_quota(root) == states[i].cores);
    }
    temporary_close();
}

TEST(groups_of_version_2_leave_less)
{
    static const struct state states[] = {
        {"job/step/memory.max=max\n|job/step/memory.current=1000\n|job/step/cpu.max=max 100000\n",
         8 * MIB, 0},
        {"job/memory.max=6291456\n|job/memory.current=3145728\n|job/cpu.max=150000 100000\n",
         3 * MIB, 1.5},
        {"job/memory.stat=anon 5\ninactive_file 1048576\nactive_file 7\n", 4 * MIB, 1.5},
        /* A container's own group is its root. */
        {"memory.max=2097152\n|memory.current=1048576\n", 1 * MIB, 1.5},
        /* Over its limit: little, but known. */
        {"memory.current=2097153\n", 1, 1.5}};
    states_check("0::/job/step\n", states, sizeof states / sizeof states[0]);
}

TEST(groups_of_version_1_leave_less)
{
    static const struct state states[] = {
        {"memory/memory.limit_in_bytes=5242880\n|memory/memory.usage_in_bytes=3145728\n|"
         "memory/memory.stat=inactive_file 1\ntotal_inactive_file 1048576\n|"
         "cpu/cpu.cfs_quota_us=-1\n|cpu/cpu.cfs_period_us=100000\n",
         3 * MIB, 0},
        {"memory/docker/abc/memory.limit_in_bytes=9223372036854771712\n|"
         "memory/docker/abc/memory.usage_in_bytes=3145728\n|"
         "cpu/x/cpu.cfs_quota_us=300000\n|cpu/x/cpu.cfs_period_us=100000\n",
         3 * MIB, 3}};
    states_check("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n", states,
                 sizeof states / sizeof states[0]);
}

TEST(without_proc_it_is_not_known)
{
    assert_int_equal(memory_available(temporary_open()), 0);
    temporary_write("proc/self/cgroup", "no group\n:\n");
    assert_int_equal(memory_available(temporary_path("")), 0);
    temporary_close();
    assert_true(memory_available("") > MIB);
}

TEST_MAIN()
