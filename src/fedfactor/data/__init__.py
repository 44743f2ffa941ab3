"""Where matrices come from and who owns which rows: files, partitions, synthetic and named data sets."""
