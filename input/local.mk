# Decks, jobs and the sample data, which are installed
nobase_dist_pkgdata_DATA = \
	input/synthetic.ini \
	input/clusters/epyc_ib100.ini \
	input/clusters/h100_ib400.ini \
	input/clusters/t4_ethernet25.ini \
	input/cnn_a.ini \
	input/cnn_b.ini \
	input/linear.ini \
	input/resnet18_imagenet.ini \
	input/resnet18_imagenet_course.ini \
	input/resnet152_cinic10.ini \
	input/vit_base32_course.ini \
	input/vit_base32_ddp.ini \
	input/vit_base32_fsdp.ini \
	input/vit_base32_hsdp.ini \
	input/vit_base32_zero1.ini \
	input/vit_base32_zero2.ini \
	input/vit_cifar.ini \
	input/quickstart.ini \
	jobs/Dockerfile \
	jobs/common.sh \
	jobs/ddp_1node.sh \
	jobs/ddp_2node.sh \
	jobs/ddp_4node.sh \
	jobs/fsdp_1node.sh \
	jobs/fsdp_4node.sh \
	jobs/hosts.2x4 \
	jobs/hosts.4x1 \
	jobs/hsdp_2node.sh \
	jobs/vittrain.def \
	input/data/cifar-10-sample/README.md \
	input/data/cifar-10-sample/batches.meta.txt \
	input/data/cifar-10-sample/data_batch_1.bin \
	input/data/cifar-10-sample/test_batch.bin

# The program looks for the sample beside itself, in a build outside of the source, too.
all-local:
	@test -e input || $(LN_S) '$(abs_srcdir)/input' input
distclean-local:
	@if test -L input; then rm -f input; fi
