# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Vittrain(AutotoolsPackage, CudaPackage):
    """Trains Vision Transformers and convolutional networks on clusters."""

    manual_download = True

    license("BSD-3-Clause")

    # Without a checksum, because this file is part of the sources.
    version("0.3.0")

    variant("sample", default=True, description="Install the sample of CIFAR-10")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("xz", type="build")
    depends_on("random123", type="build")

    depends_on("mpi")
    depends_on("hdf5+mpi")
    depends_on("onednn@2.6:")
    depends_on("jansson")
    depends_on("protobuf-c")
    depends_on("libarchive")
    depends_on("openssl")
    depends_on("isa-l")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("libwebp+libwebpdemux")
    depends_on("zstd")
    depends_on("lz4")
    depends_on("c-blosc")
    depends_on("libdeflate")
    depends_on("python@3.6:", type="run")
    depends_on("rclone", type="run")

    with when("+cuda"):
        depends_on("cudnn@9.8:")
        depends_on("nccl")

    def configure_args(self):
        args = [
            f"--with-mpi={self.spec['mpi'].prefix}",
            f"--with-hdf5={self.spec['hdf5'].prefix}",
            f"--with-onednn={self.spec['onednn'].prefix}",
            f"--with-random123={self.spec['random123'].prefix}",
        ]
        args += self.with_or_without("cuda", activation_value="prefix")
        args += self.enable_or_disable("sample")
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            args.append("--with-cuda-arch=" + ",".join(self.spec.variants["cuda_arch"].value))
        return args

    def setup_run_environment(self, env):
        env.set("VITTRAIN_HOME", self.prefix.share.vittrain)
