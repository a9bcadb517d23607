# SPDX-License-Identifier: BSD-3-Clause
# The ratio of two times that were measured in pairs, with its confidence interval: reads lines "A B" (seconds), prints
# "RATIO LOW HIGH PAIRS COVERAGE VERDICT" with ratios B / A. -v threshold=0.03: smallest ratio - 1 of a regression.
#
# The ratio is the Hodges-Lehmann estimate of log(B / A): the median of the means of all pairs of log ratios (Walsh
# averages). The interval is that of Wilcoxon's signed-rank test: from the k-th smallest to the k-th largest of those means,
# with k such that it covers the true value with a probability of at least 95 % ("COVERAGE"). A t interval is unsuitable:
# times have long tails, because other programs make runs longer, never shorter, and one such run would widen it tenfold.
# Pairs run in random order, so without a difference their times are exchangeable and log ratios are symmetric about 0; the
# interval needs nothing else and is valid for any number of pairs. A bootstrap needs many pairs and is not deterministic.

NF >= 2 && $1 > 0 && $2 > 0 { difference[++count] = log($2 / $1) }

# Sets ways[s] to the number of sign vectors of the ranks 1 to n whose positive ranks sum to s.
function count_sums(n, rank, s, most) {
    ways[0] = 1
    for (rank = 1; rank <= n; rank++) {
        most += rank
        for (s = most; s >= rank; s--) ways[s] += ways[s - rank]
    }
}

# Returns the largest k with P(sum < k) <= 2.5 % and sets `coverage`; 0 with fewer than six pairs.
function place_of_limit(n, k, below) {
    count_sums(n)
    k = 0
    while (below + ways[k] / 2 ^ n <= 0.025) below += ways[k++] / 2 ^ n
    coverage = 1 - 2 * below
    return k
}

# Shell sort.
function sort_numbers(list, n, gap, i, j, held) {
    for (gap = int(n / 2); gap > 0; gap = int(gap / 2))
        for (i = gap + 1; i <= n; i++) {
            held = list[i]
            for (j = i; j > gap && list[j - gap] > held; j -= gap) list[j] = list[j - gap]
            list[j] = held
        }
}

function verdict_of(ratio, low, high, most) {
    if (low > 1 && ratio >= 1 + most) return "regression"
    if (high < 1) return "faster"
    if (high < 1 + most) return low > 1 ? "slower by less than the threshold" : low < 1 - most ? "not slower" : "no difference"
    return "inconclusive"
}

END {
    for (i = 1; i <= count; i++)
        for (j = i; j <= count; j++) mean[++means] = (difference[i] + difference[j]) / 2
    sort_numbers(mean, means)
    limit = place_of_limit(count)
    if (count == 0 || limit == 0) {
        print "- - -", count + 0, 0, "inconclusive"
        exit
    }
    middle = means % 2 ? mean[(means + 1) / 2] : (mean[means / 2] + mean[means / 2 + 1]) / 2
    low = exp(mean[limit]); high = exp(mean[means + 1 - limit])
    printf "%.4f %.4f %.4f %d %.4f %s\n", exp(middle), low, high, count, coverage, verdict_of(exp(middle), low, high, threshold)
}
