# SPDX-License-Identifier: BSD-3-Clause
# benchmarks: `make benchmarks/NAME`
EXTRA_PROGRAMS += \
	benchmarks/bench_checkpoint \
	benchmarks/bench_input
benchmarks_bench_checkpoint_LDADD = $(program_libraries)
benchmarks_bench_input_LDADD = $(program_libraries)

# Measure the program on this machine: rows of benchmarks/results (benchmarks/README.md). bench takes minutes, bench-full
# an hour.
bench bench-full: all $(EXTRA_PROGRAMS)
	how=`echo $@ | $(SED) 's/^bench$$/quick/; s/^bench-//'` && \
	MPIRUN="$${MPIRUN:-$(MPIRUN) $(MPIRUN_FLAGS)}" VITTRAIN='$(abs_builddir)/vittrain' \
		BENCH_BUILD='$(abs_builddir)' '$(abs_srcdir)/benchmarks/bench' $$how $(BENCH_PARTS)
# Run bench and write its figures into benchmarks/README.md.
bench-readme:
	BENCH_README='$(abs_srcdir)/benchmarks/README.md' $(MAKE) $(AM_MAKEFLAGS) bench
.PHONY: bench bench-full bench-readme

EXTRA_DIST += \
	benchmarks/README.md \
	benchmarks/arrays.sh \
	benchmarks/bench \
	benchmarks/bench_common.py \
	benchmarks/bundle.sh \
	benchmarks/common.sh \
	benchmarks/compare \
	benchmarks/gpu \
	benchmarks/gpu.sh \
	benchmarks/gpu_page \
	benchmarks/input.sh \
	benchmarks/interval.awk \
	benchmarks/kernels.sh \
	benchmarks/overlap.sh \
	benchmarks/plan_check.sh \
	benchmarks/recovery.sh \
	benchmarks/plot \
	benchmarks/pytorch_arrays.py \
	benchmarks/pytorch_checkpoint.py \
	benchmarks/pytorch_input.py \
	benchmarks/pytorch_start.py \
	benchmarks/pytorch_epoch.py \
	benchmarks/pytorch_step.py \
	benchmarks/pytorch_rounding.py \
	benchmarks/pytorch_train.py \
	benchmarks/ranks.sh \
	benchmarks/reference.sh \
	benchmarks/reference_cnn.py \
	benchmarks/reference_vit.py \
	benchmarks/registers.sh \
	benchmarks/results \
	benchmarks/scaling.sh \
	benchmarks/start.sh \
	benchmarks/start_nodes.sh \
	benchmarks/epoch.sh \
	benchmarks/optimizers.sh \
	benchmarks/step.sh \
	benchmarks/table \
	benchmarks/two_nodes.sh
