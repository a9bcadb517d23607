# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Inih(MesonPackage):
    """A parser of INI files in C."""

    homepage = "https://github.com/benhoyt/inih"
    git = "https://github.com/benhoyt/inih.git"

    license("BSD-3-Clause")

    version("62", tag="r62", commit="26254ee9de7681f8825433415443e7116ff24b98")

    depends_on("c", type="build")

    def meson_args(self):
        return ["-Dwith_INIReader=false", "-Ddefault_library=shared"]
