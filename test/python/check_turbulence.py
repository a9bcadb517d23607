# SPDX-License-Identifier: BSD-3-Clause
"""Check the physics of a run that docs/examples/turbulence.py has written.

    python check_turbulence.py FILE.nc VISCOSITY

Energy and enstrophy decay, the energy at the rate -viscosity * mean(vorticity^2); the velocity has no divergence; its curl is
the vorticity. Derivatives are spectral.
"""
import sys

import h5py
import numpy

with h5py.File(sys.argv[1]) as file:
    assert [scale.label or file["u"].dims[i][0].name for i, scale in enumerate(file["u"].dims)] == ["/time", "/y", "/x"]
    time = file["time"][:]
    w, u, v = (file[name][:].astype("f8") for name in ("vorticity", "u", "v"))
viscosity = float(sys.argv[2])
k = numpy.fft.fftfreq(u.shape[-1], 1 / u.shape[-1])


def derivative(field, axis):
    shape = [1, -1, 1] if axis == 1 else [1, 1, -1]
    return numpy.fft.ifft(1j * k.reshape(shape) * numpy.fft.fft(field, axis=axis), axis=axis).real


energy, enstrophy = (u**2 + v**2).mean((1, 2)) / 2, (w**2).mean((1, 2)) / 2
assert (numpy.diff(energy) < 0).all() and (numpy.diff(enstrophy) < 0).all(), "energy or enstrophy grows"
dissipated = viscosity * ((enstrophy[1:] + enstrophy[:-1]) * numpy.diff(time)).sum()
balance = (energy[0] - energy[-1]) / dissipated - 1
divergence = abs(derivative(u, 2) + derivative(v, 1)).max() / abs(w).max()
curl = abs(derivative(v, 2) - derivative(u, 1) - w).max() / abs(w).max()
print(f"energy lost / dissipated - 1 = {balance:.4f}, divergence {divergence:.1e}, curl {curl:.1e}")
assert abs(balance) < 0.02 and divergence < 1e-4 and curl < 1e-4
