"""GPU kernels, placement of rows on a device, and transfers."""
