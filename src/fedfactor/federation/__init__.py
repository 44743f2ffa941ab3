"""A federation across organisations: one file that all read, keys, certificates, and the processes of each party."""
