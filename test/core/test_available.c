// SPDX-License-Identifier: BSD-3-Clause
/* Available memory, from made-up /proc and /sys: the least of what kernel and control groups leave,
 * caches of files given back; and from the real ones something that can be. */
#include "core/available.h"

#include "temporary.h"
#include "test.h"

enum { MIB = 1 << 20 };

static const char *begin(void)
{
    const char *root = temporary_open();
    temporary_write("proc/meminfo",
                    "MemTotal:  9000 kB\nMemFree:   100 kB\nMemAvailable:  8192 kB\n");
    return root;
}

TEST(the_kernel_says_what_is_available)
{
    assert_int_equal(memory_available(begin()), 8 * MIB);
    temporary_close();
}

TEST(a_group_of_version_2_leaves_less)
{
    const char *root = begin();
    temporary_write("proc/self/cgroup", "0::/job/step\n");
    temporary_write("sys/fs/cgroup/job/step/memory.max", "max\n");
    temporary_write("sys/fs/cgroup/job/step/memory.current", "1000\n");
    assert_int_equal(memory_available(root), 8 * MIB);
    temporary_write("sys/fs/cgroup/job/memory.max", "6291456\n");
    temporary_write("sys/fs/cgroup/job/memory.current", "3145728\n");
    assert_int_equal(memory_available(root), 3 * MIB);
    temporary_write("sys/fs/cgroup/job/memory.stat",
                    "anon 5\ninactive_file 1048576\nactive_file 7\n");
    assert_int_equal(memory_available(root), 4 * MIB);
    /* A container's own group is its root. */
    temporary_write("sys/fs/cgroup/memory.max", "2097152\n");
    temporary_write("sys/fs/cgroup/memory.current", "1048576\n");
    assert_int_equal(memory_available(root), 1 * MIB);
    /* Over its limit: little, but known. */
    temporary_write("sys/fs/cgroup/memory.current", "2097153\n");
    assert_int_equal(memory_available(root), 1);
    temporary_close();
}

TEST(groups_limit_processors)
{
    const char *root = begin();
    assert_true(cores_quota(root) == 0);
    temporary_write("proc/self/cgroup", "0::/job/step\n");
    temporary_write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
    assert_true(cores_quota(root) == 0);
    temporary_write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
    assert_true(cores_quota(root) == 1.5);
    temporary_close();
    root = begin();
    temporary_write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
    temporary_write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    temporary_write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_true(cores_quota(root) == 0);
    temporary_write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
    temporary_write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_true(cores_quota(root) == 3);
    temporary_close();
}

TEST(a_group_of_version_1_leaves_less)
{
    const char *root = begin();
    temporary_write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
    temporary_write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5242880\n");
    temporary_write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3145728\n");
    temporary_write("sys/fs/cgroup/memory/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 1048576\n");
    assert_int_equal(memory_available(root), 3 * MIB);
    temporary_write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
                    "9223372036854771712\n");
    temporary_write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "3145728\n");
    assert_int_equal(memory_available(root), 3 * MIB);
    temporary_close();
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
