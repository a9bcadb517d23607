# SPDX-License-Identifier: BSD-3-Clause
# Decks and jobs, which are installed
nobase_dist_pkgdata_DATA = \
	input/turbulence.ini \
	input/sst.ini \
	input/cells.ini \
	input/synthetic.ini \
	input/clusters/epyc_ib100.ini \
	input/clusters/h100_ib400.ini \
	input/clusters/t4_ethernet25.ini \
	input/cnn_a.ini \
	input/cnn_b.ini \
	input/cnn_c_94.ini \
	input/deit3_small16_imagenet.ini \
	input/dinov2_small14_finetune.ini \
	input/dinov2_small14_linear.ini \
	input/dinov3_small16_finetune.ini \
	input/linear.ini \
	input/resnet18_imagenet.ini \
	input/resnet18_imagenet_course.ini \
	input/resnet152_cinic10.ini \
	input/resnet50_lars.ini \
	input/vit_base16_lamb.ini \
	input/vit_base32_course.ini \
	input/vit_base32_ddp.ini \
	input/vit_base32_fsdp.ini \
	input/vit_base32_hsdp.ini \
	input/vit_base32_zero1.ini \
	input/vit_base32_zero2.ini \
	input/vit_cifar.ini \
	input/vit_small16_imagenet.ini \
	input/quickstart.ini \
	jobs/Dockerfile \
	jobs/common.sh \
	jobs/ddp_1node.sh \
	jobs/ddp_2node.sh \
	jobs/ddp_4node.sh \
	jobs/first_gpus.sh \
	jobs/fsdp_1node.sh \
	jobs/fsdp_4node.sh \
	jobs/hosts.2x4 \
	jobs/hosts.4x1 \
	jobs/hsdp_2node.sh \
	jobs/vittrain.def

# The sample of CIFAR-10: the first images of each class (its README.md). The program finds it relative to its own file. The target of the rule
# is README.md, the last file of the archive.
EXTRA_DIST += input/cifar-10-sample.tar.xz
sample_files = \
	data/cifar-10-sample/batches.meta.txt \
	data/cifar-10-sample/data_batch_1.bin \
	data/cifar-10-sample/test_batch.bin
all-local: data/cifar-10-sample/README.md
$(sample_files): data/cifar-10-sample/README.md
data/cifar-10-sample/README.md: $(srcdir)/input/cifar-10-sample.tar.xz
	$(AM_V_GEN)$(MKDIR_P) $(@D) && \
	if problem=`{ $(XZ) -dc $(srcdir)/input/cifar-10-sample.tar.xz >$(@D)/sample.tar && \
		tar -xom -C data -f $(@D)/sample.tar; } 2>&1`; then rm -f $(@D)/sample.tar; \
	else rm -rf $(@D); echo "cannot unpack $(srcdir)/input/cifar-10-sample.tar.xz:" $$problem\
		"; free space if the disk is full, else restore the file from the checkout or the released sources" >&2; exit 1; fi
clean-local:
	rm -rf data/cifar-10-sample
if INSTALLS_SAMPLE
sampledir = $(pkgdatadir)/data/cifar-10-sample
nodist_sample_DATA = data/cifar-10-sample/README.md $(sample_files)
endif
